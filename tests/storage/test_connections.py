"""Tests of `jupyter_sky.machines.storage.stores.connections`."""

from __future__ import annotations

import gc
import socket
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import SkyConnectionLost
from tests.emulators.object_store import ObjectStore
from tests.storage.conftest import store_of


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


def test_kept_connections_are_closed_with_their_owner() -> None:
    """A store that nobody uses any more leaves no open socket, and no warning of one."""
    with ObjectStore() as server, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        server.create("bucket")
        store = store_of(server)
        list(store.list())
        (connection,) = vars(store._connections._local).values()
        kept = connection._socket
        del connection, store
        gc.collect()
        assert kept.fileno() == -1


@pytest.mark.filterwarnings(
    "error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning"
)
def test_connections_close_with_their_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = Connections()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a"
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(connections.request, "GET", url, {})
            peer, __ = server.accept()
            with peer:
                assert peer.recv(100).startswith(b"GET /a")
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                assert asked.result().status == 200
                del connections, asked
                gc.collect()
                pool.shutdown()
                gc.collect()
                assert peer.recv(1) == b"", "it is closed"
