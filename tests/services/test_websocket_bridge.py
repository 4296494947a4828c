"""Bytes to a session and back in WebSocket messages."""

from __future__ import annotations

import json
import os
import socket
import socketserver
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_sky.machines.services.spark_session import WebSocketBridge as Bridge
from tests.conftest import wait_until
from tests.emulators.connect_server import BRIDGE_PATH, WebSocketBridge
from tests.emulators.server import write_authority


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while received := self.request.recv(65536):
            self.request.sendall(received)


@pytest.fixture(scope="module")
def service() -> Iterator[WebSocketBridge]:
    """Yield a bridge to a server that sends back what it receives."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        made = WebSocketBridge(
            server.server_address[1], lambda told: "" if told == "Bearer good" else "unknown"
        )
        yield made
        made.close()
        server.shutdown()


def describe(folder: Path, service: WebSocketBridge, token: str = "good") -> Path:
    """Write the file of a session that is reached by the bridge."""
    write_authority(folder / "authority.pem")
    path = folder / "endpoint.json"
    path.write_text(
        json.dumps(
            {
                "host": f"localhost:{service.port}",
                "bridge": BRIDGE_PATH.lstrip("/"),
                "headers": {"Authorization": f"Bearer {token}"},
                "authority": str(folder / "authority.pem"),
            }
        )
    )
    return path


@contextmanager
def bridged(path: Path) -> Iterator[Bridge]:
    made = Bridge(path)
    yield made
    made.close()


def connect(bridge: Bridge) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(20)
    made.connect(bridge.address.removeprefix("unix:"))
    return made


def test_bytes_come_back_whole(tmp_path: Path, service: WebSocketBridge) -> None:
    sent = os.urandom(300_000)
    with bridged(describe(tmp_path, service)) as bridge, connect(bridge) as made:
        writer = threading.Thread(target=made.sendall, args=(sent,))
        writer.start()
        received = b""
        while len(received) < len(sent):
            received += made.recv(65536)
        writer.join()
    assert received == sent
    wait_until(lambda: not service.connections, "its connection is left")


def test_connection_ends_with_the_far_one(tmp_path: Path, service: WebSocketBridge) -> None:
    with bridged(describe(tmp_path, service)) as bridge, connect(bridge) as made:
        made.sendall(b"x")
        assert made.recv(1) == b"x"
        service.cut()
        assert made.recv(1) == b""


def test_next_connection_has_the_newest_token(tmp_path: Path, service: WebSocketBridge) -> None:
    path = describe(tmp_path, service, "old")
    with bridged(path) as bridge:
        with connect(bridge) as made:
            assert made.recv(1) == b"", "the service lets nobody in with it"
        describe(tmp_path, service, "good")
        with connect(bridge) as made:
            made.sendall(b"x")
            assert made.recv(1) == b"x"


@pytest.mark.parametrize("name", ["short", "long" * 25])
def test_socket_is_of_this_user_alone(service: WebSocketBridge, name: str) -> None:
    with tempfile.TemporaryDirectory(prefix="s-") as base:
        folder = Path(base) / name
        folder.mkdir(mode=0o700)
        with bridged(describe(folder, service)) as bridge:
            address = Path(bridge.address.removeprefix("unix:"))
            assert address.is_socket() and (address.parent == folder) == (name == "short")
            assert stat.S_IMODE(address.parent.stat().st_mode) == 0o700
        assert not address.exists() and address.parent.exists() == (name == "short")
