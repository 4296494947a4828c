"""Decisions on the machines that a pool has lost or is about to lose: pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import (
    SkyBudget,
    SkyCancelled,
    SkyClusterLost,
    SkyError,
    SkyPermission,
    SkyUsageError,
)
from jupyter_sky.knowledge.tracker.blocks import Scope

if TYPE_CHECKING:
    from jupyter_sky.base.requests.offers import Offer
    from jupyter_sky.base.requests.resources import Resources

HEAD_RANK = 0
"""Rank of the machine with the controller: without it, a cluster has ended."""
FIRST_DELAY_SECONDS, DELAY_GROWTH, MAX_DELAY_SECONDS = 30.0, 1.6, 300.0
"""Delays between requests for a machine while every place refuses."""
MAX_IN_VAIN = 3
"""Machines that come up and are of no use, each of which costs, before no more are asked for."""
_FINAL = (SkyBudget, SkyCancelled, SkyPermission, SkyUsageError)


@dataclass(frozen=True, slots=True)
class Search:
    """Requirements of a machine in place of a lost one, and places where it is not wanted."""

    resources: Resources
    avoided: tuple[Scope, ...] = ()


def is_replaceable(error: BaseException) -> bool:
    """Return whether a cluster that was lost by an error is to be replaced.

    Examples
    --------
    >>> is_replaceable(SkyClusterLost("its machine crashed")), is_replaceable(SkyError("refused"))
    (True, False)
    """
    return isinstance(error, SkyClusterLost) and not error.is_intended


def ranks_to_replace(ranks: Collection[int], going: Collection[int]) -> tuple[int, ...]:
    """Return the ranks of a cluster that need other machines when some are taken away.

    Examples
    --------
    >>> ranks_to_replace([0, 1, 2], [2]), ranks_to_replace([0, 1, 2], [0])
    ((2,), (0, 1, 2))
    """
    return tuple(sorted(ranks if HEAD_RANK in going else set(ranks) & set(going)))


def near(resources: Resources, offer: Offer) -> Resources:
    """Return a request for machines in the region of an offer, if a cloud sells that.

    Examples
    --------
    >>> from jupyter_sky.base.requests.offers import Offer
    >>> from jupyter_sky.base.requests.resources import Resources
    >>> near(Resources(), Offer("aws", "us-east-1", "t3.nano", 2, 1)).region
    'us-east-1'
    """
    if find_facts(offer.cloud).on_premises:
        return resources
    return replace(resources, clouds=(offer.cloud,), region=offer.region)


def lost_scope(offer: Offer) -> Scope:
    """Return the zone, type and market of an offer, as a place not to launch at."""
    place = (offer.cloud, offer.region, offer.zone or "", offer.instance_type)
    return Scope("capacity", *place, spot=offer.spot)


def searches(resources: Resources, offer: Offer) -> Iterator[Search]:
    """Return requests for machines in place of some of an offer, the preferred first.

    Near the others, and not in the zone, type and market that has just taken a machine away; then
    there, too; then anywhere. Machines of one's own are asked for as before.
    """
    if find_facts(offer.cloud).on_premises:
        yield Search(resources)
        return
    here = near(resources, offer)
    yield Search(here, (lost_scope(offer),))
    yield Search(here)
    if here != resources:
        yield Search(resources)


def retry_delay(refusals: int, in_vain: int, error: SkyError) -> float:
    """Return the seconds after which a machine is asked for again; infinity for never.

    Parameters
    ----------
    refusals
        Number of requests for this machine that have failed.
    in_vain
        Number of machines that have come up for it and were of no use.

    Examples
    --------
    >>> [round(retry_delay(n, 0, SkyError("refused"))) for n in (1, 2, 3, 9)]
    [30, 48, 77, 300]
    >>> retry_delay(1, 0, SkyBudget("spent")), retry_delay(3, 3, SkyError("broken"))
    (inf, inf)
    """
    if isinstance(error, _FINAL) or in_vain >= MAX_IN_VAIN:
        return math.inf
    return min(MAX_DELAY_SECONDS, FIRST_DELAY_SECONDS * DELAY_GROWTH ** (refusals - 1))
