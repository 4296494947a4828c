"""Streams that nobody reads while their nodes wait, and calls that wait for these nodes."""

from __future__ import annotations

import threading
from weakref import WeakSet

from jupyter_sky.execution.functions.calls.call_queue import Waiting
from jupyter_sky.execution.functions.calls.notices import unread_notice
from jupyter_sky.execution.functions.calls.streams import ItemBuffer
from jupyter_sky.execution.functions.calls.tasks import CallTask


class UnreadStreams:
    """Calls whose generators wait on their nodes until items are read; each is reported once."""

    def __init__(self) -> None:
        self._tasks: list[CallTask] = []
        self._noted: WeakSet[ItemBuffer] = WeakSet()

    def add(self, task: CallTask) -> None:
        """Add a call whose node has reported that its stream is not read."""
        if task.stream is not None and task.stream not in self._noted:
            self._noted.add(task.stream)
            self._tasks.append(task)

    def report(self, waiting: Waiting) -> None:
        """Say, in the output of a call that waits for a node, which streams keep nodes busy."""
        if not self._tasks:
            return
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            assert task.stream is not None
            rank = task.stream.unread_on
            if rank is None:  # it has been read since
                self._noted.discard(task.stream)
                continue
            text = unread_notice(repr(task.call), rank, repr(waiting.call))
            # in a thread: the caller holds a lock, and sys.stderr may be the user's own
            arguments = rank, "stderr", text
            threading.Thread(target=waiting.sink.write, args=arguments, daemon=True).start()
