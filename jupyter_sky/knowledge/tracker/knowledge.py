"""All that is known at one moment: what is blocked, and what to expect of any place.

A place where little was seen borrows from its neighbours (a discounted likelihood): what was seen
in another zone of its region counts for a quarter, another type of its family in its region for a
tenth, its type in another region for a twentieth; all that is borrowed counts for no more than the
prior does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.knowledge.catalog.regions import Band
from jupyter_sky.knowledge.tracker import estimates
from jupyter_sky.knowledge.tracker.blocks import Block, blocked
from jupyter_sky.knowledge.tracker.estimates import (
    Chance,
    DecayedCounts,
    Lifetime,
)
from jupyter_sky.knowledge.tracker.observations import Observation, quota_family

OTHER_ZONE, OTHER_TYPE, OTHER_REGION = 0.25, 0.1, 0.05
"""Weight of an observation at a neighbouring place."""

Bands = Callable[[str, str, str], Band | None]
"""The interruption band of a cloud, a region and an instance type."""


def no_bands(cloud: str, region: str, instance_type: str) -> None:
    """Nothing is known of interruptions."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Knowledge from observations at one time. Pure: it asks no clock and reads no file.

    Attributes
    ----------
    now : float
        The moment, in unix seconds.
    blocks : tuple of Block
        The places not worth asking now.
    tallies : dict of Place to Tally
        Faded counts of what was seen.
    bands : callable
        The interruption band of a cloud, region and instance type, or None.

    Examples
    --------
    >>> there = Place("gcp", "us-west1", "us-west1-b", "n2-standard-8", spot=True)
    >>> knowledge = Knowledge.of([Observation("preempted", there, 0.0, seconds=3600.0)], now=0.0)
    >>> knowledge.lifetime(there).hours < knowledge.lifetime(Place("gcp", spot=True)).hours
    True
    """

    now: float
    blocks: tuple[Block, ...]
    tallies: dict[Place, DecayedCounts]
    bands: Bands = no_bands
    _neighbours: dict[tuple[str, ...], list[Place]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, observations: Iterable[Observation], now: float, bands: Bands = no_bands
    ) -> Knowledge:
        """Return the knowledge at `now` (unix seconds); later observations are left out."""
        seen = tuple(observations)
        tallies = estimates.count_decayed(seen, now)
        kin: defaultdict[tuple[str, ...], list[Place]] = defaultdict(list)
        for place in tallies:
            for key in neighbour_keys(place):
                kin[key].append(place)
        return cls(now, blocked(seen, now), tallies, bands, dict(kin))

    def block(self, where: Offer | Place) -> Block | None:
        """Return the longest block of a place, or None."""
        place = Place.of(where)
        return next((block for block in self.blocks if block.scope.covers(place)), None)

    def chance(self, where: Offer | Place) -> Chance:
        """Estimate the chance that a launch works, without regard to blocks (see `block`)."""
        place = Place.of(where)
        own, near = self._own_counts(place), self._neighbour_counts(place)
        near = _limit_weight(near, near.worked + near.failed, estimates.PRIOR_LAUNCHES)
        return estimates.estimate_chance(
            estimates.prior_chance(place.spot, self._band(place)), own, near
        )

    def lifetime(self, where: Offer | Place) -> Lifetime:
        """Estimate a machine's lifetime until preemption."""
        place = Place.of(where)
        own, near = self._own_counts(place), self._neighbour_counts(place)
        hours = estimates.prior_hours(place.spot, self._band(place))
        worth = max(near.preempted, near.hours / hours)  # in preemptions, seen or to be expected
        near = _limit_weight(near, worth, estimates.PRIOR_PREEMPTIONS)
        return estimates.estimate_lifetime(hours, own, near)

    def _band(self, place: Place) -> Band | None:
        if not place.spot:
            return None
        return self.bands(place.cloud, place.region, place.instance_type)

    def _own_counts(self, place: Place) -> DecayedCounts:
        return self.tallies.get(place, DecayedCounts())

    def _neighbour_counts(self, place: Place) -> DecayedCounts:
        """Sum the evidence of neighbours, before it is limited."""
        shares: dict[Place, float] = {}
        for key in neighbour_keys(place):
            for other in self._neighbours.get(key, ()):
                shares[other] = neighbour_weight(place, other)
        shares.pop(place, None)
        near = DecayedCounts()
        for other, share in shares.items():
            near = near.plus(self.tallies[other].times(share))
        return near


def neighbour_keys(place: Place) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that neighbours share: type in a cloud, or family in a region."""
    market = "spot" if place.spot else ""
    kin = quota_family(place.cloud, place.instance_type)
    return (
        ("type", place.cloud, place.instance_type, market),
        ("family", place.cloud, place.region, kin, market),
    )


def neighbour_weight(place: Place, other: Place) -> float:
    """Return the weight of an observation at another place."""
    if place.instance_type != other.instance_type:
        return OTHER_TYPE
    return OTHER_ZONE if place.region == other.region else OTHER_REGION


def _limit_weight(near: DecayedCounts, worth: float, most: float) -> DecayedCounts:
    return near if worth <= most else near.times(most / worth)
