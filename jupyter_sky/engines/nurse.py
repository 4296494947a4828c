"""What looks after the engine of a node that is not the head.

    python -m jupyter_sky.engines.nurse CONFIG.json

It starts the engine when the head says so, signals it, reads its docket and tells the head how it
is. When the head has not been heard of for a while it ends, and the guardian above it leaves
nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from .docket import path_of as docket_of
from .docket import read as read_docket
from .guardian import kill_all, marked, tail
from .guardian import write_private as write
from .lease import Lease
from .patient import Process, begin, memory, start_engine
from .vitals import Vitals
from .wards import REJOIN_SECONDS, beat_often

TICK_MS = 50
TELL_SECONDS = 1.0
SILENCE_SECONDS = REJOIN_SECONDS
"""A head that says nothing for so long is gone, or has given this node up."""
FIRST_SECONDS = 60.0
MEMORY_SECONDS = 1.0


class Nurse:
    """The engine of one node and the line to the head.

    Parameters
    ----------
    config
        ``directory``, ``rank``, ``cpus``, ``memory``.
    """

    def __init__(self, config: dict[str, Any], config_path: Path) -> None:
        self.config, self.config_path = config, config_path
        self.directory, self.rank = Path(config["directory"]), config["rank"]
        self.process: Process | None = None
        self._met = False
        self.serial, self.mark, self.log_start, self.verdict = 0, ("", ""), 0, ""
        self.left = ""
        self.lease = Lease()
        self._vitals = Vitals([None])
        self._told: dict[str, Any] = {}
        self._told_at = self._measured = 0.0
        # it loads while the head does, and waits for its file
        self._start(self.rank + 1)

    def connect(self) -> bool:
        """Open the line to the head, once somebody has brought word of where it is."""
        import zmq

        path = self.directory / "security" / "nurse.json"
        deadline = time.monotonic() + FIRST_SECONDS
        while not path.exists():
            if self.left or time.monotonic() > deadline:
                self.left = self.left or "nobody has said where its head is"
                self._end()
                return False
            time.sleep(0.02)
        wards = json.loads(path.read_text())
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.linger = 1000
        beat_often(self._socket)
        self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
        self._socket.curve_serverkey = wards["serverkey"].encode()
        self._socket.connect(wards["url"])
        self._heard = time.monotonic()
        return True

    def run(self) -> str:
        """Work until told to leave; return why it ends."""
        while not self.left:
            self.lease.renew()
            if self._socket.poll(TICK_MS):
                self._heard = time.monotonic()
                self._obey(json.loads(self._socket.recv()))
            elif time.monotonic() - self._heard > SILENCE_SECONDS:
                self.left = f"its head has said nothing for {SILENCE_SECONDS:g} s"
            self._check_memory()
            self._tell()
        self._end()
        return self.left

    def _obey(self, order: dict[str, Any]) -> None:
        op = order["op"]
        if op == "meet":
            write(self.directory / "security" / "engine.json", order["engine"])
            self._met = True
        elif op == "spawn":
            if order["serial"] != self.serial:
                self._end()
                self._start(order["serial"])
        elif op == "leave":
            self.left = "stopped"
        elif order.get("serial") == self.serial and op == "signal":
            self._killpg(order["signum"])
        elif order.get("serial") == self.serial and op == "end":
            self._end()

    def _start(self, serial: int) -> None:
        self.serial, self.verdict = serial, ""
        started = start_engine(self.directory, self.config_path, self.rank, serial)
        self.process, self.mark, self.log_start = started

    def _tell(self) -> None:
        """Tell the head how the engine is, when that changes and now and then."""
        import zmq

        process = self.process
        code = process.poll() if process else None
        cell = read_docket(docket_of(self.directory, self.rank))
        words = ""
        if code is not None and code > 0:
            words = tail(self.directory / f"engine-{self.rank}.log", self.log_start)
        state = {
            "rank": self.rank,
            "serial": self.serial,
            "pid": process.pid if process else 0,
            "cell": [cell.msg_id, cell.facts] if cell and code is None else None,
            "code": code,
            "words": words,
            "verdict": self.verdict,
            "met": self._met,
            "vitals": next(iter(self._vitals.tick()), None),
        }
        now = time.monotonic()
        if state["vitals"] or state != self._told or now - self._told_at > TELL_SECONDS:
            self._told, self._told_at = state | {"vitals": None}, now
            with suppress(zmq.Again):  # the head is away, and it will hear the next one
                self._socket.send(json.dumps(state).encode(), zmq.NOBLOCK)

    def _check_memory(self) -> None:
        bound, now = self.config.get("memory"), time.monotonic()
        if not bound or self.process is None or now - self._measured < MEMORY_SECONDS:
            return
        self._measured = now
        used = memory(self.process.pid, bound * 2**30)
        if used > bound * 2**30:
            self.verdict = (
                f"it used {used / 2**30:.1f} GiB of the {bound:g} GiB asked for with --memory"
            )
            self._killpg(signal.SIGKILL)

    def _killpg(self, signum: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signum)

    def _end(self) -> None:
        """Kill the engine and everything that its cells have started."""
        if self.process is not None:
            self._killpg(signal.SIGKILL)
            kill_all(marked(*self.mark))


def main(argv: list[str]) -> None:
    """Look after an engine until the head is gone."""
    path = Path(argv[0])
    config = begin(path)
    nurse = Nurse(config, path)
    signal.signal(signal.SIGTERM, lambda *_: setattr(nurse, "left", "stopped"))
    reason = nurse.run() if nurse.connect() else nurse.left
    with suppress(OSError):
        write(nurse.directory / "ended.json", {"time": time.time(), "reason": reason})


if __name__ == "__main__":
    main(sys.argv[1:])
