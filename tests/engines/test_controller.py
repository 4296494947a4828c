"""Cluster controller without its hub: limits, idle time, dead engines, remembered runs."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from jupyter_sky.machines.engines.controller import controller
from jupyter_sky.machines.engines.node.current_cell import CurrentCellFile, read_current_cell
from jupyter_sky.machines.engines.wire.controller_requests import (
    Hello,
    Interrupt,
    ListEngines,
    ReadJournal,
)
from tests.conftest import wait_until


def test_a_run_past_its_limit_is_interrupted_then_killed(start, monkeypatch) -> None:
    monkeypatch.setattr(controller, "LIMIT_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(controller, "KILL_SECONDS", 0.5)
    cluster = start()
    wait_until(lambda: "ready" in cluster.log.read_text())
    first = cluster.engine.process
    cluster.begin("free")
    cluster.end()
    cluster.begin("r", limit=0.2)
    begun = time.monotonic()
    cluster.tick_until(lambda: "interrupted" in cluster.log.read_text())
    assert time.monotonic() - begun > 0.5
    cluster.tick_until(lambda: first.poll() is not None)
    assert time.monotonic() - begun > 1.0
    cluster.tick_until(lambda: cluster.engine.process is not first)
    assert cluster.log.read_text().count("interrupted") == 1
    assert cluster.status("r") == "lost"
    assert "the 0.2 s that it was allowed" in cluster.engine.exit_reason


def test_a_run_that_waits_does_not_use_up_its_limit(start, monkeypatch) -> None:
    monkeypatch.setattr(controller, "LIMIT_GRACE_SECONDS", 0.0)
    cluster = start()
    cluster.send("waiting", limit=0.1)
    time.sleep(0.3)
    cluster.controller.tick()
    assert "interrupted" not in cluster.log.read_text()


def test_the_lease_begins_when_the_last_cell_ends(start) -> None:
    cluster = start(idle=0.5)
    cluster.begin("r")
    time.sleep(0.7)
    cluster.controller.tick()
    assert not cluster.ended
    cluster.say("execute_reply", status="ok")
    cluster.end()
    assert cluster.tick_until(lambda: cluster.ended) > 0.3
    assert cluster.reason() == "idle"
    assert cluster.engine.process.wait(5) == -signal.SIGKILL


def test_silent_cell_on_direct_route_is_recorded(start) -> None:
    """C code that holds the GIL sends no message, and direct requests bypass the controller."""
    cluster = start(idle=0.3)
    wait_until(lambda: "ready" in cluster.log.read_text())
    cluster.cell_file.write("m", json.dumps({"run": "r", "rank": 0, "ranks": [0], "limit": None}))
    hello = cluster.ask(Hello()).encode()
    assert hello["running"] == ["r"]
    assert cluster.ask(ListEngines()).engines[0]["running"] == "r"
    time.sleep(0.5)
    cluster.controller.tick()
    assert not cluster.ended, "a cell keeps the cluster"
    other = cluster.ask(Interrupt("waiting", [0])).encode()
    assert other == {"interrupted": []} and "interrupted" not in cluster.log.read_text()
    assert cluster.ask(Interrupt("r", [0])).interrupted == [0]
    wait_until(lambda: "interrupted" in cluster.log.read_text())
    cluster.cell_file.clear()
    assert cluster.ask(ListEngines()).engines[0]["running"] is None
    wait_until(lambda: cluster.status("r") == "ok", "no word of its end has come")
    cluster.tick_until(lambda: cluster.ended)


def test_partially_written_current_cell_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "engine-0.cell"
    assert read_current_cell(path) is None
    cell_file = CurrentCellFile(path)
    assert read_current_cell(path) is None and path.stat().st_mode & 0o777 == 0o600
    cell_file.write("first", '{"run": "a long name of a run"}')
    cell_file.write("b", '{"run": "b"}')
    entry = read_current_cell(path)
    assert entry is not None and (entry.msg_id, entry.facts) == ("b", {"run": "b"})
    path.write_bytes(b'c\n{"run": "c"}\nfirst')
    assert read_current_cell(path) is None
    cell_file.clear()
    assert read_current_cell(path) is None


def test_one_rank_that_fails_does_not_end_the_run_of_the_others(start) -> None:
    cluster = start(nodes=2, idle=0.2)
    cluster.send("r", rank=0)
    header = cluster.header
    cluster.send("r", rank=1)
    cluster.say("execute_reply", status="error", ename="ValueError")
    cluster.say("status", execution_state="idle")
    time.sleep(0.4)
    cluster.controller.tick()
    assert cluster.status("r") == "running" and not cluster.ended, "the other may run for hours"
    cluster.header = header
    cluster.say("execute_reply", status="ok")
    cluster.say("status", execution_state="idle")
    assert cluster.status("r") == "error"


def test_a_run_has_ended_only_when_all_its_output_has_passed(start) -> None:
    cluster = start()
    cluster.begin("r")
    cluster.say("execute_reply", status="ok")
    assert cluster.status("r") == "running"
    cluster.say("stream", name="stdout", text="late")
    cluster.end()
    assert cluster.status("r") == "ok"
    cluster.begin("s")
    cluster.say("execute_reply", status="error", ename="KeyboardInterrupt")
    wait_until(lambda: cluster.status("s") == "interrupted", "its idle message may be lost")


def test_cell_sent_to_dead_engine_is_lost_immediately(start) -> None:
    cluster = start(idle=0.2)
    cluster.send("r", lives=False)
    assert cluster.status("r") == "lost"
    cluster.tick_until(lambda: cluster.ended)


def test_killed_engine_takes_child_processes(start) -> None:
    cluster = start()
    cluster.script = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('child', p.pid, flush=True); sys.exit(3)"
    )
    cluster.engine.process.kill()
    cluster.tick_until(lambda: "child" in cluster.log.read_text())
    child = int(cluster.log.read_text().split("child")[1].split()[0])
    cluster.tick_until(lambda: "exit code 3" in cluster.engine.exit_reason)
    wait_until(lambda: not Path(f"/proc/{child}").exists() or _zombie(child))


def _zombie(pid: int) -> bool:
    return " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_cluster_ends_with_log_of_engine_that_cannot_start(start) -> None:
    cluster = start()
    cluster.up = False
    cluster.script = "import sys; sys.exit('ImportError: libbroken.so.3')"
    cluster.engine.process.kill()
    cluster.tick_until(lambda: cluster.ended)
    assert "does not start" in cluster.reason() and "libbroken.so.3" in cluster.reason()


def test_exiting_cells_do_not_end_cluster(start) -> None:
    cluster = start()
    for _ in range(5):
        before = cluster.engine.process
        before.kill()
        cluster.tick_until(lambda before=before: cluster.engine.process is not before)
    assert not cluster.ended


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is shared is told on Linux only")
def test_memory_of_process_tree_counts_shared_pages_once(start) -> None:
    cluster = start(memory=0.25)
    hog = "import os, time\nblock = b'x' * {}\nfor _ in range(4):\n  if not os.fork(): {}\n{}"
    end = "print('up', flush=True); time.sleep(600)"
    cluster.script = hog.format(120_000_000, "time.sleep(600)", end)
    cluster.engine.process.kill()
    cluster.tick_until(lambda: "up" in cluster.log.read_text())
    shared = cluster.engine.process
    time.sleep(1.1)
    cluster.controller.tick()
    assert shared.poll() is None, "forked workers share what they inherit"
    cluster.log.write_text("")
    cluster.script = hog.format(0, "block = b'x' * 120_000_000; time.sleep(600)", end)
    shared.kill()
    cluster.tick_until(lambda: "up" in cluster.log.read_text())
    greedy = cluster.engine.process
    cluster.tick_until(lambda: greedy.poll() is not None)
    cluster.tick_until(lambda: cluster.engine.process is not greedy)
    assert "0.25 GiB asked for with --memory" in cluster.engine.exit_reason


def test_old_runs_are_forgotten_and_their_journals_stay(start) -> None:
    cluster = start()
    for number in range(int(controller.MAX_RUNS * 1.2)):
        if number == 1:  # on another engine: no later cell takes its place
            cluster.send("r1", rank=1)
        else:
            cluster.begin(f"r{number}")
        if number < 3:
            cluster.say("stream", name="stdout", text=f"printed {number}")
        if number != 1:
            cluster.say("execute_reply", status="ok")
            cluster.end()
    cluster.controller.tick()
    assert len(cluster.controller.journal._indices) <= controller.MAX_RUNS * 1.1
    assert cluster.status("r0") == "unknown"
    assert cluster.status("r1") == "running", "what runs is never forgotten"
    answer = cluster.ask(ReadJournal("r0", 0)).encode()
    assert answer["entries"][0]["content"]["text"] == "printed 0"
    assert cluster.controller.journal.open_runs() == {"r1"}


def test_a_full_disk_does_not_keep_the_cluster_up(start, tmp_path: Path) -> None:
    cluster = start(idle=0.1)
    tmp_path.joinpath("ended.partial").mkdir()  # nothing can be written there
    cluster.tick_until(lambda: cluster.ended)
    assert cluster.engine.process.wait(5) == -signal.SIGKILL
