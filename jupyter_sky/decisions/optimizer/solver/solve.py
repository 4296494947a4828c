"""The best plan of a problem, with its certificate: the one entrance to the solver.

Bounds and reductions in numpy come first and prove most plans by themselves; what they leave
goes to the CVXPY model of record, on GLPK or HiGHS. Every plan is judged anew by `evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.solver import constrained_solver
from jupyter_sky.decisions.optimizer.solver.additive_problem import criterion_weights, make_additive
from jupyter_sky.decisions.optimizer.solver.additive_solver import reduce_problem
from jupyter_sky.decisions.optimizer.solver.context import SolveContext, SolverResult, WarmStart
from jupyter_sky.decisions.optimizer.solver.evaluator import evaluate, objective_value
from jupyter_sky.decisions.optimizer.solver.glpk import check_installed
from jupyter_sky.decisions.optimizer.solver.problem import (
    Floats,
    Ints,
    LabelMask,
    Objective,
    Problem,
    Solution,
    Solver,
)
from jupyter_sky.decisions.optimizer.solver.pruning import allowed_labels, make_flags
from jupyter_sky.decisions.optimizer.solver.validation import check_objective, check_problem

_SLACK = 1e-6  # relative; a limit met exactly is met, whatever rounding says
_TOO_LARGE = 20_000  # labels beyond which a model would not be solved within any limit


def solve(
    problem: Problem,
    objective: Objective | None = None,
    *,
    solver: Solver = "auto",
    presolve: bool = True,
    time_limit: float = 5.0,
    gap: float = 0.0,
    warm: Solution | None = None,
) -> Solution:
    """Return the best plan, or the best known at the time limit with its certified gap.

    Parameters
    ----------
    problem : Problem
    objective : Objective, optional
        Cost by default.
    solver : str
        ``auto`` takes GLPK or HiGHS, whichever is the faster one for the size and kind; the
        others are taken at their word.
    presolve : bool
        False sends all labels to the CVXPY model: slower, the same value.
    time_limit : float
        s of CPU.
    gap : float
        Relative gap that is good enough.
    warm : Solution, optional
        Of the same graph and tables with other prices or masks: what is known is used again.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.problem import (
    ...     Places,
    ...     make_edges,
    ...     make_task_labels,
    ... )
    >>> work = (make_task_labels("u", [0, 1], [3.0, 2.0], [1.0, 4.0]),)
    >>> problem = Problem(Places(("a", "b")), work, make_edges([]))
    >>> best = solve(problem)
    >>> best.choice, best.cost, best.status
    ((1,), 2.0, 'optimal')
    """
    objective = objective or Objective()
    _check_request(solver, time_limit, gap)
    work = SolveContext(problem, objective, solver, time_limit, gap, presolve)
    with work.stage("reduce"):
        check_problem(problem)
        check_objective(objective)
        kept = [np.flatnonzero(flags) for flags in allowed_labels(problem)]
        work.state = _find_warm_start(problem, objective, solver, warm)
    if not problem.tasks:
        return _certify(work, SolverResult("optimal", (), 0.0, "trivial"))
    if not all(len(labels) for labels in kept):
        return _certify(work, SolverResult("infeasible", None, np.inf, "presolve"))
    if objective.kind == "time_then_cost":
        return _solve_lexicographic(work, kept)
    return _certify(work, _dispatch(work, kept))


def resolve(
    solution: Solution,
    *,
    blocked: Mapping[int, Iterable[int]] | None = None,
    blocked_places: Iterable[int] = (),
    usd: Mapping[int, Floats] | None = None,
    time_limit: float = 5.0,
) -> Solution:
    """Return the best plan after refusals or changed prices, from what is known of the last one.

    Parameters
    ----------
    solution : Solution
        As `solve` or `resolve` gave it; refusals add up.
    blocked : mapping of int to labels, optional
        Labels of a task that cannot be had.
    blocked_places : iterable of int
        Places where nothing can be had.
    usd : mapping of int to float array, optional
        New USD of all labels of a task.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.problem import (
    ...     Places,
    ...     make_edges,
    ...     make_task_labels,
    ... )
    >>> work = (make_task_labels("u", [0, 1], [3.0, 2.0], [1.0, 4.0]),)
    >>> first = solve(Problem(Places(("a", "b")), work, make_edges([])))
    >>> resolve(first, blocked_places=[1]).choice
    (0,)
    """
    state = solution.state
    if not isinstance(state, WarmStart):
        raise SkyUsageError(
            _("this plan keeps nothing to go on from"), hint=_("give the one that solve returned")
        )
    problem = state.problem
    tasks = list(problem.tasks)
    for v, prices in (usd or {}).items():
        tasks[v] = replace(tasks[v], usd=np.asarray(prices, np.float64))
    masks = list(problem.masks)
    gone = np.isin(np.arange(len(problem.places)), list(blocked_places))
    for v, task in enumerate(tasks):
        refused = gone[task.place]
        refused[list((blocked or {}).get(v, ()))] = True
        if refused.any():
            masks.append(LabelMask("blocked", v, ~refused))
    changed = replace(problem, tasks=tuple(tasks), masks=tuple(masks))
    return solve(
        changed, state.objective, solver=state.solver, time_limit=time_limit, warm=solution
    )


def _check_request(solver: str, time_limit: float, gap: float) -> None:
    if solver not in ("auto", "glpk", "highs"):
        raise SkyUsageError(
            _("no solver {solver!r}").format(solver=solver), hint=_("choose auto, glpk or highs")
        )
    if solver == "glpk":
        check_installed()
    if not (time_limit > 0 and 0 <= gap < 1):
        raise SkyUsageError(
            _("a time limit of {time_limit} s with a gap of {gap} means nothing").format(
                time_limit=time_limit, gap=gap
            ),
            hint=_("a limit above 0 and a gap from 0 to below 1"),
        )


def _find_warm_start(
    problem: Problem, objective: Objective, solver: Solver, warm: Solution | None
) -> WarmStart:
    """Return what is known from before, where graph and tables are the very same objects."""
    old = warm.state if warm is not None else None
    if (
        not isinstance(old, WarmStart)
        or old.problem.tables is not problem.tables
        or old.problem.edges is not problem.edges
        or old.problem.places is not problem.places
    ):
        return WarmStart(problem, objective, solver)
    known = replace(old, problem=problem, objective=objective, solver=solver)
    if old.objective.kind != objective.kind or criterion_weights(
        old.objective
    ) != criterion_weights(objective):
        known = replace(known, sums=None, messages=None)
    return known


def _dispatch(work: SolveContext, kept: Sequence[Ints]) -> SolverResult:
    """Solve in the way that fits the objective."""
    problem, objective = work.problem, work.objective
    if not work.presolve:
        return constrained_solver.solve_by_model(work, kept)
    tied = problem.rows or problem.same or problem.hook or objective.limits()
    if objective.is_timed or tied:
        return constrained_solver.solve_constrained(work, kept)
    return _solve_sum(work, kept)


def _solve_sum(work: SolveContext, kept: Sequence[Ints]) -> SolverResult:
    """Minimize cost or carbon with nothing that ties tasks together."""
    problem = work.problem
    with work.stage("reduce"):
        flags = make_flags(problem, kept)
        state = work.state
        sums = make_additive(problem, flags, criterion_weights(work.objective), state.sums)
        found = reduce_problem(
            sums,
            work.until,
            exact=work.solver == "auto",
            target=work.gap,
            warm=state.messages,
        )
        work.state = replace(state, sums=sums.hier, messages=found.messages)
        choice = tuple(int(sums.label[v, place]) for v, place in enumerate(found.x))
        open_labels = [
            np.unique(sums.label[v, np.flatnonzero(row)]) for v, row in enumerate(found.open)
        ]
        work.count_labels(open_labels)
    if not np.isfinite(sum(evaluate(problem, choice)[:3])):  # data must move where they cannot
        status = "infeasible" if found.proof in ("dual", "elimination") else "unknown"
        return SolverResult(status, None, np.inf if found.proof else found.bound, found.proof)
    if found.proof in ("dual", "elimination"):
        return SolverResult("optimal", choice, found.best, found.proof)
    known = SolverResult("feasible", choice, found.bound, "limit")
    if found.proof == "limit" or work.is_over or found.labels > _TOO_LARGE:
        return known
    better = constrained_solver.solve_by_model(work, open_labels, unit=found.best)
    return constrained_solver.combine_results(work, known, better)


def _solve_lexicographic(work: SolveContext, kept: Sequence[Ints]) -> Solution:
    """Find the fastest plan, then the cheapest among those as fast."""
    wanted = work.objective
    work.objective = replace(wanted, kind="time")
    first = _dispatch(work, kept)
    if first.choice is None:
        work.objective = wanted
        return _certify(work, first)
    fastest = evaluate(work.problem, first.choice).hours
    proven = first.status == "optimal"
    limit = fastest * (1 + _SLACK) + 1e-9
    if wanted.deadline_h is not None:
        limit = min(limit, wanted.deadline_h)
    work.objective = replace(wanted, kind="cost", deadline_h=limit)
    second = _dispatch(work, kept)
    if second.choice is None:  # the fast plan is always one of its own
        second = SolverResult("feasible", first.choice, 0.0, "limit")
    work.objective = wanted
    if not proven and second.status == "optimal":
        second = replace(second, status="feasible")
    return _certify(work, second, fastest if proven else first.bound)


def _certify(work: SolveContext, answer: SolverResult, fastest: float = float("nan")) -> Solution:
    """Compute cost, time and carbon anew, and the certificate."""
    same: dict[str, Any] = {"proof": answer.proof, "solver": work.used, "state": work.state}
    same |= {"seconds": work.seconds, "sizes": work.sizes}
    if answer.choice is None:
        return Solution(answer.status, bound=answer.bound, **same)  # pyright: ignore[reportArgumentType]
    with work.stage("check"):
        outcome = evaluate(work.problem, answer.choice)
        reached = objective_value(work.objective, outcome)
        proven = answer.status == "optimal"
        bound = reached if proven and not work.gap else min(answer.bound, reached)
        gap = max(0.0, (reached - bound) / max(abs(reached), 1e-9))
    status = "optimal" if proven or gap <= 1e-9 else "feasible"
    totals = (outcome.cost, outcome.hours, outcome.gco2)
    return Solution(status, answer.choice, *totals, reached, bound, gap, fastest_h=fastest, **same)
