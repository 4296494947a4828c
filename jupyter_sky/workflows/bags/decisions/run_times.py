"""Run times of a bag's jobs: what finished ones took, and what that says of those to come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation

_PRIOR_SPREAD = 0.3
_QUANTILES = (-1.28, -0.52, 0.0, 0.52, 1.28)
_NORMAL = np.array([-1.88, -1.17, -0.77, -0.48, -0.23, 0.0, 0.23, 0.48, 0.77, 1.17, 1.88])
"""Middles of eleven equally likely parts of a normal distribution."""
_POINTS = 256
_SIZES = 20


@dataclass(frozen=True)
class RunTimes:
    """Distribution of the run time of one job without failures.

    It is the product-limit estimate of finished and still running jobs, beside one assumed job
    whose logarithm is normal around their median: with it a single finished job has a spread too.

    Attributes
    ----------
    hours : tuple of float
        Run times, rising.
    weights : tuple of float
        How many jobs stand for each.

    Examples
    --------
    >>> times = RunTimes.of([0.9, 1.0, 1.1], running=[1.5])
    >>> round(times.mean, 2), round(times.median, 2)
    (1.19, 1.0)
    """

    hours: tuple[float, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(
        cls,
        finished: Sequence[float] | np.ndarray,
        running: Sequence[float] | np.ndarray = (),
        guess: float | None = None,
    ) -> RunTimes:
        """Return the distribution that jobs seen so far tell of.

        Parameters
        ----------
        finished
            Run times in hours, each of the attempt that came to its end.
        running
            Hours for which other jobs have run so far. Left out, the estimate would be too short:
            short jobs finish first.
        guess
            Hours to assume while no job has finished.

        Returns
        -------
        RunTimes
            The distribution.

        Raises
        ------
        SkyUsageError
            When no job has finished and there is no guess.

        Examples
        --------
        >>> RunTimes.of([], guess=2.0).median
        2.0
        """
        ends = np.sort([validation.check_number(h, "run time (hours)", above=0) for h in finished])
        if not len(ends) and guess is None:
            raise SkyUsageError(
                _("no job of the bag has finished, so its run time is not known"),
                hint=_("give the run time of a job that you expect"),
            )
        middle = float(np.median(ends)) if len(ends) else float(guess or 0.0)
        spread = float(np.log(ends).std(ddof=1)) if len(ends) > 2 else _PRIOR_SPREAD
        spread = max(spread, _PRIOR_SPREAD if len(ends) < 5 else 0.0)
        open_ages = np.sort(np.asarray(running, float))
        hours, weights = _product_limit(ends, open_ages[open_ages > 0], spread)
        assumed = [middle * math.exp(spread * z) for z in _QUANTILES]
        hours = np.concatenate([hours, assumed])
        weights = np.concatenate([weights, np.full(len(assumed), 1 / len(assumed))])
        order = np.argsort(hours, kind="stable")
        return cls(tuple(hours[order].tolist()), tuple(weights[order].tolist()))

    @classmethod
    def by_size(
        cls, finished: Sequence[float], sizes: Sequence[float], left: Sequence[float]
    ) -> RunTimes:
        """Return the distribution of jobs that are left, where work grows with a known size.

        Parameters
        ----------
        finished, sizes
            Run times in hours of finished jobs, and their sizes.
        left
            Sizes of the jobs that are left.

        Returns
        -------
        RunTimes
            Hours for one unit of size, times sizes that are left; as sure as the former.

        Examples
        --------
        >>> short = RunTimes.by_size([1.0, 2.0, 4.1], [1.0, 2.0, 4.0], left=[0.5, 0.5])
        >>> round(short.median, 2)
        0.5
        """
        rates = cls.of([hours / size for hours, size in zip(finished, sizes, strict=True)])
        some = np.asarray(left, float)
        if len(some) > _SIZES:
            some = np.quantile(some, (np.arange(_SIZES) + 0.5) / _SIZES)
        hours = np.outer(rates.hours, some).ravel()
        weights = np.repeat(np.asarray(rates.weights) / len(some), len(some))
        order = np.argsort(hours, kind="stable")
        return cls(tuple(hours[order].tolist()), tuple(weights[order].tolist()))

    @property
    def mean(self) -> float:
        """Expected run time, hours."""
        return float(np.average(self.hours, weights=self.weights))

    @property
    def median(self) -> float:
        """Median run time, hours."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> float:
        """Return the run time that this share of jobs does not exceed.

        Examples
        --------
        >>> RunTimes((1.0, 2.0, 4.0), (1.0, 1.0, 1.0)).quantile(0.9)
        4.0
        """
        shares = np.cumsum(self.weights) / sum(self.weights)
        return self.hours[min(int(np.searchsorted(shares, share - 1e-12)), len(self.hours) - 1)]

    def without_doubt(self) -> RunTimes:
        """Return the same distribution as one that many jobs have shown.

        Examples
        --------
        >>> RunTimes((1.0, 3.0), (1.0, 1.0)).without_doubt().mean
        2.0
        """
        return RunTimes(self.hours, tuple(1e6 * weight for weight in self.weights))

    def sums(self, count: int) -> RunTimes:
        """Return the distribution of the time of several jobs one after the other.

        It is normal, and as sure of its mean as this one.

        Examples
        --------
        >>> round(RunTimes((1.0, 3.0), (1.0, 1.0)).sums(100).mean)
        200
        """
        spread = math.sqrt(float(np.cov(self.hours, aweights=self.weights, ddof=0)) * count)
        points = np.maximum(count * self.mean + spread * _NORMAL, 1e-9)
        weight = sum(self.weights) / count / len(points)
        return RunTimes(tuple(points.tolist()), (weight,) * len(points))

    def beyond(self, elapsed: float) -> RunTimes:
        """Return the distribution of a job that has run for `elapsed` hours and goes on.

        Past the longest run time seen, the job is taken to need as long again as it has run.

        Examples
        --------
        >>> RunTimes((1.0, 2.0, 4.0), (1.0, 1.0, 1.0)).beyond(1.5).hours
        (2.0, 4.0)
        """
        pairs = [
            (hours, weight)
            for hours, weight in zip(self.hours, self.weights, strict=True)
            if hours > elapsed
        ]
        if not pairs:
            return RunTimes((2 * elapsed,), (1.0,))
        hours, weights = zip(*pairs, strict=True)
        return RunTimes(hours, weights)

    def sample(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Return run times in hours, drawn from the distribution as it is estimated."""
        shares = np.cumsum(self.weights)
        at = np.searchsorted(shares, rng.random(size) * shares[-1])
        return np.asarray(self.hours)[np.minimum(at, len(self.hours) - 1)]

    def draw(self, rng: np.random.Generator, replicas: int) -> np.ndarray:
        """Draw distributions that what was seen allows: the Bayesian bootstrap (Rubin 1981).

        Parameters
        ----------
        rng
            Generator of random numbers.
        replicas
            Number of distributions.

        Returns
        -------
        ndarray
            256 equally likely run times in hours for each distribution, a row each.
        """
        weights = rng.standard_gamma(np.asarray(self.weights), size=(replicas, len(self.weights)))
        shares = np.cumsum(weights, axis=1)
        # in the last row and column the sum of floats may miss what is searched
        shares = shares / shares[:, -1:] + np.arange(replicas)[:, None]
        points = (np.arange(_POINTS) + rng.random((replicas, 1))) / _POINTS
        at = np.searchsorted(shares.ravel(), (points + np.arange(replicas)[:, None]).ravel())
        columns = at.reshape(replicas, _POINTS) - np.arange(replicas)[:, None] * len(self.hours)
        return np.asarray(self.hours)[np.clip(columns, 0, len(self.hours) - 1)]


def _product_limit(
    ends: np.ndarray, running: np.ndarray, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Efron's redistribution: the weight of each running job goes to all that are longer."""
    hours = ends.copy()
    weights = np.ones(len(ends))
    for elapsed in running:
        longer = hours > elapsed
        if longer.any():
            weights[longer] *= 1 + 1 / weights[longer].sum()
        else:
            hours = np.append(hours, elapsed * math.exp(0.8 * max(spread, 0.1)))
            weights = np.append(weights, 1.0)
    return hours, weights
