"""Blocked places, each with beginning, end and reason.

A refusal blocks a place for a while. How wide and how long depends on its cause:

==========  ========================================  ============  =======
cause       blocks                                    first time    at most
==========  ========================================  ============  =======
capacity    the zone, instance type and market        5 minutes     4 hours
quota       the region, family and market             1 hour        1 day
permission  the cloud                                 1 hour        1 day
transient   the zone, instance type and market        15 seconds    10 minutes
==========  ========================================  ============  =======

*Market* is spot or on-demand. Each further refusal doubles the time. A launch that works within
what is blocked takes the block away, and so does its user.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.requests.offers import Place
from jupyter_sky.knowledge.tracker.observations import Observation, quota_family

FIRST_SECONDS = {"capacity": 300.0, "quota": 3600.0, "permission": 3600.0, "transient": 15.0}
MAX_SECONDS = {"capacity": 14400.0, "quota": 86400.0, "permission": 86400.0, "transient": 600.0}
GROWTH = 2.0
MAX_SECONDS_ON_PREMISES = 2.0
"""Machines of one's own can be asked again at once: one knows at once when they are free."""
SAME_REFUSAL_SECONDS = 10.0
"""Refusals this close together are one event: several kernels or nodes asked at the same time."""
STREAK_MEMORY = 2.0
"""A refusal counts as a repeat within this many times the longest block of its cause."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Scope of a refusal: an empty field, or no market, stands for any."""

    cause: str
    cloud: str
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    family: str = ""
    spot: bool | None = None

    def covers(self, place: Place) -> bool:
        """Whether a place lies within.

        A place that names no zone leaves the choice to the cloud: one refusing zone does not cover
        it.
        """
        if self.cloud != place.cloud or self.spot not in (None, place.spot):
            return False
        if self.family and self.family != quota_family(place.cloud, place.instance_type):
            return False
        mine = (self.region, self.zone, self.instance_type)
        its = (place.region, place.zone, place.instance_type)
        return all(not word or word == other for word, other in zip(mine, its, strict=True))

    def __str__(self) -> str:
        if self.family:
            market = " spot" if self.spot else ""
            return f"{self.cloud} {self.region} family {self.family}{market}"
        if self.cause == "permission":
            return self.cloud
        spot = bool(self.spot)
        return str(Place(self.cloud, self.region, self.zone, self.instance_type, spot))


@dataclass(frozen=True, slots=True)
class Block:
    """A place that is not asked for a while.

    Attributes
    ----------
    scope : Scope
        What is blocked.
    place : Place
        The place that refused last.
    since, until : float
        Time of the first refusal in a row and end of the block, in unix seconds.
    times : int
        Refusals in a row.
    why : str
        The last refusal in the cloud's own words.
    """

    scope: Scope
    place: Place
    since: float
    until: float
    times: int
    why: str

    @property
    def cause(self) -> str:
        """One of `CAUSES`."""
        return self.scope.cause


def make_scope(cause: str, place: Place) -> Scope:
    """Return the block that a refusal at a place causes.

    Examples
    --------
    >>> str(make_scope("quota", Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", spot=True)))
    'aws us-east-1 family g spot'
    """
    if cause == "permission":
        return Scope(cause, place.cloud)
    if cause == "quota":
        kin = quota_family(place.cloud, place.instance_type) if place.instance_type else ""
        return Scope(cause, place.cloud, place.region, family=kin, spot=place.spot)
    return Scope(cause, place.cloud, place.region, place.zone, place.instance_type, spot=place.spot)


def block_seconds(cause: str, times: int, cloud: str = "") -> float:
    """Return the time that a place stays blocked after refusals in a row.

    Examples
    --------
    >>> [block_seconds("capacity", times) for times in (1, 2, 3, 99)]
    [300.0, 600.0, 1200.0, 14400.0]
    """
    most = MAX_SECONDS[cause]
    if find_facts(cloud).on_premises:
        most = min(most, MAX_SECONDS_ON_PREMISES)
    doublings = min(times - 1, 60)  # more would overflow, and the cap is far below
    return min(most, FIRST_SECONDS[cause] * GROWTH**doublings)


def blocked(observations: Iterable[Observation], now: float) -> tuple[Block, ...]:
    """Return the places blocked at a time, those blocked longest first.

    Parameters
    ----------
    observations
        What was seen, in any order. What was seen after `now` is left out.
    now
        Unix seconds.

    Examples
    --------
    >>> there = Place("aws", "us-east-1", "us-east-1a", "g5.xlarge")
    >>> seen = [Observation("refused", there, at, "capacity") for at in (0.0, 400.0)]
    >>> [(block.times, block.until) for block in blocked(seen, now=500.0)]
    [(2, 1000.0)]
    """
    known = sorted((seen for seen in observations if seen.at <= now), key=lambda seen: seen.at)
    streaks: dict[Scope, tuple[Block, float]] = {}
    for seen in known:
        if seen.kind == "refused":
            where = make_scope(seen.cause, seen.place)
            streaks[where] = _extend_streak(streaks.get(where), where, seen)
        elif seen.kind == "cleared":
            streaks.pop(make_scope(seen.cause, seen.place), None)
        elif seen.kind == "launched":
            for where in [where for where in streaks if where.covers(seen.place)]:
                del streaks[where]
    live = [block for block, _ in streaks.values() if block.until > now]
    return tuple(sorted(live, key=lambda block: (-block.until, str(block.scope))))


def _extend_streak(
    streak: tuple[Block, float] | None, where: Scope, seen: Observation
) -> tuple[Block, float]:
    """Extend a row of refusals by one; return also the time of the last counted one.

    When the last one is long ago, a new row begins.
    """
    if streak is None or seen.at - streak[1] > STREAK_MEMORY * MAX_SECONDS[seen.cause]:
        until = seen.at + block_seconds(seen.cause, 1, where.cloud)
        return Block(where, seen.place, seen.at, until, 1, seen.why), seen.at
    block, counted = streak
    another = seen.at - counted > SAME_REFUSAL_SECONDS
    times = block.times + another
    until = max(block.until, seen.at + block_seconds(seen.cause, times, where.cloud))
    why = seen.why or block.why
    longer = replace(block, place=seen.place, until=until, times=times, why=why)
    return longer, seen.at if another else counted
