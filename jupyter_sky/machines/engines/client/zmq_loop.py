"""Event loop over ZeroMQ sockets, in the thread of a cluster's client.

ipyparallel's client runs tornado and asyncio in this place, which take longer over a message than
everything else that happens to it on this side. A poll, a receive and a call are enough.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

_log = logging.getLogger(__name__)

MAX_MESSAGES_PER_TURN = 200
"""Messages taken from one socket before the others, and other threads' callbacks, have a turn."""
MAX_SECONDS_PER_TURN = 0.05
"""Time after which they have it even if fewer were taken: pieces of a flood of text are large, and
the answers of a controller must not wait for seconds behind them."""


class ZmqLoop:
    """Event loop over sockets that only its own thread touches.

    It has as much of tornado's IOLoop as an ipyparallel client uses.
    """

    def __init__(self) -> None:
        self._handlers: dict[Any, Callable[[list[zmq.Frame]], None]] = {}
        self._callbacks: deque[Callable[[], None]] = deque()
        self._poller = zmq.Poller()
        # other threads wake this one up by a byte
        self._wakeup_recv, self._wakeup_send = socket.socketpair()
        for end in (self._wakeup_recv, self._wakeup_send):
            end.setblocking(False)
        self._poller.register(self._wakeup_recv, zmq.POLLIN)
        self._stopped = False

    def on_recv(self, source: Any, handler: Callable[[list[zmq.Frame]], None]) -> None:
        """Hand the messages of a socket to `handler`, as lists of frames."""
        self._handlers[source] = handler
        self._poller.register(source, zmq.POLLIN)

    def remove(self, source: Any) -> None:
        """Close a socket and stop polling it."""
        if self._handlers.pop(source, None) is not None:
            self._poller.unregister(source)
            source.close(linger=0)

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Run `callback` in the loop's thread, soon; from any thread."""
        self._callbacks.append(callback)
        with contextlib.suppress(BlockingIOError, OSError):  # full: it is awake already
            self._wakeup_send.send(b"\0")

    def stop(self) -> None:
        """Let `start` return after this iteration."""
        self._stopped = True

    def start(self) -> None:
        """Run until stopped."""
        while not self._stopped:
            for source, _ in self._poller.poll():
                if source == self._wakeup_recv.fileno():
                    self._run_callbacks()
                else:
                    self._receive(source)

    def _run_callbacks(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wakeup_recv.recv(4096)
        for _ in range(len(self._callbacks)):
            _call_safely(self._callbacks.popleft())

    def _receive(self, source: Any) -> None:
        handler = self._handlers.get(source)
        if handler is None:  # forgotten in this very turn
            return
        deadline = time.monotonic() + MAX_SECONDS_PER_TURN
        for _ in range(MAX_MESSAGES_PER_TURN):
            if source.closed or time.monotonic() > deadline:  # closed by what it has just received
                return
            try:
                frames = source.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            _call_safely(handler, frames)

    def close(self, all_fds: bool = False) -> None:
        """Close the loop, and with `all_fds` its sockets."""
        for end in (self._wakeup_recv, self._wakeup_send):
            end.close()
        if all_fds:
            for source in self._handlers:
                source.close(linger=0)


def _call_safely(function: Callable[..., None], *arguments: Any) -> None:
    """Call a handler; log its error, which must not end the connection."""
    try:
        function(*arguments)
    except Exception:
        _log.exception("a message could not be handled")
