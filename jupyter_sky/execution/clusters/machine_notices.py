"""Notices of a cloud about the machines of one cluster, as this notebook knows them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.notices import Notice, NoticeKind

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.wire.messages import NoticeRecord

Notices = Mapping[int, tuple[Notice, ...]]
"""Notices that hold, by the rank of their machine."""


def parse_notices(told: Mapping[str, Sequence[NoticeRecord]]) -> dict[int, tuple[Notice, ...]]:
    """Return the notices that a controller tells of; ranks without any are left out.

    Examples
    --------
    >>> parse_notices({"1": [{"kind": "preempt", "id": "a", "seen": 0.0, "ends": 9.0}], "2": []})[1]
    (Notice(kind=<NoticeKind.PREEMPT: 'preempt'>, id='a', seen=0.0, ends=9.0),)
    """
    return {int(rank): tuple(map(Notice.of, records)) for rank, records in told.items() if records}


def leaving_ranks(notices: Notices) -> frozenset[int]:
    """Return the ranks whose machines are going to be taken away: no new work goes there.

    Examples
    --------
    >>> sorted(leaving_ranks({2: (Notice(NoticeKind.PREEMPT, "a", 0.0),)}))
    [2]
    """
    going = (NoticeKind.PREEMPT,)
    return frozenset(
        rank for rank, found in notices.items() if any(notice.kind in going for notice in found)
    )


def describe_change(rank: int, found: Sequence[Notice], now: float) -> str:
    """Return a sentence about the notices of a machine that hold now; one without any is withdrawn.

    Examples
    --------
    >>> describe_change(1, [Notice(NoticeKind.PREEMPT, "a", 0.0, 120.0)], 0.0)
    'node 1 is taken away by its cloud in 120 s'
    >>> describe_change(1, [], 0.0)
    'node 1 stays: the notice of its cloud was withdrawn'
    """
    if not found:
        return _("node {rank} stays: the notice of its cloud was withdrawn").format(rank=rank)
    first = next((n for n in found if n.kind is NoticeKind.PREEMPT), found[0])
    left = first.left(now)
    when = "" if left is None else _(" in {left:.0f} s").format(left=left)
    texts = {
        NoticeKind.PREEMPT: _("node {rank} is taken away by its cloud{when}"),
        NoticeKind.AT_RISK: _("node {rank} is likely to be taken away by its cloud soon"),
        NoticeKind.PAUSE: _("node {rank} is paused or restarted by its cloud{when}"),
    }
    return texts[first.kind].format(rank=rank, when=when)


class MachineNotices:
    """Notices of one cluster that hold, and those who want to know of changes.

    Parameters
    ----------
    record
        Called with a sentence about each change.

    Attributes
    ----------
    listeners : list of callable
        Called with all notices that hold when they have changed, in any thread.
    """

    def __init__(self, record: Callable[[str], None]) -> None:
        self._record = record
        self._current: dict[int, tuple[Notice, ...]] = {}
        self._lock = threading.Lock()
        self.listeners: list[Callable[[Notices], None]] = []

    @property
    def current(self) -> Notices:
        """Notices that hold now."""
        return self._current

    def update(self, told: Mapping[str, Sequence[NoticeRecord]], now: float) -> None:
        """Take the notices that the controller tells of, and call the listeners of a change."""
        with self._lock:
            before, after = self._current, parse_notices(told)
            if before == after:
                return
            self._current = after
        for rank in sorted(before.keys() | after.keys()):
            if before.get(rank) != after.get(rank):
                self._record(describe_change(rank, after.get(rank, ()), now))
        for listener in list(self.listeners):
            listener(after)

    def describe(self, now: float) -> str:
        """Return the notices that hold, in words; empty without any."""
        return "; ".join(describe_change(r, found, now) for r, found in self._current.items())
