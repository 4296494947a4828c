"""Places in which a cell goes on after a loss, in the order of a strategy."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.observations import Happening, Seen
from jupyter_sky.knowledge.lifetimes.recovery import STRATEGIES, Situation, SpotPlace, Strategy, ask
from jupyter_sky.knowledge.lifetimes.replays import ReplayedJob
from jupyter_sky.knowledge.lifetimes.strategy_choice import (
    StrategyForecast,
    choose_strategy,
    forecast_strategies,
)
from jupyter_sky.knowledge.tracker.observations import Observation

MAX_OFFERS = 300
"""Offers that are looked at."""
BOOT_HOURS = 5 / 60
"""Assumed time from a launch until the cell goes on."""
LOSS_HOURS = 5 / 60
"""Assumed work that a loss costs."""
TOLD_HOURS = 10 / 60
"""A loss that the tracker knows is this one if it is not older."""
REFUSAL_HOURS = 30 / 3600
"""Assumed time until a place has refused."""


def find_strategy(name: str, namespace: Mapping[str, Any]) -> Strategy | None:
    """Return the strategy of a name: one of `STRATEGIES`, or a variable of the notebook.

    Returns
    -------
    Strategy or None
        None where no name is given: `next_requests` chooses.

    Raises
    ------
    SkyUsageError
        There is none.

    Examples
    --------
    >>> find_strategy("broker", {})
    Broker()
    """
    if not name:
        return None
    found = STRATEGIES.get(name) or namespace.get(name)
    if not callable(getattr(found, "order", None)):
        raise SkyUsageError(
            _("--recover {name}: there is no such strategy").format(name=name),
            hint=_("{known}; or a variable whose value has a method order(situation)").format(
                known=suggest(name, STRATEGIES)
            ),
        )
    return found  # pyright: ignore[reportReturnType]


def launchable_offers(need: Resources) -> list[Offer]:
    """Return the rented machines that meet a request and can be launched from here."""
    from jupyter_sky import clouds
    from jupyter_sky.knowledge.catalog import load

    found = load().filter(need).offers(MAX_OFFERS)
    return [offer for offer in found if not clouds.launch_obstacle(offer)]


def order_requests(
    strategy: Strategy,
    need: Resources,
    offers: Iterable[Offer],
    observed: Sequence[Observation],
    *,
    now: float,
    lost: tuple[str, str, str | None] | None = None,
    worked: float = 0.0,
) -> Iterator[Resources]:
    """Yield the request narrowed to one place after the other, in the order of a strategy.

    Parameters
    ----------
    offers
        Machines that meet the request.
    observed
        Observations of the tracker.
    now
        Unix seconds.
    lost
        Cloud, region and zone of the machine that has just been lost.
    worked
        Hours of work so far; as much is taken to remain.

    Raises
    ------
    SkyUsageError
        The strategy fails, or names another place.
    """
    priced = price_places(offers)
    zones = {place.zone for place in priced}
    events = seen_events(observed, zones)
    if lost is not None:
        events = with_loss(events, _known_zone(*lost, zones), now / 3600)
    situation = Situation(
        now / 3600,
        max(worked, 1.0),
        tuple(priced),
        events,
        place_names(*lost)[1] if lost is not None else "",
        BOOT_HOURS,
        LOSS_HOURS,
    )
    for place in ask(strategy, situation):
        yield narrow(need, priced[place])


def price_places(offers: Iterable[Offer]) -> dict[SpotPlace, Offer]:
    """Return the cheapest offer of each place and market."""
    cheapest: dict[SpotPlace, Offer] = {}
    for offer in sorted(offers, key=lambda offer: offer.price or 0.0):
        cheapest.setdefault(_spot_place(offer, 0.0), offer)
    return {replace(place, price=offer.price or 0.0): offer for place, offer in cheapest.items()}


def forecast_for(
    offers: Iterable[Offer], observed: Sequence[Observation], now: float, worked: float = 0.0
) -> list[StrategyForecast]:
    """Return what a cell would cost and take under each strategy, on machines that meet it.

    Parameters
    ----------
    offers
        Machines that meet the request.
    observed
        Observations of the tracker.
    now
        Unix seconds.
    worked
        Hours of work so far; as much is taken to remain, and an hour at least.
    """
    from jupyter_sky.knowledge.lifetimes import current

    beliefs, priced = current(now), price_places(offers)
    lifetimes = {p.zone: beliefs.posterior(offer) for p, offer in priced.items() if p.is_spot}
    job = ReplayedJob(max(worked, 1.0), 2 * LOSS_HOURS, 0.0, boot=BOOT_HOURS, refusal=REFUSAL_HOURS)
    seen = seen_events(observed, {place.zone for place in priced})
    return forecast_strategies(job, tuple(priced), lifetimes, now / 3600, seen)


def describe_recovery(need: Resources, name: str, namespace: Mapping[str, Any], cloud: str) -> str:
    """Return where a cell goes on after a loss, for its dry run.

    Parameters
    ----------
    name
        Strategy that the cell names; empty where it names none.
    namespace
        The notebook's variables, one of which may be the strategy.
    cloud
        Cloud of the first machine: machines of one's own are not ordered by a strategy.

    Raises
    ------
    SkyUsageError
        There is no such strategy.
    """
    from jupyter_sky import clouds
    from jupyter_sky.knowledge import tracker

    is_named = find_strategy(name, namespace) is not None
    offers = launchable_offers(need) if clouds.is_rented(cloud) else []
    if not offers:
        return _("after a loss: on a new cluster of the same kind")
    if is_named:
        return _("after a loss: strategy {name}, as asked for").format(name=name)
    forecasts = forecast_for(offers, tracker.current().observations(), time.time())
    chosen = choose_strategy(forecasts)
    costs = ", ".join(
        _("{name} {usd:.3f} USD, {hours:.2f} h").format(name=f.name, usd=f.usd, hours=f.hours)
        for f in sorted(forecasts, key=lambda f: (f.name != chosen, f.usd))
    )
    return _("after a loss: strategy {name} (an hour of work, simulated: {costs})").format(
        name=chosen, costs=costs
    )


def narrow(need: Resources, offer: Offer) -> Resources:
    """Return a request that only the place and market of an offer can meet.

    Examples
    --------
    >>> narrow(Resources(), Offer("aws", "us-east-1", "g5.xlarge", 4, 16, spot=True)).region
    'us-east-1'
    """
    return replace(
        need, clouds=(offer.cloud,), region=offer.region, zone=offer.zone, spot=offer.spot
    )


def place_names(cloud: str, region: str, zone: str | None) -> tuple[str, str]:
    """Return the names of a zone and a region that no other cloud has.

    Examples
    --------
    >>> place_names("aws", "us-east-1", None)
    ('aws us-east-1 ', 'aws us-east-1')
    """
    return f"{cloud} {region} {zone or ''}", f"{cloud} {region}"


def _spot_place(offer: Offer, price: float) -> SpotPlace:
    zone, region = place_names(offer.cloud, offer.region, offer.zone)
    return SpotPlace(zone if offer.spot else zone + ":on-demand", region, price, offer.spot)


def seen_events(observed: Iterable[Observation], zones: Collection[str] = ()) -> tuple[Seen, ...]:
    """Return what strategies may know of the tracker's observations of spot machines.

    Parameters
    ----------
    zones
        Names of the places that can be asked: a region as a whole stands for its zones.
    """
    events = list[Seen]()
    for number, each in enumerate(observed):
        if not each.place.spot:
            continue
        zone = _known_zone(each.place.cloud, each.place.region, each.place.zone, zones)
        hours = each.at / 3600
        if each.kind == "refused":
            events.append(Seen(hours, zone, Happening.REFUSED))
        elif each.kind in ("preempted", "ended"):
            kind = Happening.LOST if each.kind == "preempted" else Happening.RELEASED
            begun = hours - (each.seconds or 0.0) / 3600
            machine = str(number)  # stays of several in one zone overlap
            events.append(Seen(begun, zone, Happening.LAUNCHED, machine))
            events.append(Seen(hours, zone, kind, machine))
    return tuple(sorted(events, key=lambda event: event.at))


def _known_zone(cloud: str, region: str, zone: str | None, zones: Collection[str]) -> str:
    """Return the name of a zone, or that of its region where only that can be asked."""
    name, whole = place_names(cloud, region, zone)[0], place_names(cloud, region, None)[0]
    return whole if whole in zones and name not in zones else name


def with_loss(events: Sequence[Seen], zone: str, now: float) -> tuple[Seen, ...]:
    """Return events with a loss that the tracker may not have been told yet.

    Parameters
    ----------
    now
        Hours.

    Examples
    --------
    >>> [event.what.value for event in with_loss([], "a", 1.0)]
    ['lost']
    >>> len(with_loss([Seen(1.0, "a", Happening.LOST)], "a", 1.01))
    1
    """
    known = [e for e in events if e.what is Happening.LOST and now - e.at < TOLD_HOURS]
    if zone in {event.zone for event in known}:
        return tuple(events)
    return (*events, Seen(now, zone, Happening.LOST))


def next_requests(
    strategy: Strategy | None, need: Resources, lost: tuple[str, str, str | None], worked: float
) -> Iterator[Resources]:
    """Yield where to ask after a loss, by what the catalog and the tracker know now.

    Parameters
    ----------
    strategy
        None for the one that is best in a simulation.
    lost
        Cloud, region and zone of the machine that was lost.
    worked
        Hours of work so far.
    """
    from jupyter_sky.knowledge import tracker

    offers = launchable_offers(need)
    if not offers:
        return
    if strategy is None:
        observed = tracker.current().observations()
        strategy = STRATEGIES[choose_strategy(forecast_for(offers, observed, time.time(), worked))]
    yield from order_requests(
        strategy,
        need,
        offers,
        tracker.current().observations(),
        now=time.time(),
        lost=lost,
        worked=worked,
    )
