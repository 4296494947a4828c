"""Interrupts: the first reaches the engines, the second frees them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.cells.run_monitor import GRACE_SECONDS
from tests.conftest import Notebook, wait_until

pytestmark = pytest.mark.slow


def wait_status(notebook: Notebook, text: str) -> str:
    """Read messages until a status line has a text; return the line."""
    line, deadline = "", time.monotonic() + 10
    while text not in line:
        assert time.monotonic() < deadline, f"the last line was {line!r}"
        message = notebook.client.get_iopub_msg(timeout=60)
        if "display_data" in message["header"]["msg_type"]:
            line = message["content"]["data"]["text/plain"]
    return line


def test_first_interrupt_ends_the_cell_and_keeps_the_engine(notebook: Notebook) -> None:
    assert notebook.run("%%sky\nkept = 41").status == "ok"
    sent = notebook.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    notebook.wait_output("begun")
    notebook.interrupt()
    ran = notebook.collect(sent)
    assert (ran.status, ran.ename) == ("error", "KeyboardInterrupt")
    assert "time.sleep(60)" in ran.traceback
    assert "jupyter_sky" not in ran.traceback
    assert ran.status_line.startswith("☁ interrupted")
    assert notebook.run("%%sky\nkept + 1").result == "42"


def test_second_interrupt_frees_an_engine_that_does_not_listen(notebook: Notebook) -> None:
    code = "%%sky\nlost = 1\nprint('begun', flush=True)\nsum(range(10**12))"
    sent = notebook.send(code)
    notebook.wait_output("begun")
    notebook.interrupt()
    time.sleep(0.5)
    notebook.interrupt()  # before anything is said of what would be lost: no effect
    shown = wait_status(notebook, "does not answer")
    assert "stop again to restart it, its variables (" in shown and "lost" in shown
    notebook.interrupt()
    ran = notebook.collect(sent)
    assert (ran.status, ran.ename) == ("error", "KeyboardInterrupt")
    assert "variables are gone" in ran.evalue
    after = notebook.run("%%sky\nlost")
    assert after.ename == "NameError"
    assert notebook.run("%%sky\n1 + 1").result == "2"


@pytest.mark.parametrize("how", ["in the browser", "cancel"])
def test_stopping_restarts_no_engine_before_it_is_asked_for_again(
    notebook: Notebook, data_dir: Path, how: str
) -> None:
    store = Store.open(data_dir)
    body = f"print('begun {how}', flush=True)\nsum(range(10**12))"
    assert notebook.run("%%sky\nprecious = 1").status == "ok"
    assert notebook.run(f"%%sky --bg held\n{body}").status == "ok"
    wait_until(lambda: "begun" in notebook.run("held.logs()").result)  # it listened before
    [row] = store.runs(status="running")

    def stop() -> None:
        if how == "cancel":
            assert notebook.run("%sky cancel held").status == "ok"
        else:
            store.request_stop(row.run_id, how)

    def warning() -> str:
        found = store.run(row.run_id)
        return found.warning if found else ""

    stop()
    wait_until(lambda: "precious" in warning())
    assert "does not answer: stop again to restart it" in warning()
    assert "does not answer" in notebook.run("held.warning").result
    time.sleep(GRACE_SECONDS)
    assert store.run(row.run_id).ended is None
    stop()
    wait_until(lambda: store.run(row.run_id).ended is not None)
    store.close()
    assert notebook.run("%%sky\nprecious").ename == "NameError"


def test_restarted_kernel_gives_up_the_foreground_cell_and_no_other(
    notebook: Notebook, data_dir: Path
) -> None:
    store, begun = Store.open(data_dir), time.time()
    assert notebook.run("%%sky -c second --bg held\nimport time; time.sleep(15)").status == "ok"
    notebook.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    notebook.wait_output("begun")
    wait_until(lambda: len(store.runs(status="running")) == 2)
    notebook.restart()
    runs = {run.name: run for run in store.runs() if run.started > begun}
    store.close()
    assert runs[None].status == "interrupted"
    assert "restarted or shut down; cells with --bg go on" in runs[None].stop
    assert (runs["held"].status, runs["held"].stop) == ("running", "")


def test_a_subprocess_of_the_cell_is_interrupted_too(notebook: Notebook) -> None:
    sent = notebook.send("%%sky\nprint('begun', flush=True)\n!sleep 61")
    notebook.wait_output("begun")
    time.sleep(0.3)
    notebook.interrupt()
    ran = notebook.collect(sent)
    assert ran.seconds < 40
    listed = notebook.run("%%sky\n!pgrep -f '[s]leep 61' || echo none")
    assert "none" in listed.stdout


def test_a_queued_cell_is_taken_back(notebook: Notebook) -> None:
    assert notebook.run("%%sky --bg first\nimport time; time.sleep(4); print('first')").status
    sent = notebook.send("%%sky\nprint('second ran')")
    time.sleep(1.5)
    notebook.interrupt()
    ran = notebook.collect(sent)
    assert ran.status == "error" and "second ran" not in ran.stdout
    assert "first" in notebook.run("print(first.result(), first.logs(), first.status)").stdout
    assert notebook.run("first.status").result == "'done'"


def test_run_all_stops_at_an_interrupted_cell(notebook: Notebook) -> None:
    sent = notebook.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    notebook.wait_output("begun")
    following = notebook.send("print('went on')")
    notebook.interrupt()
    assert notebook.collect(sent).status == "error"
    reply = notebook.client.get_shell_msg(timeout=60)
    assert reply["parent_header"]["msg_id"] == following
    assert reply["content"]["status"] == "aborted"
