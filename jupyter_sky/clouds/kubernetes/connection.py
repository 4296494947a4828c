"""Process of this machine that connects its input and output with a program in a pod.

ssh starts it as ``ProxyCommand``: ``python -m jupyter_sky.clouds.kubernetes.connection CONTEXT
NAMESPACE POD PROGRAM``. It ends with the program, or when its input and the connection have ended.
"""

from __future__ import annotations

import json
import os
import select
import ssl
import sys
from typing import Any

from jupyter_sky.clouds.kubernetes.api import connect
from jupyter_sky.clouds.provider.classification import ProviderError

STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255
"""Channels of ``channel.k8s.io``: the first byte of each message."""
_PROTOCOL = "v5.channel.k8s.io"
"""The first version in which one end of the connection can be closed."""
_DATA, _CLOSED = (1, 2), 8
"""Opcodes of RFC 6455."""
_BYTES = 65536
_SILENCE_SECONDS = 10.0
"""A program that prints nothing for so long after its input has ended is left alone."""


def open_socket(context: str, namespace: str, pod: str, program: str) -> Any:
    """Return the websocket of a program that has been started in a pod."""
    from kubernetes.stream import stream

    started = stream(
        connect(context).connect_get_namespaced_pod_exec,
        pod,
        namespace,
        command=[program],
        stdin=True,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    return started.sock  # its own methods decode what they read, and miss what TLS has buffered


def relay(socket: Any) -> int:
    """Pass bytes on until the program has ended; return its exit code.

    Parameters
    ----------
    socket
        Of `open_socket`.
    """
    has_input, patience = True, None
    while True:
        if not _has_buffered(socket.sock):
            sources = [socket.sock, *([0] if has_input else [])]
            ready = select.select(sources, [], [], patience)[0]
            if not ready:
                return 0
            if 0 in ready:
                data = os.read(0, _BYTES)
                has_input = bool(data)
                if data:
                    socket.send_binary(bytes([STDIN]) + data)
                elif socket.subprotocol == _PROTOCOL:
                    socket.send_binary(bytes([CLOSE, STDIN]))
                else:
                    patience = _SILENCE_SECONDS  # the program cannot be told
            if socket.sock not in ready:
                continue
        opcode, frame = socket.recv_data_frame(True)
        if opcode == _CLOSED:
            return 0
        if opcode in _DATA and frame.data:
            channel, data = frame.data[0], bytes(frame.data[1:])
            if channel == STATUS:
                return exit_code(data)
            if channel in (STDOUT, STDERR):
                _write(channel, data)


def _has_buffered(connection: Any) -> bool:
    """Whether TLS has decrypted more than was read: the socket then shows nothing."""
    return isinstance(connection, ssl.SSLSocket) and connection.pending() > 0


def _write(output: int, data: bytes) -> None:
    while data:
        data = data[os.write(output, data) :]


def exit_code(status: bytes) -> int:
    """Return the exit code in the ``Status`` at the end of a program.

    Examples
    --------
    >>> exit_code(b'{"status": "Success"}')
    0
    >>> exit_code(b'{"status": "Failure", "details": {"causes": [{"message": "7"}]}}')
    7
    """
    told = json.loads(status)
    if told.get("status") == "Success":
        return 0
    causes = (told.get("details") or {}).get("causes") or [{}]
    text = str(causes[0].get("message", ""))
    return int(text) if text.isdigit() else 1


def main() -> None:
    """Connect, as the arguments say."""
    from kubernetes.client.exceptions import ApiException

    try:
        code = relay(open_socket(*sys.argv[1:5]))
    except (ApiException, ProviderError, OSError) as error:
        sys.exit(f"{sys.argv[3]}: {getattr(error, 'reason', None) or error}")
    sys.exit(code)


if __name__ == "__main__":
    main()
