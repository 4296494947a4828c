"""Fitting lifetime models: maximum likelihood, the paper's least squares, bootstrap by batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from jupyter_sky.base.errors import SkyError, SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.lifetimes import CAP_HOURS, Lifetimes
from jupyter_sky.knowledge.lifetimes.models import (
    Exponential,
    FloorHyperbolic,
    Model,
    Weibull,
    log_terms,
)
from jupyter_sky.knowledge.lifetimes.proportional_hazards import Proportional
from jupyter_sky.knowledge.lifetimes.scispot_model import Constrained, NormalisedConstrained

# -- The Kaplan-Meier estimate: lifetimes as they were seen, no formula ---------------------------

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


# -- Fitting lifetime models: maximum likelihood, the paper's least squares, ----------------------

_Fitted = TypeVar("_Fitted")
MIN_HOURS = 1e-9
"""All lifetimes together are no shorter: a rate has to be a number."""
ZONE_SPREAD = 0.7
"""Standard deviation that log hazard ratios of zones are taken to have: the prior that keeps a
zone with two machines near the average."""
SIZE_SPREAD = 0.5
"""The same of the log hazard ratio for a doubling of vCPUs."""


def fit(name: str, seen: Lifetimes) -> Model:
    """Fit a model by maximum likelihood; stopped machines are censored, the cap is an atom.

    Parameters
    ----------
    name
        ``exponential``, ``weibull``, ``floor-hyperbolic``, ``constrained`` (equation (1),
        normalised) or ``kaplan-meier``. Covariates: see `fit_proportional`.
    seen
        Lifetimes.

    Returns
    -------
    Model
        The fitted model.

    Raises
    ------
    SkyUsageError
        For an unknown name, or fewer preemptions than the model has parameters.

    Examples
    --------
    >>> seen = Lifetimes.of([1.0, 3.0, 24.1], [True, False, True])
    >>> round(fit("exponential", seen).rate, 4)
    0.0357
    """
    if name not in _FITS:
        raise SkyUsageError(
            _("no lifetime model is called {name!r}").format(name=name), hint=suggest(name, _FITS)
        )
    least, work = _FITS[name]
    _require_rows(name, seen, least)
    return work(seen)


def fit_least_squares(name: str, seen: Lifetimes) -> Model:
    """Fit as the SciSpot paper does: the formula to the empirical distribution, least squares.

    Machines that their owner stopped are *dropped*, and those that reached the cap count as ended
    when they ended; both is what reproduces the paper's parameters, and both is wrong (lifetimes
    come out short). The fitted model is equation (1) as written, or the paper's two comparisons.

    Parameters
    ----------
    name
        ``constrained``, ``exponential`` or ``weibull``.
    seen
        Lifetimes.

    Returns
    -------
    Model
        The fitted model.

    Examples
    --------
    >>> seen = Lifetimes.of([1.0, 3.0, 8.0, 15.0], [True] * 4)
    >>> round(fit_least_squares("exponential", seen).rate, 3)
    0.216
    """
    starts: dict[str, tuple[Callable[..., Model], list[float], list[tuple[float, float]]]] = {
        "constrained": (
            lambda a, rate1, rate2, b: Constrained(a, 1 / rate1, 1 / rate2, b, seen.cap),
            [0.4, 1.0, 1.2, CAP_HOURS],
            [(1e-3, 5.0), (0.02, 50.0), (0.02, 20.0), (10.0, 60.0)],
        ),
        "exponential": (lambda rate: Exponential(rate, seen.cap), [0.1], [(1e-6, 50.0)]),
        "weibull": (
            lambda rate, shape: Weibull(rate, shape, seen.cap),
            [0.1, 0.7],
            [(1e-6, 50.0), (0.05, 20.0)],
        ),
    }
    if name not in starts:
        raise SkyUsageError(
            _("{name!r} is not fitted by least squares").format(name=name),
            hint=suggest(name, list(starts)),
        )
    make, start, bounds = starts[name]
    ended = np.sort(seen.hours[seen.preempted])
    if len(ended) <= len(start):
        raise SkyUsageError(
            _(
                "{ended_count} of {seen_count} machines were ended by the provider, "
                "too few for the {start_count} parameters of {name}"
            ).format(
                ended_count=len(ended), seen_count=len(seen), start_count=len(start), name=name
            ),
            hint=_("take more lifetimes, or a prior: preemption.posterior(offer)"),
        )
    return _fit_curve(make, start, bounds, ended)


def _fit_curve(
    make: Callable[..., Any],
    start: list[float],
    bounds: list[tuple[float, float]],
    ended: np.ndarray,
) -> Model:
    from scipy.optimize import least_squares

    share = np.arange(1, len(ended) + 1) / len(ended)

    def missed(point: np.ndarray) -> np.ndarray:
        model = make(*point)
        if isinstance(model, Constrained):
            return model.formula(ended) - share
        return 1 - np.exp(-model.cumulative_below(ended)) - share

    low, high = zip(*bounds, strict=True)
    found = least_squares(missed, start, bounds=(low, high), x_scale=np.abs(start), max_nfev=4000)
    return make(*(float(value) for value in found.x))


def fit_proportional(seen: Lifetimes, zone_spread: float = ZONE_SPREAD) -> Proportional:
    """Fit floor plus hyperbolic hazard with vCPUs and zone, by penalised maximum likelihood.

    The effects of size and zones have normal priors around none, with standard deviations
    `SIZE_SPREAD` and `zone_spread` (log hazard ratio): zones with few machines stay near the
    average.

    Parameters
    ----------
    seen
        Lifetimes with vCPUs and zones.
    zone_spread
        Standard deviation of the zones' effects, as a log hazard ratio.

    Returns
    -------
    Proportional
        The base model with the effects of size and zones.

    Raises
    ------
    SkyUsageError
        For fewer than four preemptions.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import google_2019
    >>> model = fit_proportional(google_2019())
    >>> model.at(64).expected_lifetime() < model.at(2).expected_lifetime()
    True
    """
    from scipy.optimize import minimize

    _require_rows("floor-hyperbolic with covariates", seen, 4)
    names, zone = np.unique(seen.zone, return_inverse=True)
    size = np.log2(np.maximum(seen.vcpus, 1 / 16) / 8.0)
    base = fit("floor-hyperbolic", seen)
    assert isinstance(base, FloorHyperbolic)

    def missed(point: np.ndarray) -> float:
        model = _hyperbolic(point[:3], seen.cap)
        ratio = np.exp(point[3] * size + point[4:][zone])
        prior = (point[3] / SIZE_SPREAD) ** 2 + np.sum((point[4:] / zone_spread) ** 2)
        return prior / 2 - float(np.sum(log_terms(model, seen, ratio)))

    start = np.zeros(4 + len(names))
    start[:3] = np.log([max(base.floor, 1e-6), max(base.early, 1e-6), base.scale])
    bounds = [*_HYPERBOLIC_BOUNDS, *[(-3.0, 3.0)] * (1 + len(names))]
    found = minimize(missed, start, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500})
    effects = tuple((str(n), float(e)) for n, e in zip(names, found.x[4:], strict=True))
    return Proportional(_hyperbolic(found.x[:3], seen.cap), float(found.x[3]), effects)


@dataclass(frozen=True)
class Interval:
    """A figure with the range that resampled batches give it.

    Attributes
    ----------
    estimate, low, high : float
        The figure of all the data, and the bounds of the middle 90 % (unless told) of samples.
    samples, failed : int
        Samples that gave a figure, and those that could not be fitted.

    Examples
    --------
    >>> Interval(5.5, 5.1, 6.0, samples=200, failed=0).low
    5.1
    """

    estimate: float
    low: float
    high: float
    samples: int
    failed: int

    def __str__(self) -> str:
        return f"{self.estimate:.3g} ({self.low:.3g} to {self.high:.3g})"


def bootstrap(
    figure: Callable[[Lifetimes], float],
    seen: Lifetimes,
    samples: int = 200,
    seed: int = 0,
    level: float = 0.9,
) -> Interval:
    """Estimate a figure with its uncertainty: fit it again on batches drawn with replacement.

    Machines of one batch share their fate, so batches are drawn, never machines.

    Parameters
    ----------
    figure
        From lifetimes to a number, such as ``lambda seen: fit("weibull", seen).shape``.

    Returns
    -------
    Interval
        The figure and its range.

    Raises
    ------
    SkyUsageError
        When more than half of the samples cannot be fitted, or there is one batch only.

    Examples
    --------
    >>> seen = Lifetimes.of([1, 2, 3, 4, 5.0, 6], [True] * 6)
    >>> mean = bootstrap(lambda some: some.hours.mean(), seen)
    >>> mean.low < mean.estimate < mean.high
    True
    """
    if len(np.unique(seen.batch)) < 2:
        raise SkyUsageError(
            _("one batch cannot be resampled"), hint=_("say which machines were launched together")
        )
    rng, found, failed = np.random.default_rng(seed), [], 0
    for __ in range(samples):
        try:
            value = float(figure(seen.resampled(rng)))
        except SkyError:
            value = math.nan
        found += [value] if math.isfinite(value) else []
        failed += not math.isfinite(value)
    if failed > samples / 2:
        raise SkyUsageError(
            _("{failed} of {samples} samples could not be fitted").format(
                failed=failed, samples=samples
            ),
            hint=_("there are too few preemptions: take a simpler model or more lifetimes"),
        )
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(figure(seen)), float(low), float(high), len(found), failed)


def _require_rows(name: str, seen: Lifetimes, least: int) -> None:
    events = int(seen.events.sum())
    if events >= least:
        return
    stopped, capped = int((~seen.preempted).sum()), int(seen.capped.sum())
    raise SkyUsageError(
        _(
            "{events} of {seen_count} machines were preempted below the cap "
            "({stopped} stopped by their owner, {capped} reached the cap); {name} "
            "needs {least}"
        ).format(
            events=events,
            seen_count=len(seen),
            stopped=stopped,
            capped=capped,
            name=name,
            least=least,
        ),
        hint=_(
            "take a simpler model, more lifetimes, or a prior that these move: "
            "preemption.posterior(offer, observations)"
        ),
    )


def _exponential(seen: Lifetimes) -> Exponential:
    hours = np.minimum(seen.hours, seen.cap).sum()
    if hours < MIN_HOURS:
        raise SkyUsageError(_("all lifetimes are 0"), hint=_("count hours from the launch"))
    return Exponential(float(seen.events.sum() / hours), seen.cap)


def _weibull(seen: Lifetimes) -> Weibull:
    mean = 1 / max(_exponential(seen).rate, 1e-9)
    points = [(math.log(1 / mean), math.log(shape)) for shape in (0.4, 1.0)]
    bounds = [(-16.0, 8.0), (math.log(0.02), math.log(20.0))]
    best = _maximize_likelihood(
        lambda p: Weibull(math.exp(p[0]), math.exp(p[1]), seen.cap), points, bounds, seen
    )
    assert isinstance(best, Weibull)
    return best


_HYPERBOLIC_BOUNDS = [(-14.0, 4.0), (-14.0, 6.0), (math.log(1e-3), math.log(500.0))]


def _hyperbolic(point: Sequence[float] | np.ndarray, cap: float) -> FloorHyperbolic:
    floor, early, scale = (math.exp(value) for value in point)
    return FloorHyperbolic(floor, early, scale, cap)


def _floor_hyperbolic(seen: Lifetimes) -> FloorHyperbolic:
    rate = math.log(max(_exponential(seen).rate, 1e-6))
    points = [(rate - 2, rate + 2, 0.0), (rate - 3, rate + 2, -1.5), (rate, rate - 3, 1.0)]
    best = _maximize_likelihood(
        lambda p: _hyperbolic(p, seen.cap), points, _HYPERBOLIC_BOUNDS, seen
    )
    assert isinstance(best, FloorHyperbolic)
    return best


def _constrained(seen: Lifetimes) -> NormalisedConstrained:
    if seen.cap == math.inf:
        raise SkyUsageError(_("equation (1) needs a cap"), hint=_("give Lifetimes with cap=24.0"))

    def make(point: Sequence[float]) -> NormalisedConstrained:
        tau1, tau2, shift = math.exp(point[0]), math.exp(point[1]), point[2]
        return NormalisedConstrained(tau1, tau2, seen.cap + shift, seen.cap + 1, seen.cap)

    points = [(0.0, 0.0, 0.0), (1.0, 0.0, -1.0), (0.0, -1.0, 1.0)]
    bounds = [(-3.0, 5.0), (-2.5, 4.0), (-12.0, 12.0)]
    best = _maximize_likelihood(make, points, bounds, seen)
    assert isinstance(best, NormalisedConstrained)
    return best


def _maximize_likelihood(
    make: Callable[[Any], Model],
    points: Sequence[Sequence[float]],
    bounds: Sequence[tuple[float, float]],
    seen: Lifetimes,
) -> Model:
    """Return the likeliest of the maxima found from several starting points."""
    from scipy.optimize import minimize

    def missed(point: np.ndarray) -> float:
        return -float(np.sum(log_terms(make(point), seen))) / len(seen)

    low, high = zip(*bounds, strict=True)
    found = [
        minimize(missed, np.clip(point, low, high), method="L-BFGS-B", bounds=bounds)
        for point in points
    ]
    return make(min(found, key=lambda one: one.fun).x)


_FITS: dict[str, tuple[int, Callable[[Lifetimes], Model]]] = {
    "exponential": (1, _exponential),
    "weibull": (2, _weibull),
    "floor-hyperbolic": (3, _floor_hyperbolic),
    "constrained": (3, _constrained),
    "kaplan-meier": (0, KaplanMeier.of),
}
MODELS = tuple(_FITS)
"""Names that `fit` knows; the first number is how many preemptions each needs."""
