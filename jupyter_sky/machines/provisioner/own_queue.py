"""Queue for machines of one's own: free slots, as they say, and runs that hold the others."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyNoOffer, SkyStoreError
from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import RunRow, Store
from jupyter_sky.knowledge import tracker
from jupyter_sky.machines.provisioner.burst import BurstDecision, OwnQueue, SlotHolder, decide_burst
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
