"""The thread that speaks to a cluster: a plain loop over ZeroMQ sockets.

ipyparallel's client runs tornado and asyncio in this place, which take longer over a message than
everything else that happens to it on this side. A poll, a receive and a call are enough.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

_log = logging.getLogger(__name__)

TURN = 200
"""Messages taken from one socket before the others, and other threads' callbacks, have a turn."""


class SocketLoop:
    """A loop over sockets that only its own thread touches.

    It has as much of tornado's IOLoop as an ipyparallel client uses.
    """

    def __init__(self) -> None:
        self._handlers: dict[Any, Callable[[list[zmq.Frame]], None]] = {}
        self._callbacks: deque[Callable[[], None]] = deque()
        self._poller = zmq.Poller()
        # other threads wake this one up by a byte
        self._ears, self._mouth = socket.socketpair()
        for end in (self._ears, self._mouth):
            end.setblocking(False)
        self._poller.register(self._ears, zmq.POLLIN)
        self._stopped = False

    def on_recv(self, source: Any, handler: Callable[[list[zmq.Frame]], None]) -> None:
        """Hand the messages of a socket to `handler`, as lists of frames."""
        self._handlers[source] = handler
        self._poller.register(source, zmq.POLLIN)

    def forget(self, source: Any) -> None:
        """Close a socket and hear of it no more."""
        if self._handlers.pop(source, None) is not None:
            self._poller.unregister(source)
            source.close(linger=0)

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's thread, soon; from any thread."""
        self._callbacks.append(callback)
        with contextlib.suppress(BlockingIOError, OSError):  # full: it is awake already
            self._mouth.send(b"\0")

    def stop(self) -> None:
        """End `start` after this turn."""
        self._stopped = True

    def start(self) -> None:
        """Run until stopped."""
        while not self._stopped:
            for source, _ in self._poller.poll():
                if source == self._ears.fileno():
                    self._call()
                else:
                    self._receive(source)

    def _call(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._ears.recv(4096)
        for _ in range(len(self._callbacks)):
            _guarded(self._callbacks.popleft())

    def _receive(self, source: Any) -> None:
        handler = self._handlers.get(source)
        if handler is None:  # forgotten in this very turn
            return
        for _ in range(TURN):
            if source.closed:  # by what it has just received
                return
            try:
                frames = source.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            _guarded(handler, frames)

    def close(self, all_fds: bool = False) -> None:
        """Close the loop, and with `all_fds` its sockets."""
        for end in (self._ears, self._mouth):
            end.close()
        if all_fds:
            for source in self._handlers:
                source.close(linger=0)


def _guarded(function: Callable[..., None], *arguments: Any) -> None:
    """Call; a message that cannot be handled must not end the connection."""
    try:
        function(*arguments)
    except Exception:
        _log.exception("a message could not be handled")
