"""The SciSpot paper's equation (1), as it is written and as a distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.lifetimes import CAP_HOURS
from jupyter_sky.knowledge.lifetimes.models import Model

_CERTAIN = 1e-12
"""A survival that equation (1) makes zero or negative is taken as this where a log is needed."""


@dataclass(frozen=True)
class Constrained(Model):
    """SciSpot (Sharma et al. 2019), equation (1), exactly as written.

    ``F(t) = A (1 - exp(-t / tau1) + exp((t - b) / tau2))``, fitted by least squares to the
    empirical distribution of machines that the provider ended.

    Attributes
    ----------
    scale : float
        A, dimensionless.
    tau1, tau2 : float
        Hours; the inverse rates of the initial and of the final phase.
    b : float
        Hours; where the final phase sets in.

    Notes
    -----
    It is not a distribution. ``F(0) = A exp(-b / tau2)`` is above 0 (0.07-0.11 where tau2 is long),
    and nothing makes ``F(24)`` equal 1 (0.52-0.94 on the paper's own data), nor keeps it below.
    `cdf` and `survival` say what the formula says, so survival may start below 1, and turn
    negative when asked beyond the cap. Its rise stands for machines that reach the cap of 24 h and
    are ended between 24.0 and 24.8 h; the formula takes it for a growing rate of preemption. Where
    a lifetime, a sample or a likelihood is needed, what is missing from 1 at 24 h is put there as
    an atom, and what is there at 0 ends at 0.

    Examples
    --------
    >>> round(float(Constrained(0.42, 1.0, 0.8, 24.4).survival(4.0)), 3)
    0.588
    """

    scale: float
    tau1: float
    tau2: float
    b: float
    cap: float = CAP_HOURS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cap == math.inf:
            raise SkyUsageError(_("equation (1) without a cap"), hint=_("give cap=24.0"))
        for name in ("scale", "tau1", "tau2"):
            validation.check_number(getattr(self, name), name, above=0)
        validation.check_number(self.b, "b (hours)", least=-math.inf)

    def formula(self, hours: ArrayLike) -> Any:
        """Equation (1) at any time, beyond the cap too."""
        t = np.asarray(hours, float)
        late = np.exp(np.minimum((t - self.b) / self.tau2, 700.0))
        return (self.scale * (1 - np.exp(-t / self.tau1) + late))[()]

    def rate(self, hours: ArrayLike) -> Any:
        """Equation (2), the derivative of (1): the paper calls it the failure rate."""
        t = np.asarray(hours, float)
        early = np.exp(-t / self.tau1) / self.tau1
        return (self.scale * (early + np.exp((t - self.b) / self.tau2) / self.tau2))[()]

    def expected_lifetime_paper(self) -> float:
        """Equation (3) in hours: the integral of ``t p(t)`` from 0 to the cap.

        It loses the machines that reach the cap: they are not in ``p`` below it. Their share times
        the cap is missing (4.5-6.4 h come out where 7.6-19.4 h are true).
        """
        return self._first_moment(self.cap) - self._first_moment(0.0)

    def _first_moment(self, t: float) -> float:
        early = -(t + self.tau1) * math.exp(-t / self.tau1)
        late = (t - self.tau2) * math.exp((t - self.b) / self.tau2)
        return self.scale * (early + late)

    def survival(self, hours: ArrayLike) -> Any:
        """``1 - F(t)`` as written: below 1 at 0, and 0 from the cap on only by the cap's rule."""
        ages = np.asarray(hours, float)
        alive = 1.0 - self.formula(np.clip(ages, 0.0, self.cap))
        return np.where(ages >= self.cap, 0.0, np.where(ages < 0, 1.0, alive))[()]

    def reaching(self, hours: ArrayLike) -> Any:
        """As `survival`, with the cap itself among what can be reached."""
        ages = np.asarray(hours, float)
        alive = 1.0 - self.formula(np.clip(ages, 0.0, self.cap))
        return np.where(ages > self.cap, 0.0, np.where(ages <= 0, 1.0, alive))[()]

    def density(self, hours: ArrayLike) -> Any:
        """Equation (2) between 0 and the cap."""
        ages = np.asarray(hours, float)
        return np.where((ages < 0) | (ages >= self.cap), 0.0, self.rate(ages))[()]

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """Equation (2) over ``1 - F``."""
        return self.rate(ages) / np.maximum(1.0 - self.formula(ages), _CERTAIN)

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """``-log(1 - F)``; above 0 already at 0."""
        return -np.log(np.maximum(1.0 - self.formula(ages), _CERTAIN))

    def sample(self, size: int, rng: np.random.Generator, age: ArrayLike = 0.0) -> np.ndarray:
        """Ages at the end; the share F(0) of new machines ends at 0."""
        start = np.broadcast_to(np.asarray(age, float), (size,))
        used = np.where(start > 0, self.cumulative_below(np.maximum(start, 0.0)), 0.0)
        return np.maximum(self._age_at(used + rng.exponential(size=size)), start)


@dataclass(frozen=True)
class NormalisedConstrained(Model):
    """Equation (1) made a distribution: ``(F(t) - F(0)) / (F(end) - F(0))`` on 0 to `end` hours.

    `end` lies past the cap because providers take their time (24.0-24.8 h were seen), and equation
    (1) puts its rise there. What it leaves above the cap is the atom at the cap.

    Attributes
    ----------
    tau1, tau2, b, end : float
        Hours, see `Constrained`. The paper's A cancels.

    Examples
    --------
    >>> round(float(NormalisedConstrained(1.0, 0.8, 24.4).survival(4.0)), 3)
    0.685
    """

    tau1: float
    tau2: float
    b: float
    end: float = CAP_HOURS + 1
    cap: float = CAP_HOURS

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("tau1", "tau2"):
            validation.check_number(getattr(self, name), name, above=0)
        validation.check_number(self.end, "end (hours)", above=self.cap)

    def _shape(self) -> Constrained:
        return Constrained(1.0, self.tau1, self.tau2, self.b, self.cap)

    def _alive(self, ages: np.ndarray) -> np.ndarray:
        raw = self._shape()
        start, end = raw.formula(0.0), raw.formula(self.end)
        return np.maximum((end - raw.formula(ages)) / (end - start), _CERTAIN)

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """Equation (2), normalised, over the survival."""
        raw = self._shape()
        whole = raw.formula(self.end) - raw.formula(0.0)
        return raw.rate(ages) / whole / self._alive(ages)

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """``-log`` of the survival."""
        return -np.log(self._alive(ages))
