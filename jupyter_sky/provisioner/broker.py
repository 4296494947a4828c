"""The broker: asks the optimizer where, tries there, and when a place refuses asks again.

Section 4.3 of the SkyPilot paper (NSDI 2023): what refused is told to the tracker, so that neither
this request nor the next one asks there again for a while, and the plan is made anew without it,
across clouds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from .. import clouds
from ..errors import (
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyNoOffer,
    SkyPermission,
    SkyUnreachable,
    SkyUsageError,
)
from ..offers import Offer
from ..optimizer.candidates import candidates, no_offer
from ..resources import Resources, format_duration
from ..tracker.blocks import block_seconds, scope
from . import Report, cause_of, refused

if TYPE_CHECKING:
    from ..optimizer.planned import Plan

RETRY_SECONDS = (5.0, 300.0)
"""With ``--retry-until-up``: the shortest and the longest time until all places are asked again."""

LOST = 3
"""After so many machines that came up and were no use, it is told: each has cost something."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A place that was asked and did not come up."""

    offer: Offer
    error: SkyError

    @property
    def cause(self) -> str:
        """``capacity``, ``quota`` or ``transient``."""
        return cause_of(self.error)

    def __str__(self) -> str:
        first = self.error.message.splitlines()[0]
        place = self.offer.place
        return first if first.startswith(place) else f"{place}: {first}"


def place(
    need: Resources,
    launch: Callable[[Offer], T],
    report: Report,
    until_up: bool = False,
) -> tuple[T, list[Attempt]]:
    """Bring up what is needed at the best place that does not refuse.

    Parameters
    ----------
    launch
        Launches at an offer and returns what came up. What it raises decides: a place that
        refuses or fails is left, other errors are let through.
    report
        Called with ``placing`` and what is being tried.
    until_up
        When every place has refused, wait and ask again, without end.

    Returns
    -------
    tuple
        What `launch` returned, and the places that had refused before.

    Raises
    ------
    SkyNoOffer
        Nothing on sale meets the request.
    SkyNoCapacity
        Every place that could has refused; says what each said.
    """
    attempts: list[Attempt] = []
    report("placing", "")
    choice = first_choice(need)
    while True:
        offer = choice if isinstance(choice, Offer) else choice.tasks[0].offer
        if attempts:
            report("placing", f"{offer.place}, after {_count(attempts)}")
        try:
            return launch(offer), attempts
        except (SkyNoCapacity, SkyUnreachable, SkyClusterLost, SkyUsageError) as error:
            attempts.append(Attempt(offer, error))
            if offer.cloud == "local" or _is_no_matter_of_place(need, attempts):
                raise
        choice = _next(need, choice, attempts, report, until_up)


def first_choice(need: Resources) -> Offer | Plan:
    """Return where a request goes: an offer where nothing is to be decided, else a plan.

    Raises
    ------
    SkyNoOffer
        Nothing on sale meets the request; says which label stands in the way.
    SkyPermission
        Only clouds were asked for that cannot be used from here.
    """
    own = own_offers(need)
    found = candidates(need, own)
    free = bool(found) and found[0].price == 0
    # nothing is cheaper than free, and machines of one's own are not taken back
    renting = () if free else usable(need)
    if not renting:
        if not found:
            raise _nothing(need, own)
        if len(found) == 1:
            return found[0]
    from ..optimizer.plan import plan

    if not renting:
        return plan(need, offers=found)
    asked = replace(
        need,
        clouds=(*renting, *dict.fromkeys(offer.cloud for offer in found)),
        # a cell's variables live on its machine: it is not risked unasked
        spot=False if need.spot is None else need.spot,
    )
    return plan(asked, own=found)


def planned(need: Resources) -> Plan:
    """Return the plan by which a request would be launched now."""
    choice = first_choice(need)
    if not isinstance(choice, Offer):
        return choice
    from ..optimizer.plan import plan

    return plan(need, offers=[choice])


def usable(need: Resources) -> tuple[str, ...]:
    """Return the clouds that rent machines, are asked for, and have credentials here."""
    return tuple(
        name
        for name in clouds.RENTED
        if (not need.clouds or name in need.clouds) and clouds.is_ready(name)
    )


def own_offers(need: Resources) -> list[Offer]:
    """Return what machines of one's own could do for a request."""
    return [offer for name in clouds.OWN for offer in clouds.own_cloud(name).offers(need)]


def summary(attempts: Sequence[Attempt], offer: Offer) -> str:
    """Say where it came up, after how many refusals, and what was refused."""
    said = "; ".join(dict.fromkeys(str(attempt) for attempt in attempts))
    return f"on {offer.place} after {_count(attempts)}: {said}"


def _nothing(need: Resources, own: Sequence[Offer]) -> SkyError:
    renting = [name for name in need.clouds if name in clouds.RENTED]
    if renting and set(need.clouds) <= set(renting):
        found = clouds.get(renting[0]).check()  # it asks nobody: there are no credentials
        return SkyPermission(
            f"--cloud {','.join(need.clouds)}: {found.found}", hint=found.fix or "see %sky check"
        )
    return no_offer(need, own)


def _next(
    need: Resources,
    choice: Offer | Plan | None,
    attempts: list[Attempt],
    report: Report,
    until_up: bool,
) -> Offer | Plan:
    last = attempts[-1]
    while True:
        try:
            if choice is not None and not isinstance(choice, Offer):
                return choice.replan([scope(last.cause, refused(last.offer, last.error))])
        except SkyNoOffer:
            pass
        if not until_up:
            raise _exhausted(attempts)
        _pause(attempts, report)
        try:
            return first_choice(need)
        except SkyNoOffer:
            choice = None  # all are blocked still


def _exhausted(attempts: Sequence[Attempt]) -> SkyError:
    if len(attempts) == 1:
        return attempts[0].error
    said = "".join(f"\n  {attempt}" for attempt in attempts)
    return SkyNoCapacity(
        f"every place that could take it has refused ({len(attempts)} were asked):{said}",
        hint="ask for less, allow more clouds or spot machines, or wait: --retry-until-up",
    )


def _pause(attempts: Sequence[Attempt], report: Report) -> None:
    """Wait until the first place may be asked again."""
    least, most = RETRY_SECONDS
    waits = [block_seconds(attempt.cause, 1, attempt.offer.cloud) for attempt in attempts]
    until = time.monotonic() + min(most, max(least, min(waits)))
    while (left := until - time.monotonic()) > 0:
        report("placing", f"{_count(attempts)}; all asked again in {format_duration(left)}")
        time.sleep(min(0.1, left))


def _is_no_matter_of_place(need: Resources, attempts: Sequence[Attempt]) -> bool:
    """Whether the next place would fail too.

    Machines that came up and were lost, and orders that clouds call invalid (a type that is no
    longer sold, or a disk that is too large), are tried elsewhere a few times only; not at all
    where the user has named the type.
    """
    if need.instance_type and isinstance(attempts[-1].error, SkyUsageError):
        return True
    kinds = (SkyClusterLost, SkyUsageError)
    return sum(isinstance(attempt.error, kinds) for attempt in attempts) >= LOST


def _count(attempts: Sequence[Attempt]) -> str:
    return f"{len(attempts)} refusal{'s' if len(attempts) > 1 else ''}"
