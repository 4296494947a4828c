"""Order of the changes of a variable, read from the cells of a notebook."""

from __future__ import annotations

import pytest

from jupyter_sky.execution.cells.notebook_history import (
    RECENT_CELLS,
    NotebookHistory,
    reads_history,
)

SENT = "%%sky --auto\n"
NEVER, MENTIONED, ASSIGNED = (False, False), (False, True), (True, True)


@pytest.mark.parametrize(
    ("cells", "later"),
    [
        (["x = 1"], ASSIGNED),
        (["x = 1", SENT + "x += 1"], NEVER),
        (["x = 1", SENT + "x.append(1)"], NEVER),
        (["x = 1", SENT + "print(y)"], ASSIGNED),
        (["x = 1", SENT + "x += 1", "x = 1"], ASSIGNED),
        (["x = 1", SENT + "x += 1", "x.append(1)"], MENTIONED),
        (["x = 1", SENT + "x += 1", "x = 1", "print(x)"], ASSIGNED),
        (["x = 1", SENT + "x += 1", "y = 1"], NEVER),
        (["x = 1", "# first\n%%sky -c other\nx"], NEVER),
        (["%%time\nx = 1"], ASSIGNED),
        (["x = = 1"], MENTIONED),
        (["def f():\n    x = 1"], MENTIONED),
        (["from m import x"], ASSIGNED),
        (["y = 1"], NEVER),
        ([], MENTIONED),
    ],
)
def test_the_last_change_counts(cells: list[str], later: tuple[bool, bool]) -> None:
    history = NotebookHistory(("", *cells) if cells else ())
    assert history.changed_later(["x"]) == {"x": later}


def test_many_names_and_cells() -> None:
    cells = tuple(f"x{n} = 1" for n in range(2 * RECENT_CELLS))
    last = f"x{2 * RECENT_CELLS - 1}"
    found = NotebookHistory(cells).changed_later(["x0", last])
    assert found == {"x0": NEVER, last: ASSIGNED}


@pytest.mark.parametrize(
    ("code", "reads"),
    [
        ("print(In[-2:])", True),
        ("_i3", True),
        ("_ih", True),
        ("%history -n", True),
        ("x = 1\n%rerun 3-5", True),
        ("history 3", True),
        ("get_ipython().history_manager.input_hist_raw", True),
        ("%load 3-4", True),
        ("history = model.fit(x)\nnp.load('a')", False),
        ("_i5x = _id; Inner; 'In'", False),
        ("%time x", False),
        ("x = = 1", False),
        ("", False),
    ],
)
def test_cells_that_read_the_history(code: str, reads: bool) -> None:
    assert reads_history(code) is reads


def test_texts_are_those_of_the_engines() -> None:
    cells = ("", "x = 1", "# above\n%%sky -i x\nx", "%%sky\n%%time\nx", "y" * 100_000)
    texts = {1: "x = 1", 2: "# # above\n# %%sky -i x\nx", 3: "%%time\nx"}
    assert NotebookHistory(cells).texts() == texts
    many = NotebookHistory(("", *(f"{n}" + " " * 50_000 for n in range(100)))).texts()
    assert 10 < len(many) < 30 and max(many) == 100 and min(many) == 101 - len(many)
