"""The Kaplan-Meier estimate: lifetimes as they were seen, no formula."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.lifetimes import CAP_HOURS, Lifetimes
from jupyter_sky.knowledge.lifetimes.models import Model

_SECOND = 1 / 3600


@dataclass(frozen=True)
class KaplanMeier(Model):
    """The product-limit estimate (Kaplan and Meier 1958), with the cap as an atom.

    Attributes
    ----------
    ages : tuple of float
        Hours at which machines were preempted, rising.
    alive : tuple of float
        Share that outlives each of them.
    errors : tuple of float
        Greenwood's standard error of each share; machines of a batch share their fate, so the
        truth is less sure (see `bootstrap`).

    Examples
    --------
    >>> KaplanMeier.of(Lifetimes.of([1.0, 2.0, 3.0], [True, False, True])).alive
    (0.6666666666666667, 0.0)
    """

    ages: tuple[float, ...]
    alive: tuple[float, ...]
    errors: tuple[float, ...] = ()
    cap: float = CAP_HOURS

    @classmethod
    def of(cls, seen: Lifetimes) -> KaplanMeier:
        """Estimate the survival function of lifetimes.

        With no preemption among them survival stays 1 until the cap, which says little: the last
        machine seen may have been young. Without a cap nothing can be said then.

        Raises
        ------
        SkyUsageError
            When no machine was preempted and there is no cap.
        """
        if not seen.events.any() and seen.cap == math.inf:
            raise SkyUsageError(
                _("none of {seen_count} machines was preempted, and there is no cap").format(
                    seen_count=len(seen)
                ),
                hint=_("take a prior that these move: preemption.posterior(offer, observations)"),
            )
        hours = np.maximum(seen.hours, _SECOND)  # whoever ends at 0 was alive for a moment
        # scipy.stats.ecdf has no standard errors but within confidence intervals, and lists the
        # ages of censored machines too: to drop these would take as many lines as to count
        ages, died = np.unique(hours[seen.events], return_counts=True)
        ordered = np.sort(hours)
        at_risk = len(seen) - np.searchsorted(ordered, ages, side="left")
        alive = np.cumprod(1 - died / at_risk)
        with np.errstate(divide="ignore", invalid="ignore"):
            spread = alive * np.sqrt(np.cumsum(died / (at_risk * (at_risk - died))))
        spread = np.where(np.isfinite(spread), spread, 0.0)
        return cls(tuple(ages.tolist()), tuple(alive.tolist()), tuple(spread.tolist()), seen.cap)

    def survival(self, hours: ArrayLike) -> Any:
        """Return the survival at ages as a step function; 0 from the cap on."""
        return self._steps(np.asarray(hours, float), "right", np.less)

    def reaching(self, hours: ArrayLike) -> Any:
        """P(lifetime >= hours)."""
        return self._steps(np.asarray(hours, float), "left", np.less_equal)

    def _steps(self, hours: np.ndarray, side: Any, below: Any) -> Any:
        levels = np.concatenate([[1.0], self.alive])
        found = levels[np.searchsorted(np.array(self.ages), hours, side=side)]
        return np.where(below(hours, self.cap), found, 0.0)[()]

    def integral(self, hours: ArrayLike) -> Any:
        """Exact: a step function has rectangles below it."""
        ends = np.clip(np.asarray(hours, float), 0.0, self.cap)
        knots = np.concatenate([[0.0], self.ages])
        levels = np.concatenate([[1.0], self.alive])
        areas = np.concatenate([[0.0], np.cumsum(np.diff(knots) * levels[:-1])])
        index = np.searchsorted(knots, ends, side="right") - 1
        finite = np.where(np.isfinite(ends), ends, knots[-1])
        area = areas[index] + (finite - knots[index]) * levels[index]
        return np.where(np.isfinite(ends) | (levels[-1] == 0), area, math.inf)[()]

    def areas(self, edges: np.ndarray) -> np.ndarray:
        """Exact, see `integral`."""
        return np.diff(self.integral(edges))

    def cumulative_below(self, ages: np.ndarray) -> np.ndarray:
        """``-log`` of `reaching` below the cap, a step function."""
        levels = np.concatenate([[1.0], self.alive])
        with np.errstate(divide="ignore"):
            return -np.log(levels[np.searchsorted(np.array(self.ages), ages, side="left")])

    def hazard_below(self, ages: np.ndarray) -> np.ndarray:
        """Share that dies at each event over the hours since the event before: rough.

        After the last event it is 0, so a likelihood of other data may be minus infinity: the
        estimate says that what it has not seen cannot be.
        """
        knots = np.concatenate([[0.0], self.ages])
        levels = np.concatenate([[1.0], self.alive])
        rates = np.append(-np.diff(levels) / levels[:-1] / np.diff(knots), 0.0)
        return rates[np.searchsorted(np.array(self.ages), ages, side="left")]

    def band(self, hours: ArrayLike) -> Any:
        """Return the standard error of the survival at ages (Greenwood 1926)."""
        levels = np.concatenate([[0.0], self.errors])
        ages = np.asarray(hours, float)
        return levels[np.searchsorted(np.array(self.ages), ages, side="right")][()]

    def _age_at(self, cumulative: np.ndarray) -> np.ndarray:
        steps = -np.log(np.maximum(np.array(self.alive), 1e-300))
        index = np.searchsorted(steps, cumulative, side="left")
        return np.append(self.ages, self.cap)[index]
