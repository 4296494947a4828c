"""Decision between machines of one's own and rented ones, by the queue for the former.

Bursting is section 6 of the SkyPilot paper (NSDI 2023). All here is a pure function of what
`own_queue` has asked and read.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.translation import _, ngettext


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """Cluster of this user that holds slots of own machines.

    Attributes
    ----------
    slots : int
        How many.
    elapsed : float or None
        Time for which its present run goes on, seconds; None where nothing runs there.
    idle : float
        Time after which it gives its slots back unless it is used, seconds.
    durations : tuple of float
        How long earlier runs like this one took, seconds.
    """

    slots: int
    elapsed: float | None
    idle: float
    durations: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnQueue:
    """Slots of own machines that would do, and who has them.

    Attributes
    ----------
    slots, free : int
        All slots, and those that nobody holds.
    holders : tuple of SlotHolder
        Clusters of this user; slots that are left over are others', of whom nothing is known.
    """

    slots: int
    free: int
    holders: tuple[SlotHolder, ...] = ()

    def wait_seconds(self, needed: int) -> float | None:
        """Return the expected time until so many slots are free; None where it is not known.

        Examples
        --------
        >>> holder = SlotHolder(2, elapsed=60.0, idle=0.0, durations=(100.0, 90.0, 110.0))
        >>> OwnQueue(2, 0, (holder,)).wait_seconds(1)
        40.0
        >>> OwnQueue(2, 0).wait_seconds(1), OwnQueue(2, 1).wait_seconds(1)
        (None, 0.0)
        """
        free, wait = self.free, 0.0
        ends = [(_end_seconds(holder), holder.slots) for holder in self.holders]
        known = sorted((end, slots) for end, slots in ends if end is not None)
        for end, slots in known:
            if free >= needed:
                break
            free, wait = free + slots, end
        return wait if free >= needed else None


def _end_seconds(holder: SlotHolder) -> float | None:
    """Return the expected time until a holder gives its slots back; None where it is not known."""
    if holder.elapsed is None:
        return holder.idle
    left = remaining_seconds(holder.elapsed, holder.durations)
    return None if left is None else left + holder.idle


def remaining_seconds(elapsed: float, durations: Sequence[float]) -> float | None:
    """Return the expected rest of a run, by the durations of runs like it.

    Runs that were over by now do not count. One that has taken longer than all of them is expected
    to take as long again.

    Examples
    --------
    >>> remaining_seconds(60.0, [30.0, 100.0, 120.0]), remaining_seconds(200.0, [30.0, 100.0])
    (50.0, 200.0)
    >>> remaining_seconds(60.0, [])
    """
    if not durations:
        return None
    longer = [each for each in durations if each > elapsed]
    return statistics.median(longer) - elapsed if longer else elapsed


@dataclass(frozen=True, slots=True)
class BurstDecision:
    """Decision of the moment.

    Attributes
    ----------
    action : str
        ``own``, ``wait``, or ``rent``.
    text : str
        Why, in a sentence; empty where there is nothing to tell.
    """

    action: Literal["own", "wait", "rent"]
    text: str = ""


def decide_burst(
    policy: BurstPolicy, queue: OwnQueue, needed: int, waited: float = 0.0
) -> BurstDecision:
    """Decide whether to take own slots, to wait for them, or to rent.

    Own slots are taken where there are enough. Else the wait so far and the expected one are
    compared with the limit; where nothing is known of those who hold the slots, the whole time is
    waited.

    Parameters
    ----------
    needed
        Slots that are needed at once.
    waited
        Time waited so far, seconds.

    Examples
    --------
    >>> policy = BurstPolicy("spot", 2.0, after=600.0)
    >>> decide_burst(policy, OwnQueue(4, 1), 1).action
    'own'
    >>> long = SlotHolder(4, elapsed=0.0, idle=600.0, durations=(900.0,))
    >>> decide_burst(policy, OwnQueue(4, 0, (long,)), 1).action
    'rent'
    >>> unknown = OwnQueue(4, 0)
    >>> decide_burst(policy, unknown, 1).action, decide_burst(policy, unknown, 1, 600).action
    ('wait', 'rent')
    """
    if queue.free >= needed:
        return BurstDecision("own")
    busy = ngettext("the only slot is taken", "{taken} of {slots} slots are taken", queue.slots)
    busy = busy.format(taken=queue.slots - queue.free, slots=queue.slots)
    expected = queue.wait_seconds(needed)
    limit = format_duration(policy.after)
    rented = policy.describe_rented()
    if expected is None:
        if waited < policy.after:
            text = _("own machines: {busy}, for how long is not known; waiting {limit} at most")
            return BurstDecision("wait", text.format(busy=busy, limit=limit))
        text = _("own machines: {busy}; waited {waited}: {rented}")
        waited_text = format_duration(waited)
        return BurstDecision("rent", text.format(busy=busy, waited=waited_text, rented=rented))
    wait = format_duration(expected)
    if waited + expected <= policy.after:
        text = _("own machines: {busy}, for about {wait} more; rented after {limit}")
        return BurstDecision("wait", text.format(busy=busy, wait=wait, limit=limit))
    text = _("own machines: {busy}, for about {wait} more, and the limit is {limit}: {rented}")
    return BurstDecision("rent", text.format(busy=busy, wait=wait, limit=limit, rented=rented))
