"""Interrupts: the first reaches the engines, the second frees them."""

from __future__ import annotations

import time

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow


def test_first_interrupt_ends_the_cell_and_keeps_the_engine(notebook: Notebook) -> None:
    assert notebook.run("%%sky\nkept = 41").status == "ok"
    sent = notebook.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    notebook.wait_output("begun")
    notebook.interrupt()
    ran = notebook.collect(sent, 10)
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
    time.sleep(1.0)
    notebook.interrupt()
    ran = notebook.collect(sent, 20)
    assert (ran.status, ran.ename) == ("error", "KeyboardInterrupt")
    assert "variables are gone" in ran.evalue
    after = notebook.run("%%sky\nlost")
    assert after.ename == "NameError"
    assert notebook.run("%%sky\n1 + 1").result == "2"


def test_a_subprocess_of_the_cell_is_interrupted_too(notebook: Notebook) -> None:
    sent = notebook.send("%%sky\nprint('begun', flush=True)\n!sleep 61")
    notebook.wait_output("begun")
    time.sleep(0.3)
    notebook.interrupt()
    ran = notebook.collect(sent, 10)
    assert ran.seconds < 10
    listed = notebook.run("%%sky\n!pgrep -f '[s]leep 61' || echo none")
    assert "none" in listed.stdout


def test_a_queued_cell_is_taken_back(notebook: Notebook) -> None:
    assert notebook.run("%%sky --bg first\nimport time; time.sleep(4); print('first')").status
    sent = notebook.send("%%sky\nprint('second ran')")
    time.sleep(1.5)
    notebook.interrupt()
    ran = notebook.collect(sent, 10)
    assert ran.status == "error" and "second ran" not in ran.stdout
    assert "first" in notebook.run("print(first.result(), first.logs(), first.status)").stdout
    assert notebook.run("first.status").result == "'done'"


def test_run_all_stops_at_an_interrupted_cell(notebook: Notebook) -> None:
    sent = notebook.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    notebook.wait_output("begun")
    following = notebook.send("print('went on')")
    notebook.interrupt()
    assert notebook.collect(sent, 10).status == "error"
    reply = notebook.client.get_shell_msg(timeout=5)
    assert reply["parent_header"]["msg_id"] == following
    assert reply["content"]["status"] == "aborted"
