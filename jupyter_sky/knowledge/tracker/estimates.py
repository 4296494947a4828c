"""Bayesian estimates with intervals of launch success and machine lifetime.

Both start from a prior and are moved by what was seen, each observation counting for less the
older it is. The priors are worth little on purpose (four launches, one preemption), because what
they rest on is rough.

What the interruption bands of AWS say about lifetimes
    A band is the share of spot instances taken back within a month, for example 5-10 %. It does
    not say for how long these instances ran, and the rate depends on it: if a share *s* is taken
    back among instances that would otherwise have run *T* hours each, the rate is
    ``-ln(1 - s) / T`` per hour. *T* lies between about 1 hour (a batch job) and 730.5 hours (all
    of the month). We assume the geometric middle, `BAND_HOURS` = 27 hours, and the middle of the
    band for *s*. So 5-10 % is a mean life of 346 hours. This may be wrong by a factor of 27 either
    way; the prior is therefore worth `PRIOR_PREEMPTIONS` = 1 preemption, whose 80 % interval spans
    a factor of 22.

Spot machines without a band
    264 of 998 preemptible machines at Google in 2019 were preempted within 8,366 machine hours
    (before their cap of 24 hours): once in 32 hours. We assume this for every spot machine of which
    no band is known.

On-demand machines
    We assume one loss in a year (8,766 hours): clouds publish no figure.

Launches
    We assume that an on-demand launch works 95 times out of 100, and that a place that is short
    of machines for a share *s* of the time both takes spot instances back and refuses spot
    launches then: ``0.95 (1 - s)``. Without a band *s* is 20 %.

Two limits: machines of one batch share their fate, so after a batch the intervals are too narrow;
and lifetimes are taken as exponential, while real ones end early more often than that.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from jupyter_sky.base.requests.offers import Place
from jupyter_sky.knowledge.catalog.regions import Band
from jupyter_sky.knowledge.tracker.observations import DAY, Observation, age_weight

LEVEL = 0.8
"""Share of the probability that an interval holds, unless told."""

LAUNCH_HALF_LIFE = DAY
LIFETIME_HALF_LIFE = 14 * DAY
"""Seconds after which an observation counts for half."""

PRIOR_LAUNCHES = 4.0
PRIOR_PREEMPTIONS = 1.0
"""Observations that the priors are worth."""

ON_DEMAND_CHANCE = 0.95
UNKNOWN_SHARE = 0.2
ON_DEMAND_HOURS = 8766.0
UNBANDED_SPOT_HOURS = 8366 / 264
BAND_HOURS = math.sqrt(1 * 730.5)
OPEN_BAND_WIDTH = 10.0
"""Points of percent that a band without an upper end is taken to be wide."""


class DecayedCounts(NamedTuple):
    """Faded counts of what was seen at places.

    Attributes
    ----------
    worked, failed : float
        Launches.
    launch_seconds, timed : float
        Time that launches took in all, and how many of them were timed.
    preempted, hours : float
        Preemptions, and the hours that all machines lived, preempted or given back alive.
    tried, machines : int
        How many launches and machines these are, not faded.
    """

    worked: float = 0.0
    failed: float = 0.0
    launch_seconds: float = 0.0
    timed: float = 0.0
    preempted: float = 0.0
    hours: float = 0.0
    tried: int = 0
    machines: int = 0

    def plus(self, other: DecayedCounts) -> DecayedCounts:
        """Return the sum of two counts."""
        return DecayedCounts._make(map(operator.add, self, other))

    def times(self, share: float) -> DecayedCounts:
        """Return a share of the evidence, as lent to a neighbour."""
        lent = DecayedCounts._make(share * value for value in self)
        return lent._replace(tried=0, machines=0)


def count_decayed(observations: Iterable[Observation], now: float) -> dict[Place, DecayedCounts]:
    """Faded counts by place.

    Refusals for want of quota or permission tell about the account, not about the place: they
    block, and do not count here.
    """
    counts: dict[Place, DecayedCounts] = {}
    for seen in observations:
        if seen.at <= now and (one := _count_one(seen, now)) is not None:
            counts[seen.place] = counts.get(seen.place, DecayedCounts()).plus(one)
    return counts


def half_life(kind: str) -> float:
    """Seconds after which an observation of a kind counts for half."""
    return LIFETIME_HALF_LIFE if kind in ("preempted", "ended") else LAUNCH_HALF_LIFE


def _count_one(seen: Observation, now: float) -> DecayedCounts | None:
    weight = seen.weight * age_weight(now - seen.at, half_life(seen.kind))
    if seen.kind == "launched":
        timed = weight if seen.seconds is not None else 0.0
        took = timed * (seen.seconds or 0.0)
        return DecayedCounts(worked=weight, launch_seconds=took, timed=timed, tried=seen.events)
    if seen.kind == "refused" and seen.cause in ("capacity", "transient"):
        return DecayedCounts(failed=weight, tried=seen.events)
    if seen.kind in ("preempted", "ended"):
        hours = weight * (seen.seconds or 0.0) / 3600
        died = weight if seen.kind == "preempted" else 0.0
        return DecayedCounts(preempted=died, hours=hours, machines=seen.events)
    return None


@dataclass(frozen=True, slots=True)
class Chance:
    """The chance that a launch works, as a beta distribution.

    Attributes
    ----------
    a, b : float
        Its parameters: launches that worked and that did not, the prior's among them.
    tried : int
        Launches seen at the very place.
    seconds : float, optional
        How long a launch that works takes there; None when none has been timed.

    Examples
    --------
    >>> estimate = Chance(3.8, 0.2, 0, None)
    >>> low, high = estimate.interval()
    >>> low < estimate.mean < high
    True
    """

    a: float
    b: float
    tried: int
    seconds: float | None

    @property
    def mean(self) -> float:
        """The best single figure, between 0 and 1."""
        return self.a / (self.a + self.b)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the bounds of the credible interval of probability `level`."""
        from scipy.special import betaincinv

        tail = (1 - level) / 2
        low, high = betaincinv(self.a, self.b, [tail, 1 - tail])
        # a skewed distribution may have its mean outside of equal tails
        return min(float(low), self.mean), max(float(high), self.mean)


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Posterior of a machine's lifetime until preemption: exponential, rate unsure.

    Attributes
    ----------
    preemptions, exposure : float
        Parameters of the rate's gamma distribution: preemptions, and the machine hours in which
        they fell, the prior's among them.
    machines : int
        Machines seen to end at the very place.

    Examples
    --------
    >>> estimate = Lifetime(preemptions=2.0, exposure=100.0, machines=1)
    >>> estimate.hours, round(estimate.survival(10.0), 3)
    (50.0, 0.826)
    """

    preemptions: float
    exposure: float
    machines: int

    @property
    def rate(self) -> float:
        """Preemptions an hour."""
        return self.preemptions / self.exposure

    @property
    def hours(self) -> float:
        """Hours of life for each preemption, the inverse of the rate."""
        return 1 / self.rate

    def survival(self, hours: float) -> float:
        """Return the chance that a machine lives `hours`, averaged over the rate."""
        return (1 + hours / self.exposure) ** -self.preemptions

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return the bounds of `hours` in the credible interval of probability `level`."""
        from scipy.special import gammaincinv

        tail = (1 - level) / 2
        slow, fast = gammaincinv(self.preemptions, [tail, 1 - tail])
        return (
            min(self.exposure / float(fast), self.hours),
            max(self.exposure / float(slow), self.hours),
        )


def preempted_share(band: Band | None) -> float | None:
    """Return the middle of an interruption band, as a share.

    Examples
    --------
    >>> preempted_share(None) is None
    True
    """
    if band is None:
        return None
    high = band.high_pct
    if high is None or math.isnan(high):
        high = band.low_pct + OPEN_BAND_WIDTH
    return (band.low_pct + high) / 200


def prior_chance(spot: bool, band: Band | None) -> float:
    """Return the prior of a launch's success, for a place without observations."""
    if not spot:
        return ON_DEMAND_CHANCE
    share = preempted_share(band)
    return ON_DEMAND_CHANCE * (1 - (UNKNOWN_SHARE if share is None else share))


def prior_hours(spot: bool, band: Band | None) -> float:
    """Return the prior mean life (hours), for a place without observations."""
    if not spot:
        return ON_DEMAND_HOURS
    share = preempted_share(band)
    return UNBANDED_SPOT_HOURS if share is None else BAND_HOURS / -math.log1p(-share)


def estimate_chance(
    prior: float, own: DecayedCounts, borrowed: DecayedCounts | None = None
) -> Chance:
    """Bayes' rule for launches: a beta prior, and the launches that were seen."""
    seen = own.plus(borrowed or DecayedCounts())
    seconds = seen.launch_seconds / seen.timed if seen.timed > 0 else None
    return Chance(
        PRIOR_LAUNCHES * prior + seen.worked,
        PRIOR_LAUNCHES * (1 - prior) + seen.failed,
        own.tried,
        seconds,
    )


def estimate_lifetime(
    prior: float, own: DecayedCounts, borrowed: DecayedCounts | None = None
) -> Lifetime:
    """Bayes' rule for lifetimes: a gamma prior of the rate, preemptions and hours that were seen.

    A machine that was given back alive adds its hours and no preemption (it is right-censored).
    Left out, lifetimes would come out too short.
    """
    seen = own.plus(borrowed or DecayedCounts())
    return Lifetime(
        PRIOR_PREEMPTIONS + seen.preempted,
        PRIOR_PREEMPTIONS * prior + seen.hours,
        own.machines,
    )
