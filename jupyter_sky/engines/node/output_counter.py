"""Number of the messages that a cell publishes, by which its notebook knows when all have come."""

from __future__ import annotations

import os
import threading
from typing import Any

from ..wire.messages import COUNTED_TYPES, FORKED, Message


class OutputCounter:
    """Counter of the messages of each cell on their way through a session.

    Parameters
    ----------
    session
        The kernel's session; its ``send`` is replaced by that of the counter.
    """

    def __init__(self, session: Any) -> None:
        self._send = session.send
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._is_forked = False
        os.register_at_fork(after_in_child=self._mark_forked)
        session.send = self.send

    def begin(self, cell: str) -> None:
        """Begin to count the messages of a cell."""
        self._counts[cell] = 0

    def count(self, cell: str) -> int:
        """Return the number of messages of a cell so far."""
        return self._counts.get(cell, 0)

    def end(self, cell: str) -> int:
        """Return the number of messages of a cell that has ended."""
        with self._lock:
            return self._counts.pop(cell, 0)

    def send(self, stream: Any, msg_or_type: Any, *args: Any, **kwargs: Any) -> Any:
        """Send a message and count it, unless it is text that is not shown on this node."""
        if isinstance(msg_or_type, dict):
            if _is_muted(msg_or_type):
                return None
            if self._is_forked:  # not counted here, so its notebook must not count it either
                msg_or_type["metadata"] = {**msg_or_type.get("metadata", {}), FORKED: True}
        message = self._send(stream, msg_or_type, *args, **kwargs)
        if message and message["header"]["msg_type"] in COUNTED_TYPES and not self._is_forked:
            cell = message["parent_header"].get("msg_id")
            with self._lock:  # threads publish, too
                if cell in self._counts:
                    self._counts[cell] += 1
        return message

    def _mark_forked(self) -> None:
        self._is_forked = True


def _is_muted(message: Message) -> bool:
    """Return whether this is text that a function does not show on this node."""
    muted = message["parent_header"].get("sky_mute")
    return bool(muted) and message["content"].get("name") in muted.split()
