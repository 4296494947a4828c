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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.availability import LOSS, RETURN, HazardCurve
from jupyter_sky.knowledge.lifetimes.observations import (
    Happening,
    Seen,
    Stay,
    find_latest,
    find_stays,
)

STEPS = 60
"""Steps of the integral of a survival curve."""
PSEUDO_EVENTS = 3.0
"""Weight of the fitted hazards beside what is seen of a place."""
WAITS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Hours of waiting that are looked at."""


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
    """The place with the least expected cost until the work is done; or waiting, if that is less.

    A machine at a place that has been up for *a* hours survives *x* hours with the chance
    ``S(x) = exp(-f (H(a + x) - H(a)))``: *H* is the integral of a hazard that falls with age, *f*
    the place's own factor, a gamma posterior of losses seen over losses expected. With *w* hours of
    work left, a stay and all that comes after a loss in it cost::

        (price + hour) * (integral of S from 0 to restart + w) + egress
            + E[later * (w - saved) + (cheapest + hour) * restart, if lost]

    *later* is the cost of an hour of work in the place that loses the fewest machines. The age is
    not known where a place was not watched until now: `place_forecast` gives its chances. By the
    same forecast, waiting for some hours costs the time and what the places are expected to cost
    then; places that cost more now are left out.

    Attributes
    ----------
    value : float
        USD that an hour of waiting costs; also what a machine on demand may cost more.
    hazard, returns : HazardCurve
        Losses and returns by the time for which a place has been up or down.
    unseen_age : float
        Hours for which a place of which nothing was seen is taken to be up.
    refused_hours : float
        Hours after a refusal for which a place is asked last.
    half_life : float
        Days after which an observation counts half.
    sibling_weight : float
        Weight of what was seen in another zone of the region.
    patience : float
        Share of the cheapest price that an hour counts for, beside `value`.
    known_hours : float
        Hours of stays in a place from which on it counts as known: others are not waited for.
    interruption : float
        Hours for which a known place that has gone down is asked first: many come back and stay.
    """

    value: float = 0.0
    hazard: HazardCurve = field(default=LOSS)
    returns: HazardCurve = field(default=RETURN)
    unseen_age: float = 8.0
    refused_hours: float = 1 / 12
    half_life: float = 10.0
    sibling_weight: float = 0.3
    patience: float = 0.1
    known_hours: float = 24.0
    interruption: float = 0.25

    def order(self, situation: Situation) -> Sequence[SpotPlace]:
        """Return the places by their index, those that refused just now last.

        Nothing where waiting costs less than any of them, and on demand where there is no spot
        machine at all.
        """
        on_demand = situation.on_demand()
        outlook = self._look(situation)
        indices = outlook.indices()
        limit = on_demand[0].price + outlook.hour if on_demand else math.inf
        waited: Collection[str] = ()
        if not self.value:
            waited = self._interrupted(situation) & outlook.known()
            limit = min(limit, outlook.waiting())
        refused = find_latest(situation.seen, {Happening.REFUSED})

        def is_refused(place: SpotPlace) -> bool:
            return situation.now - refused.get(place.zone, -math.inf) < self.refused_hours

        def rank(place: SpotPlace) -> tuple[bool, bool, float]:
            return place.zone not in waited, is_refused(place), indices[place.zone]

        spot = [p for p in situation.spot() if p.zone in waited or indices[p.zone] <= limit]
        spot.sort(key=rank)
        return [*spot, *on_demand] if self.value or not spot else spot

    def _interrupted(self, situation: Situation) -> set[str]:
        """Return the places that have gone down so recently that it may be an interruption."""
        states = last_states(situation.seen, self.unseen_age)
        since = situation.now - self.interruption
        return {zone for zone, state in states.items() if not state.is_up and state.since > since}

    def indices(self, situation: Situation) -> dict[str, float]:
        """Return the expected USD of an hour of the work left, time included, by zone.

        Examples
        --------
        >>> place = SpotPlace("a", "r", 1.0)
        >>> found = IndexStrategy(patience=0.0).indices(Situation(0.0, 4.0, [place]))
        >>> round(found["a"], 3)
        1.0
        """
        return self._look(situation).indices()

    def _look(self, situation: Situation) -> _Outlook:
        spot = situation.spot()
        regions = {place.zone: place.region for place in spot}
        stays = find_stays(situation.seen, situation.now, self.unseen_age)
        factors = self._factors(regions, situation.now, self._count_losses(stays))
        returns = self._factors(regions, situation.now, self._count_returns(situation.seen))
        states = self._states(situation, regions)
        forecast = forecast_places(
            list(regions), states, situation.now, factors, returns, self.hazard, self.returns
        )
        hours = defaultdict[str, float](float)
        for stay in stays:
            hours[stay.zone] += stay.hours
        prices = np.array([place.price for place in spot])
        hour = self.value + self.patience * float(prices.min(initial=math.inf) if spot else 0.0)
        costs = self._costs(situation, prices, hour, factors, forecast)
        known = np.array([hours[zone] >= self.known_hours for zone in regions], dtype=bool)
        return _Outlook(forecast, tuple(regions), costs, known, situation.remaining, hour)

    def _costs(
        self,
        situation: Situation,
        prices: np.ndarray,
        hour: float,
        factors: np.ndarray,
        forecast: PlaceForecast,
    ) -> np.ndarray:
        """Return the expected USD until the work is done, by place and by age when it is taken."""
        work, restart = situation.remaining, situation.restart
        at = np.linspace(0.0, restart + work, STEPS + 1)
        expected = (
            self.hazard.integral(AGES[:, None] + at)
            - np.asarray(self.hazard.integral(AGES))[:, None]
        )
        survival = np.exp(-factors[:, None, None] * expected[None])
        alive = np.trapezoid(survival, at, axis=2)
        middle = (at[:-1] + at[1:]) / 2
        saved = np.clip(middle - restart - situation.loss, 0.0, work)
        cheapest = prices.min(initial=math.inf) + hour
        again = forecast.loss_rates().min(initial=math.inf) * (situation.loss + restart)
        later = cheapest * ((1 + again) * (work - saved) + restart)
        lost = ((survival[:, :, :-1] - survival[:, :, 1:]) * later).sum(axis=2)
        moves = np.array([situation.move(place) for place in situation.spot()])
        return (prices + hour)[:, None] * alive + lost + moves[:, None]

    def _states(self, situation: Situation, regions: Mapping[str, str]) -> dict[str, PlaceState]:
        """Return what was last seen of each place; unseen ones are taken to be up."""
        states = last_states(situation.seen, self.unseen_age)
        lost = find_latest(situation.seen, {Happening.LOST})
        for zone, region in regions.items():
            ages = [
                situation.now - at
                for other, at in lost.items()
                if other != zone and regions.get(other) == region
            ]
            age = min(self.unseen_age, self.unseen_age / 2 + min(ages, default=math.inf) / 2)
            unseen = PlaceState(True, situation.now, situation.now - age)
            states.setdefault(zone, unseen)
        return states

    def _count_losses(self, stays: Iterable[Stay]) -> Iterator[_Count]:
        for stay in stays:
            begun = self.hazard.integral(stay.age)
            expected = float(self.hazard.integral(stay.age + stay.hours) - begun)
            yield _Count(stay.zone, stay.end, float(stay.is_lost), expected)

    def _count_returns(self, seen: Sequence[Seen]) -> Iterator[_Count]:
        """Yield the periods in which places were down, from a loss to the next launch."""
        lost = dict[str, float]()
        for event in seen:
            if event.what is Happening.LOST:
                lost[event.zone] = event.at
            elif event.what is Happening.LAUNCHED and event.zone in lost:
                hours = event.at - lost.pop(event.zone)
                yield _Count(event.zone, event.at, 1.0, float(self.returns.integral(hours)))

    def _factors(
        self, regions: Mapping[str, str], now: float, counts: Iterable[_Count]
    ) -> np.ndarray:
        """Return each place's changes over those that the hazard expects."""
        happened, expected = defaultdict[str, float](float), defaultdict[str, float](float)
        for count in counts:
            recent = 2 ** (-(now - count.at) / 24 / self.half_life)
            for zone, region in regions.items():
                if zone == count.zone or region == regions.get(count.zone):
                    weight = recent * (1.0 if zone == count.zone else self.sibling_weight)
                    happened[zone] += weight * count.happened
                    expected[zone] += weight * count.expected
        prior = PSEUDO_EVENTS
        return np.array([(prior + happened[z]) / (prior + expected[z]) for z in regions])


@dataclass(frozen=True, slots=True)
class _Count:
    """Changes of a place that happened until a time, and those that a hazard expects."""

    zone: str
    at: float
    happened: float
    expected: float


@dataclass(frozen=True)
class _Outlook:
    """Expected costs of places, now and later.

    Attributes
    ----------
    costs : ndarray
        USD until the work is done, by place and by the age at which it is taken.
    is_known : ndarray of bool
        Places that may be waited for.
    remaining : float
        Hours of work.
    hour : float
        USD that an hour of waiting counts for.
    """

    forecast: PlaceForecast
    zones: tuple[str, ...]
    costs: np.ndarray
    is_known: np.ndarray
    remaining: float
    hour: float

    def indices(self) -> dict[str, float]:
        """Return the expected cost of an hour of work, by zone."""
        costs = self.forecast.mean_if_up(self.costs) / self.remaining
        return dict(zip(self.zones, costs.tolist(), strict=True))

    def known(self) -> set[str]:
        """Return the places that may be waited for."""
        return {zone for zone, known in zip(self.zones, self.is_known, strict=True) if known}

    def waiting(self) -> float:
        """Return the least expected cost of an hour of work after a wait; infinite if unknown."""
        if not self.is_known.any():
            return math.inf
        least, later, waited = math.inf, self.forecast, 0.0
        for wait in WAITS:
            later, waited = later.after(wait - waited), wait
            least = min(least, self._expect(later) + self.hour * wait)
        return least / self.remaining

    def _expect(self, forecast: PlaceForecast) -> float:
        """Return the expected cost of asking the places, the best first."""
        chances, costs = forecast.is_up(), forecast.mean_if_up(self.costs)
        total, none_up = 0.0, 1.0
        for row in np.argsort(costs):
            total += none_up * float(chances[row] * costs[row])
            none_up *= 1 - float(chances[row])
        return total + none_up * (float(costs.max()) + self.hour)


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


# -- Forecast of places: how probably each is up, and since when, by what was last seen of it -----
#
# A place alternates between up and down; the hazards of both changes fall with the time for which
# it has been in its state (`availability`). From the last observation on, the forecast follows the
# chances of all states and ages in steps of `STEP`::
#
#     up(0), down(0)  = returns of all ages, losses of all ages
#     up(a + STEP)    = up(a) * (1 - loss(a))
#     down(a + STEP)  = down(a) * (1 - return(a))

STEP = 0.1
"""Hours."""
AGES = np.arange(0.0, 12.0 + STEP / 2, STEP)
"""Hours for which a place has been up or down; the last stands for all that are longer."""
MEMORY = 72.0
"""Hours after which an observation no longer tells the state of a place."""


@dataclass(frozen=True, slots=True)
class PlaceState:
    """State in which a place was seen last.

    Attributes
    ----------
    is_up : bool
        Whether a machine could be had.
    at : float
        Hours at which it was seen.
    since : float
        Hours since which it was, or is taken to have been, in this state.
    """

    is_up: bool
    at: float
    since: float


@dataclass(frozen=True)
class PlaceForecast:
    """Chances of the states of places, a row for each place.

    Attributes
    ----------
    up, down : ndarray
        Chance that a place is up or down and has been so for an age of `AGES`.
    losses, returns : ndarray
        Chance that it changes within a step, by age.
    """

    up: np.ndarray
    down: np.ndarray
    losses: np.ndarray
    returns: np.ndarray

    def after(self, hours: float) -> PlaceForecast:
        """Return the chances some hours later, where nothing else is seen.

        Examples
        --------
        >>> from jupyter_sky.knowledge.lifetimes.availability import LOSS, RETURN
        >>> seen = {"a": PlaceState(is_up=True, at=0.0, since=0.0)}
        >>> now = forecast_places(["a"], seen, 0.0, np.ones(1), np.ones(1), LOSS, RETURN)
        >>> now.is_up().tolist(), bool(0.5 < now.after(0.5).is_up()[0] < 0.7)
        ([1.0], True)
        """
        return self._advance(np.full(len(self.up), round(hours / STEP)))

    def _advance(self, steps: np.ndarray) -> PlaceForecast:
        """Return the chances after as many steps as each place has."""
        up, down = self.up, self.down
        for step in range(int(steps.max(initial=0))):
            lost, back = up * self.losses, down * self.returns
            moves = (steps > step)[:, None]
            up, down = (
                np.where(moves, _grow_older(up - lost, back), up),
                np.where(moves, _grow_older(down - back, lost), down),
            )
        return replace(self, up=up, down=down)

    def is_up(self) -> np.ndarray:
        """Return the chance that each place is up."""
        return self.up.sum(axis=1)

    def mean_if_up(self, by_age: np.ndarray) -> np.ndarray:
        """Return the means of quantities that depend on the age, given that the places are up."""
        chance = self.is_up()
        mean = (self.up * by_age).sum(axis=1) / np.maximum(chance, 1e-12)
        return np.where(chance > 1e-9, mean, by_age[:, 0])

    def loss_rates(self) -> np.ndarray:
        """Return the losses per hour that each place is up, in the long run."""
        alive = np.cumprod(np.hstack([np.ones((len(self.losses), 1)), 1 - self.losses]), axis=1)
        steps = alive[:, :-1].sum(axis=1) + alive[:, -1] / self.losses[:, -1]
        return 1 / (steps * STEP)


def _grow_older(chances: np.ndarray, begun: np.ndarray) -> np.ndarray:
    """Return chances by age a step later; `begun` are those that have changed their state."""
    older = np.empty_like(chances)
    older[:, 0] = begun.sum(axis=1)
    older[:, 1:] = chances[:, :-1]
    older[:, -1] += chances[:, -1]
    return older


def forecast_places(
    zones: Sequence[str],
    states: Mapping[str, PlaceState],
    now: float,
    loss_factors: np.ndarray,
    return_factors: np.ndarray,
    loss: HazardCurve,
    back: HazardCurve,
) -> PlaceForecast:
    """Return the chances of the states of places now.

    Parameters
    ----------
    zones
        Names of the places.
    states
        What was seen last, by zone; all are there.
    now
        Hours.
    loss_factors, return_factors
        How many times as often as the hazards say each place goes down and comes back.
    loss, back
        Hazards of a loss by the time up, and of a return by the time down.

    Returns
    -------
    PlaceForecast
        In the order of `zones`.
    """
    up = np.zeros((len(zones), len(AGES)))
    down = np.zeros_like(up)
    steps = np.zeros(len(zones), dtype=int)
    for row, zone in enumerate(zones):
        state = states[zone]
        age = min(round((state.at - state.since) / STEP), len(AGES) - 1)
        (up if state.is_up else down)[row, age] = 1.0
        steps[row] = round(min(now - state.at, MEMORY) / STEP)
    chances = _chances(loss, loss_factors), _chances(back, return_factors)
    return PlaceForecast(up, down, *chances)._advance(steps)


def _chances(hazard: HazardCurve, factors: np.ndarray) -> np.ndarray:
    expected = np.asarray(hazard.integral(AGES + STEP)) - np.asarray(hazard.integral(AGES))
    return -np.expm1(-factors[:, None] * expected[None])


def last_states(seen: Sequence[Seen], unseen_age: float) -> dict[str, PlaceState]:
    """Return the state in which each place was seen last.

    Parameters
    ----------
    unseen_age
        Hours for which a place is taken to have been up when it is seen for the first time.

    Examples
    --------
    >>> seen = [Seen(1.0, "a", Happening.LOST), Seen(3.0, "a", Happening.REFUSED)]
    >>> last_states(seen, 8.0)["a"]
    PlaceState(is_up=False, at=3.0, since=1.0)
    """
    states = dict[str, PlaceState]()
    for event in seen:
        before = states.get(event.zone)
        is_up = event.what in (Happening.LAUNCHED, Happening.RELEASED)
        if before is None:
            since = event.at - unseen_age if is_up else event.at
        else:
            since = before.since if before.is_up is is_up else event.at
        states[event.zone] = PlaceState(is_up, event.at, since)
    return states
