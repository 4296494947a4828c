"""Ports of a controller: nothing takes one between its choice and its use."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from jupyter_sky.machines.engines.client.connection import ClusterConnection
from jupyter_sky.machines.engines.controller.hub import ReservedPorts, ReservingSocket
from jupyter_sky.machines.engines.wire.engine_requests import Ping, PingReply
from tests.conftest import WAIT, clean, wait_until

TAKER = """
import socket, sys
from ipyparallel.controller import app
from jupyter_sky.machines.engines.controller.__main__ import main

init_schedulers, taken = app.IPController.init_schedulers, []

def take_ports(self):
    init_schedulers(self)
    for port in (self.engine_info[name] for name in ("hb_ping", "hb_pong", "mux", "iopub")):
        taken.append(socket.socket())
        try:
            taken[-1].bind(("127.0.0.1", port))
            taken[-1].listen()
        except OSError:
            taken.pop()
    print("taken:", len(taken), flush=True)

app.IPController.init_schedulers = take_ports
main(sys.argv[1:])
"""
"""Controller beside something that listens on its ports as soon as they are chosen, if it can."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    started: list[subprocess.Popen] = []

    def start(**more: Any) -> subprocess.Popen:
        for name in ("security", "work", "journal"):
            (tmp_path / name).mkdir()
        config = {"directory": str(tmp_path), "cluster": "c", "nodes": 1, "idle": 600, **more}
        (tmp_path / "config.json").write_text(json.dumps(config))
        command = [sys.executable, "-c", TAKER, str(tmp_path / "config.json")]
        with (tmp_path / "log").open("wb") as log:
            started.append(subprocess.Popen(command, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.wait(WAIT)
    clean(tmp_path)


def test_reserved_port_is_taken_and_then_used(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = ReservedPorts()
    monkeypatch.setattr(ReservingSocket, "reserved", ports)
    addresses = ["127.0.0.2", "127.0.0.1", "127.0.0.2"]
    port = ports.reserve(addresses)
    for address in addresses:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                other.bind((address, port))
    listener = ports.take(f"tcp://127.0.0.2:{port}")
    assert listener is not None
    listener.close()

    with zmq.Context() as context, ReservingSocket(context, zmq.REP) as server:
        server.bind(f"tcp://127.0.0.1:{port}")
        assert ports.take(f"tcp://127.0.0.1:{port}") is None
        server.bind_to_random_port("tcp://127.0.0.1")  # one that nobody has reserved
        with context.socket(zmq.REQ) as client:
            client.connect(f"tcp://127.0.0.1:{port}")
            client.send(b"hello")
            assert server.poll(WAIT * 1000) and server.recv() == b"hello"
    with socket.socket() as other:  # as the listener of ZeroMQ it was closed with its socket
        other.bind(("127.0.0.1", port))


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [{}, {"private": "192.0.2.1", "nodes": 2, "elsewhere": [1]}],
    ids=["one node", "private address of a router"],
)
def test_nothing_takes_a_port_of_a_controller(start, tmp_path: Path, more: dict) -> None:
    controller = start(**more)
    wait_until(lambda: (tmp_path / "security" / "client.json").exists() or controller.poll())
    connection = ClusterConnection("c", tmp_path / "security" / "client.json")
    try:
        connection.wait_ranks([0], WAIT, lambda: None)
        assert isinstance(connection.ask_engine(0, Ping()), PingReply)
    finally:
        connection.close()
    assert "taken: 0" in (tmp_path / "log").read_text()
