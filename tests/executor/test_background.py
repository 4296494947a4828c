"""``--bg``: a handle at once, output in its own cell, results and errors when asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook, wait_until
from tests.executor.test_cells import later

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """The cluster, up before the first test."""
    assert notebook.run("%%sky\nimport time").status == "ok"
    yield


def until(path: Path) -> str:
    """Return code that waits for a file."""
    return f"import os\nwhile not os.path.exists({str(path)!r}): time.sleep(0.01)\n"


def test_it_returns_at_once_and_prints_into_its_own_cell(
    notebook: Notebook, tmp_path: Path
) -> None:
    go_on = tmp_path / "go on"
    sent = notebook.send(f"%%sky --bg train\n{until(go_on)}print('trained')\n6 * 7")
    ran = notebook.collect(sent)
    assert ran.status == "ok"
    shown = notebook.run("train").result
    assert shown.startswith("<train: ") and "running" in shown
    other = notebook.run("print('meanwhile', train.done(), train.status)")
    assert other.stdout == "meanwhile False running\n"
    go_on.touch()
    ended = notebook.run("print(train.result(), train.status, train.done())")
    assert ended.stdout == "42 done True\n"
    later(notebook, sent, "trained")
    assert notebook.run("train.logs()").result.startswith("'trained\\n")


def test_output_of_a_running_cell_can_be_read(notebook: Notebook, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    body = f"print('first', flush=True)\n{until(go_on)}print('second')"
    notebook.run(f"%%sky --bg talks\n{body}")
    waits = "import time\nwhile not talks.logs(): time.sleep(0.01)\ntalks.logs()"
    assert notebook.run(waits).result == "'first\\n'"
    assert notebook.run("%sky logs talks").stdout == "first\n"
    go_on.touch()
    assert notebook.run("talks.result(); talks.logs()").result == "'first\\nsecond\\n'"


def test_without_a_name_the_handle_is_the_result(notebook: Notebook) -> None:
    ran = notebook.run("%%sky --bg\n'value'")
    assert ran.status == "ok"
    assert notebook.run("_.result()").result == "'value'"


def test_it_can_be_awaited(notebook: Notebook) -> None:
    notebook.run("%%sky --bg soon\ntime.sleep(0.3)\n'awaited'")
    assert notebook.run("await soon").result == "'awaited'"


def test_its_error_is_raised_where_it_is_asked_for(notebook: Notebook) -> None:
    sent = notebook.send("%%sky --bg wrong\ntime.sleep(0.5)\nraise LookupError('not there')")
    assert notebook.collect(sent).status == "ok"
    later(notebook, sent, "not there")  # seen in its own cell, asked for or not
    ran = notebook.run("wrong.result()")
    assert (ran.status, ran.ename, ran.evalue) == ("error", "LookupError", "not there")
    assert "raise LookupError" in ran.traceback and "jupyter_sky" not in ran.traceback
    assert notebook.run("wrong.status").result == "'failed'"
    assert notebook.run("try: wrong.result()\nexcept LookupError: print('ok')").stdout == "ok\n"


def test_its_outputs_are_bound_when_it_ends(notebook: Notebook) -> None:
    notebook.run("seed = 4")
    notebook.run("%%sky --bg -i seed -o grown\ntime.sleep(0.3)\ngrown = seed * 10")
    notebook.run("_.result()")
    assert notebook.run("grown").result == "40"


def test_two_queue_behind_each_other(notebook: Notebook, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"
    notebook.run(f"%%sky --bg one\n{until(go_on)}order = ['one']")
    notebook.run("%%sky --bg two\norder += ['two']; order")
    assert notebook.run("import time; time.sleep(1.2); two.status").result == "'queued'"
    go_on.touch()
    assert notebook.run("two.result()").result == "['one', 'two']"
    assert notebook.run("one.status, two.status").result == "('done', 'done')"


def test_cancel_and_wait(notebook: Notebook) -> None:
    notebook.run("%%sky --bg long\nkept = 1\ntime.sleep(60)")
    notebook.run("%%sky --bg behind\nbehind_ran = 1")
    ran = notebook.run("behind.cancel(); behind.result()")
    assert ran.ename == "SkyCancelled", ran.traceback
    assert notebook.run("long.status").result == "'running'"
    assert notebook.run("%sky cancel long").status == "ok"
    ran = notebook.run("long.result()")
    assert ran.ename == "SkyCancelled"
    assert notebook.run("long.status, behind.status").result == "('cancelled', 'cancelled')"
    assert notebook.run("%%sky\nkept, 'behind_ran' in globals()").result == "(1, False)"
    notebook.run("%%sky --bg last\ntime.sleep(0.5)\n'waited for'")
    assert notebook.run("%sky wait last").result == "'waited for'"
    notebook.run("%%sky --bg last\ntime.sleep(0.5)")
    assert notebook.run("%sky wait").status == "ok"
    assert notebook.run("last.status").result == "'done'"
    ran = notebook.run("%sky cancel nobody")
    assert ran.ename == "SkyUsageError"


def test_variables_that_have_to_wait_are_announced_at_once(
    notebook: Notebook, tmp_path: Path
) -> None:
    notebook.run("here = 1")
    for number, question in enumerate(("%sky vars", "%sky put here")):
        go_on = tmp_path / str(number)
        notebook.run(f"%%sky --bg holds\nheld = 7\n{until(go_on)}")
        sent = notebook.send(question)
        said = notebook.wait_output("holds")
        assert re.match(r"waits for holds, which runs on [\w-]+\n", said), said
        go_on.touch()
        ran = notebook.collect(sent)
        assert ran.status == "ok", ran.traceback
        notebook.run("holds.result()")
    ran = notebook.run("%sky vars")
    assert "held" in ran.result and "here" in ran.result and ran.stdout == ""


def test_a_cell_behind_one_of_another_notebook_says_so(notebook: Notebook) -> None:
    name = notebook.run("import jupyter_sky as sky\nsky.status().rows[0][0]").result.strip("'")
    other = Notebook(notebook.directory, notebook.env, "other.ipynb")
    try:
        sent = other.send(f"%%sky -c {name} --name ahead\nprint('begun')\ntime.sleep(2.5)")
        other.wait_output("begun")
        waiting = notebook.send("%%sky\n'its turn'")
        shown = notebook.wait_display("queued")
        assert "queued" in shown and "behind ahead of other.ipynb" in shown
        assert notebook.collect(waiting).result == "'its turn'"
        assert other.collect(sent).status == "ok"
    finally:
        other.stop()


def test_result_with_a_timeout(notebook: Notebook) -> None:
    notebook.run("%%sky --bg slow\ntime.sleep(1.5)")
    ran = notebook.run("slow.result(0.2)")
    assert ran.ename == "SkyTimeout" and "slow is still running" in ran.evalue
    assert notebook.run("slow.result()").status == "ok"


def test_a_cell_that_waits_with_a_large_input_says_so_and_can_be_cancelled(
    notebook: Notebook,
) -> None:
    notebook.run("big = b'0' * 1_000_000")
    notebook.run("%%sky --bg ahead\nimport time; time.sleep(3)")
    assert notebook.run("%%sky --bg after -i big\nlen(big)").status == "ok"
    wait_until(lambda: "'queued'" in notebook.run("after.status").result, "queued")
    notebook.run("after.cancel()")
    wait_until(lambda: "'cancelled'" in notebook.run("after.status").result, "cancelled")
    assert "'running'" in notebook.run("ahead.status").result
    assert notebook.run("ahead.result()").status == "ok"
    assert notebook.run("%%sky -i big\nlen(big)").result == "1000000"


def test_unloading_lets_go_of_it_and_loading_finds_it_again(notebook: Notebook) -> None:
    notebook.run("%%sky --bg lasting\nfor i in range(12): print(i, flush=True); time.sleep(0.2)")
    assert notebook.run("import time; time.sleep(0.6)\n%unload_ext jupyter_sky").status == "ok"
    ran = notebook.run("lasting.result()")
    assert ran.ename == "SkyError" and "lasting goes on" in ran.evalue
    assert notebook.run("%load_ext jupyter_sky").status == "ok"
    ran = notebook.run("%%sky\nprint('next')")
    assert ran.stdout.endswith("10\n11\nnext\n"), ran
    assert "shown again: what lasting printed" in ran.status_line and "ended: ok" in ran.status_line


def test_values_of_old_runs_are_released(notebook: Notebook) -> None:
    notebook.run(
        "import gc, weakref\nfrom jupyter_sky.execution.sessions import session as sessions"
    )
    assert notebook.run("%%sky --bg held\nset(range(3))").status == "ok"
    for number in range(12):
        assert notebook.run(f"%%sky --bg old{number}\nset(range(3))").status == "ok"
        assert notebook.run(f"value = weakref.ref(old{number}.result())").status == "ok"
        if number == 0:
            assert notebook.run("first = weakref.ref(old0.result()); del old0").status == "ok"
    assert notebook.run("sorted(held.result())").result == "[0, 1, 2]", "the notebook holds it"
    assert notebook.run("sorted(jupyter_sky.handle('held').result())").ename == "NameError"
    notebook.run("import jupyter_sky as sky")
    assert notebook.run("sorted(sky.handle('held').result())").result == "[0, 1, 2]"
    assert notebook.run("del _; gc.collect(); first() is None").result == "True"
    assert notebook.run("type(sky.handle('old0')).__name__").result == "'EarlierRun'"
    assert notebook.run("sorted(sky.handle('old11').result())").result == "[0, 1, 2]"
