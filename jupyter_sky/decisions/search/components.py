"""Component optimizers: what runs inside an arm of CloudBandit, or alone over a whole space."""

from __future__ import annotations

from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.optimizer import (
    Remembering,
    Seed,
    Statistic,
    expected_improvement,
    fill_failures,
    probability_of_improvement,
)
from jupyter_sky.decisions.search.optional_dependencies import small_models
from jupyter_sky.decisions.search.space import Space


class RandomSearch(Remembering):
    """Random search that never tries a point twice.

    Parameters
    ----------
    space, members, seed, statistic
        As of `Remembering`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> RandomSearch(space).ask() in range(4)
    True
    """

    def _choose(self, left: np.ndarray) -> int:
        return self.random.choice(left)


class RandomWithRepeats(RandomSearch):
    """Random search as the paper has it: every point is as likely each time.

    Parameters
    ----------
    space, members, seed, statistic
        As of `Remembering`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> RandomWithRepeats(space).ask() in range(4)
    True
    """

    repeats = True


class Cheapest(Remembering):
    """The lowest price first, without a model; what has no price comes last.

    Parameters
    ----------
    space, members, seed, statistic
        As of `Remembering`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> Cheapest(space).ask() in range(4)
    True
    """

    def _choose(self, left: np.ndarray) -> int:
        prices = self.space.prices[left]
        return self._first(-np.where(np.isnan(prices), np.inf, prices).clip(max=1e300), left)


class Exhaustive(Remembering):
    """Every point once, in the order of the space.

    Parameters
    ----------
    space, members, seed, statistic
        As of `Remembering`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> Exhaustive(Space.of({"A": {"nodes": [1, 2]}})).ask()
    0
    """

    def _choose(self, left: np.ndarray) -> int:
        return left[0]


class RBF(Remembering):
    """An interpolant of radial basis functions, searched at a cycle of distances.

    A linear spline goes through the logarithms of all values seen. The next point has the least
    weighted sum of the interpolant and of nearness to what was tried, each scaled to 0..1; the
    weight of the interpolant cycles, from mostly exploring to mostly descending. This is the
    scheme MSRSM of Regis and Shoemaker ("A stochastic radial basis function method for the global
    optimization of expensive functions", 2007) over the points of a finite space of numbers and
    categories. The first points lie as far from each other as they can.

    Parameters
    ----------
    starts : int
        Points before the interpolant is trusted.
    weights : tuple of float
        The cycle.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> RBF(space).ask() in range(4)
    True
    """

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        *,
        starts: int = 3,
        weights: tuple[float, ...] = (0.3, 0.5, 0.8, 0.95),
    ) -> None:
        super().__init__(space, members, seed, statistic)
        self.starts, self.weights, self._turn = starts, weights, 0
        x = space.features(self.members)
        square = (x * x).sum(1)
        self._distance = np.sqrt(np.maximum(square[:, None] + square[None, :] - 2 * x @ x.T, 0.0))

    def _places_of(self, points: Any) -> np.ndarray:
        return np.array([self._place[int(point)] for point in points], int)

    def _choose(self, left: np.ndarray) -> int:
        points, values = self.told
        seen = self._places_of([*points, *self.pending])
        if not len(seen):
            return self.random.choice(left)
        candidates = self._places_of(left)
        near = self._distance[np.ix_(candidates, seen)].min(1)
        if len(seen) < self.starts or not np.isfinite(values).any():
            return self._first(near, left)
        height = self._interpolant(self._places_of(points), fill_failures(values), candidates)
        weight = self.weights[self._turn % len(self.weights)]
        self._turn += 1
        return self._first(-weight * _unit(height) + (1 - weight) * _unit(near), left)

    def _interpolant(self, at: np.ndarray, values: np.ndarray, where: np.ndarray) -> np.ndarray:
        size = len(at)
        system = np.ones((size + 1, size + 1))
        system[:size, :size], system[size, size] = self._distance[np.ix_(at, at)], 0.0
        solution = np.linalg.lstsq(system, np.append(values, 0.0), rcond=None)[0]
        return self._distance[np.ix_(where, at)] @ solution[:size] + solution[size]


def _unit(values: np.ndarray) -> np.ndarray:
    span = np.ptp(values)
    return (values - values.min()) / span if span > 0 else np.zeros(len(values))


ACQUISITIONS = {
    "EI": expected_improvement,
    "PI": probability_of_improvement,
    "LCB": lambda best, mean, spread: 1.96 * spread - mean,
}
"""Aims of a Bayesian optimizer: expected improvement, its chance, a low confidence bound."""


class _Bayesian(Remembering):
    """Expected improvement, or the like, under a model of scikit-learn, after random points."""

    starts = 3

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        *,
        starts: int | None = None,
        acquisition: str = "EI",
    ) -> None:
        super().__init__(space, members, seed, statistic)
        self.starts = type(self).starts if starts is None else starts
        if acquisition not in ACQUISITIONS:
            raise SkyUsageError(
                f"acquisition={acquisition!r}", hint=suggest(acquisition, ACQUISITIONS)
            )
        self._gain = ACQUISITIONS[acquisition]
        self._features = space.features(self.members)

    def _rows(self, points: Any) -> np.ndarray:
        return self._features[[self._place[int(point)] for point in points]]

    def _choose(self, left: np.ndarray) -> int:
        points, values = self.told
        if len(points) < max(1, self.starts) or not np.isfinite(values).any():
            return self.random.choice(left)
        y = fill_failures(values)
        x = self._rows(points)
        if self.pending:  # believed to come out as well as the best so far
            x = np.vstack([x, self._rows(self.pending)])
            y = np.append(y, np.full(len(self.pending), y.min()))
        mean, spread = self._predict(x, y, self._rows(left))
        return self._first(self._gain(y.min(), mean, spread), left)

    def _predict(
        self, x: np.ndarray, y: np.ndarray, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError


class BayesianGP(_Bayesian):
    """Bayesian optimization with a Gaussian process: Matérn 5/2, fitted by maximum likelihood.

    Parameters
    ----------
    space, members, seed, statistic
        As of `Remembering`.
    starts : int, optional
        Random points before the model is used.
    acquisition
        One of `ACQUISITIONS`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> BayesianGP(space).ask() in range(4)
    True
    """

    def _predict(
        self, x: np.ndarray, y: np.ndarray, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        import warnings

        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        kernel = ConstantKernel(1.0, (0.05, 20.0)) * Matern(1.0, (0.2, 10.0), nu=2.5)
        model = GaussianProcessRegressor(
            kernel + WhiteKernel(0.01, (1e-4, 0.5)), normalize_y=True, random_state=0
        )
        with small_models(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a length at its bound is no news
            model.fit(x, y)
            mean, spread = model.predict(where, return_std=True)  # type: ignore[misc]
        return np.asarray(mean), np.asarray(spread)


class BayesianForest(_Bayesian):
    """Bayesian optimization with a random forest, whose trees' spread is the uncertainty.

    Three random points first, as Bilal et al. ("Do the best cloud configurations grow on trees?",
    2020) found best for clouds.

    Parameters
    ----------
    space, members, seed, statistic
        As of `Remembering`.
    starts : int, optional
        Random points before the model is used.
    acquisition
        One of `ACQUISITIONS`.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Space
    >>> space = Space.of({"A": {"nodes": [1, 2]}, "B": {"nodes": [1, 2]}})
    >>> BayesianForest(space).ask() in range(4)
    True
    """

    trees = 30

    def _predict(
        self, x: np.ndarray, y: np.ndarray, where: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        from sklearn.ensemble import ExtraTreesRegressor

        seed = int(self.random.integers(2**31))
        with small_models():
            forest = ExtraTreesRegressor(self.trees, random_state=seed, bootstrap=True).fit(x, y)
            each = np.array([tree.predict(where) for tree in forest.estimators_])
        return each.mean(0), each.std(0) + 1e-3


def component(
    name: str | type[Remembering],
    space: Space,
    members: Any = None,
    seed: Seed = 0,
    statistic: Statistic = "mean",
    **options: Any,
) -> Remembering:
    """Make a component optimizer by its name.

    Parameters
    ----------
    name
        One of `COMPONENTS`, or a class.
    space, members, seed, statistic
        As of `Remembering`.
    **options
        Parameters of the class.

    Returns
    -------
    Remembering
        The optimizer.

    Raises
    ------
    SkyUsageError
        For a name that is none of `COMPONENTS`, and for options that it does not take.

    Examples
    --------
    >>> component("rbf", Space.of({"A": {"nodes": [2, 3]}})).ask() in (0, 1)
    True
    """
    kinds = _components()
    if isinstance(name, str) and name not in kinds:
        raise SkyUsageError(
            _("there is no component {name!r}").format(name=name), hint=suggest(name, kinds)
        )
    kind: Any = kinds[name] if isinstance(name, str) else name
    try:
        return kind(space, members, seed, statistic, **options)
    except TypeError as error:
        raise SkyUsageError(f"{name}: {error}", hint=_("see the parameters of its class")) from None


COMPONENTS = (
    *("random", "random-repeats", "cheapest", "exhaustive", "rbf", "bo-gp", "bo-rf"),
    *("tpe", "rbfopt"),
)
"""Names that `component` knows; ``bo-gp`` and ``bo-rf`` need scikit-learn, ``tpe`` optuna, and
``rbfopt`` the package of that name."""


def _components() -> dict[str, type[Remembering]]:
    from jupyter_sky.decisions.search.rbfopt import RBFOpt
    from jupyter_sky.decisions.search.tpe import TPE

    own = (RandomSearch, RandomWithRepeats, Cheapest, Exhaustive, RBF, BayesianGP, BayesianForest)
    return dict(zip(COMPONENTS, (*own, TPE, RBFOpt), strict=True))
