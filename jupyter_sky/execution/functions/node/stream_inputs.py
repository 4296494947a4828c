"""Streamed arguments on the node, received item by item."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.serialization.payload import join

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.node.calls import Call

WINDOW_ITEMS = 512
WINDOW_BYTES = 4 * 2**20
"""Most of a stream that is on its way, or has arrived and is not consumed yet."""


class Stopped(KeyboardInterrupt):
    """Exception raised inside a call that is stopped by its caller or its time limit."""


class StreamInput:
    """Argument that arrives item by item, as the function consumes it.

    Parameters
    ----------
    number
        Which of the call's streams it is.
    label
        The argument, for messages.
    again
        Whether the function was promised something that it can go through twice.
    """

    def __init__(self, call: Call, number: int, label: str, is_reiterable: bool) -> None:
        self.call, self.number, self.label, self.again = call, number, label, is_reiterable
        self._items: deque[tuple[str, Any]] = deque()
        self._wake = threading.Condition()
        self._consumed = 0
        self._ended = False
        self._closed = False

    def __iter__(self) -> StreamInput:
        if self._ended and self.again:
            raise SkyUsageError(
                _("{label} came as a stream and is used up: it can be gone through once").format(
                    label=self.label
                ),
                hint=_("annotate it as a list to have all of it on the node"),
            )
        return self

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        with self._wake:
            while not self._items and not self._closed:
                self._wake.wait()
            if self._closed and not self._items:
                raise Stopped
            kind, data = self._items.popleft()
            left = len(self._items)
        if kind == "item":
            self._consumed += 1
            if not left or self._consumed >= WINDOW_ITEMS // 4:
                self.call.emit(("input_consumed", self.call.key, self.number, self._consumed))
                self._consumed = 0
            return join((data,), self.call.context.open_blob)
        self._ended = True
        if kind == "error":
            raise join((data,), self.call.context.open_blob)
        raise StopIteration

    def feed(self, items: list[tuple[str, Any]]) -> None:
        """Add items that have arrived."""
        with self._wake:
            self._items.extend(items)
            self._wake.notify()

    def close(self) -> None:
        """End the iteration."""
        with self._wake:
            self._closed = True
            self._wake.notify()
