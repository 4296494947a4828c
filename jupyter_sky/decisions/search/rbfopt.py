"""RBFOpt, the optimizer that the paper's CloudBandit has inside, where it is installed."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.optimizer import Remembering, Seed, Statistic
from jupyter_sky.decisions.search.optional_dependencies import import_optional
from jupyter_sky.decisions.search.space import Space

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
