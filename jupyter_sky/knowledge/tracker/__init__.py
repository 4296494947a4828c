"""The tracker: what has changed since the catalog was made, seen by those who launch machines.

It keeps spot prices, launches, refusals, preemptions and ends of machines, each with its time, in
the store that all kernels of a user share. From these it says which places are not worth asking
now, how likely a launch is to work, how long a machine lives, and the last price seen::

    sky.tracker.observe("refused", offer, cause="capacity", why="InsufficientInstanceCapacity")
    sky.tracker.observe("launched", other, seconds=48)
    sky.tracker.blocked()
    sky.tracker.chance(other).interval()

Who decides on many offers takes one `knowledge()` and asks that: it is frozen and pure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from jupyter_sky.base.requests.offers import Offer, Place, Price
from jupyter_sky.knowledge.catalog.regions import Band
from jupyter_sky.knowledge.tracker.blocks import Block, block_seconds
from jupyter_sky.knowledge.tracker.estimates import Chance, Lifetime
from jupyter_sky.knowledge.tracker.knowledge import Knowledge
from jupyter_sky.knowledge.tracker.observations import CAUSES, KINDS, Observation
from jupyter_sky.knowledge.tracker.records import Tracker

__all__ = [
    "CAUSES",
    "KINDS",
    "Block",
    "Chance",
    "Knowledge",
    "Lifetime",
    "Observation",
    "Place",
    "Price",
    "Tracker",
    "block",
    "block_seconds",
    "blocked",
    "chance",
    "clear",
    "current",
    "knowledge",
    "lifetime",
    "observe",
    "price",
    "priced",
]

_trackers: dict[Path, Tracker] = {}
_lock = threading.Lock()


def current() -> Tracker:
    """Return the tracker of this process's data directory, opened on first use.

    Raises
    ------
    SkyStoreError
        The store cannot be opened.
    """
    from jupyter_sky.base.settings.settings import Sky
    from jupyter_sky.base.store.store import Store

    directory = Path(Sky.load().data_dir)
    with _lock:
        if directory not in _trackers:
            _trackers[directory] = Tracker(Store.open(directory).database, _bands)
        return _trackers[directory]


def _bands(cloud: str, region: str, instance_type: str) -> Band | None:
    """Return the catalog's interruption band; load the catalog on first use."""
    from jupyter_sky.knowledge import catalog

    return catalog.load().interruption(cloud, region, instance_type)


def observe(
    kind: str,
    where: Offer | Place,
    *,
    cause: str = "",
    seconds: float | None = None,
    usd: float | None = None,
    why: str = "",
    at: float | None = None,
) -> None:
    """Keep something that was seen of a cloud.

    A launch of several machines, all or none, is one launch. Each machine's end is one of its own.

    Parameters
    ----------
    kind
        ``launched``, ``refused``, ``preempted``, ``ended`` (given back alive) or ``price``.
    where
        An offer or a place. A refusal may name a wider place than a machine's.
    cause
        Why it was refused: ``capacity``, ``quota``, ``permission`` or ``transient``.
    seconds
        How long the launch took, or the age at which the machine was preempted or ended.
    usd
        Spot price, USD/h of one machine.
    why
        The refusal in the cloud's own words.
    at
        When, in unix seconds; now unless given.

    Raises
    ------
    SkyUsageError
        For what makes no sense; nothing is kept.

    Examples
    --------
    >>> sky.tracker.observe("preempted", offer, seconds=5400)  # doctest: +SKIP
    """
    tracker, now = current(), time.time()
    moment = now if at is None else at
    tracker.record(Observation(kind, Place.of(where), moment, cause, seconds, usd, why))
    tracker.compact(now)


def knowledge(now: float | None = None) -> Knowledge:
    """All that is known at a time (now unless given), frozen."""
    return current().knowledge(_moment(now))


def blocked(now: float | None = None) -> tuple[Block, ...]:
    """Return the blocked places, those blocked longest first.

    Examples
    --------
    >>> [(str(block.scope), block.cause) for block in sky.tracker.blocked()]  # doctest: +SKIP
    [('aws us-east-1a g5.xlarge spot', 'capacity')]
    """
    return knowledge(now).blocks


def block(where: Offer | Place, now: float | None = None) -> Block | None:
    """Return the block of a place, or None."""
    return knowledge(now).block(where)


def chance(where: Offer | Place, now: float | None = None) -> Chance:
    """Return the chance that a launch works at a place, with its interval."""
    return knowledge(now).chance(where)


def lifetime(where: Offer | Place, now: float | None = None) -> Lifetime:
    """Estimate a machine's lifetime at a place until preemption, with its interval."""
    return knowledge(now).lifetime(where)


def price(where: Offer | Place, now: float | None = None) -> Price | None:
    """Return the last spot price seen at a place, with its time; None when none was seen."""
    return current().price(where, _moment(now))


def priced(offers: Iterable[Offer], now: float | None = None) -> list[Offer]:
    """Offers with the spot prices last seen, where these are newer than the offers' own."""
    return current().priced(offers, _moment(now))


def clear(*words: str, now: float | None = None) -> Sequence[Block]:
    """Take blocks away: those whose place has all of these words, or all blocks.

    Examples
    --------
    >>> sky.tracker.clear("aws", "us-east-1")  # doctest: +SKIP
    """
    return current().clear(words, _moment(now))


def _moment(now: float | None) -> float:
    return time.time() if now is None else now
