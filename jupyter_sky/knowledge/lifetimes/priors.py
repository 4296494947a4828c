"""Lifetimes of machines without data: priors, moved by what the tracker observes.

A prior is a base model and a factor on its hazard, gamma distributed around 1 and worth one
preemption (80 % of it between 0.1 and 2.3): what it rests on is rough. Observing machines moves it
by Bayes' rule, exactly: a machine of age *t* adds the base's cumulative hazard *H(t)* to the
exposure and, if it was preempted, 1 to the preemptions.

The base is

- for a spot machine with an interruption band (AWS) exponential, with the mean that the tracker
  derives from the band: a band is one number and says nothing of a shape;
- for any other spot machine the floor plus hyperbolic hazard of Google's machines of 2019, by size
  (`reference`), because no other measurement is at hand. Zones of then say little about today. They
  had a cap of 24 hours, which Spot machines of today do not: give `cap` where there is one;
- on demand exponential, one loss in a year, as in the tracker.

Observations fade, and neighbours lend, as they do in the tracker. An observation into which
several were folded counts with their mean age: the exposure is then overstated a little where the
hazard falls.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.knowledge.lifetimes.models import Exponential, FloorHyperbolic, Model
from jupyter_sky.knowledge.lifetimes.proportional_hazards import VCPUS
from jupyter_sky.knowledge.lifetimes.recomputation import Lives
from jupyter_sky.knowledge.lifetimes.reference_model import reference
from jupyter_sky.knowledge.tracker.estimates import (
    BAND_HOURS,
    LEVEL,
    ON_DEMAND_HOURS,
    PRIOR_PREEMPTIONS,
    half_life,
    preempted_share,
)
from jupyter_sky.knowledge.tracker.knowledge import (
    Bands,
    neighbour_keys,
    neighbour_weight,
    no_bands,
)
from jupyter_sky.knowledge.tracker.observations import Observation, age_weight

SIZES = (1.0, 64.0)
"""vCPUs of the machines that `reference` was fitted on; others count as the nearest of these."""
ON_DEMAND = Exponential(1 / ON_DEMAND_HOURS)
"""On demand: one loss in a year."""


def spot_lifetimes(shares: np.ndarray, vcpus: np.ndarray) -> Lives:
    """Prior lifetimes of many spot machines at once.

    Parameters
    ----------
    shares
        Share taken back within a month, by the interruption band; NaN where there is none.
    vcpus
        Sizes; NaN or 0 where not known.

    Examples
    --------
    >>> spot_lifetimes(np.array([0.075, np.nan]), np.array([4.0, 4.0])).hours_per_loss().round(1)
    array([346.7,  64.1])
    """
    known = reference()
    ratios = np.exp(known.doubling * np.log2(_sizes(vcpus) / VCPUS))
    with np.errstate(divide="ignore"):
        rates = 1 / (BAND_HOURS / -np.log1p(-np.asarray(shares, float)))
    banded = np.isfinite(rates)
    floor = np.where(banded, rates, known.base.floor * ratios)
    return Lives(floor, np.where(banded, 0.0, known.base.early * ratios), known.base.scale)


def _sizes(vcpus: np.ndarray) -> np.ndarray:
    known = np.where(np.asarray(vcpus, float) > 0, vcpus, VCPUS)
    return np.clip(known, *SIZES)


@dataclass(frozen=True, slots=True)
class Posterior:
    """Posterior of a machine's lifetime: a base hazard times a gamma distributed factor.

    Attributes
    ----------
    base : Model
        The prior's best guess.
    preemptions, exposure : float
        Parameters of the factor's gamma distribution, the prior's 1 and 1 among them.
    machines : int
        Machines seen to end at the very place.
    own, lent : float
        Preemptions seen there and lent by neighbours, faded.
    basis : str
        What the prior rests on.

    Examples
    --------
    >>> Posterior(Exponential(0.1), 3.0, 2.0, 2, 2.0, 0.0, "a guess").model
    Exponential(rate=0.15000000000000002, cap=inf)
    """

    base: Model
    preemptions: float
    exposure: float
    machines: int
    own: float
    lent: float
    basis: str

    @property
    def ratio(self) -> float:
        """The factor on the base's hazard, its mean."""
        return self.preemptions / self.exposure

    @property
    def model(self) -> Model:
        """The lifetime model with the factor at its mean."""
        return self.base.times(self.ratio)

    def survival(self, hours: float) -> float:
        """Return the chance that a new machine lives so long, averaged over the factor."""
        if hours >= getattr(self.base, "cap", math.inf):
            return 0.0
        spent = -math.log(max(float(self.base.reaching(hours)), 1e-300))
        return (1 + spent / self.exposure) ** -self.preemptions

    def models(self, level: float = LEVEL) -> tuple[Model, Model]:
        """Return the pessimistic and the optimistic model of a credible interval."""
        from scipy.special import gammaincinv

        tail = (1 - level) / 2
        slow, fast = gammaincinv(self.preemptions, [tail, 1 - tail]) / self.exposure
        return self.base.times(float(fast)), self.base.times(float(slow))

    def interval(self, within: float = 24.0, level: float = LEVEL) -> tuple[float, float]:
        """Bounds of the hours that a machine lives on average within its first `within` hours."""
        short, long = self.models(level)
        return short.expected_lifetime(within), long.expected_lifetime(within)

    def __str__(self) -> str:
        low, high = self.interval()
        hours = self.model.expected_lifetime(24.0)
        seen = (
            f"{self.machines} machines seen there ({self.own:.1f} preemptions, faded), "
            f"{self.lent:.1f} lent by neighbours"
            if self.machines or self.lent
            else "none seen"
        )
        return (
            f"{hours:.1f} of the first 24 h ({low:.1f} to {high:.1f}); prior: {self.basis}; {seen}"
        )


@dataclass(frozen=True, slots=True)
class _MachineEnd:
    place: Place
    hours: float
    died: float
    weight: float
    machines: int


@dataclass(frozen=True)
class Beliefs:
    """Priors and observations at one moment; pure, it asks no clock and reads no file.

    Attributes
    ----------
    bands : callable
        The interruption band of a cloud, region and instance type, or None; such as
        ``catalog.load().interruption``.
    caps : mapping of str to float
        Age in hours that no spot machine of a cloud outlives.

    Examples
    --------
    >>> there = Place("gcp", "us-west1", "us-west1-b", "n2-standard-8", spot=True)
    >>> seen = [Observation("preempted", there, 0.0, seconds=1800.0)] * 3
    >>> beliefs = Beliefs.of(seen, now=0.0)
    >>> beliefs.posterior(there).ratio > 1 > Beliefs().posterior(there).ratio - 0.5
    True
    """

    bands: Bands = no_bands
    caps: Mapping[str, float] = field(default_factory=dict)
    _ends: Mapping[tuple[str, ...], tuple[_MachineEnd, ...]] = field(
        default_factory=dict, repr=False
    )

    @classmethod
    def of(
        cls,
        observations: Iterable[Observation],
        now: float,
        bands: Bands = no_bands,
        caps: Mapping[str, float] | None = None,
    ) -> Beliefs:
        """Return the knowledge at `now` (unix seconds); later observations are left out."""
        ends: defaultdict[tuple[str, ...], list[_MachineEnd]] = defaultdict(list)
        for seen in observations:
            if seen.kind not in ("preempted", "ended") or seen.at > now:
                continue
            weight = seen.weight * age_weight(now - seen.at, half_life(seen.kind))
            died = weight if seen.kind == "preempted" else 0.0
            one = _MachineEnd(seen.place, (seen.seconds or 0.0) / 3600, died, weight, seen.events)
            for key in neighbour_keys(seen.place):
                ends[key].append(one)
        return cls(bands, caps or {}, {key: tuple(found) for key, found in ends.items()})

    def posterior(self, where: Offer | Place) -> Posterior:
        """Return the posterior of one machine at a place; an offer also has a size."""
        place = Place.of(where)
        base, basis = self._base(place, where.vcpus if isinstance(where, Offer) else 0.0)
        own = [one for one in self._ends.get(neighbour_keys(place)[0], ()) if one.place == place]
        died, spent = _weigh_evidence(base, own, lambda _: 1.0)
        lent, lent_spent = _weigh_evidence(
            base, self._neighbour_evidence(place), lambda other: neighbour_weight(place, other)
        )
        worth = max(lent, lent_spent)
        share = min(1.0, PRIOR_PREEMPTIONS / worth) if worth > 0 else 0.0
        return Posterior(
            base,
            PRIOR_PREEMPTIONS + died + share * lent,
            PRIOR_PREEMPTIONS + spent + share * lent_spent,
            sum(one.machines for one in own),
            died,
            share * lent,
            basis,
        )

    @property
    def places(self) -> set[Place]:
        """Ends of machines observed at places."""
        return {one.place for ends in self._ends.values() for one in ends}

    def __call__(self, offer: Offer) -> Model:
        """Return the lifetime model of an offer's machines, for `select_server`."""
        return self.posterior(offer).model

    def _base(self, place: Place, vcpus: float) -> tuple[Model, str]:
        if not place.spot:
            return ON_DEMAND, "on demand, one loss in a year"
        cap = float(self.caps.get(place.cloud, math.inf))
        band = self.bands(place.cloud, place.region, place.instance_type)
        share = preempted_share(band)
        lives = spot_lifetimes(np.array([math.nan if share is None else share]), np.array([vcpus]))
        floor, early = float(lives.floor[0]), float(lives.early[0])
        if band is not None:
            high = "more" if band.high_pct is None else f"{band.high_pct:g}"
            basis = f"interruption band of {band.low_pct:g} to {high} % a month"
            return Exponential(floor, cap), basis
        size = _sizes(np.array(vcpus)).item()
        basis = f"Google's preemptible machines of 2019 with {size:g} vCPUs"
        return FloorHyperbolic(floor, early, lives.scale, cap), basis

    def _neighbour_evidence(self, place: Place) -> list[_MachineEnd]:
        near = {id(one): one for key in neighbour_keys(place) for one in self._ends.get(key, ())}
        return [one for one in near.values() if one.place != place]


def posterior(
    where: Offer | Place,
    observations: Iterable[Observation] = (),
    now: float | None = None,
    bands: Bands = no_bands,
    caps: Mapping[str, float] | None = None,
) -> Posterior:
    """Return the posterior of one machine at a place: prior and observations.

    Who asks for many places makes `Beliefs` once.

    Parameters
    ----------
    now
        Unix seconds; the time of the newest observation unless given.

    Returns
    -------
    Posterior
        Of the lifetime.

    Examples
    --------
    >>> spot = Offer("azure", "westeurope", "Standard_D8s_v5", 8, 32, spot=True)
    >>> posterior(spot).machines
    0
    """
    seen = tuple(observations)
    moment = max((one.at for one in seen), default=0.0) if now is None else now
    return Beliefs.of(seen, moment, bands, caps).posterior(where)


def _weigh_evidence(
    base: Model, ends: Iterable[_MachineEnd], share: Callable[[Place], float]
) -> tuple[float, float]:
    """Preemptions, and the base's cumulative hazard over the lives, each times its share."""
    ends = list(ends)
    if not ends:
        return 0.0, 0.0
    shares = np.array([share(one.place) for one in ends])
    hours = np.minimum([one.hours for one in ends], getattr(base, "cap", math.inf))
    spent = base.cumulative_below(hours) * [one.weight for one in ends]
    return float(shares @ [one.died for one in ends]), float(shares @ spent)


def current(now: float | None = None, caps: Mapping[str, float] | None = None) -> Beliefs:
    """Return beliefs from this user's tracker and the catalog, as they are now.

    The one function of this room that reads files and the clock.

    Parameters
    ----------
    now
        Unix seconds; the clock's unless given.
    caps
        Longest life of machines by cloud (hours).

    Returns
    -------
    Beliefs
        Posteriors for any place.

    Examples
    --------
    >>> current().lifetime(offer).expected_lifetime()  # doctest: +SKIP
    """
    import time

    from jupyter_sky.knowledge import catalog, tracker

    moment = time.time() if now is None else now
    seen = tracker.current().observations()
    return Beliefs.of(seen, moment, catalog.load().interruption, caps)
