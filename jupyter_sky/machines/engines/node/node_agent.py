"""Node agent (``python -m``): supervises the engine of a node on which the controller does not run.

    python -m jupyter_sky.machines.engines.node.node_agent CONFIG.json

It starts the engine on the controller's command, signals it, reads its current-cell file and
reports its state. It ends once the controller has been silent for a while, and its supervisor then
kills the remaining processes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from jupyter_sky.base.errors import SkyVersionError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Receiver, handles
from jupyter_sky.base.remote.supervisor import kill_all, processes_with_env, tail_log, unmount_below
from jupyter_sky.base.remote.supervisor import write_private as write
from jupyter_sky.machines.engines.node.current_cell import cell_file_path, read_current_cell
from jupyter_sky.machines.engines.node.engine_process import (
    Process,
    load_config,
    memory_usage,
    start_engine,
)
from jupyter_sky.machines.engines.node.keepalive import KeepAlive
from jupyter_sky.machines.engines.node.metrics import NodeMetrics
from jupyter_sky.machines.engines.wire.agent_commands import (
    AgentBeat,
    EndEngine,
    SetController,
    Signal,
    Spawn,
    StartDataEngineNode,
    StopAgent,
)
from jupyter_sky.machines.engines.wire.agent_link import REJOIN_SECONDS, enable_heartbeats
from jupyter_sky.machines.engines.wire.messages import EngineReport, NodeConfig, NoticeRecord

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.node.service_processes import NodeProcess

TICK_MS = 50
REPORT_SECONDS = 1.0
SILENCE_SECONDS = REJOIN_SECONDS
"""A controller that says nothing for so long is gone, or has given this node up."""
ADDRESS_TIMEOUT_SECONDS = 60.0
MEMORY_SECONDS = 1.0


class NodeAgent(Receiver):
    """Engine of one node and the connection to the controller.

    Parameters
    ----------
    config
        ``directory``, ``rank``, ``cpus``, ``memory``.
    """

    def __init__(self, config: NodeConfig, config_path: Path) -> None:
        self.config, self.config_path = config, config_path
        self.directory, self.rank = Path(config["directory"]), config["rank"]
        self.process: Process | None = None
        self._has_controller = False
        self.serial, self.process_marker, self.log_start, self.kill_reason = 0, ("", ""), 0, ""
        self.stop_reason = ""
        self.keepalive = KeepAlive()
        self._metrics = NodeMetrics([None])
        self._last_report: EngineReport | None = None
        self._reported_at = self._measured = 0.0
        self._notices: list[NoticeRecord] = []
        self._data_engines: dict[str, NodeProcess] = {}
        # it loads while the controller does, and waits for its file
        self._start(self.rank + 1)
        self._watch_notices()

    def _watch_notices(self) -> None:
        """Watch the cloud's notices about this machine, if it gives any; reports name them."""
        if service := self.config.get("notice_service"):
            from jupyter_sky.machines.engines.node.notices import start_watch

            start_watch(service, self.directory, lambda notices: setattr(self, "_notices", notices))

    def connect(self) -> bool:
        """Connect to the controller, once the file with its address has arrived."""
        import zmq

        path = self.directory / "security" / "agents.json"
        deadline = time.monotonic() + ADDRESS_TIMEOUT_SECONDS
        while not path.exists():
            if self.stop_reason or time.monotonic() > deadline:
                self.stop_reason = (
                    self.stop_reason or "the address of its controller has not arrived"
                )
                self._kill_processes()
                return False
            time.sleep(0.02)
        endpoint = json.loads(path.read_text())
        self._socket = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.linger = 1000
        enable_heartbeats(self._socket)
        self._socket.curve_publickey, self._socket.curve_secretkey = zmq.curve_keypair()
        self._socket.curve_serverkey = endpoint["serverkey"].encode()
        self._socket.connect(endpoint["url"])
        self._last_heard = time.monotonic()
        return True

    def run(self) -> str:
        """Run until stopped; return the reason."""
        while not self.stop_reason:
            self.keepalive.renew()
            if self._socket.poll(TICK_MS):
                self._last_heard = time.monotonic()
                self._handle_command(json.loads(self._socket.recv()))
            elif time.monotonic() - self._last_heard > SILENCE_SECONDS:
                self.stop_reason = f"its controller has said nothing for {SILENCE_SECONDS:g} s"
            self._check_memory()
            self._report()
        self._kill_processes()
        return self.stop_reason

    def _handle_command(self, command: JsonObject) -> None:
        try:
            self.dispatch(self.decode(command))
        except SkyVersionError as error:  # of a later controller: the engine goes on without it
            print(error, file=sys.stderr)

    @handles(AgentBeat)
    def _note_beat(self, command: AgentBeat) -> None:
        """Do nothing: any message tells that the controller lives."""

    @handles(SetController)
    def _set_controller(self, command: SetController) -> None:
        write(self.directory / "security" / "engine.json", command.engine)
        self._has_controller = True

    @handles(Spawn)
    def _spawn(self, command: Spawn) -> None:
        if command.serial != self.serial:
            self._kill_processes()
            self._start(command.serial)

    @handles(StopAgent)
    def _stop(self, command: StopAgent) -> None:
        self.stop_reason = "stopped"

    @handles(Signal)
    def _signal(self, command: Signal) -> None:
        if command.serial == self.serial:
            self._killpg(command.signum)

    @handles(EndEngine)
    def _end_engine(self, command: EndEngine) -> None:
        if command.serial == self.serial:
            self._kill_processes()

    @handles(StartDataEngineNode)
    def _start_data_engine(self, command: StartDataEngineNode) -> None:
        """Start a data engine on this node, in place of one of its name that runs here."""
        from jupyter_sky.machines.engines.node.service_orders import EngineOrder
        from jupyter_sky.machines.engines.node.service_processes import NodeProcess

        order = EngineOrder(**{**command.order, "directory": str(self.directory)})
        if before := self._data_engines.get(order.engine):
            before.kill()
        self._data_engines[order.engine] = NodeProcess(order)

    def _start(self, serial: int) -> None:
        self.serial, self.kill_reason = serial, ""
        started = start_engine(self.directory, self.config_path, self.rank, serial)
        self.process, self.process_marker, self.log_start = started

    def _report(self) -> None:
        """Report the state of the engine on changes and once in `REPORT_SECONDS`."""
        import zmq

        process = self.process
        code = process.poll() if process else None
        cell = read_current_cell(cell_file_path(self.directory, self.rank))
        log_tail = ""
        if code is not None and code > 0:
            log_tail = tail_log(self.directory / f"engine-{self.rank}.log", self.log_start)
        state: EngineReport = {
            "rank": self.rank,
            "serial": self.serial,
            "pid": process.pid if process else 0,
            "cell": (cell.msg_id, cell.facts) if cell and code is None else None,
            "code": code,
            "log_tail": log_tail,
            "kill_reason": self.kill_reason,
            "has_controller": self._has_controller,
            "metrics": next(iter(self._metrics.tick()), None),
            "notices": self._notices,
            "data_engines": {name: each.state() for name, each in self._data_engines.items()},
        }
        now = time.monotonic()
        if (
            state["metrics"]
            or state != self._last_report
            or now - self._reported_at > REPORT_SECONDS
        ):
            self._last_report = {**state, "metrics": None}
            self._reported_at = now
            with suppress(zmq.Again):  # the controller is away, and it will hear the next one
                self._socket.send(json.dumps(state).encode(), zmq.NOBLOCK)

    def _check_memory(self) -> None:
        bound, now = self.config.get("memory"), time.monotonic()
        if not bound or self.process is None or now - self._measured < MEMORY_SECONDS:
            return
        self._measured = now
        used = memory_usage(self.process.pid, bound * 2**30)
        if used > bound * 2**30:
            self.kill_reason = (
                f"it used {used / 2**30:.1f} GiB of the {bound:g} GiB asked for with --memory"
            )
            self._killpg(signal.SIGKILL)

    def _killpg(self, signum: int) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signum)

    def _kill_processes(self) -> None:
        """Kill the engine and the processes of its cells."""
        if self.process is not None:
            self._killpg(signal.SIGKILL)
            kill_all(processes_with_env(*self.process_marker))


def main(argv: list[str]) -> None:
    """Run a node agent until the controller is gone."""
    path = Path(argv[0])
    config = cast(NodeConfig, load_config(path))
    agent = NodeAgent(config, path)
    signal.signal(signal.SIGTERM, lambda *_: setattr(agent, "stop_reason", "stopped"))
    reason = agent.run() if agent.connect() else agent.stop_reason
    unmount_below(agent.directory)
    with suppress(OSError):
        write(agent.directory / "ended.json", {"time": time.time(), "reason": reason})


if __name__ == "__main__":
    main(sys.argv[1:])
