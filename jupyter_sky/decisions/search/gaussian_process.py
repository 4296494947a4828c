"""One Gaussian process over all arms at once: nothing is eliminated, everything teaches.

What one provider's nodes do tells something of another's, and prices need not be learned.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.kernels import KernelSettings, SpaceKernel
from jupyter_sky.decisions.search.optimizer import (
    Remembering,
    Seed,
    Statistic,
    expected_improvement,
    log_values,
)
from jupyter_sky.decisions.search.space import Space

Target = Literal["cost", "time"]

SETTINGS = tuple(
    KernelSettings(length=length, alike=alike) for length in (1, 2, 4) for alike in (0.4, 0.8)
)
"""Kernels that are averaged, each by how likely it makes what was seen."""

RESOURCES = ("nodes", "vcpus", "size", "gpus")
"""Numeric parameters of which more is expected to be faster."""

_NOISE = 0.002  # variance of the measurement itself, in units of the kernel
_SCALE, _BELIEF = 0.4, 4.0  # standard deviation of a logarithm, believed as firmly as 4 values
_ONE_IN_TEN = 1.2816  # standard deviations below the mean of a normal distribution
_SUCCEEDS = 0.9  # chance that a try succeeds, before any was seen


class FlatGP(Remembering):
    """Expected improvement under a Gaussian process that knows of arms, prices and failures.

    The process models the logarithm of the run time (of the value, when prices are not known or
    not to be used). The logarithm of the price is added to it when cost is minimized: prices are
    known before anything runs. Kernels of several lengths are averaged by their evidence, with
    the overall scale integrated out. The expected improvement is multiplied by the chance that a
    try succeeds, from a second process over successes and failures.

    Its mean is that more machines, or larger ones, are faster: a run time falls by a fifth with
    each doubling, until tries say otherwise. The first try is the point that is then the best; when
    prices do not enter, one such point of each arm comes first.

    Parameters
    ----------
    minimize
        What is told to it: ``cost`` in USD, or ``time``.
    prices : bool
        Whether prices may be used.
    speedup : float
        Expected fall of the logarithm of the run time with each doubling of a parameter that is
        named in `RESOURCES`.
    settings
        The kernels.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> FlatGP(space).ask() in range(4)
    True
    """

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        *,
        minimize: Target = "cost",
        prices: bool = True,
        speedup: float = 0.22,
        settings: tuple[KernelSettings, ...] = SETTINGS,
    ) -> None:
        super().__init__(space, members, seed, statistic)
        if minimize not in ("cost", "time"):
            raise SkyUsageError(f"minimize={minimize!r}", hint=_("give 'cost' or 'time'"))
        known = space.prices > 0  # a missing price is NaN, and no logarithm has a price of 0
        self.by_price = prices and minimize == "cost" and bool(known.all())
        self._offset = np.log(space.prices) if self.by_price else np.zeros(len(space))
        if self.by_price or minimize == "time":  # what is told is a run time, up to the price
            self._offset = self._offset - speedup * _log2_resources(space)
        self._settings, self._like = settings, SpaceKernel(space)
        arms = [space.arms[i] for i in self.random.permutation(len(space.arms))]
        self._starts = [] if self.by_price else [space.members(arm) for arm in arms]
        self.expected_gain: float | None = None

    # -- choosing ------------------------------------------------------------------------------

    def _choose(self, left: np.ndarray) -> int:
        points, values = self.told
        good = np.isfinite(values)
        while self._starts:
            arm = np.intersect1d(self._starts.pop(0), left)
            if len(arm):
                return self._first(-self._start(arm), arm)
        if good.any():
            score = self._improvement(points[good], values[good], left)
            self.expected_gain = float(score.max())
        else:
            score = np.exp(-self._start(left))
        return self._first(score * self._succeeding(points, good, left), left)

    def _start(self, left: np.ndarray) -> np.ndarray:
        """Return the expected logarithm of points before any succeeded."""
        return self._offset[left]

    def arm_bounds(self) -> dict[str, float]:
        """Return the value that something untried in each arm reaches with a chance of 1 in 10.

        USD or seconds, as are told. Arms where all was tried are left out, and all arms before two
        tries have succeeded.
        """
        points, values = self.told
        good = np.isfinite(values)
        left = self.left
        if good.sum() < 2 or not len(left):
            return {}
        low = self._low_values(points[good], values[good], left)
        arms = self.space.arm_of[left]
        return {
            arm: float(np.exp(low[arms == number].min()))
            for number, arm in enumerate(self.space.arms)
            if (arms == number).any()
        }

    def _low_values(self, points: np.ndarray, values: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Return the logarithm of the value that each point is below with a chance of 1 in 10."""
        y = log_values(values) - self._offset[points]
        none = np.array([], int)
        found = [self._predict(setting, points, y, left, none) for setting in self._settings]
        mean, spread, __ = max(found, key=lambda one: one[2])
        return mean + self._offset[left] - _ONE_IN_TEN * spread

    def _improvement(self, points: np.ndarray, values: np.ndarray, left: np.ndarray) -> np.ndarray:
        y = log_values(values)
        pending = np.array(self.pending, int)
        found = [
            self._predict(setting, points, y - self._offset[points], left, pending)
            for setting in self._settings
        ]
        mean, spread = (np.stack(part, axis=1) for part in list(zip(*found, strict=True))[:2])
        gains = expected_improvement(y.min(), mean + self._offset[left, None], spread)
        return average_gains(gains, np.array([likely for *__, likely in found]))

    def _predict(
        self,
        setting: KernelSettings,
        points: np.ndarray,
        y: np.ndarray,
        left: np.ndarray,
        pending: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Mean and deviation at some points, and the logarithm of the evidence.

        What is under way will be known: it takes nothing from the mean, and only its uncertainty.
        """
        columns = self._like.columns(points, setting)
        mean, spread, likely = predict(
            columns[points],
            columns[left],
            np.full(len(left), setting.variance),
            y - y.mean(),
            (_SCALE, _BELIEF),
            self._under_way(setting, points, pending, left),
        )
        return mean + y.mean(), spread, float(likely)

    def _under_way(
        self, setting: KernelSettings, points: np.ndarray, pending: np.ndarray, left: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        if not len(pending):
            return None
        columns = self._like.columns(pending, setting)
        return columns[pending], columns[points], columns[left]

    def _chance(self, points: np.ndarray) -> np.ndarray:
        """Chance of success of points before any failed or succeeded here."""
        return np.full(len(points), _SUCCEEDS)

    def _succeeding(self, points: np.ndarray, good: np.ndarray, left: np.ndarray) -> np.ndarray:
        """Chance that a try succeeds, at each point; 1 as long as nothing has failed."""
        if good.all():
            return self._prior_success(left)
        setting = self._settings[0]
        columns = 0.25 * self._like.columns(points, setting) / setting.variance
        system = columns[points] + 0.03 * np.eye(len(points))
        surprise = np.linalg.solve(system, good - self._chance(points))
        return np.clip(self._chance(left) + columns[left] @ surprise, 0.01, 1.0)

    def _prior_success(self, left: np.ndarray) -> np.ndarray:
        return np.ones(len(left))


def _log2_resources(space: Space) -> np.ndarray:
    """Return each point's doublings of resources over a point with one of each."""
    columns = [space.column(name) for name in RESOURCES if name in space.parameters]
    numbers = [np.nan_to_num(values) for values, numeric in columns if numeric]
    return np.sum(numbers, axis=0) if numbers else np.zeros(len(space))


def average_gains(gains: np.ndarray, evidence: np.ndarray) -> np.ndarray:
    """Means over models, the columns, each weighed by how likely it makes what was seen."""
    weight = np.exp(evidence - evidence.max())
    return gains @ (weight / weight.sum())


def predict(
    known: np.ndarray,
    between: np.ndarray,
    variance: np.ndarray,
    y: np.ndarray,
    belief: tuple[float, float],
    pending: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posterior of a Gaussian process whose overall scale is unknown (inverse gamma prior).

    Gives mean, standard deviation and the logarithm of the evidence.

    Parameters
    ----------
    known, between, variance
        Covariances among the points seen, of the points asked for with those seen, and the
        variances of the points asked for; all up to the scale.
    y
        Values at the points seen, without their mean; of several models of one covariance, a
        column for each, and so are the answers.
    belief
        Prior standard deviation, and the number of values it is believed as firmly as.
    pending
        Covariances of points under way: among themselves, of those seen with them, of those asked
        for with them.
    """
    from scipy.linalg import cho_factor, cho_solve, solve_triangular

    deviation, count = belief
    factor = cho_factor(known + _NOISE * np.eye(len(y)), lower=True)
    weights = cho_solve(factor, y)
    fit = count * deviation**2 + (y * weights).sum(0)
    scale = fit / (count + len(y))
    mean = between @ weights
    determinant = np.log(np.diag(factor[0])).sum()
    evidence = -0.5 * (count + len(y)) * np.log(fit) - determinant
    if pending is not None:
        among, seen, asked = pending
        known = np.block([[known, seen], [seen.T, among]])
        between = np.hstack([between, asked])
        factor = cho_factor(known + _NOISE * np.eye(len(known)), lower=True)
    reach = solve_triangular(factor[0], between.T, lower=True)
    spread = np.sqrt(np.multiply.outer(np.maximum(variance - (reach**2).sum(0), 1e-9), scale))
    return mean, spread, evidence
