"""Number of the messages that a cell publishes, by which its notebook knows when all have come."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_client.session import DELIM

from jupyter_sky.machines.engines.node.output_pacer import OutputPacer
from jupyter_sky.machines.engines.wire.messages import COUNTED_TYPES, Content, Message

PACED_TYPES = COUNTED_TYPES - {"stream", "error"}
"""Text is paced by its length, where it is written (`BoundedOutStream`)."""


class OutputCounter:
    """Counter of the messages of each cell on their way through a session.

    Parameters
    ----------
    session
        The kernel's session; its ``send`` is replaced by that of the counter.

    Attributes
    ----------
    describe_error : callable
        Gives the metadata of an error message, for its content.
    wait_for_room : callable
        Waits while more is to be sent than readers take.
    shown_result : str
        Text of the latest result of the cell that has begun last.
    """

    def __init__(self, session: Any) -> None:
        self._send = session.send
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._is_forked = False
        self._pacer = OutputPacer()
        self.describe_error: Callable[[Content], Content] = lambda content: {}
        self.wait_for_room: Callable[[], None] = lambda: None
        self.shown_result = ""
        os.register_at_fork(after_in_child=self._mark_forked)
        session.send = self.send

    def begin(self, cell: str) -> None:
        """Begin to count the messages of a cell."""
        self._counts[cell], self.shown_result = 0, ""

    def count(self, cell: str) -> int:
        """Return the number of messages of a cell so far."""
        return self._counts.get(cell, 0)

    def end(self, cell: str) -> int:
        """Return the number of messages of a cell that has ended."""
        with self._lock:
            return self._counts.pop(cell, 0)

    def send(self, stream: Any, msg_or_type: Any, *args: Any, **kwargs: Any) -> Any:
        """Send a message and count it, unless it is text that is not shown on this node."""
        if isinstance(msg_or_type, dict) and _is_muted(msg_or_type):
            return None
        if msg_or_type == "error":
            kwargs["metadata"] = self.describe_error(args[0] if args else kwargs["content"])
        message = self._send(stream, msg_or_type, *args, **kwargs)
        if message and not self._is_forked:  # the parent passes it on, and counts it
            self._count(message["header"], message["parent_header"])
            if message["header"]["msg_type"] in PACED_TYPES:
                self._pacer.wait()
                self.wait_for_room()
            if message["header"]["msg_type"] == "execute_result":
                self.shown_result = str(message["content"]["data"].get("text/plain", ""))
        return message

    def count_forwarded(self, frames: Sequence[bytes]) -> None:
        """Count a message of a forked process, which this one passes on."""
        start = frames.index(DELIM) + 2  # a signature is between
        self._count(json.loads(frames[start]), json.loads(frames[start + 1]))

    def _count(self, header: Content, parent: Content) -> None:
        if header["msg_type"] in COUNTED_TYPES:
            cell = parent.get("msg_id")
            with self._lock:  # threads publish, too
                if cell in self._counts:
                    self._counts[cell] += 1

    def _mark_forked(self) -> None:
        self._is_forked = True


def _is_muted(message: Message) -> bool:
    """Return whether this is text that a function does not show on this node."""
    muted = message["parent_header"].get("sky_mute")
    return bool(muted) and message["content"].get("name") in muted.split()
