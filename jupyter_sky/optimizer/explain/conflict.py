"""Smallest sets of demands that cannot hold together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from jupyter_sky.optimizer.solver.problem import Objective, Problem, Solution, Solver
from jupyter_sky.optimizer.solver.pruning import allowed_labels
from jupyter_sky.optimizer.solver.solve import solve

_UNLIMITED = Objective("cost")


@dataclass(frozen=True)
class Conflict:
    """Demands that cannot all hold, and what the best would be without them.

    Attributes
    ----------
    names : tuple of str
        Names of masks, rows and sameness, and ``deadline``, ``budget``, ``carbon cap``: together
        impossible, each needed for that. Empty when a plan exists, or when no task could be
        placed even without any demand.
    tasks : tuple of int
        Tasks that have no label left, when that is the reason.
    certain : bool
        False when a time limit kept some subset from being decided.
    fastest_h, cheapest_usd, least_gco2 : float
        The least makespan, cost and emission under all demands but the three limits; ``inf`` when
        there is none. `exact` says which of the three are proven.
    exact : tuple of bool
    """

    names: tuple[str, ...]
    tasks: tuple[int, ...] = ()
    certain: bool = True
    fastest_h: float = float("inf")
    cheapest_usd: float = float("inf")
    least_gco2: float = float("inf")
    exact: tuple[bool, bool, bool] = (True, True, True)


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
    >>> from jupyter_sky.optimizer.solver.problem import Places, make_edges, make_task_labels
    >>> work = (make_task_labels("u", [0], [3.0], [2.0]),)
    >>> problem = Problem(Places(("a",)), work, make_edges([]))
    >>> strict = Objective("cost", deadline_h=1.0)
    >>> is_feasible(problem, strict), is_feasible(problem, strict, without=["deadline"])
    (False, True)
    """
    names = tuple(without)
    found = _find_any_plan(problem.without(names), objective.without(names), solver, time_limit)
    return {"optimal": True, "feasible": True, "infeasible": False}.get(found.status)


def find_conflict(
    problem: Problem, objective: Objective, *, solver: Solver = "auto", time_limit: float = 2.0
) -> Conflict:
    """Return the smallest set of demands that cannot hold together, by leaving out one at a time.

    A demand whose absence still leaves no plan is not needed for the conflict and goes; what
    stays is irreducible. Where the masks of one task leave no label, only that task is looked at,
    and the set is the smallest there is, not just irreducible.

    Parameters
    ----------
    time_limit : float
        CPU s for each question.

    Examples
    --------
    >>> from jupyter_sky.optimizer.solver.problem import LabelMask, Places
    >>> from jupyter_sky.optimizer.solver.problem import make_edges, make_task_labels
    >>> work = (make_task_labels("u", [0, 1], [3.0, 1.0], [1.0, 5.0]),)
    >>> eu = LabelMask("residency eu", 0, np.array([False, True]))
    >>> problem = Problem(Places(("us", "eu")), work, make_edges([]), masks=(eu,))
    >>> find_conflict(problem, Objective("cost", deadline_h=2.0)).names
    ('deadline', 'residency eu')
    """
    empty = tuple(v for v, flags in enumerate(allowed_labels(problem)) if not flags.any())
    limits = _find_extremes(problem, objective, solver, time_limit)
    if empty:
        return Conflict(_find_smallest_masks(problem, empty[0]), empty, True, *limits)
    if is_feasible(problem, objective, solver=solver, time_limit=time_limit):
        return Conflict((), (), True, *limits)
    names = [*objective.limits(), *problem.constraint_names()]
    gone: list[str] = []
    certain = True
    for name in sorted(names, key=lambda one: one in objective.limits()):
        answer = is_feasible(
            problem, objective, [*gone, name], solver=solver, time_limit=time_limit
        )
        certain &= answer is not None
        if answer is False:
            gone.append(name)
    return Conflict(tuple(name for name in names if name not in gone), (), certain, *limits)


def _find_any_plan(
    problem: Problem, objective: Objective, solver: Solver, limit: float
) -> Solution:
    """Return any plan at all: the first that keeps the limits is enough."""
    kind = "time" if objective.deadline_h is not None else "cost"
    if set(objective.limits()) == {"carbon cap"}:
        kind = "carbon"
    goal = replace(_UNLIMITED, kind=kind)
    limits = {key: getattr(objective, key) for key in ("deadline_h", "budget_usd", "carbon_cap_g")}
    return solve(problem, replace(goal, **limits), solver=solver, time_limit=limit, gap=0.999)


def _find_extremes(
    problem: Problem, objective: Objective, solver: Solver, limit: float
) -> tuple[float, float, float, tuple[bool, bool, bool]]:
    """Return the fastest, cheapest and cleanest plan under the demands that are no limit."""
    best, exact = [], []
    wanted = ("time", "cost", "carbon") if objective.carbon_cap_g is not None else ("time", "cost")
    for kind in wanted:
        found = solve(problem, Objective(kind), solver=solver, time_limit=limit)  # pyright: ignore
        best.append(found.value if found.choice is not None else float("inf"))
        exact.append(found.status in ("optimal", "infeasible"))
    best += [float("nan")] * (3 - len(best))
    exact += [False] * (3 - len(exact))
    return best[0], best[1], best[2], (exact[0], exact[1], exact[2])


def _find_smallest_masks(problem: Problem, task: int) -> tuple[str, ...]:
    """Return the fewest masks that together leave a task no label; `()` if it never had one."""
    from itertools import combinations

    names: dict[str, np.ndarray] = {}
    usable = allowed_labels(replace(problem, masks=()))[task]
    if not usable.any():
        return ()
    for mask in problem.masks:
        if mask.task == task:
            flags = np.asarray(mask.allowed, bool)
            names[mask.name] = names[mask.name] & flags if mask.name in names else flags
    for size in range(1, min(len(names), 4) + 1):
        for chosen in combinations(names, size):
            if not np.logical_and.reduce([usable, *(names[name] for name in chosen)]).any():
                return chosen
    needed = list(names)
    for name in list(names):
        others = [names[other] for other in needed if other != name]
        if others and not np.logical_and.reduce([usable, *others]).any():
            needed.remove(name)
    return tuple(needed)
