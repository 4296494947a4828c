"""Nodes of a cluster as the controller hears them: silent, back, given up. Over real sockets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from jupyter_sky.machines.engines.controller import agent_server
from jupyter_sky.machines.engines.controller.agent_server import (
    QUIET_SECONDS,
    SILENCE_SECONDS,
    AgentServer,
)
from jupyter_sky.machines.engines.wire.agent_link import REJOIN_SECONDS
from tests.conftest import wait_until


class Node:
    """The other end: a socket that says what a node agent says."""

    def __init__(self, known: dict[str, str], rank: int) -> None:
        self.rank = rank
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.curve_publickey, self.socket.curve_secretkey = zmq.curve_keypair()
        self.socket.curve_serverkey = known["serverkey"].encode()
        self.socket.connect(known["url"])

    def speak(self, serial: int = 1, code: int | None = None) -> None:
        state: dict[str, Any] = {"rank": self.rank, "serial": serial, "pid": 1, "cell": None}
        state |= {
            "code": code,
            "log_tail": "",
            "kill_reason": "",
            "has_controller": True,
            "metrics": None,
        }
        self.socket.send(json.dumps(state).encode())

    def orders(self) -> list[str]:
        found = []
        while self.socket.poll(200):
            found.append(json.loads(self.socket.recv())["op"])
        return found


@pytest.fixture
def made() -> Iterator[tuple[AgentServer, list[Node]]]:
    it = AgentServer("127.0.0.1", [1, 2])
    nodes = [Node(it.endpoint, 1), Node(it.endpoint, 2)]
    yield it, nodes
    for node in nodes:
        node.socket.close()
    it._socket.close(linger=0)


def hear(it: AgentServer, nodes: list[Node]) -> None:
    for node in nodes:
        node.speak()
    heard = {node.rank for node in nodes}

    def there() -> bool:
        it.receive_reports(lambda rank, metrics: None)
        now = time.monotonic()
        return all(rank in it._identities and now - it._heard[rank] < 1.0 for rank in heard)

    wait_until(there)


def test_silent_node_is_lost_and_may_return(
    made: tuple[AgentServer, list[Node]],
) -> None:
    it, nodes = made
    hear(it, nodes)
    assert it.newly_lost() == [] and it.missing_node() == ""
    it._heard[2] -= QUIET_SECONDS + 1
    assert it.silent() == [2] and it.newly_lost() == []
    it._heard[2] -= SILENCE_SECONDS
    assert it.newly_lost() == [2] and it.silent() == [] and it.newly_lost() == [], "it is told once"
    assert it.newly_returned() == []
    hear(it, nodes)
    assert it.newly_returned() == [2] and it.newly_returned() == []
    assert it.newly_lost() == [] and it.newly_given_up() == []


def test_absent_node_is_given_up_and_stopped(
    made: tuple[AgentServer, list[Node]],
) -> None:
    it, nodes = made
    hear(it, nodes)
    nodes[1].orders()
    it._heard[2] -= REJOIN_SECONDS + 1
    assert it.newly_lost() == [2] and it.newly_given_up() == [2]
    nodes[1].speak()
    wait_until(
        lambda: it.receive_reports(lambda rank, metrics: None) or "stop" in nodes[1].orders()
    )
    assert it.newly_returned() == [] and it.newly_lost() == [] and it.newly_given_up() == []


def test_node_that_never_connects_is_missing(
    made: tuple[AgentServer, list[Node]], monkeypatch: pytest.MonkeyPatch
) -> None:
    it, nodes = made
    hear(it, nodes[:1])
    assert it.missing_node() == ""
    monkeypatch.setattr(agent_server, "ARRIVAL_SECONDS", 0.0)
    assert it.missing_node().startswith("node 2 has not come up")
    assert it.newly_lost() == [], "it was never there"
