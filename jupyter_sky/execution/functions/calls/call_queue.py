"""Queue of the calls that wait for a node."""

from __future__ import annotations

from collections import deque

from jupyter_sky.execution.functions.calls.call_durations import (
    BATCH_SECONDS,
    CallDurations,
    batch_size,
)
from jupyter_sky.execution.functions.calls.gathered_calls import PlainCalls
from jupyter_sky.execution.functions.calls.tasks import CallTask

Waiting = CallTask | PlainCalls
"""Entry of the queue: a call, or many quick ones that have no task of their own."""


class CallQueue:
    """Calls that wait for a node, in order.

    Parameters
    ----------
    durations
        Durations of earlier calls, by which quick ones are taken together.
    """

    def __init__(self, durations: CallDurations) -> None:
        self._durations = durations
        self._entries: deque[Waiting] = deque()
        self._count = 0

    def __len__(self) -> int:
        """Return the number of calls."""
        return self._count

    def append(self, entry: Waiting) -> None:
        """Put calls at the end."""
        self._entries.append(entry)
        self._count += entry.count

    def appendleft(self, entry: Waiting) -> None:
        """Put calls at the beginning."""
        self._entries.appendleft(entry)
        self._count += entry.count

    def _popleft(self) -> Waiting:
        entry = self._entries.popleft()
        self._count -= entry.count
        return entry

    def head(self) -> Waiting | None:
        """Return the first entry that somebody waits for; None if there is none."""
        while self._entries:
            if not self._entries[0].is_over:
                return self._entries[0]
            self._popleft()
        return None

    def take(self, slots: int) -> list[CallTask] | PlainCalls:
        """Take the calls that the next message should have.

        Parameters
        ----------
        slots
            Slots of all nodes.
        """
        first = self._popleft()
        if isinstance(first, PlainCalls):
            return self._take_plain(first, slots)
        if first.isolated or not self.is_quick(first):
            return [first]
        taken, seconds = [first], self._seconds(first)
        most = batch_size(self._count, slots, seconds)
        while len(taken) < most and isinstance(task := self.head(), CallTask):
            if task.isolated or not self.is_quick(task):
                break
            seconds += self._seconds(task)
            if seconds > BATCH_SECONDS:
                break
            self._popleft()
            taken.append(task)
        return taken

    def _take_plain(self, calls: PlainCalls, slots: int) -> list[CallTask] | PlainCalls:
        count = 1
        if self.is_quick(calls):
            seconds = self._seconds(calls)
            most = batch_size(self._count + calls.count - 1, slots, seconds)
            count = max(1, min(most, int(BATCH_SECONDS / seconds)))
        taken, rest = calls.split(count)
        if rest.count:
            self.appendleft(rest)
        # one that is not quick is sent as any other call
        return taken if taken.count > 1 else [taken.task(taken.numbers[0])]

    def is_quick(self, entry: Waiting) -> bool:
        """Return whether calls may travel with others: how long they take is known."""
        if entry.call.retry.losses <= 1:  # alone, so that it is known to have begun
            return False
        return entry.replayable and self._durations.is_known(entry.call.function.name)

    def _seconds(self, entry: Waiting) -> float:
        return self._durations.mean(entry.call.function.name)

    def take_all(self) -> list[Waiting]:
        """Take all entries."""
        entries = list(self._entries)
        self._entries.clear()
        self._count = 0
        return entries
