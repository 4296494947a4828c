"""Connection to the session of a managed service: by TLS, with the newest token of its file."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from jupyter_sky.machines.services.managed_endpoint import newest_headers, trusted_certificates

if TYPE_CHECKING:
    from pyspark.sql.connect.client import ChannelBuilder


def session_channel(path: Path) -> ChannelBuilder:
    """Return the builder of connections to the session that a file describes.

    Tokens expire within a query, which the client then resumes with the metadata that it began
    with: so they are no metadata of the builder but of the calls.
    """
    import grpc
    from pyspark.sql.connect.client import ChannelBuilder

    endpoint = json.loads(path.read_text())
    if endpoint.get("bridge"):
        return _bridged_channel(path)
    headers = newest_headers(path)

    def add_headers(context: Any, callback: Callable[..., None]) -> None:
        try:
            callback(headers(), None)
        except (OSError, ValueError) as error:  # the session has ended, and its folder with it
            callback((), error)

    class SessionChannel(ChannelBuilder):
        """Connections to one session."""

        @property
        def host(self) -> str:
            return endpoint["host"].rpartition(":")[0]

        def toChannel(self) -> Any:
            tls = grpc.ssl_channel_credentials(trusted_certificates(endpoint["authority"]))
            tokens = grpc.metadata_call_credentials(cast(Any, add_headers))
            credentials = grpc.composite_channel_credentials(tls, tokens)
            return self._secure_channel(endpoint["host"], credentials)

    return SessionChannel()


def _bridged_channel(path: Path) -> ChannelBuilder:
    from pyspark.sql.connect.client import ChannelBuilder

    class BridgedChannel(ChannelBuilder):
        """Connections to one session by a bridge on this machine."""

        @property
        def host(self) -> str:
            return "localhost"

        def toChannel(self) -> Any:
            return self._insecure_channel(process_bridge(path).address)

    return BridgedChannel()


# -- Connection to a session that takes bytes in WebSocket messages, as Dataproc's do -------------
#
# gRPC connects to a socket in a folder of this user alone; what it sends goes on as hexadecimal
# text.

CHUNK_BYTES = 8192
"""Bytes of a message, twice as many characters."""
CONNECT_SECONDS = 30.0
MAX_FOLDER_CHARS = 80
"""Addresses of sockets have 107 characters at most."""


@cache
def process_bridge(path: Path) -> WebSocketBridge:
    """Return the bridge of this process to the session that a file describes."""
    bridge = WebSocketBridge(path)
    atexit.register(bridge.close)
    return bridge


class WebSocketBridge:
    """Carrier of bytes between a socket of this user alone and a session.

    Parameters
    ----------
    path
        File that describes the session; its newest token is used for each connection.

    Attributes
    ----------
    address : str
        Where gRPC connects to.
    """

    def __init__(self, path: Path) -> None:
        endpoint = json.loads(path.read_text())
        self._url = f"wss://{endpoint['host']}/{endpoint['bridge']}"
        self._headers = newest_headers(path)
        certificates = trusted_certificates(endpoint["authority"])
        self._tls = ssl.create_default_context(cadata=certificates and certificates.decode())
        self._made = None if len(str(path.parent)) <= MAX_FOLDER_CHARS else _private_folder()
        self._socket = (self._made or path.parent) / f"bridge-{os.getpid()}"
        self._socket.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._socket))
        self._listener.listen()
        self.address = f"unix:{self._socket}"
        self._thread = threading.Thread(target=self._serve, name="sky-bridge", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self._socket.unlink(missing_ok=True)
        if self._made:
            shutil.rmtree(self._made, ignore_errors=True)

    def _serve(self) -> None:
        """Serve each connection in a thread of its own."""
        while True:
            try:
                near, __ = self._listener.accept()
            except OSError:  # it is closed
                return
            threading.Thread(
                target=self._carry, args=(near,), name="sky-bridge-connection", daemon=True
            ).start()

    def _carry(self, near: socket.socket) -> None:
        """Carry the bytes of one connection in both directions, until either side ends."""
        import websocket

        with near, contextlib.suppress(OSError, ValueError, websocket.WebSocketException):
            far = websocket.create_connection(
                self._url,
                timeout=CONNECT_SECONDS,
                header=[f"{name}: {value}" for name, value in self._headers()],
                sslopt={"context": self._tls},
                enable_multithread=True,
            )
            far.settimeout(None)
            back = threading.Thread(
                target=_carry_back, args=(far, near), name="sky-bridge-back", daemon=True
            )
            back.start()
            try:
                while received := near.recv(CHUNK_BYTES):
                    far.send(received.hex())
            finally:
                with contextlib.suppress(OSError, websocket.WebSocketException):
                    far.send_close()
                    far.abort()  # the thread that reads from it waits for this


def _private_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="sky-"))


def _carry_back(far: Any, near: socket.socket) -> None:
    import websocket

    with contextlib.suppress(OSError, ValueError, websocket.WebSocketException):
        while received := far.recv():
            near.sendall(bytes.fromhex(received))
    with contextlib.suppress(OSError):  # the other direction waits for it
        near.shutdown(socket.SHUT_RDWR)
