"""Smallest sets of demands that cannot hold together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

from jupyter_sky.decisions.optimizer.solver.problem import Objective, Problem, Solver
from jupyter_sky.decisions.optimizer.solver.solve import solve

_SMALL = 2  # sets up to this size are tried one by one, so that the smallest is found


def is_feasible(
    problem: Problem,
    objective: Objective,
    without: Iterable[str] = (),
    *,
    solver: Solver = "auto",
    time_limit: float = 2.0,
) -> bool | None:
    """Return whether some plan keeps every demand but those named; None when time ran out first.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.problem import (
    ...     Places,
    ...     make_edges,
    ...     make_task_labels,
    ... )
    >>> work = (make_task_labels("u", [0], [3.0], [2.0]),)
    >>> problem = Problem(Places(("a",)), work, make_edges([]))
    >>> strict = Objective("cost", deadline_h=1.0)
    >>> is_feasible(problem, strict), is_feasible(problem, strict, without=["deadline"])
    (False, True)
    """
    names = tuple(without)
    limited = objective.without(names)
    kind = "time" if limited.deadline_h is not None else "cost"
    if set(limited.limits()) == {"carbon cap"}:
        kind = "carbon"
    found = solve(  # any plan that keeps the limits is enough
        problem.without(names),
        replace(limited, kind=kind),
        solver=solver,
        time_limit=time_limit,
        gap=0.999,
    )
    return {"optimal": True, "feasible": True, "infeasible": False}.get(found.status)


def find_conflict(
    problem: Problem, objective: Objective, *, solver: Solver = "auto", time_limit: float = 2.0
) -> tuple[str, ...]:
    """Return names of demands that cannot hold together; of two the fewest, of more no fewer.

    Sets of one and two demands are tried one by one. Of larger sets, a demand without which there
    still is no plan is not needed for the conflict and goes, one after the other; no part of what
    stays is impossible by itself. A demand stays when the time limit kept it from being decided.

    Parameters
    ----------
    time_limit : float
        CPU s for each set.

    Returns
    -------
    tuple of str
        Names of masks, rows and sameness, and ``deadline``, ``budget``, ``carbon cap``; empty
        when a plan exists.

    Examples
    --------
    >>> import numpy as np
    >>> from jupyter_sky.decisions.optimizer.solver.problem import LabelMask, Places
    >>> from jupyter_sky.decisions.optimizer.solver.problem import make_edges, make_task_labels
    >>> work = (make_task_labels("u", [0, 1], [3.0, 1.0], [1.0, 5.0]),)
    >>> eu = LabelMask("residency eu", 0, np.array([False, True]))
    >>> problem = Problem(Places(("us", "eu")), work, make_edges([]), masks=(eu,))
    >>> find_conflict(problem, Objective("cost", deadline_h=2.0))
    ('deadline', 'residency eu')
    """
    limits = objective.limits()
    names = [*limits, *problem.constraint_names()]

    def feasible(without: list[str]) -> bool | None:
        return is_feasible(problem, objective, without, solver=solver, time_limit=time_limit)

    for size in range(1, _SMALL + 1):
        for some in combinations(names, size):
            if feasible([name for name in names if name not in some]) is False:
                return some
    if feasible([]):
        return ()
    gone: list[str] = []
    for name in sorted(names, key=lambda one: one in limits):
        if feasible([*gone, name]) is False:
            gone.append(name)
    return tuple(name for name in names if name not in gone)
