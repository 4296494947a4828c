"""Ports of a controller, held from the moment they are chosen until ZeroMQ listens there.

ipyparallel chooses free ports first and binds them later, some of them in threads whose errors
nobody sees: if another process takes the port of the heartbeats meanwhile, engines hear none, and
end. Here each port listens at once, and ZeroMQ takes the listener over.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, ClassVar

import zmq

BACKLOG = 128
ATTEMPTS = 20
"""Number of ports that are tried until one is free at all addresses."""


class ReservedPorts:
    """Listeners of ports that are chosen and not in use yet.

    Examples
    --------
    >>> ports = ReservedPorts()
    >>> port = ports.reserve(["127.0.0.1"])
    >>> with ports.take(f"tcp://127.0.0.1:{port}") as listener:
    ...     listener.getsockname() == ("127.0.0.1", port)
    True
    >>> ports.take(f"tcp://127.0.0.1:{port}") is None
    True
    """

    def __init__(self) -> None:
        self._listeners: dict[str, socket.socket] = {}

    def reserve(self, addresses: Iterable[str]) -> int:
        """Return a port that is free, and from now on taken, at all of some addresses.

        Raises
        ------
        OSError
            No port is.
        """
        first, *others = dict.fromkeys(addresses)
        for attempt in range(ATTEMPTS):
            with ExitStack() as failed:
                listeners = [failed.enter_context(_listen(first, 0))]
                port = listeners[0].getsockname()[1]
                try:
                    listeners += [failed.enter_context(_listen(each, port)) for each in others]
                except OSError:
                    if attempt == ATTEMPTS - 1:
                        raise
                    continue
                failed.pop_all()
            for address, listener in zip((first, *others), listeners, strict=True):
                self._listeners[f"tcp://{address}:{port}"] = listener
            return port
        raise AssertionError

    def take(self, endpoint: str) -> socket.socket | None:
        """Return the listener of a ZeroMQ address, which is the caller's now; None without one."""
        return self._listeners.pop(endpoint, None)


def _listen(address: str, port: int) -> socket.socket:
    listener = socket.socket()
    try:
        # as ZeroMQ does: connections of a process that has ended do not block the port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


class ReservingSocket(zmq.Socket):
    """ZeroMQ socket that listens on reserved ports by their listeners."""

    reserved: ClassVar[ReservedPorts] = ReservedPorts()

    def bind(self, addr: str) -> Any:
        """Bind the socket to an address."""
        listener = self.reserved.take(addr)
        if listener is None:
            return super().bind(addr)
        self.setsockopt(zmq.USE_FD, listener.fileno())
        try:
            bound = super().bind(addr)
            listener.detach()  # ZeroMQ closes it
        finally:
            listener.close()
            self.setsockopt(zmq.USE_FD, -1)
        return bound
