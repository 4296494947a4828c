"""Cluster controller without a hub, whose engines are scripts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from jupyter_sky.base.messages import Message, Request
from jupyter_sky.base.remote.supervisor import ENGINE_VARIABLE, kill_all, processes_with_env
from jupyter_sky.machines.engines.controller.cluster_engines import ClusterEngines, EngineRecord
from jupyter_sky.machines.engines.controller.controller import ClusterController
from jupyter_sky.machines.engines.node.current_cell import CurrentCellFile
from jupyter_sky.machines.engines.wire.controller_requests import ReadJournal
from tests.conftest import wait_until

ReplyT = TypeVar("ReplyT", bound=Message)
BUSY_SCRIPT = """
import signal, sys, time
signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
print("ready", flush=True)
time.sleep(600)
time.sleep(600)
"""
"""Script of an engine that a cell keeps busy in C code."""


class ScriptedController:
    """Controller whose engines are scripts, with calls in place of the messages of the hub."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch, **config: Any) -> None:
        self.log = directory / "engine-0.log"
        self.script, self.ended = BUSY_SCRIPT, False
        self.up = True
        self.spawned: list[subprocess.Popen] = []
        monkeypatch.setattr(ClusterEngines, "_spawn", self.spawn)
        directory.joinpath("work").mkdir(exist_ok=True)
        config = {"directory": str(directory), "cluster": "c", "nodes": 1, "idle": 60, **config}
        self.controller = ClusterController(config, directory / "config.json")
        self.controller.engines.is_registered = lambda rank: self.up
        self.controller.stop_loop = lambda: setattr(self, "ended", True)
        self.cell_file = CurrentCellFile(directory / "engine-0.cell")

    def spawn(self, rank: int, loaded: bool = False) -> EngineRecord:
        with self.log.open("ab") as log:
            mark = f"{ENGINE_VARIABLE}={self.log.parent}"
            env = os.environ | {ENGINE_VARIABLE: str(self.log.parent)}
            command = [sys.executable, "-c", self.script, str(self.log)]
            process = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, start_new_session=True
            )
            self.spawned.append(process)
            return EngineRecord(rank, process, process_marker=(mark, ""), log_start=log.tell())

    @property
    def engine(self) -> EngineRecord:
        """Engine of rank 0."""
        return self.controller.engines.by_rank[0]

    def close(self) -> None:
        """Kill all engines, then the children that they have begun, in other sessions too."""
        for process in self.spawned:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        kill_all(processes_with_env(f"{ENGINE_VARIABLE}={self.log.parent}", ""))

    def send(self, run: str, rank: int = 0, lives: bool = True, **facts: Any) -> None:
        text = json.dumps({"run": run, "rank": rank, "ranks": [0], **facts})
        self.header = {"msg_type": "execute_request", "msg_id": f"{run}-{rank}", "sky": text}
        self.controller.on_request({"header": self.header}, lives)

    def say(self, kind: str, **content: Any) -> None:
        message = {"header": {"msg_type": kind}, "parent_header": self.header}
        if kind == "execute_reply":
            self.controller.on_reply({**message, "content": content})
        else:
            self.controller.on_output({**message, "content": json.dumps(content).encode()})

    def begin(self, run: str, **facts: Any) -> None:
        self.send(run, **facts)
        self.cell_file.write(self.header["msg_id"], self.header["sky"])
        self.controller.tick()

    def end(self) -> None:
        self.cell_file.clear()
        self.say("status", execution_state="idle")

    def ask(self, request: Request[ReplyT]) -> ReplyT:
        """Return the reply to a request that has come over the wire."""
        reply = self.controller.handle_request(request.encode())
        return request.reply_type.decode(reply.encode())

    def status(self, run: str) -> str:
        return self.ask(ReadJournal(run, 0)).status

    def tick_until(self, condition: Callable[[], Any]) -> float:
        return wait_until(lambda: self.controller.tick() or condition())

    def reason(self) -> str:
        return json.loads((self.controller.directory / "ended.json").read_text())["reason"]


Start = Callable[..., ScriptedController]
