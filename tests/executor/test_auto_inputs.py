"""Cells with ``--auto`` between cells of the notebook: the latest value of a name is used."""

from __future__ import annotations

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow


def ok(notebook: Notebook, code: str) -> str:
    ran = notebook.run(code)
    assert ran.status == "ok", ran.traceback
    return ran.result or ran.stdout.strip()


def auto(notebook: Notebook, body: str) -> tuple[str, str]:
    """Return the result of a cell with --auto, and its status line."""
    ran = notebook.run(f"%%sky --auto\n{body}")
    assert ran.status == "ok", ran.traceback
    return ran.result or ran.stdout.strip(), ran.status_line


def test_a_value_that_changed_on_the_engine_is_kept(notebook: Notebook) -> None:
    ok(notebook, "n = 0\nitems = [1]\nlarge = [0] * 100_000")
    auto(notebook, "n += 1; items.append(2); large[0] = 7")
    shown, line = auto(notebook, "n, items, large[0]")
    assert shown == "(1, [1, 2], 7)"
    for name in ("n", "items", "large"):
        assert f"{name} has changed on the cluster" in line and f"-i {name}" in line
    assert ok(notebook, "n, items, large[0]") == "(0, [1], 0)"
    assert ok(notebook, "%%sky -i n\nn") == "0"


def test_a_name_that_only_the_notebook_changed_is_sent(notebook: Notebook) -> None:
    ok(notebook, "a = 1; b = [1]")
    assert auto(notebook, "a, b")[0] == "(1, [1])"
    ok(notebook, "a = 2; b.append(2)")
    shown, line = auto(notebook, "a, b")
    assert shown == "(2, [1, 2])" and "has changed" not in line and "had changed" not in line


def test_the_notebook_wins_where_it_changed_later_and_says_so(notebook: Notebook) -> None:
    ok(notebook, "c = 1; d = [1]")
    auto(notebook, "c += 1; d.append(2)")
    ok(notebook, "c = 1; d.append(3)")
    shown, line = auto(notebook, "c, d")
    assert shown == "(1, [1, 3])"
    assert "c had changed on the cluster" in line and "d had changed on the cluster" in line


def test_the_engine_wins_where_it_changed_later(notebook: Notebook) -> None:
    ok(notebook, "e = 1")
    auto(notebook, "e")
    ok(notebook, "e = 2")
    ok(notebook, "%%sky\ne = 3")
    assert auto(notebook, "e")[0] == "3"
    assert auto(notebook, "e")[0] == "3"


def test_a_name_that_the_engine_made_itself(notebook: Notebook) -> None:
    ok(notebook, "f = 1; g = 1; same = 4")
    ok(notebook, "%%sky\nf = 2; g = 2; same = 4")
    ok(notebook, "g = 3")
    shown, line = auto(notebook, "f, g, same")
    assert shown == "(2, 3, 4)"
    assert "f has changed" in line and "g had changed" in line and "same ha" not in line


def test_outputs_are_the_same_here_and_there(notebook: Notebook) -> None:
    ok(notebook, "h = [1]")
    ok(notebook, "%%sky --auto -o h\nh.append(2)")
    ok(notebook, "h.append(3)")
    shown, line = auto(notebook, "h")
    assert shown == "[1, 2, 3]" and "had changed" not in line
    ok(notebook, "%%sky -o kept!\nkept = [1]")
    ok(notebook, "%%sky\nkept = [1, 2]")
    assert auto(notebook, "kept")[0] == "[1, 2]"


def test_after_a_restart_cells_run_again_from_the_top(notebook: Notebook) -> None:
    ok(notebook, "total = 0")
    assert auto(notebook, "total += 1; total")[0] == "1"
    notebook.restart()
    ok(notebook, "total = 0")
    assert auto(notebook, "total += 1; total")[0] == "1"
