"""Component optimizers: what runs inside an arm of CloudBandit, or alone over a whole space."""

from __future__ import annotations

import os
import queue
import threading
import weakref
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
from jupyter_sky.decisions.search.optional_dependencies import import_optional, small_models
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

    own = (RandomSearch, RandomWithRepeats, Cheapest, Exhaustive, RBF, BayesianGP, BayesianForest)
    return dict(zip(COMPONENTS, (*own, TPE, RBFOpt), strict=True))


# -- RBFOpt, the optimizer that the paper's CloudBandit has inside, where it is installed ---------

_SUGGESTIONS = 10
"""Suggestions in a row that cannot be measured before a point is drawn instead."""
_WHO = "the optimizer 'rbfopt'"
_local = threading.local()


class RBFOpt(Remembering):
    """RBFOpt of Costa and Nannicini over the parameters of a space, without its solver Bonmin.

    Bonmin is only asked for the minimum of the interpolant. That is found here by looking at every
    configuration, which is exact: there are few. Words are categorical variables, numbers are
    places in their order; over several arms the arm is one more variable, and those of other arms
    are without effect. What is suggested and does not exist is told as the worst value so far, what
    was tried already with its value; neither is measured.

    RBFOpt calls a function and cannot be asked for its next point. So it runs in a thread that
    waits in that function, as in the wrapper of the NeurIPS 2020 black-box challenge that the paper
    names. A thread whose optimizer is gone ends.

    Parameters
    ----------
    space, members, seed, statistic
        As of `Remembering`.
    **settings
        Of ``rbfopt.RbfoptSettings``: ``algorithm="Gutmann"``, ``rbf="cubic"``.

    Examples
    --------
    >>> RBFOpt(space, rbf="linear").ask()  # doctest: +SKIP
    """

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        **settings: Any,
    ) -> None:
        super().__init__(space, members, seed, statistic)
        library = import_optional("rbfopt", _WHO)
        _avoid_solver(library)
        self._axes = _Axes(space, self.members)
        number = int(self.random.integers(2**31 - 1))
        try:
            chosen = library.RbfoptSettings(
                max_evaluations=10 * len(self.members),
                max_iterations=2 * len(self.members) + 10,  # where all is tried it looks in vain
                domain_scaling="off",
                rand_seed=number,
                **settings,
            )
        except ValueError as error:
            raise SkyUsageError(
                _("rbfopt: {error}").format(error=error), hint=_("see the parameters of its class")
            ) from None
        self._dialogue = _Dialogue(number)
        arguments = (library, self._axes, chosen, self._dialogue)
        self._thread = threading.Thread(
            target=_optimize, args=arguments, name="sky-rbfopt", daemon=True
        )
        weakref.finalize(self, self._dialogue.end)
        self._waiting: dict[int, np.ndarray] = {}
        self._asked: np.ndarray | None = None
        self._answer: float | None = None

    def _choose(self, left: np.ndarray) -> int:
        allowed = set(left.tolist())
        if self._waiting:  # its thread waits for a value: others that run at once are drawn
            return self.random.choice(left)
        for _turn in range(_SUGGESTIONS):
            if self._asked is None:
                self._asked = self._next()
            if self._asked is None:
                break
            index = self._axes.find(self._asked)
            if index is not None and index in allowed:
                self._waiting[index], self._asked = self._asked, None
                return index
            value = self._known(index)
            if value is None:  # nothing was measured yet, so nothing can be worse
                break
            self._asked, self._answer = None, value
        return self.random.choice(left)

    def _next(self) -> np.ndarray | None:
        """Give the value that its thread waits for, if it does, and return its next suggestion."""
        return self._dialogue.next(self._answer, self._thread)

    def _known(self, index: int | None) -> float | None:
        """Return the value of a suggestion that is not measured; None before any was."""
        known = None if index is None else self.value(index)
        if known is not None:
            return known
        values = self.told[1]
        return float(np.nanmax(values)) if np.isfinite(values).any() else None

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        super().tell(index, value)
        if self._waiting.pop(index, None) is not None:
            known = self._known(index)
            self._answer = 1.0 if known is None else known

    def exclude(self, index: int) -> None:
        """Leave out a point that has no value: it is not under way, nor asked for again."""
        super().exclude(index)
        if (asked := self._waiting.pop(index, None)) is not None:
            self._asked = asked


class _Axes:
    """Variables of RBFOpt for the points of a space: an arm, and the parameters of each arm."""

    def __init__(self, space: Space, members: np.ndarray) -> None:
        points = [space[int(index)] for index in members]
        arms = list(dict.fromkeys(point.arm for point in points))
        values: dict[tuple[str, str], list[Any]] = {("", "arm"): list(arms)}
        for point in points:
            for name, value in point.values.items():
                # what all arms have is one variable
                key = ("" if name in space.shared else point.arm, name)
                if value not in values.setdefault(key, []):
                    values[key].append(value)
        self._keys = [key for key, each in values.items() if len(each) > 1]
        numeric = {
            key: all(isinstance(each, int | float) for each in values[key]) for key in self._keys
        }
        self._values = {k: sorted(values[k]) if numeric[k] else values[k] for k in self._keys}
        self.types = np.array(["I" if numeric[key] else "C" for key in self._keys])
        self.upper = np.array([len(self._values[key]) - 1.0 for key in self._keys])
        self.rows = np.array([self._row(point.arm, point.values) for point in points])
        self._arm = arms[0]
        self._index = {
            self._name(row): int(index) for row, index in zip(self.rows, members, strict=True)
        }

    def _row(self, arm: str, values: Any) -> list[float]:
        row = []
        for key in self._keys:
            owner, name = key
            value = arm if name == "arm" and not owner else values.get(name)
            mine = owner in ("", arm) and value is not None
            row.append(float(self._values[key].index(value)) if mine else 0.0)
        return row

    def _name(self, row: np.ndarray) -> tuple[Any, ...]:
        """Return what is the same for all rows of a point: the variables of its arm."""
        place = self._keys.index(("", "arm")) if ("", "arm") in self._keys else None
        arm = self._arm if place is None else self._values["", "arm"][round(row[place])]
        return tuple(
            round(value) if owner in ("", arm) else None
            for (owner, __), value in zip(self._keys, row, strict=True)
        )

    def find(self, row: np.ndarray) -> int | None:
        """Return the point at some values of the variables; None where none exists."""
        return self._index.get(self._name(row))


class _Dialogue:
    """Exchange of points and values with a thread, in turn: one of the two sides runs.

    RBFOpt draws from the generator of the whole process. That has a state of its own while RBFOpt
    runs, so that its draws depend on its seed alone and change nobody else's.
    """

    def __init__(self, seed: int) -> None:
        self._points: queue.SimpleQueue[np.ndarray | None] = queue.SimpleQueue()
        self._values: queue.SimpleQueue[float | None] = queue.SimpleQueue()
        self._state = np.random.RandomState(seed).get_state()
        self._is_begun = self._is_over = False

    def next(self, value: float | None, thread: threading.Thread) -> np.ndarray | None:
        """Give the value of the point before, and return the next one; None once it has ended.

        The thread is started with the first point: it draws at once.
        """
        if self._is_over:
            return None
        before = np.random.get_state()
        np.random.set_state(self._state)
        try:
            if not self._is_begun:
                self._is_begun = True
                thread.start()
            else:
                self._values.put(value)
            point = self._points.get()
            self._is_over = point is None
            return point
        finally:
            self._state = np.random.get_state()
            np.random.set_state(before)

    def measure(self, point: np.ndarray) -> float:
        """Wait for the value of a point; the function that RBFOpt minimizes."""
        self._points.put(np.array(point))
        value = self._values.get()
        if value is None:
            raise _EndedError
        return value

    def finish(self) -> None:
        """Say that no point follows."""
        self._points.put(None)

    def end(self) -> None:
        """End the thread, if it waits for a value."""
        self._values.put(None)


class _EndedError(Exception):
    """Nobody waits for the next point any more."""


def _optimize(library: Any, axes: _Axes, settings: Any, dialogue: _Dialogue) -> None:
    """Run RBFOpt until it ends or nobody asks any more; in a thread of its own."""
    _local.rows = axes.rows
    try:
        box = library.RbfoptUserBlackBox(
            len(axes.upper), np.zeros(len(axes.upper)), axes.upper, axes.types, dialogue.measure
        )
        with open(os.devnull, "w") as silent:
            algorithm = library.RbfoptAlgorithm(settings, box)
            algorithm.set_output_stream(silent)
            algorithm.optimize()
    except Exception:  # RBFOpt's own: it has no further point; the rest is drawn
        pass
    finally:
        dialogue.finish()


def _avoid_solver(library: Any) -> None:
    """Find the minimum of RBFOpt's interpolant by a scan, in threads of `RBFOpt`, for good."""
    problems = import_optional("rbfopt.rbfopt_aux_problems", _WHO)
    utilities = import_optional("rbfopt.rbfopt_utils", _WHO)
    before = problems.minimize_rbf
    if getattr(before, "scans", False):
        return

    def scan(settings: Any, n: int, k: int, *given: Any) -> np.ndarray | None:
        rows = getattr(_local, "rows", None)
        if rows is None:
            return before(settings, n, k, *given)
        categorical, nodes, coefficients, polynomial = given[3], given[4], given[5], given[6]
        if categorical is not None and len(categorical[2]):
            rows = utilities.expand_categorical_vars(rows, *categorical)
        heights = utilities.bulk_evaluate_rbf(settings, rows, n, k, nodes, coefficients, polynomial)
        return rows[int(np.argmin(np.ravel(heights)))]

    scan.scans = True  # type: ignore[attr-defined]
    problems.minimize_rbf = scan


# -- Tree-structured Parzen estimators, by optuna -------------------------------------------------

_TRIES = 20


class TPE(Remembering):
    """optuna's TPE over the points of a finite space.

    Every parameter is a choice among its values; in more than one arm, the arm is chosen first and
    then the arm's own parameters. What optuna suggests and does not exist, or was tried already,
    is told to it as a failure and not measured; after twenty such suggestions a point is drawn.

    Parameters
    ----------
    multivariate : bool
        Whether the parameters are modelled together.

    Examples
    --------
    >>> TPE(space, multivariate=True).ask()  # doctest: +SKIP
    """

    def __init__(
        self,
        space: Space,
        members: Any = None,
        seed: Seed = 0,
        statistic: Statistic = "mean",
        *,
        multivariate: bool = False,
    ) -> None:
        super().__init__(space, members, seed, statistic)
        optuna = import_optional("optuna", "the component 'tpe'")
        import warnings

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of its options are called experimental
            sampler = optuna.samplers.TPESampler(
                seed=int(self.random.integers(2**31)),
                multivariate=multivariate,
                group=multivariate,
            )
        self._optuna, self._study = optuna, optuna.create_study(sampler=sampler)
        self._trials: dict[int, Any] = {}
        points = [space[int(index)] for index in self.members]
        self._index = {
            _key(p.arm, p.values): int(i) for p, i in zip(points, self.members, strict=True)
        }
        self._choices: dict[str, dict[str, list]] = {}
        for point in points:
            of_arm = self._choices.setdefault(point.arm, {})
            for name, value in point.values.items():
                values = of_arm.setdefault(name, [])
                if value not in values:
                    values.append(value)

    def _choose(self, left: np.ndarray) -> int:
        allowed, failed = set(left.tolist()), self._optuna.trial.TrialState.FAIL
        for __ in range(_TRIES):
            trial = self._study.ask()
            index = self._index.get(self._suggested(trial))
            if index is not None and index in allowed:
                self._trials[index] = trial
                return index
            self._study.tell(trial, state=failed)
        return self.random.choice(left)

    def _suggested(self, trial: Any) -> tuple:
        arms = list(self._choices)
        arm = arms[0] if len(arms) == 1 else trial.suggest_categorical("arm", arms)
        values = {
            name: trial.suggest_categorical(f"{arm}/{name}", values)
            for name, values in self._choices[arm].items()
        }
        return _key(arm, values)

    def tell(self, index: int, value: float | None) -> None:
        """Record the value of a point; None when the try failed."""
        super().tell(index, value)
        trial = self._trials.pop(index, None)
        if trial is None:  # drawn without a suggestion: optuna did not ask and is not told
            return
        known = self.value(index)
        if known is None:  # as bad as the worst success, so that it is kept away from
            _, values = self.told
            worst = fill_failures(values)
            self._study.tell(trial, float(worst.max()))
        else:
            self._study.tell(trial, float(np.log(max(known, 1e-12))))


def _key(arm: str, values: Any) -> tuple:
    return (arm, tuple(sorted((name, repr(value)) for name, value in values.items())))
