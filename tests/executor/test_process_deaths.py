"""Deaths of engines, controllers and supervisors, and starts that fail."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_sky.base.store.store import Store
from tests.conftest import WAIT, Notebook, nothing_left, part, processes_of, wait_until
from tests.executor.ended_clusters import recorded_ends

pytestmark = pytest.mark.slow


def test_an_engine_that_dies_fails_its_cell_and_is_replaced(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send(
        "%%sky\nimport subprocess, time\nsubprocess.Popen(['sleep', '613'])\n"
        "subprocess.Popen(['sleep', '613'], start_new_session=True)\n"
        "print('begun', flush=True)\ntime.sleep(60)"
    )
    book.wait_output("begun")
    part(fresh.data, "engine")[0].kill()
    ran = book.collect(sent)
    assert (ran.status, ran.ename) == ("error", "SkyEngineLost")
    assert "SIGKILL" in ran.evalue and "new engine" in ran.evalue
    assert ran.status_line.startswith("☁ failed")
    assert book.run("%%sky\n1 + 1").result == "2"
    assert not [p for p in processes_of(fresh.data) if p.name() == "sleep"]
    # while idle, and a crash of its own
    part(fresh.data, "engine")[0].kill()
    time.sleep(0.2)
    again = book.run("%%sky\n2 + 2")
    assert again.result == "4", again.evalue
    ran = book.run("%%sky\nimport os; os._exit(7)")
    assert ran.ename == "SkyEngineLost" and "exit code 7" in ran.evalue
    # one that is frozen is as good as dead
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    part(fresh.data, "engine")[0].suspend()
    ran = book.collect(sent)
    assert ran.ename == "SkyEngineLost" and "has not answered" in ran.evalue
    assert book.run("%%sky\n3 + 3").result == "6"


def words_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process; nothing of one that has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_death_of_one_engine_leaves_the_other(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send(
        "%%sky --nodes 2\nimport os, subprocess, time\n"
        "subprocess.Popen(['sleep', '613'], start_new_session=True)\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        time.sleep(613)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "print('begun', flush=True)\ntime.sleep(60)"
    )
    wait_until(lambda: len(part(fresh.data, "engine")) == 4, "two, and a copy of each")
    time.sleep(1.0)
    first = [process for process in part(fresh.data, "engine") if "0" in words_of(process)]
    born = min(first, key=psutil.Process.create_time)
    assert born.parent() in part(fresh.data, "controller")
    born.kill()
    ran = book.collect(sent)
    assert ran.ename == "SkyEngineLost", ran
    assert not psutil.wait_procs(first, WAIT)[1], "a mere copy of it is gone, too"
    sleeping = [p for p in processes_of(fresh.data) if p.name() == "sleep"]
    assert len(sleeping) == 1, "what the other one has started goes on"
    assert book.run("%%sky\n1 + 1").ename == ""


def test_next_cell_starts_a_cluster_after_death_of_the_controller(
    fresh: Any,
) -> None:
    book: Notebook = fresh()
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(60)")
    book.wait_output("begun")
    part(fresh.data, "controller")[0].kill()
    ran = book.collect(sent)
    assert (ran.status, ran.ename) == ("error", "SkyClusterLost")
    assert "SIGKILL" in ran.evalue
    nothing_left(fresh.data)
    again = book.run("%%sky\n1 + 1")
    assert again.result == "2" and "its variables are gone" in again.status_line


def test_death_of_the_supervisor_ends_the_cluster(fresh: Any) -> None:
    book: Notebook = fresh()
    assert (
        book.run(
            "%%sky\nimport subprocess\n"
            "subprocess.Popen(['setsid', '-f', 'sleep', '614']); import time; time.sleep(0.5)"
        ).status
        == "ok"
    )
    assert [p for p in processes_of(fresh.data) if p.name() == "sleep"]
    part(fresh.data, "supervisor")[0].kill()
    nothing_left(fresh.data)
    shown = book.run("%sky status")
    assert "no cluster is up" in shown.result + shown.stdout
    (interval,) = Store.open(fresh.data).intervals()
    assert interval.ended is not None and time.time() - interval.ended < 60
    assert "supervisor" in recorded_ends(fresh.data)[0]["reason"]


def test_frozen_controller_is_lost_in_time_and_can_be_cleaned_up(fresh: Any) -> None:
    book: Notebook = fresh()
    sent = book.send("%%sky\nimport time\nprint('begun', flush=True)\ntime.sleep(100)")
    book.wait_output("begun")
    part(fresh.data, "controller")[0].suspend()
    ran = book.collect(sent)
    assert (ran.status, ran.ename) == ("error", "SkyClusterLost")
    assert "said nothing" in ran.evalue and "%sky down" in ran.evalue
    down = book.run("%sky down all")
    assert "ended: analysis-" in down.stdout
    nothing_left(fresh.data)


def test_a_cell_in_the_background_learns_that_its_cluster_was_ended(fresh: Any) -> None:
    book: Notebook = fresh()
    assert book.run("%%sky --bg job\nimport time\ntime.sleep(60)").status == "ok"
    time.sleep(3.0)
    assert "ended" in book.run("%sky down all").stdout
    assert book.run("job.result(5)").ename == "SkyClusterLost"
    assert book.run("job.status").result == "'failed'"


@pytest.mark.parametrize(
    ("broken", "nodes"), [("node.engine", 1), ("node.engine", 2), ("controller", 1)]
)
def test_failed_start_shows_the_end_of_the_log(
    fresh: Any, tmp_path: Path, broken: str, nodes: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def broken(*_):\n"
        "    print('ImportError: libbroken.so.3 is not here', file=sys.stderr, flush=True)\n"
        "    os._exit(7)\n"
        f"if 'jupyter_sky.machines.engines.{broken}' in sys.orig_argv:\n"
        "    broken()\n"
        "from jupyter_sky.machines.engines.node import engine_process\n"
        # engines that are forked
        f"engine_process._set_process_title = broken if {broken == 'node.engine'} else None\n"
    )
    paths = f"{tmp_path}{os.pathsep}{Path(__file__).parents[2]}"
    book: Notebook = fresh(PYTHONPATH=paths)
    ran = book.run(f"%%sky --nodes {nodes}\n1")
    assert ran.ename == "SkyClusterLost"
    assert "exit code 7" in ran.evalue and "libbroken.so.3 is not here" in ran.evalue
    nothing_left(fresh.data)
    assert Store.open(fresh.data).clusters() == []


def test_an_interrupted_start_leaves_nothing(fresh: Any) -> None:
    book: Notebook = fresh()
    for delay in (0.2, 0.3, 0.4, 0.45, 0.5, 0.6, 0.8, 1.1):
        sent = book.send("%%sky\n1 + 1")
        time.sleep(delay)
        book.interrupt()
        ran = book.collect(sent)
        if ran.status == "ok" or ", run " in ran.status_line:
            break  # it was up before: the cell ended, or was interrupted itself
        assert ran.ename == "KeyboardInterrupt", ran
        nothing_left(fresh.data)
        assert Store.open(fresh.data).clusters() == []
    assert book.run("%%sky\n1 + 1").result == "2"
    assert [row.state for row in Store.open(fresh.data).clusters()] == ["up"]
