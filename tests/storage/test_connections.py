"""Tests of `jupyter_sky.storage.connections`."""

from __future__ import annotations

import socket

import pytest

from jupyter_sky.storage.connections import Connections
from jupyter_sky.storage.errors import SkyConnectionLost


@pytest.mark.parametrize(
    ("target", "headers"),
    [("/a\r\nX-Other: 1", {}), ("/a", {"X-Name": "b\r\nX-Other: 1"}), ("/a", {"X\nY": "b"})],
)
def test_line_breaks_cannot_add_headers(target: str, headers: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = Connections()
        with pytest.raises(SkyConnectionLost, match="line break"):
            connections.request(
                "GET", f"http://127.0.0.1:{server.getsockname()[1]}{target}", headers
            )
        peer, __ = server.accept()
        with peer:
            assert peer.recv(1) == b"", "nothing was sent"
