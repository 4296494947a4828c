"""Broker: asks the optimizer for a place, launches there, and asks again when it refuses.

Section 4.3 of the SkyPilot paper (NSDI 2023): what refused is told to the tracker, so that neither
this request nor the next one asks there again for a while, and the plan is made anew without it,
across clouds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from jupyter_sky.base.errors import (
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyNoOffer,
    SkyUnreachable,
    SkyUsageError,
)
from jupyter_sky.base.requests.cell_options.burst import BurstPolicy
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources, format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.tracker.blocks import block_seconds, make_scope
from jupyter_sky.machines.provisioner import Report, cause_of, refusal_scope
from jupyter_sky.machines.provisioner.own_queue import await_own_slots, clear_own_blocks
from jupyter_sky.machines.provisioner.placement import Decision, decide_placement

RETRY_SECONDS = (5.0, 300.0)
"""Shortest and longest time until all places are asked again, with ``--retry-until-up``."""

LOST_STAGE = 3
"""Launches of one stage that come up in vain before the next stage is asked, or the error is
raised: each has cost money."""

_SHOWN = 8
"""Refusals that an error lists."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """Failed launch at a place."""

    offer: Offer
    error: SkyError
    stage: str = ""

    @property
    def cause(self) -> str:
        """``capacity``, ``quota`` or ``transient``."""
        return cause_of(self.error)

    @property
    def did_come_up(self) -> bool:
        """Whether machines came up, and so cost something."""
        return self.error.machines_came_up or isinstance(self.error, SkyClusterLost)

    def __str__(self) -> str:
        first = self.error.message.splitlines()[0]
        place = self.offer.place
        return first if first.startswith(place) else f"{place}: {first}"


@dataclass(frozen=True, slots=True)
class PlacementResult(Generic[T]):
    """Launch that has come up.

    Attributes
    ----------
    result
        Return value of the launch.
    decision : Decision
        Place at which it came up.
    attempts : tuple of Attempt
        Failed launches before it.
    """

    result: T
    decision: Decision
    attempts: tuple[Attempt, ...] = ()

    @property
    def notes(self) -> list[str]:
        """Sentences for the user: stages that were passed over, and refusals."""
        refusals = [format_attempts(self.attempts, self.decision.offer)] if self.attempts else []
        return [*self.decision.notes, *refusals]


def place(
    need: Resources,
    launch: Callable[[Offer], T],
    report: Report,
    until_up: bool = False,
    allocation: str | None = None,
    burst: BurstPolicy | None = None,
    **settings: Any,
) -> PlacementResult[T]:
    """Launch at the best place that does not refuse.

    Parameters
    ----------
    launch
        Function that launches at an offer. On errors that mean a refusal or a failure of the place
        the next one is tried; others are raised.
    report
        Called with ``placing`` and the place that is being tried.
    until_up
        When every place has refused, wait and ask again, without end.
    allocation
        See `jupyter_sky.machines.provisioner.placement.decide_placement`.
    burst
        How long machines of one's own are waited for, and what is rented then.
    **settings
        Settings of `jupyter_sky.decisions.optimizer.planning.plan`.

    Raises
    ------
    SkyNoOffer
        Nothing on sale meets the request.
    SkyNoCapacity
        Every place that could has refused; the message has the reason of each.
    """
    attempts: list[Attempt] = []
    report("placing", "")
    decide = partial(decide_placement, need, allocation, burst=burst, **settings)
    if burst is not None:
        clear_own_blocks(need)
    decision = decide()
    if burst is not None:
        decision = await_own_slots(decision, burst, report)
    while True:
        offer = decision.offer
        if attempts:
            report("placing", f"{offer.place}, after {_count(attempts)}")
        try:
            return PlacementResult(launch(offer), decision, tuple(attempts))
        except (SkyNoCapacity, SkyUnreachable, SkyClusterLost, SkyUsageError) as error:
            attempts.append(Attempt(offer, error, decision.stage.kind))
            if offer.cloud == "local" or _is_request_invalid(need, attempts):
                raise
        following = _next_decision(decision, attempts)
        if following is None:
            if decision.stage.kind in _exhausted_stages(attempts):
                raise attempts[-1].error
            if not until_up:
                raise _no_places_error(attempts)
            following = _decide_again(decide, attempts, report)
        decision = following


def format_attempts(attempts: Sequence[Attempt], offer: Offer) -> str:
    """Return a sentence with the place of a launch and the refusals before it."""
    refusals = "; ".join(dict.fromkeys(str(attempt) for attempt in attempts))
    return f"on {offer.place} after {_count(attempts)}: {refusals}"


def _next_decision(decision: Decision, attempts: Sequence[Attempt]) -> Decision | None:
    """Return the decision after a refusal; None when no place is left."""
    last = attempts[-1]
    try:
        if decision.stage.kind in _exhausted_stages(attempts):
            return decision.next_stage()
        return decision.without_refused(
            make_scope(last.cause, refusal_scope(last.offer, last.error))
        )
    except SkyNoOffer:
        return None


def _decide_again(
    decide: Callable[..., Decision], attempts: list[Attempt], report: Report
) -> Decision:
    """Wait until a place can be asked again, and decide anew."""
    while True:
        _wait_for_retry(attempts, report)
        try:
            return decide(without=_exhausted_stages(attempts))
        except SkyNoOffer:
            pass  # all are blocked still


def _no_places_error(attempts: Sequence[Attempt]) -> SkyError:
    if len(attempts) == 1:
        return attempts[0].error
    refusals = "".join(f"\n  {attempt}" for attempt in attempts[:_SHOWN])
    if (more := len(attempts) - _SHOWN) > 0:
        told = _("and {count} more: jupyter sky tracker failures lists them")
        refusals += f"\n  {told.format(count=more)}"
    return SkyNoCapacity(
        _(
            "every place that could take it has refused ({attempts_count} were asked):{refusals}"
        ).format(attempts_count=len(attempts), refusals=refusals),
        hint=_("ask for less, allow more clouds or spot machines, or wait: --retry-until-up"),
    )


def _wait_for_retry(attempts: Sequence[Attempt], report: Report) -> None:
    """Wait until the first place may be asked again."""
    least, most = RETRY_SECONDS
    waits = [block_seconds(attempt.cause, 1, attempt.offer.cloud) for attempt in attempts]
    until = time.monotonic() + min(most, max(least, min(waits)))
    while (left := until - time.monotonic()) > 0:
        report("placing", f"{_count(attempts)}; all asked again in {format_duration(left)}")
        time.sleep(min(0.1, left))


def _is_request_invalid(need: Resources, attempts: Sequence[Attempt]) -> bool:
    """Return whether the request itself is at fault, so that the next place would fail too.

    Requests that clouds call invalid (a type that is no longer sold, or a disk that is too large)
    are tried elsewhere a few times only; not at all where the user has named the type, nor where a
    machine of one's own says so: a mistake is no reason to rent one.
    """
    last = attempts[-1]
    if not isinstance(last.error, SkyUsageError):
        return False
    invalid = sum(isinstance(attempt.error, SkyUsageError) for attempt in attempts)
    return bool(need.instance_type) or last.stage == "own" or invalid >= LOST_STAGE


def _exhausted_stages(attempts: Sequence[Attempt]) -> Collection[str]:
    """Return the kinds of stages whose launches have cost money in vain too often."""
    paid = [attempt.stage for attempt in attempts if attempt.did_come_up]
    return {kind for kind in paid if paid.count(kind) >= LOST_STAGE}


def _count(attempts: Sequence[Attempt]) -> str:
    return f"{len(attempts)} refusal{'s' if len(attempts) > 1 else ''}"
