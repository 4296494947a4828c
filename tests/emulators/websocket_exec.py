"""``exec`` of a Kubernetes cluster: a program behind a websocket with several channels."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

from websocket import ABNF
from websocket._abnf import frame_buffer

STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BYTES = 65536


def choose_protocol(offered: str, known: Sequence[str]) -> str:
    """Return the first protocol of a client that the server knows; empty without one."""
    names = [name.strip() for name in offered.split(",")]
    return next((name for name in names if name in known), "")


def accept(handler: BaseHTTPRequestHandler, protocol: str) -> None:
    """Answer the client's handshake (RFC 6455)."""
    key = handler.headers["Sec-WebSocket-Key"] + _GUID
    digest = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", digest)
    handler.send_header("Sec-WebSocket-Protocol", protocol)
    handler.end_headers()
    handler.close_connection = True


class ExecSession:
    """One program and its websocket.

    Parameters
    ----------
    connection
        TLS connection, after the handshake.
    has_close
        Whether the protocol can close one channel, as version 5 does.
    """

    def __init__(self, connection: Any, has_close: bool) -> None:
        self._connection, self._has_close = connection, has_close
        self._frames = frame_buffer(self._receive, skip_utf8_validation=True)

    def _receive(self, count: int) -> bytes:
        data = self._connection.recv(count)
        if not data:
            raise ConnectionError("the client has closed the connection")
        return data

    def _send(self, data: bytes, opcode: int = ABNF.OPCODE_BINARY) -> None:
        self._connection.sendall(ABNF(1, 0, 0, 0, opcode, mask_value=0, data=data).format())

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Run a program until it, or the connection, has ended."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True
        ) as process:
            try:
                self._relay(process)
                self._send(bytes([STATUS]) + json.dumps(_status(process.wait())).encode())
                self._send(b"\x03\xe8", ABNF.OPCODE_CLOSE)
            except OSError:
                process.terminate()

    def _relay(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout and process.stderr
        outputs = {process.stdout.fileno(): STDOUT, process.stderr.fileno(): STDERR}
        while outputs:
            buffered = self._connection.pending() > 0
            sources = [self._connection, *outputs]
            ready = [self._connection] if buffered else select.select(sources, [], [])[0]
            for source in ready:
                if source is self._connection:
                    self._take(process)
                elif data := os.read(source, _BYTES):
                    self._send(bytes([outputs[source]]) + data)
                else:
                    del outputs[source]

    def _take(self, process: subprocess.Popen[bytes]) -> None:
        """Take one message of the client."""
        frame = self._frames.recv_frame()
        assert process.stdin
        if frame.opcode == ABNF.OPCODE_CLOSE:
            raise ConnectionError("the client has closed the connection")
        if frame.opcode == ABNF.OPCODE_PING:
            self._send(frame.data, ABNF.OPCODE_PONG)
        elif frame.data[:1] == bytes([STDIN]):
            with suppress(BrokenPipeError, ValueError):
                process.stdin.write(frame.data[1:])
                process.stdin.flush()
        elif frame.data[:2] == bytes([CLOSE, STDIN]) and self._has_close:
            with suppress(BrokenPipeError):
                process.stdin.close()


def _status(code: int) -> dict[str, Any]:
    """Return the ``Status`` that ends a program."""
    known = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    if code == 0:
        return known | {"status": "Success"}
    cause = {"reason": "ExitCode", "message": str(code)}
    message = f"command terminated with non-zero exit code: exit status {code}"
    told = {"status": "Failure", "reason": "NonZeroExitCode", "message": message}
    return known | told | {"details": {"causes": [cause]}}
