"""Lifetime models: one small interface, hours everywhere.

A model is a hazard (preemptions per hour of machines that are still alive) by age, below a cap at
which every machine ends. Whoever is left at the cap ends there at once: the distribution has an
atom at the cap, `Model.atom`. A model without a cap has ``cap=inf``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation

if TYPE_CHECKING:
    from jupyter_sky.knowledge.lifetimes.lifetimes import Lifetimes

_SECOND = 1 / 3600
_TINY = 1e-300


@dataclass(frozen=True)
class Model:
    """Lifetime model. A subclass gives `hazard_below` and `cumulative_below`.

    Attributes
    ----------
    cap : float, keyword
        Age in hours that no machine outlives; ``inf`` for none.

    Examples
    --------
    >>> Exponential(0.1, cap=24.0).cap
    24.0
    """

    def __post_init__(self) -> None:
        cap: float = getattr(self, "cap", math.inf)
        if cap != math.inf:
            validation.check_number(cap, "cap (hours)", above=0)

    @property
    def _cap(self) -> float:
        return getattr(self, "cap", math.inf)

    # -- what a subclass gives -----------------------------------------------------------------

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """Preemptions per hour at ages below the cap."""
        raise NotImplementedError

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """Integral of the hazard from 0 to ages below the cap."""
        raise NotImplementedError

    # -- the interface ---------------------------------------------------------------------------

    def survival(self, hours: ArrayLike) -> Any:
        """P(lifetime > hours): 1 before the launch, 0 from the cap on."""
        ages = np.asarray(hours, float)
        alive = np.exp(-self.cumulative_below(np.clip(ages, 0.0, self._cap)))
        return np.where(ages >= self._cap, 0.0, np.where(ages < 0, 1.0, alive))[()]

    def reaching(self, hours: ArrayLike) -> Any:
        """P(lifetime >= hours); unlike `survival` it holds those that end at the cap itself."""
        ages = np.asarray(hours, float)
        alive = np.exp(-self.cumulative_below(np.clip(ages, 0.0, self._cap)))
        return np.where(ages > self._cap, 0.0, np.where(ages < 0, 1.0, alive))[()]

    def outlives(self, hours: ArrayLike, age: float = 0.0) -> Any:
        """P(a machine that is alive at `age` lives `hours` more).

        Examples
        --------
        >>> model = FloorHyperbolic(0.005, 0.41, 0.3, cap=24.0)
        >>> [round(float(1 - model.outlives(1.0, age)), 3) for age in (0, 5, 23)]
        [0.169, 0.026, 1.0]
        """
        alive = float(self.survival(validation.check_number(age, "age (hours)"))) if age else 1.0
        if alive <= 0:
            raise SkyUsageError(
                _("no machine is alive at an age of {age:g} h").format(age=age),
                hint=_("give one below {cap:g}").format(cap=self._cap),
            )
        return self.survival(np.asarray(hours, float) + age) / alive

    def cdf(self, hours: ArrayLike) -> Any:
        """P(lifetime <= hours)."""
        return 1.0 - self.survival(hours)

    def hazard(self, hours: ArrayLike) -> Any:
        """Preemptions per hour of those alive; infinite from the cap on, 0 before the launch."""
        ages = np.asarray(hours, float)
        with np.errstate(divide="ignore"):
            rate = self.hazard_below(np.clip(ages, 0.0, self._cap))
        return np.where(ages >= self._cap, math.inf, np.where(ages < 0, 0.0, rate))[()]

    def density(self, hours: ArrayLike) -> Any:
        """Density per hour of the lifetime below the cap."""
        ages = np.asarray(hours, float)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = self.hazard_below(np.clip(ages, 0.0, self._cap))
            found = rate * self.survival(ages)
        return np.where((ages < 0) | (ages >= self._cap), 0.0, found)[()]

    @property
    def atom(self) -> float:
        """The share of machines that live to the cap and end there; 0 without a cap."""
        return float(self.reaching(self._cap)) if self._cap < math.inf else 0.0

    def integral(self, hours: ArrayLike) -> Any:
        """Hours lived until an age, on average: the integral of `survival` from 0."""
        return _integral(self, np.asarray(hours, float))[()]

    def areas(self, edges: np.ndarray) -> np.ndarray:
        """Integrals of the survival between ages that follow closely, each precise in itself.

        Differences of `integral` lose all digits where hardly a machine is alive.
        """
        ends = np.minimum(edges, self._cap)
        middle, half = (ends[1:] + ends[:-1]) / 2, np.diff(ends) / 2
        points = np.minimum(middle[:, None] + half[:, None] * _NODES, np.nextafter(self._cap, 0.0))
        found = half * (np.maximum(self.survival(points), 0.0) @ _WEIGHTS)
        if edges[0] == 0 and len(found):  # the hazard may be infinite at 0
            found[0] = self.integral(ends[1])
        return found

    def expected_lifetime(self, upto: float | None = None, age: float = 0.0) -> float:
        """Hours that a machine of an age still lives on average, until the age `upto` at most.

        Parameters
        ----------
        upto
            Hours of age at which counting stops; the cap unless given.
        age
            Hours that the machine has lived already.

        Returns
        -------
        float
            Hours from `age`; ``inf`` when it has no end.

        Raises
        ------
        SkyUsageError
            For an age that no machine reaches.

        Examples
        --------
        >>> round(Exponential(0.1, cap=24.0).expected_lifetime(), 3)
        9.093
        """
        age = validation.check_number(age, "age (hours)")
        end = self._cap if upto is None else min(float(upto), self._cap)
        alive = float(self.survival(age))
        if alive <= 0:
            raise SkyUsageError(
                _("no machine is alive at an age of {age:g} h").format(age=age),
                hint=_("give one below {cap:g}").format(cap=self._cap),
            )
        if end == math.inf:
            return _mean_beyond(self, age)
        return max(0.0, float(self.integral(end) - self.integral(age))) / alive

    def sample(self, size: int, rng: np.random.Generator, age: ArrayLike = 0.0) -> np.ndarray:
        """Ages at which machines end, in hours, of machines that are alive at `age`."""
        start = np.broadcast_to(np.asarray(age, float), (size,))
        used = self.cumulative_below(np.clip(start, 0.0, self._cap))
        return self._age_at(used + rng.exponential(size=size))

    def times(self, ratio: float) -> Model:
        """Return the model with the hazard times a ratio at every age (proportional hazards).

        With a whole number *n* this is the first end among *n* machines.
        """
        return Scaled(self, validation.check_number(ratio, "hazard ratio"), self._cap)

    def log_likelihood(self, seen: Lifetimes) -> float:
        """Sum over machines of the log of what was seen of each (natural logs, hours).

        A machine preempted below the cap counts with its density, one stopped by its owner with
        the chance to live that long, one that reached the cap with the chance to reach it.
        """
        return float(np.sum(log_terms(self, seen)))

    def _age_at(self, cumulative: np.ndarray) -> np.ndarray:
        """Ages at which the cumulative hazard reaches a value; the cap where it never does."""
        low, high = np.zeros_like(cumulative), np.full_like(cumulative, min(self._cap, 1.0))
        for __ in range(60):
            short = (self.cumulative_below(high) < cumulative) & (high < min(self._cap, 1e12))
            if not short.any():
                break
            high = np.where(short, np.minimum(2 * high, self._cap), high)
        for __ in range(60):
            middle = (low + high) / 2
            below = self.cumulative_below(middle) < cumulative
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        if self._cap == math.inf:
            return high
        last = self.cumulative_below(np.array([self._cap]))[0]
        return np.where(cumulative >= last, self._cap, high)


@dataclass(frozen=True)
class Exponential(Model):
    """A constant hazard: machines do not age.

    Attributes
    ----------
    rate : float
        Preemptions per hour.

    Examples
    --------
    >>> float(Exponential(0.5).survival(2.0).round(4))
    0.3679
    """

    rate: float
    cap: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.check_number(self.rate, "rate (per hour)")

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """Return the rate, at any age."""
        return np.full_like(ages, self.rate, float)

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """Rate times age."""
        return self.rate * np.minimum(ages, 1e15)

    def times(self, ratio: float) -> Exponential:
        """Another rate."""
        return Exponential(self.rate * ratio, self.cap)

    def integral(self, hours: ArrayLike) -> Any:
        """Return the expected lifetime in closed form."""
        ages = np.clip(np.asarray(hours, float), 0.0, self.cap)
        return (-np.expm1(-self.rate * ages) / self.rate if self.rate else ages)[()]


@dataclass(frozen=True)
class Weibull(Model):
    """``F(t) = 1 - exp(-(rate t)^shape)``; a shape below 1 is a falling hazard.

    Attributes
    ----------
    rate : float
        Per hour.
    shape : float
        Dimensionless.

    Examples
    --------
    >>> round(float(Weibull(0.1, 0.7).survival(5.0)), 3)
    0.54
    """

    rate: float
    shape: float
    cap: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.check_number(self.rate, "rate (per hour)", above=0)
        validation.check_number(self.shape, "shape", above=0)

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """Infinite at 0 where the shape is below 1."""
        return self.shape * self.rate * np.power(self.rate * ages, self.shape - 1)

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """``(rate t)^shape``."""
        return np.power(self.rate * np.minimum(ages, 1e15), self.shape)


@dataclass(frozen=True)
class FloorHyperbolic(Model):
    """A hazard that falls from `floor` + `early` at launch to `floor`: ``c + a / (1 + t / s)``.

    Young machines are taken back often, those past a few hours seldom. Fits Google's preemptible
    machines of 2019 best of the models that were compared. With `floor` 0 it is the Lomax
    distribution: an exponential whose rate is gamma distributed.

    Attributes
    ----------
    floor, early : float
        Preemptions per hour.
    scale : float
        Hours in which the early part falls by half.

    Examples
    --------
    >>> model = FloorHyperbolic(0.005, 0.41, 0.3, cap=24.0)
    >>> [round(float(model.hazard(age)), 3) for age in (0, 1, 10)]
    [0.415, 0.1, 0.017]
    """

    floor: float
    early: float
    scale: float
    cap: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        validation.check_number(self.floor, "floor (per hour)")
        validation.check_number(self.early, "early (per hour)")
        validation.check_number(self.scale, "scale (hours)", above=0)

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """``c + a / (1 + t / s)``."""
        return self.floor + self.early / (1 + ages / self.scale)

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """``c t + a s log(1 + t / s)``."""
        ages = np.minimum(ages, 1e15)
        return self.floor * ages + self.early * self.scale * np.log1p(ages / self.scale)

    def times(self, ratio: float) -> FloorHyperbolic:
        """Return the model with the hazard times a ratio (proportional hazards)."""
        return FloorHyperbolic(self.floor * ratio, self.early * ratio, self.scale, self.cap)


@dataclass(frozen=True)
class Scaled(Model):
    """Another model with a hazard that is `ratio` times as high.

    Attributes
    ----------
    base : Model
        The other model.
    ratio : float
        Hazard ratio, dimensionless.

    Examples
    --------
    >>> model = Scaled(Exponential(0.1), 2.0)
    >>> round(float(model.survival(5.0)), 3)
    0.368
    """

    base: Model
    ratio: float
    cap: float = math.inf

    def survival(self, hours: ArrayLike) -> Any:
        """Return a power of the base's."""
        return np.power(self.base.survival(hours), self.ratio)

    def reaching(self, hours: ArrayLike) -> Any:
        """Return a power of the base's."""
        return np.power(self.base.reaching(hours), self.ratio)

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """Return a multiple of the base's."""
        return self.ratio * self.base.hazard_below(ages)

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """Return a multiple of the base's."""
        return self.ratio * self.base.cumulative_below(ages)

    def _age_at(self, cumulative: np.ndarray) -> np.ndarray:
        return self.base._age_at(cumulative / max(self.ratio, _TINY))


def log_terms(model: Model, seen: Lifetimes, ratio: ArrayLike = 1.0) -> np.ndarray:
    """Log-likelihood of each machine, its hazard `ratio` times the model's.

    A lifetime of 0 is taken as one second: a hazard may be infinite at 0.
    """
    ages = np.clip(seen.hours, _SECOND, seen.cap)
    factor = np.asarray(ratio, float)
    alive = -factor * model.cumulative_below(ages)
    with np.errstate(divide="ignore"):
        rate = np.log(np.maximum(factor * model.hazard_below(ages), _TINY))
    return alive + np.where(seen.events, rate, 0.0)


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_PANELS = 48


def _integral(model: Model, ages: np.ndarray) -> np.ndarray:
    """Integral of the survival from 0 to ages, by Gauss-Legendre on panels that are fine near 0."""
    ends = np.clip(ages, 0.0, model._cap)
    edges = (np.arange(_PANELS + 1) / _PANELS) ** 3
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    points = (middle[:, None] + half[:, None] * _NODES).ravel()
    weights = (half[:, None] * _WEIGHTS).ravel()
    below = np.nextafter(model._cap, 0.0)
    values = model.survival(np.minimum(ends[..., None] * points, below))
    return ends * (values @ weights)


def _mean_beyond(model: Model, age: float) -> float:
    """Return the mean remaining life without cap; infinite if the integral diverges."""
    start, alive, horizon = float(model.integral(age)), float(model.survival(age)), 64.0
    last = 0.0
    while horizon < 1e13:
        now = (float(model.integral(age + horizon)) - start) / alive
        if now - last < 1e-9 * now and float(model.survival(age + horizon)) < 1e-9 * alive:
            return now
        last, horizon = now, 2 * horizon
    return math.inf
