"""Transfer of knowledge from earlier workloads to a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.gaussian_process import FlatGP, Target, average_gains, predict
from jupyter_sky.decisions.search.kernels import KernelSettings
from jupyter_sky.decisions.search.optimizer import Seed, Statistic, expected_improvement, log_values
from jupyter_sky.decisions.search.space import Space

Earlier = Mapping[str, float | None]
"""Of one earlier workload: seconds by configuration, as ``str(point)`` writes it; None: failed."""

_WEIGHT = 0.3  # of the workloads' own covariance, the rest is the kernel's
_NEAR = 0.8  # how far an earlier workload stays itself; 0 has but their mean and covariance
_LEVEL = 25.0  # variance of a workload's overall level, in units of a configuration's
_EACH = 0.3  # variance of a configuration's peculiarity in a new workload, in the same units
_BELIEF = 4.0  # values that the earlier spread is believed as firmly as
_SETTING = KernelSettings(length=1.0, level=0.0, arm=0.1, shared=0.3, own=0.6, each=0.0)
# judged on workloads, and on whole groups of them, that were left out of the history; regret is
# flat around these figures


class Transfer(FlatGP):
    """`FlatGP` whose prior is what earlier workloads did on the same configurations.

    A new workload is expected to resemble one of the earlier ones; which one, its own tries say.
    The prior is a mixture: around each earlier workload a Gaussian process, drawn in towards the
    mean of all so that the mixture spreads no wider than they do (West, "Approximating posterior
    distributions by mixture", 1993). Its covariance is theirs, shrunk towards the kernel of
    `FlatGP`.

    The chance of success of a configuration is how often it succeeded. An earlier workload need not
    have seen every configuration: where none has, the kernel speaks.

    Parameters
    ----------
    history : sequence of mappings
        For each earlier workload its seconds by configuration, see `Earlier`. What was not tried
        there is not in the mapping.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2, 4]}})
    >>> earlier = {str(point): 60.0 / (n + 1) for n, point in enumerate(space.points)}
    >>> Transfer(space, history=[earlier], minimize="time").ask()
    2
    """

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        *,
        history: Sequence[Earlier] = (),
        minimize: Target = "cost",
        prices: bool = True,
    ) -> None:
        super().__init__(
            space,
            members,
            seed,
            statistic,
            minimize=minimize,
            prices=prices,
            speedup=0.0,  # how much more helps is in the history
            settings=(_SETTING,),
        )
        if minimize == "cost" and not self.by_price:
            raise SkyUsageError(
                _("earlier run times say nothing of cost where prices are not known"),
                hint=_("give every point a price above 0, or minimize='time'"),
            )
        table = _table(space, history)
        seen = np.isfinite(table)
        useful = seen.sum(1) >= 2
        if not useful.any():
            raise SkyUsageError(
                _(
                    "none of {history_count} earlier workloads shares two successful "
                    "configurations with the space"
                ).format(history_count=len(history)),
                hint=_("give histories of the same space, or method='gp'"),
            )
        self._starts, self._order = [], None
        kernel = np.stack([self._like.column(i, _SETTING) for i in range(len(space))], axis=1)
        self._mean, self._each, self._covariance = _prior(table[useful], kernel)
        self._rate = _success(space, history)

    def _low_values(self, points: np.ndarray, values: np.ndarray, left: np.ndarray) -> np.ndarray:
        mean, spread, likely = self._posterior(points, values, left, np.array([], int))
        return mixture_quantile(mean, spread, likely, 0.1)

    def _start(self, left: np.ndarray) -> np.ndarray:
        return self._mean[left] + self._offset[left]

    def _chance(self, points: np.ndarray) -> np.ndarray:
        return self._rate[points]

    def _prior_success(self, left: np.ndarray) -> np.ndarray:
        return self._rate[left]

    def _improvement(self, points: np.ndarray, values: np.ndarray, left: np.ndarray) -> np.ndarray:
        pending = np.array(self.pending, int)
        mean, spread, likely = self._posterior(points, values, left, pending)
        gains = expected_improvement(float(log_values(values).min()), mean, spread)
        return average_gains(gains, likely)

    def _posterior(
        self, points: np.ndarray, values: np.ndarray, left: np.ndarray, pending: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean and deviation of logarithms around each earlier workload, and the evidence.

        Points are rows, earlier workloads columns.
        """
        y, covariance = log_values(values), self._covariance
        among = covariance[np.ix_(points, points)]
        # what each earlier workload leaves to be explained, beside a level that none foretells
        surprise = (y - self._offset[points] - self._mean[points])[:, None] - self._each[points]
        ones = np.linalg.solve(among, np.ones(len(points)))
        level = ones @ surprise / ones.sum()
        under_way = None
        if len(pending):
            parts = ((pending, pending), (points, pending), (left, pending))
            under_way = tuple(covariance[np.ix_(*part)] for part in parts)
        mean, spread, likely = predict(
            among,
            covariance[np.ix_(left, points)],
            covariance[left, left],
            surprise - level,
            (1.0, _BELIEF),
            under_way,  # type: ignore[arg-type]
        )
        return (
            mean + level + self._each[left] + (self._mean + self._offset)[left, None],
            spread,
            likely,
        )


def mixture_quantile(
    mean: np.ndarray, spread: np.ndarray, evidence: np.ndarray, chance: float
) -> np.ndarray:
    """Return the values below which mixtures of normal distributions are with some chance.

    Parameters
    ----------
    mean, spread
        Of the parts, a column for each and a row for each mixture.
    evidence
        Logarithm of how likely each part is.
    chance
        Between 0 and 1.

    Examples
    --------
    >>> zeros, ones = np.zeros((1, 2)), np.ones((1, 2))
    >>> mixture_quantile(zeros, ones, np.zeros(2), 0.1).round(4)
    array([-1.2816])
    """
    from scipy.special import ndtr

    low, high = (mean - 9 * spread).min(1), (mean + 9 * spread).max(1)
    for __ in range(50):  # halves of an interval in which it is
        middle = (low + high) / 2
        below = average_gains(ndtr((middle[:, None] - mean) / spread), evidence) > chance
        low, high = np.where(below, low, middle), np.where(below, middle, high)
    return (low + high) / 2


def _table(space: Space, history: Sequence[Earlier]) -> np.ndarray:
    """Logarithms of seconds, a row for each workload; NaN for what failed or was not tried."""
    table = np.full((len(history), len(space)), np.nan)
    for row, earlier in enumerate(history):
        for place, point in enumerate(space.points):
            seconds = earlier.get(str(point))
            if seconds is not None and 0 <= seconds < float("inf"):
                table[row, place] = log_values(np.array([seconds]))[0]
    return table


def _success(space: Space, history: Sequence[Earlier]) -> np.ndarray:
    """Return each configuration's rate of success, shrunk towards nine in ten."""
    tried, worked = np.zeros(len(space)), np.zeros(len(space))
    for earlier in history:
        for place, point in enumerate(space.points):
            if str(point) in earlier:
                seconds = earlier[str(point)]
                tried[place] += 1
                worked[place] += seconds is not None and 0 <= seconds < float("inf")
    return (worked + 2 * 0.9) / (tried + 2)


def _prior(table: np.ndarray, kernel: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a new workload's logarithms, up to its level: common mean, centres, and covariance.

    A row is taken as its level plus the configurations' common means plus a rest. The centres, a
    column for each row, are the rests times `_NEAR`; what that takes from their covariance is
    spread around each. The covariance of the rests is shrunk towards the kernel, and where a
    workload lacks a configuration the kernel stands in for it.
    """
    seen = np.isfinite(table)
    count = seen.sum(0)
    mean = np.zeros(table.shape[1])
    level = np.zeros(len(table))
    for __ in range(20):  # alternating means: the least squares fit of rows plus columns
        level = np.where(seen, table - mean, 0).sum(1) / seen.sum(1)
        mean = np.where(seen, table - level[:, None], 0).sum(0) / np.maximum(count, 1)
    rest = np.where(seen, table - level[:, None] - mean, 0.0)
    variance = float((rest**2).sum() / seen.sum()) or 0.1
    absent = np.sqrt(1 - count / len(table))
    missing = variance * np.outer(absent, absent) * kernel
    around = _WEIGHT * (rest.T @ rest / len(table) + missing) + (1 - _WEIGHT) * variance * kernel
    around += variance * _EACH * np.eye(len(kernel))
    # in units of squared logarithms: the scale that is integrated out starts at 1
    whole = (1 - _NEAR**2) * around + variance * _LEVEL
    unknown = count == 0
    if unknown.any():  # means of what nobody tried, from its neighbours
        near = kernel[np.ix_(~unknown, ~unknown)] + 0.1 * np.eye(int((~unknown).sum()))
        centre = mean[~unknown].mean()
        weights = np.linalg.solve(near, mean[~unknown] - centre)
        mean[unknown] = centre + kernel[np.ix_(unknown, ~unknown)] @ weights
    return mean, _NEAR * rest.T, whole
