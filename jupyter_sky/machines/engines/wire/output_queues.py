# pyright: strict
"""Bounded queues of outputs: whoever prints waits for whoever reads, as at the end of a pipe."""

from __future__ import annotations

import zmq

QUEUED_MESSAGES = 16
"""Messages that wait in one socket for one reader. A piece of text has up to a megabyte."""

WAITING_PUBLISHER = ((zmq.SNDHWM, QUEUED_MESSAGES), (zmq.XPUB_NODROP, 1))
"""Options of a publisher that waits for its slowest reader; by itself it drops what is too much,
and with a queue without a limit it takes all memory."""
BOUNDED_READER = ((zmq.RCVHWM, QUEUED_MESSAGES),)
"""Options of a reader for whom a publisher waits."""


def bound(socket: zmq.Socket[bytes], options: tuple[tuple[int, int], ...]) -> None:
    """Set options of a socket; they hold for its connections as well."""
    for option, value in options:
        socket.setsockopt(option, value)
