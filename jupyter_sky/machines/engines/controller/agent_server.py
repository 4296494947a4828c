"""Server for node agents: the controller's side of the engines on other nodes.

A node agent starts the engine of its node, signals it, reads its current-cell file and reports its
state. The controller keeps that state in a `RemoteEngine`, with the interface of a local process.
Traffic between machines is encrypted; clients without the server's key are refused.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.machines.engines.node.current_cell import CurrentCell
from jupyter_sky.machines.engines.wire.agent_commands import (
    AgentBeat,
    AgentCommand,
    EndEngine,
    SetController,
    Signal,
    Spawn,
    StopAgent,
)
from jupyter_sky.machines.engines.wire.agent_link import (
    REJOIN_SECONDS,
    enable_heartbeats,
    listen_address,
)
from jupyter_sky.machines.engines.wire.messages import EngineReport, NodeSample, NoticeRecord

SILENCE_SECONDS = 10.0
"""Silence of a node agent after which its node is lost and its cells fail."""
QUIET_SECONDS = 2.5
"""Silence from which on notebooks ask the cloud about the machine: agents report each second."""
GIVEN_UP = "given up"
"""Part of the reason of nodes that are lost for good."""
ARRIVAL_SECONDS = 90.0
"""Time that a node agent may take to connect the first time."""


def _pack(command: AgentCommand) -> bytes:
    return json.dumps(command.encode()).encode()


_BEAT = _pack(AgentBeat())


class RemoteEngine:
    """Engine on another node, as last reported.

    Attributes
    ----------
    returncode : int or None
        Exit code, as of `subprocess.Popen`; None while it runs.
    cell : CurrentCell or None
        Cell that it executes.
    log_tail : str
        Last lines of its log.
    kill_reason : str
        Reason why its node agent has killed it, if it has.
    """

    def __init__(self, server: AgentServer, rank: int, serial: int) -> None:
        self._server, self.rank, self.serial = server, rank, serial
        self.pid = 0
        self.returncode: int | None = None
        self.cell: CurrentCell | None = None
        self.log_tail = ""
        self.kill_reason = ""
        server.send_command(rank, Spawn(serial))

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self.returncode

    def signal(self, signum: int) -> None:
        """Send a signal to the engine and to the processes of its cells."""
        self._server.send_command(self.rank, Signal(self.serial, int(signum)))

    def kill(self) -> None:
        """Kill the engine and the processes of its cells."""
        self._server.send_command(self.rank, EndEngine(self.serial))

    def update(self, report: EngineReport) -> None:
        """Apply a report of its node agent."""
        self.pid = report["pid"]
        cell = report["cell"]
        self.cell = CurrentCell(cell[0], cell[1]) if cell else None
        self.log_tail, self.kill_reason = report["log_tail"], report["kill_reason"]
        self.returncode = report["code"]


class AgentServer:
    """Socket that node agents connect to.

    Parameters
    ----------
    address
        Address at which other nodes reach this one.
    ranks
        Ranks of the engines on other nodes.
    """

    def __init__(self, address: str, ranks: list[int]) -> None:
        import zmq

        public, secret = zmq.curve_keypair()
        self._socket = zmq.Context.instance().socket(zmq.ROUTER)
        self._socket.linger = 1000
        enable_heartbeats(self._socket)
        self._socket.curve_server = True
        self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
        port = self._socket.bind_to_random_port(f"tcp://{listen_address(address)}")
        self.endpoint = {"url": f"tcp://{address}:{port}", "serverkey": public.decode()}
        self._engines: dict[int, RemoteEngine] = {}
        self._waiting: dict[int, list[bytes]] = {rank: [] for rank in ranks}
        self._identities: dict[int, bytes] = {}
        self._controller_message = b""
        self._heard = dict.fromkeys(ranks, time.monotonic())
        self._lost: set[int] = set()
        self._given_up: set[int] = set()
        self.notices: dict[int, list[NoticeRecord]] = {}
        """Notices of the cloud about other nodes, by rank."""
        self.data_engines: dict[int, dict[str, JsonObject]] = {}
        """States of data engines on other nodes, by rank and name."""

    def spawn(self, rank: int, serial: int) -> RemoteEngine:
        """Request that an engine is started on its node."""
        self._engines[rank] = RemoteEngine(self, rank, serial)
        return self._engines[rank]

    def set_controller(self, engine: JsonObject) -> None:
        """Send the address of the controller to connected and future node agents."""
        self._controller_message = _pack(SetController(engine))
        for identity in self._identities.values():
            self._send(identity, self._controller_message)

    def send_command(self, rank: int, command: AgentCommand) -> None:
        """Send a command to a node agent, now or once it connects."""
        data = _pack(command)
        if rank in self._identities:
            self._send(self._identities[rank], data)
        else:
            self._waiting[rank].append(data)

    def _send(self, identity: bytes, data: bytes) -> None:
        import zmq

        try:
            self._socket.send_multipart([identity, data], zmq.NOBLOCK)
        except zmq.ZMQError:  # it has gone; its silence will tell
            pass

    def receive_reports(self, add: Callable[[int, NodeSample], None]) -> None:
        """Process reports of node agents; `add` takes the metrics of their nodes."""
        import zmq

        while True:
            try:
                identity, data = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            report: EngineReport = json.loads(data)
            rank = report["rank"]
            if rank not in self._heard:
                continue
            if rank in self._given_up:
                self._send(identity, _pack(StopAgent()))
                continue
            self._heard[rank] = time.monotonic()
            self._identities[rank] = identity
            self._send(identity, _BEAT)
            if (
                self._controller_message and not report["has_controller"]
            ):  # also if it was lost on its way
                self._send(identity, self._controller_message)
            for command in self._waiting.pop(rank, []):
                self._send(identity, command)
            self._waiting[rank] = []
            self.notices[rank] = report.get("notices", [])
            self.data_engines[rank] = report.get("data_engines", {})
            if metrics := report.get("metrics"):
                add(rank, metrics)
            engine = self._engines.get(rank)
            if engine is not None and report.get("serial") == engine.serial:
                engine.update(report)

    def missing_node(self) -> str:
        """Return a node that has not connected within `ARRIVAL_SECONDS`, if any."""
        for rank, begun in self._heard.items():
            is_awaited = rank not in self._identities and rank not in self._given_up
            if is_awaited and time.monotonic() - begun > ARRIVAL_SECONDS:
                return f"node {rank} has not come up within {ARRIVAL_SECONDS:g} s"
        return ""

    def silent(self) -> list[int]:
        """Return the nodes that are not lost yet, and have not been heard of for a while."""
        now = time.monotonic()
        return sorted(
            rank
            for rank in self._identities.keys() - self._lost
            if now - self._heard[rank] > QUIET_SECONDS
        )

    @property
    def lost(self) -> frozenset[int]:
        """Ranks of nodes that have not been heard of for so long that they are lost."""
        return frozenset(self._lost)

    def newly_lost(self) -> list[int]:
        """Return the nodes that are lost since the last call."""
        now = time.monotonic()
        ranks = [
            rank
            for rank in self._identities.keys() - self._lost
            if now - self._heard[rank] > SILENCE_SECONDS
        ]
        self._lost.update(ranks)
        return ranks

    def newly_returned(self) -> list[int]:
        """Return lost nodes that have returned since the last call."""
        now = time.monotonic()
        ranks = [
            rank
            for rank in self._lost - self._given_up
            if now - self._heard[rank] < SILENCE_SECONDS
        ]
        self._lost.difference_update(ranks)
        return ranks

    def newly_given_up(self) -> list[int]:
        """Return lost nodes whose time to return has passed since the last call."""
        now = time.monotonic()
        ranks = [
            rank for rank in self._lost - self._given_up if now - self._heard[rank] > REJOIN_SECONDS
        ]
        self._given_up.update(ranks)
        return ranks

    def give_up(self, rank: int) -> None:
        """Stop a node agent, now or when it returns, and expect it no more."""
        self.send_command(rank, StopAgent())
        self._lost.add(rank)
        self._given_up.add(rank)
        self.notices.pop(rank, None)

    def stop_agents(self) -> None:
        """Stop all node agents."""
        for rank in self._heard:
            self.send_command(rank, StopAgent())
