"""The controller: limits, the lease, engines that die, what it remembers. Without a controller."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.engines.controller import runs
from jupyter_sky.engines.controller.controller import ClusterController, EngineRecord
from jupyter_sky.engines.node.current_cell import CurrentCellFile, read_current_cell
from tests.conftest import clean, wait_until

DEAF = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print("ready", flush=True)
time.sleep(600)
time.sleep(600)
"""
"""An engine that a cell keeps busy in C code."""


class Lab:
    """A controller whose engines are scripts, and that is told what would pass its controller."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
        self.log = directory / "engine-0.log"
        self.script, self.ended = DEAF, False
        self.up = True
        self.spawned: list[subprocess.Popen] = []
        monkeypatch.setattr(ClusterController, "_spawn", self.spawn)
        directory.joinpath("work").mkdir(exist_ok=True)
        config = {"directory": str(directory), "cluster": "c", "nodes": 1, "idle": 60, **config}
        self.head = ClusterController(config, directory / "config.json")
        self.head.is_registered = lambda rank: self.up
        self.head.stop_loop = lambda: setattr(self, "ended", True)
        self.cell_file = CurrentCellFile(directory / "engine-0.cell")

    def spawn(self, rank: int, loaded: bool = False) -> EngineRecord:
        with self.log.open("ab") as log:
            mark = f"JUPYTER_SKY_ENGINE={self.log.parent}"
            env = os.environ | dict([mark.split("=")])
            command = [sys.executable, "-c", self.script, str(self.log)]
            process = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, start_new_session=True
            )
            self.spawned.append(process)
            return EngineRecord(rank, process, process_marker=(mark, ""), log_start=log.tell())

    def close(self) -> None:
        """End all engines, each with what it has forked in one blow: it may be at it just now."""
        for process in self.spawned:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def send(self, run: str, rank: int = 0, lives: bool = True, **facts: Any) -> None:
        text = json.dumps({"run": run, "rank": rank, "ranks": [0], **facts})
        self.header = {"msg_type": "execute_request", "msg_id": f"{run}-{rank}", "sky": text}
        self.head.on_request({"header": self.header}, lives)

    def say(self, kind: str, **content: Any) -> None:
        message = {"header": {"msg_type": kind}, "parent_header": self.header, "content": content}
        (self.head.on_reply if kind == "execute_reply" else self.head.on_output)(message)

    def begin(self, run: str, **facts: Any) -> None:
        self.send(run, **facts)
        self.cell_file.write(self.header["msg_id"], self.header["sky"])
        self.head.tick()

    def end(self) -> None:
        self.cell_file.clear()
        self.say("status", execution_state="idle")

    def status(self, run: str) -> str:
        return self.head.handle_request({"op": "journal", "run": run, "start": 0})["status"]

    def tick_until(self, true: Callable[[], Any], timeout: float = 5.0) -> float:
        return wait_until(lambda: self.head.tick() or true(), timeout)

    def reason(self) -> str:
        return json.loads((self.head.directory / "ended.json").read_text())["reason"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lab]]:
    labs: list[Lab] = []

    def make(**config: Any) -> Lab:
        labs.append(Lab(tmp_path, monkeypatch, **config))
        return labs[-1]

    yield make
    for each in labs:
        each.close()
    clean(tmp_path)


def test_a_run_past_its_limit_is_interrupted_then_killed(lab, monkeypatch) -> None:
    monkeypatch.setattr(runs, "LIMIT_GRACE_SECONDS", 0.3)
    monkeypatch.setattr(runs, "KILL_SECONDS", 0.5)
    it = lab()
    wait_until(lambda: "ready" in it.log.read_text())
    first = it.head.engines[0].process
    it.begin("free")
    it.end()
    it.begin("r", limit=0.2)
    begun = time.monotonic()
    it.tick_until(lambda: "interrupted" in it.log.read_text())
    assert time.monotonic() - begun > 0.5
    it.tick_until(lambda: first.poll() is not None)
    assert time.monotonic() - begun > 1.0
    it.tick_until(lambda: it.head.engines[0].process is not first)
    assert it.log.read_text().count("interrupted") == 1
    assert it.status("r") == "lost"
    assert "the 0.2 s that it was allowed" in it.head.engines[0].exit_reason


def test_a_run_that_waits_does_not_use_up_its_limit(lab, monkeypatch) -> None:
    monkeypatch.setattr(runs, "LIMIT_GRACE_SECONDS", 0.0)
    it = lab()
    it.send("waiting", limit=0.1)
    time.sleep(0.3)
    it.head.tick()
    assert "interrupted" not in it.log.read_text()


def test_the_lease_begins_when_the_last_cell_ends(lab) -> None:
    it = lab(idle=0.5)
    it.begin("r")
    time.sleep(0.7)
    it.head.tick()
    assert not it.ended
    it.say("execute_reply", status="ok")
    it.end()
    assert it.tick_until(lambda: it.ended) > 0.3
    assert it.reason() == "idle"
    assert it.head.engines[0].process.wait(5) == -signal.SIGKILL


def test_silent_cell_on_direct_route_is_recorded(lab) -> None:
    """C code that holds the GIL sends no message, and direct requests bypass the controller."""
    it = lab(idle=0.3)
    wait_until(lambda: "ready" in it.log.read_text())
    it.cell_file.write("m", json.dumps({"run": "r", "rank": 0, "ranks": [0], "limit": None}))
    hello = it.head.handle_request({"op": "hello"})
    assert hello["running"] == ["r"]
    assert it.head.handle_request({"op": "engines"})["engines"][0]["running"] == "r"
    time.sleep(0.5)
    it.head.tick()
    assert not it.ended, "a cell keeps the cluster"
    other = it.head.handle_request({"op": "interrupt", "run": "waiting", "ranks": [0]})
    assert other == {"interrupted": []} and "interrupted" not in it.log.read_text()
    assert it.head.handle_request({"op": "interrupt", "run": "r", "ranks": [0]}) == {
        "interrupted": [0]
    }
    wait_until(lambda: "interrupted" in it.log.read_text())
    it.cell_file.clear()
    assert it.head.handle_request({"op": "engines"})["engines"][0]["running"] is None
    wait_until(lambda: it.status("r") == "ok", 3, "no word of its end has come")
    assert it.tick_until(lambda: it.ended) < 3


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


def test_one_rank_that_fails_does_not_end_the_run_of_the_others(lab) -> None:
    it = lab(nodes=2, idle=0.2)
    it.send("r", rank=0)
    header = it.header
    it.send("r", rank=1)
    it.say("execute_reply", status="error", ename="ValueError")
    it.say("status", execution_state="idle")
    time.sleep(0.4)
    it.head.tick()
    assert it.status("r") == "running" and not it.ended, "the other may run for hours"
    it.header = header
    it.say("execute_reply", status="ok")
    it.say("status", execution_state="idle")
    assert it.status("r") == "error"


def test_a_run_has_ended_only_when_all_its_output_has_passed(lab) -> None:
    it = lab()
    it.begin("r")
    it.say("execute_reply", status="ok")
    assert it.status("r") == "running"
    it.say("stream", name="stdout", text="late")
    it.end()
    assert it.status("r") == "ok"
    it.begin("s")
    it.say("execute_reply", status="error", ename="KeyboardInterrupt")
    wait_until(lambda: it.status("s") == "interrupted", 3, "its idle message may be lost")


def test_cell_sent_to_dead_engine_is_lost_immediately(lab) -> None:
    it = lab(idle=0.2)
    it.send("r", lives=False)
    assert it.status("r") == "lost"
    it.tick_until(lambda: it.ended)


def test_killed_engine_takes_child_processes(lab) -> None:
    it = lab()
    it.script = (
        "import subprocess, sys; p = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "print('child', p.pid, flush=True); sys.exit(3)"
    )
    it.head.engines[0].process.kill()
    it.tick_until(lambda: "child" in it.log.read_text())
    child = int(it.log.read_text().split("child")[1].split()[0])
    it.tick_until(lambda: "exit code 3" in it.head.engines[0].exit_reason)
    wait_until(lambda: not Path(f"/proc/{child}").exists() or _zombie(child))


def _zombie(pid: int) -> bool:
    return " Z " in Path(f"/proc/{pid}/stat").read_text()


def test_cluster_ends_with_log_of_engine_that_cannot_start(lab) -> None:
    it = lab()
    it.up = False
    it.script = "import sys; sys.exit('ImportError: libbroken.so.3')"
    it.head.engines[0].process.kill()
    it.tick_until(lambda: it.ended)
    assert "does not start" in it.reason() and "libbroken.so.3" in it.reason()


def test_exiting_cells_do_not_end_cluster(lab) -> None:
    it = lab()
    for _ in range(5):
        before = it.head.engines[0].process
        before.kill()
        it.tick_until(lambda before=before: it.head.engines[0].process is not before)
    assert not it.ended


@pytest.mark.skipif(sys.platform != "linux", reason="memory that is shared is told on Linux only")
def test_memory_of_process_tree_counts_shared_pages_once(lab) -> None:
    it = lab(memory=0.25)
    hog = "import os, time\nblock = b'x' * {}\nfor _ in range(4):\n  if not os.fork(): {}\n{}"
    end = "print('up', flush=True); time.sleep(600)"
    it.script = hog.format(120_000_000, "time.sleep(600)", end)
    it.head.engines[0].process.kill()
    it.tick_until(lambda: "up" in it.log.read_text())
    shared = it.head.engines[0].process
    time.sleep(1.1)
    it.head.tick()
    assert shared.poll() is None, "forked workers share what they inherit"
    it.log.write_text("")
    it.script = hog.format(0, "block = b'x' * 120_000_000; time.sleep(600)", end)
    shared.kill()
    it.tick_until(lambda: "up" in it.log.read_text())
    greedy = it.head.engines[0].process
    it.tick_until(lambda: greedy.poll() is not None)
    it.tick_until(lambda: it.head.engines[0].process is not greedy)
    assert "0.25 GiB asked for with --memory" in it.head.engines[0].exit_reason


def test_old_runs_are_forgotten_and_their_journals_stay(lab) -> None:
    it = lab()
    for number in range(int(runs.MAX_RUNS * 1.2)):
        it.begin(f"r{number}")
        if number < 3:
            it.say("stream", name="stdout", text=f"printed {number}")
        if number != 1:
            it.say("execute_reply", status="ok")
            it.end()
    it.head.tick()
    assert len(it.head.journal._indices) <= runs.MAX_RUNS * 1.1
    assert it.status("r0") == "unknown"
    assert it.status("r1") == "running", "what runs is never forgotten"
    answer = it.head.handle_request({"op": "journal", "run": "r0", "start": 0})
    assert answer["entries"][0]["content"]["text"] == "printed 0"
    assert it.head.journal.open_runs() == {"r1"}


def test_a_full_disk_does_not_keep_the_cluster_up(lab, tmp_path: Path) -> None:
    it = lab(idle=0.1)
    tmp_path.joinpath("ended.partial").mkdir()  # nothing can be written there
    it.tick_until(lambda: it.ended)
    assert it.head.engines[0].process.wait(5) == -signal.SIGKILL
