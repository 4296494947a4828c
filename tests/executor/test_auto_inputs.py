"""Cells with ``--auto`` between cells of the notebook: the latest value of a name is used."""

from __future__ import annotations

from typing import Any

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


def test_functions_share_the_names_of_the_cells(notebook: Notebook) -> None:
    ok(notebook, "_step = 2; count = 0; rates = {'a': 1}\nimport math")
    ok(notebook, "def bump():\n    global count\n    count += _step\n    return rate_of('a')")
    ok(notebook, "def rate_of(key):\n    return math.sqrt(rates[key])")
    assert auto(notebook, "bump(); count")[0] == "2"
    assert auto(notebook, "rates['a'] = 4; bump(), count")[0] == "(2.0, 4)"
    assert ok(notebook, "count, rates") == "(0, {'a': 1})"
    assert auto(notebook, "_step = 3; bump(); count")[0] == "7"
    shown, line = auto(notebook, "bump(), count")
    assert shown == "(2.0, 10)" and "bump has changed" not in line
    ok(notebook, "def rate_of(key): return 'redefined'")
    shown, line = auto(notebook, "bump(), __builtins__.__name__")
    assert shown == "('redefined', 'builtins')" and "had changed" not in line
    ok(notebook, "class Kind:\n    def get(self): return rates['a'], Kind is type(self)")
    assert auto(notebook, "Kind().get()")[0] == "(4, True)"


def test_a_function_that_came_from_the_engine_is_not_sent_back(notebook: Notebook) -> None:
    ok(notebook, "%%sky -o tell\nlevel = 1\ndef tell(): return level")
    assert ok(notebook, "tell()") == "1"
    shown, line = auto(notebook, "level = 2; tell()")
    assert shown == "2" and "has changed" not in line


def test_modules_beside_the_notebook_are_sent_along(notebook: Notebook) -> None:
    file = notebook.directory / "beside.py"
    file.write_text("class Point:\n    x = 1\n\ndef f():\n    return 'first'\n")
    ok(notebook, "import beside\nfrom beside import f\np = beside.Point()")
    shown, line = auto(notebook, "beside.f(), f(), p.x, isinstance(p, beside.Point)")
    assert shown == "('first', 'first', 1, True)" and "modules beside" in line
    auto(notebook, "p.x = 2")
    assert auto(notebook, "p.x, f()")[0] == "(2, 'first')"
    file.write_text("class Point:\n    x = 1\n\ndef f():\n    return 'edited'\n")
    ok(notebook, "import importlib\nimportlib.reload(beside)\nfrom beside import f")
    shown, line = auto(notebook, "beside.f(), f()")
    assert shown == "('edited', 'edited')" and "had changed" not in line


def test_results_of_the_notebook_are_read(fresh: Any) -> None:
    notebook = fresh()
    ok(notebook, "20")  # Out[2]
    assert auto(notebook, "_ + 1")[0] == "21"
    shown, line = auto(notebook, "_, __, _2, Out[2], Out[3]")
    assert shown == "(21, 20, 20, 20, 21)" and "had changed" not in line
    ok(notebook, "'five'")
    assert auto(notebook, "_ + ''")[0] == "'five'"
    assert auto(notebook, "_")[0] == "'five'"
    assert ok(notebook, "%%sky\n7") == "7"
    assert ok(notebook, "%%sky\n_") == "7"
    ok(notebook, "_private = 3")
    assert auto(notebook, "_private")[0] == "3"


def test_a_figure_of_the_notebook_is_a_picture(fresh: Any) -> None:
    notebook = fresh()
    ok(notebook, "import matplotlib.pyplot as plt\nfig, ax = plt.subplots(figsize=(2, 2))")
    ran = notebook.run("%%sky --auto\nax.plot([1, 2])\nfig")
    assert [set(content["data"]) for content in ran.of("execute_result")] == [
        {"image/png", "text/plain"}
    ]


def test_what_a_failing_cell_has_made_comes(notebook: Notebook) -> None:
    ok(notebook, "made, kept = 0, 'here'")
    ok(notebook, "%%sky\nkept = 'there'")
    ran = notebook.run(
        "%%sky -o made,kept,never\nmade = [1]; made.append(2)\n1 / 0\nnever = kept = 3"
    )
    assert ran.ename == "ZeroDivisionError" and len(ran.of("error")) == 1
    assert ok(notebook, "made, kept, 'never' in globals()").replace("\n", "") == (
        "([1, 2], 'here', False)"
    )


def test_a_value_that_cannot_be_sent_is_used_by_its_handle(notebook: Notebook) -> None:
    ran = notebook.run("%%sky -o lock\nimport threading\nlock = threading.Lock(); lock.acquire()")
    assert ran.ename == "SkyTransferError" and "lock is a lock" in ran.evalue
    assert auto(notebook, "lock.locked()")[0] == "True"
    ran = notebook.run("lock.release()")
    assert "lock is a handle" in ran.evalue and "%%sky" in ran.evalue
    assert ok(notebook, "hasattr(lock, 'release'), repr(lock)[:9]") == "(False, '<locked _')"


def test_the_shell_of_the_notebook_is_that_of_the_engine_there(notebook: Notebook) -> None:
    ok(notebook, "ip = get_ipython(); latex = ip.display_formatter.formatters['text/latex']")
    same = "ip is get_ipython(), latex is get_ipython().display_formatter.formatters['text/latex']"
    assert auto(notebook, same)[0] == "(True, True)"
    assert ok(notebook, "%%sky -o back\nback = get_ipython().display_formatter\npass") is not None
    assert ok(notebook, "back is get_ipython().display_formatter") == "True"


def test_the_list_of_results_has_those_of_the_notebook(notebook: Notebook) -> None:
    ok(notebook, "%reset -f out")
    ok(notebook, "'first'")
    ok(notebook, "b'0' * 1_000_000")
    shown, line = auto(notebook, "[value for value in Out.values() if value == 'first']")
    assert shown == "['first']"
    assert "Out is there without _" in line and "sends it" in line
    assert auto(notebook, "list(Out) == sorted(Out)")[0] == "True"
    count = ok(notebook, "len(Out)")
    assert ok(notebook, "%%sky\nOut") and ok(notebook, "len(Out)") == str(int(count) + 1)
