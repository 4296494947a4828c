"""Strategies that say where work goes on when its spot machine has been taken away.

A strategy orders places: the first that has a machine is taken. It sees what has happened there
so far, and nothing of the future. Those of SkyPilot are here for comparison and for users who want
them; `IndexStrategy` learns from what is seen how long each place keeps its machines::

    strategy = IndexStrategy()
    strategy.order(Situation(now=3.5, remaining=12.0, places=places, records=seen, ...))
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ..errors import SkyUsageError
from ..translation import _
from .availability import LOSS, HazardCurve
from .observations import Happening, Seen, Stay, down_since, find_latest, find_stays, up_since

STEPS = 48
"""Steps of the integral of a survival curve."""


@dataclass(frozen=True, slots=True)
class SpotPlace:
    """Place that can be asked for a machine.

    Attributes
    ----------
    zone, region : str
        Names.
    price : float
        USD/h.
    is_spot : bool
        Whether the machine may be taken away.
    """

    zone: str
    region: str
    price: float
    is_spot: bool = True


@dataclass(frozen=True)
class Situation:
    """All that a strategy may know when it is asked.

    Attributes
    ----------
    now : float
        Hours.
    remaining : float
        Hours of work.
    places : sequence of SpotPlace
        Places that fit the request, in the order of the catalog.
    seen : sequence of Seen
        Observations until now, in the order of time.
    region : str
        Region in which the work's state lies; empty before the first machine.
    restart : float
        Hours from a launch until the work goes on.
    loss : float
        Hours of work that a preemption costs beside the restart.
    egress : float
        USD to bring the state to another region.
    """

    now: float
    remaining: float
    places: Sequence[SpotPlace]
    seen: Sequence[Seen] = ()
    region: str = ""
    restart: float = 0.0
    loss: float = 0.0
    egress: float = 0.0

    def spot(self) -> list[SpotPlace]:
        """Return the places with spot machines, the cheapest first, else as in the catalog."""
        return sorted((p for p in self.places if p.is_spot), key=lambda place: place.price)

    def on_demand(self) -> list[SpotPlace]:
        """Return the places with machines on demand, the cheapest first."""
        return sorted((p for p in self.places if not p.is_spot), key=lambda place: place.price)

    def move(self, place: SpotPlace) -> float:
        """Return the USD to bring the state to a place."""
        return self.egress if self.region and place.region != self.region else 0.0


class Strategy(Protocol):
    """Order in which places are asked; a class of one's own needs this method only."""

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        """Return the places to ask, in order; nothing to wait and be asked again."""
        ...


@dataclass(frozen=True)
class OnDemand:
    """Machines that nobody takes away."""

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        """Return the places on demand, the cheapest first."""
        return situation.on_demand()


@dataclass(frozen=True)
class SingleRegion:
    """Spot machines of one region: the paper's comparison.

    Attributes
    ----------
    region : str
        Its name; that of the first place unless given.
    """

    region: str = ""

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        """Return the places of the region."""
        spot = situation.spot()
        region = self.region or situation.region or (spot[0].region if spot else "")
        return [place for place in spot if place.region == region]


@dataclass(frozen=True)
class Failover:
    """SkyPilot's ``FAILOVER``: the region of the lost machine first, then all others."""

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        """Return the places, those of the last region first."""
        return sorted(situation.spot(), key=lambda place: place.region != situation.region)


@dataclass(frozen=True)
class Broker:
    """SkyPilot's ``EAGER_NEXT_REGION``: any other region first; the strategy of its paper."""

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        """Return the places, those of the region that lost the machine last."""
        lost = _last_lost(situation)
        return sorted(situation.spot(), key=lambda place: place.region == lost)


def _last_lost(situation: Situation) -> str:
    regions = {place.zone: place.region for place in situation.places}
    zones = (e.zone for e in reversed(situation.seen) if e.what is Happening.LOST)
    return regions.get(next(zones, ""), "")


@dataclass(frozen=True)
class IndexStrategy:
    """The place with the least expected cost of an hour of useful work.

    The survival of a machine at a place that has been up for *a* hours is
    ``S(x) = exp(-f (H(a + x) - H(a)))``: *H* is the integral of a hazard that falls with age, *f*
    the place's own factor, a gamma posterior of losses seen over losses expected. A stay of at
    most *X* hours costs ``price * A + egress`` for *U* useful hours::

        A = integral of S from 0 to X
        U = integral of S from restart to X, less (1 - S(X)) * loss

    Attributes
    ----------
    value : float
        USD that an hour of waiting costs; also what a machine on demand may cost more.
    hazard : HazardCurve
        Losses by the age of a place's availability.
    longest : float
        Hours of a stay that are looked at.
    unseen_age : float
        Hours for which a place of which nothing was seen is taken to be up.
    refused_hours : float
        Hours after a refusal for which a place is asked last.
    half_life : float
        Days after which an observation counts half.
    sibling_weight : float
        Weight of what was seen in another zone of the region.
    patience : float
        Places whose index is more than so many times that of the best known place are left out;
        nothing is waited for where waiting costs something (`value`).
    known_hours : float
        Hours of stays in a place from which on it counts as known.
    longest_wait : float
        Hours for which a known place that is down is waited for.
    """

    value: float = 0.0
    hazard: HazardCurve = field(default=LOSS)
    longest: float = 12.0
    unseen_age: float = 8.0
    refused_hours: float = 1 / 12
    half_life: float = 3.0
    sibling_weight: float = 0.3
    patience: float = 1.2
    known_hours: float = 24.0
    longest_wait: float = 1.0

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        """Return the places by their index, those that refused just now last."""
        indices = self.indices(situation)
        refused = find_latest(situation.seen, {Happening.REFUSED})
        on_demand = situation.on_demand()
        limit = on_demand[0].price + self.value if on_demand else math.inf
        limit = min(limit, self._worth_waiting(situation, indices))

        def is_refused(place: SpotPlace) -> bool:
            return situation.now - refused.get(place.zone, -math.inf) < self.refused_hours

        spot = [place for place in situation.spot() if indices[place.zone] <= limit]
        spot.sort(key=lambda place: (is_refused(place), indices[place.zone]))
        return [*spot, *on_demand] if self.value or not spot else spot

    def _worth_waiting(self, situation: Situation, indices: Mapping[str, float]) -> float:
        """Return the index above which it is cheaper to wait for a known place that is better."""
        if self.value:
            return math.inf
        down = down_since(situation.seen)
        hours = defaultdict[str, float](float)
        for stay in find_stays(situation.seen, situation.now, self.unseen_age):
            hours[stay.zone] += stay.hours
        known = [
            index
            for zone, index in indices.items()
            if hours[zone] >= self.known_hours
            and situation.now - down.get(zone, situation.now) < self.longest_wait
        ]
        return self.patience * min(known, default=math.inf)

    def indices(self, situation: Situation) -> dict[str, float]:
        """Return the expected USD of an hour of useful work, by zone; infinite where there is none.

        Examples
        --------
        >>> place = SpotPlace("a", "r", 1.0)
        >>> found = IndexStrategy().indices(Situation(0.0, 4.0, [place]))
        >>> round(found["a"], 3)
        1.0
        """
        spot = situation.spot()
        regions = {place.zone: place.region for place in spot}
        stays = find_stays(situation.seen, situation.now, self.unseen_age)
        ages = self._ages(situation, regions)
        factors = self._factors(stays, regions, situation.now)
        return {p.zone: self._index(situation, p, ages[p.zone], factors[p.zone]) for p in spot}

    def _index(self, situation: Situation, place: SpotPlace, age: float, factor: float) -> float:
        longest = min(self.longest, situation.remaining) + situation.restart
        at = np.linspace(0.0, longest, STEPS + 1)
        begun = self.hazard.integral(age)
        survival = np.exp(-factor * (np.asarray(self.hazard.integral(age + at)) - begun))
        alive = np.trapezoid(survival, at)
        after = np.linspace(situation.restart, longest, STEPS + 1)
        useful = np.trapezoid(np.interp(after, at, survival), after)
        useful -= (1 - survival[-1]) * situation.loss
        if useful <= 0:
            return math.inf
        return float(((place.price + self.value) * alive + situation.move(place)) / useful)

    def _ages(self, situation: Situation, regions: Mapping[str, str]) -> dict[str, float]:
        """Return the hours for which each place is taken to have been up."""
        since = up_since(situation.seen)
        lost = find_latest(situation.seen, {Happening.LOST})
        ages = {}
        for zone, region in regions.items():
            age = min(self.unseen_age, situation.now - since.get(zone, -math.inf))
            siblings = [
                situation.now - at
                for other, at in lost.items()
                if other != zone and regions.get(other) == region
            ]
            ages[zone] = min(age, self.unseen_age / 2 + min(siblings, default=math.inf) / 2)
        return ages

    def _factors(
        self, stays: Iterable[Stay], regions: Mapping[str, str], now: float
    ) -> dict[str, float]:
        """Return each place's losses over those that the hazard expects."""
        lost, expected = defaultdict[str, float](float), defaultdict[str, float](float)
        for stay in stays:
            begun = self.hazard.integral(stay.age)
            exposure = float(self.hazard.integral(stay.age + stay.hours) - begun)
            recent = 2 ** (-(now - stay.end) / 24 / self.half_life)
            for zone, region in regions.items():
                if zone == stay.zone or region == regions.get(stay.zone):
                    weight = recent * (1.0 if zone == stay.zone else self.sibling_weight)
                    lost[zone] += weight * stay.is_lost
                    expected[zone] += weight * exposure
        return {zone: (1 + lost[zone]) / (1 + expected[zone]) for zone in regions}


STRATEGIES: dict[str, Strategy] = {
    "on-demand": OnDemand(),
    "single-region": SingleRegion(),
    "failover": Failover(),
    "broker": Broker(),
    "index": IndexStrategy(),
}
"""Strategies by the names that users write."""


def ask(strategy: Strategy, situation: Situation) -> list[SpotPlace]:
    """Ask a strategy for its order, and check the answer.

    Raises
    ------
    SkyUsageError
        It raises, or names a place that was not asked about.
    """
    name = type(strategy).__name__
    try:
        found = list(strategy.order(situation))
    except Exception as error:  # whatever the user's own strategy does
        raise SkyUsageError(
            _("the strategy {name} has failed: {error!r}").format(name=name, error=error),
            hint=_("one of {names} stands in for it").format(names=", ".join(STRATEGIES)),
        ) from error
    if unknown := [place for place in found if place not in situation.places]:
        raise SkyUsageError(
            _("the strategy {name} names {place}, which does not fit the request").format(
                name=name, place=unknown[0]
            ),
            hint=_("choose among the places of the situation"),
        )
    return found
