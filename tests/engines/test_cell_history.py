"""History of an engine's cells, by the numbers of their notebook."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from jupyter_sky.machines.engines.node.kernel import CellHistory, install_cell_transforms


@pytest.fixture
def shell() -> Iterator[Any]:
    """Yield a shell that keeps no history of its user."""
    made = InteractiveShell(config=Config(HistoryManager={"enabled": False}))
    install_cell_transforms(made)
    yield made
    made.restore_sys_module_state()
    atexit.unregister(made.atexit_operations)


def run(history: CellHistory, shell: Any, number: int, code: str, **more: Any) -> Any:
    """Run a cell as an engine does; return its value."""
    shell.execution_count = number
    with history.at_cell(number, more.get("session", "one"), more.get("cells", {})):
        return shell.run_cell(code, store_history=True).result


def test_cells_that_ran_elsewhere_are_empty(shell: Any) -> None:
    history = CellHistory(shell)
    assert run(history, shell, 3, "In") == ["", "", "", "In"]
    assert run(history, shell, 6, "len(In), In[3], _i, _ii, _iii, _i3") == (
        *(7, "In"),
        *("", "", "In", "In"),
    )


def test_texts_that_come_with_a_cell_fill_the_gaps(shell: Any) -> None:
    history = CellHistory(shell)
    run(history, shell, 2, "'two'")
    cells = {"1": "%load_ext x\n", "2": "not this", "3": "x = 1"}
    found = run(history, shell, 4, "In[1:4], _i, _ii, _i1, get_ipython()", cells=cells)
    assert found[:-1] == (
        ["get_ipython().run_line_magic('load_ext', 'x')", "'two'", "x = 1"],
        *("x = 1", "'two'", "%load_ext x"),
    )


def test_a_cell_that_runs_late_keeps_its_number(shell: Any) -> None:
    history = CellHistory(shell)
    for number in (1, 4, 5):
        run(history, shell, number, f"'cell {number}'")
    assert run(history, shell, 3, "len(In), In[-1], _i") == (4, "len(In), In[-1], _i", "")
    assert run(history, shell, 6, "In[1:6]") == [
        *("'cell 1'", "", "len(In), In[-1], _i"),
        *("'cell 4'", "'cell 5'"),
    ]


def test_code_that_is_no_cell_leaves_no_trace(shell: Any) -> None:
    history = CellHistory(shell)
    run(history, shell, 1, "'one'")
    run(history, shell, 0, "'a call'")
    assert run(history, shell, 2, "In") == ["", "'one'", "In"]


def test_another_kernel_counts_anew(shell: Any) -> None:
    history = CellHistory(shell)
    run(history, shell, 5, "'five'")
    lists = shell.user_ns["In"], shell.history_manager.input_hist_raw
    assert run(history, shell, 2, "In", session="two") == ["", "", "In"]
    assert shell.user_ns["In"] is lists[0] and shell.history_manager.input_hist_raw is lists[1]


def test_a_cell_with_an_error_is_stored(shell: Any) -> None:
    history = CellHistory(shell)
    run(history, shell, 1, "1 / 0")
    run(history, shell, 2, "x = = 1")
    assert run(history, shell, 3, "In[1:3]") == ["1 / 0", "x = = 1"]


def test_printed_text_and_displays_are_not_kept_in_memory(shell: Any) -> None:
    history = CellHistory(shell)
    shell.display_pub = DisplayPublisher(shell=shell)  # shows nothing here
    code = "from IPython.display import display\nfor i in range(3): print(i); display(i)\ni"
    assert run(history, shell, 2, code) == 2
    assert run(history, shell, 3, "1 + 1") == 2
    assert not any(shell.history_manager.outputs.values())


def test_last_cells_and_searches(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    history = CellHistory(shell)
    cells = {"1": "a = 1", "2": "b = 2", "3": "a + b"}
    run(history, shell, 4, "%history -l 2", cells=cells)
    assert capsys.readouterr().out == "b = 2\na + b\n"
    run(history, shell, 5, "%history -g a*1")
    assert capsys.readouterr().out.splitlines()[0].strip() == "1: a = 1"
    run(history, shell, 6, "c = 7")
    run(history, shell, 7, "%rerun")
    assert capsys.readouterr().out == "=== Executing: ===\nc = 7\n=== Output: ===\n"
    run(history, shell, 8, "%rerun -g b?=?2")
    assert "Executing: ===\nb = 2" in capsys.readouterr().out


@pytest.mark.parametrize("above", ["", "# %%sky\n", "# a remark\n# %%sky --gpus 1\n"])
def test_a_macro_by_its_name_runs(shell: Any, above: str) -> None:
    history = CellHistory(shell)
    run(history, shell, 3, "%macro both 1 2", cells={"1": "a = 1", "2": "b = 2"})
    run(history, shell, 4, f"{above}both")
    assert (shell.user_ns["a"], shell.user_ns["b"]) == (1, 2)
    run(history, shell, 5, "b = 5")
    assert run(history, shell, 6, f"{above}b") == 5


def test_a_remark_of_the_users_own_keeps_a_name_what_it_is(shell: Any) -> None:
    history = CellHistory(shell)
    run(history, shell, 3, "%macro both 1 2", cells={"1": "a = 1", "2": "b = 2"})
    assert run(history, shell, 4, "# %%sky\n# a remark\nboth") is shell.user_ns["both"]
