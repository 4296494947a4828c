"""Queue for machines of one's own: free slots, as they say, and runs that hold the others."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNoOffer, SkyStoreError
from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import RunRow, Store
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.knowledge import tracker
from jupyter_sky.machines.provisioner.placement import Decision, on_premises_candidates

if TYPE_CHECKING:
    from jupyter_sky.machines.provisioner import Report


ASK_SECONDS = 10.0
"""Period at which own machines are asked for free slots while one waits for them."""
_HISTORY = 2000
"""Latest runs whose durations are looked at."""


def read_queue(need: Resources, offer: Offer) -> OwnQueue | None:
    """Return the queue for the slots of an offer; None for a machine that has no slots.

    Machines that do not answer have no free slot.
    """
    cloud = clouds.on_premises_cloud(offer.cloud)
    slots = cloud.slots(need, offer)
    if slots is None:
        return None
    free = cloud.free_slots(need, offer) or 0
    if free >= need.nodes:
        return OwnQueue(slots, free)
    with closing(Store.open(Path(Sky.load().data_dir))) as store:
        return OwnQueue(slots, free, find_holders(store, offer, time.time()))


def await_own_slots(decision: Decision, policy: BurstPolicy, report: Report) -> Decision:
    """Return the decision once own slots are free, or what is rented instead.

    Where nothing may be rented, the machines of one's own are asked, which say why they refuse.

    Parameters
    ----------
    report
        Called with ``placing`` and what is waited for; raises when it is no longer wanted.
    """
    begun = time.monotonic()
    while decision.stage.kind == "own":
        found, verdict = decide_now(decision, policy, time.monotonic() - begun)
        if verdict.action == "own":
            return found
        if verdict.action == "rent":
            return rent_instead(decision, verdict) or decision
        asked_again = time.monotonic() + ASK_SECONDS
        while time.monotonic() < asked_again:
            report("placing", verdict.text)
            time.sleep(0.1)
    return decision


def clear_own_blocks(need: Resources) -> None:
    """Let own machines be asked again that had no free slot lately: they say themselves if so."""
    with suppress(SkyStoreError):  # the tracker helps; it is not needed
        for offer in on_premises_candidates(need)[0]:
            block = tracker.block(offer)
            if block is not None and block.cause == "capacity":
                tracker.observe("cleared", block.place, cause=block.cause)


def decide_now(
    decision: Decision, policy: BurstPolicy, waited: float = 0.0
) -> tuple[Decision, BurstDecision]:
    """Return what a policy says at this moment, and the decision with the own offer to take.

    Of several kinds of own machines the first with enough free slots is taken, else the first for
    which the policy waits.
    """
    need, offers = decision.need, decision.stage.on_premises
    ordered = [decision.offer, *(offer for offer in offers if offer != decision.offer)]
    waits: list[BurstDecision] = []
    for offer in ordered:
        queue = read_queue(need, offer)
        if queue is None:
            return replace(decision, offer=offer, planned=None), BurstDecision("own")
        verdict = decide_burst(policy, queue, need.nodes, waited)
        if verdict.action == "own":
            chosen = decision if offer == decision.offer else None
            return chosen or replace(decision, offer=offer, planned=None), verdict
        waits.append(verdict)
    first = next((each for each in waits if each.action == "wait"), waits[0])
    return decision, first


def rent_instead(decision: Decision, verdict: BurstDecision) -> Decision | None:
    """Return the decision for rented machines, with the reason; None where there are none."""
    try:
        return replace(decision.next_stage(), burst=verdict.text)
    except SkyNoOffer:
        return None


def find_holders(store: Store, offer: Offer, now: float) -> tuple[SlotHolder, ...]:
    """Return the clusters of this user that hold slots of an offer, with what they run."""
    rows = [
        row
        for row in store.clusters()
        if row.cloud == offer.cloud and row.instance_type == offer.instance_type
    ]
    runs = store.runs(limit=_HISTORY) if rows else []
    holders = []
    for row in rows:
        running = [run for run in runs if run.cluster == row.name and run.status == "running"]
        if not running:
            holders.append(SlotHolder(row.nodes, None, row.idle or 0.0))
            continue
        last = max(running, key=lambda run: run.started)
        durations = past_durations(last, runs)
        holders.append(SlotHolder(row.nodes, now - last.started, row.idle or 0.0, durations))
    return tuple(holders)


def past_durations(run: RunRow, history: Sequence[RunRow]) -> tuple[float, ...]:
    """Return how long runs like one took, seconds: of the same code anywhere, else of its notebook.

    The kept code is cut, so that its digest tells what is the same; earlier versions kept none.
    """
    ended = [
        (each, each.ended - each.started)
        for each in history
        if each.ended is not None and each.status == "ok"
    ]
    if run.code_digest:
        same = [seconds for each, seconds in ended if each.code_digest == run.code_digest]
    else:
        same = [seconds for each, seconds in ended if each.code == run.code]
    beside = [seconds for each, seconds in ended if each.notebook == run.notebook]
    return tuple(same or beside)


# -- Decision between machines of one's own and rented ones, by the queue for the former ----------
#
# Bursting is section 6 of the SkyPilot paper (NSDI 2023). All here is a pure function of what
# `own_queue` has asked and read.


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
