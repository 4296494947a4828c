"""The best plan of a problem, with its certificate: the one entrance to the solver.

Bounds and reductions in numpy come first and prove most plans by themselves; what they leave
goes to the CVXPY model of record, on GLPK or HiGHS. Every plan is judged anew by `evaluate`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.solver.additive_problem import criterion_weights, make_additive
from jupyter_sky.decisions.optimizer.solver.additive_solver import reduce_problem
from jupyter_sky.decisions.optimizer.solver.bounds import DeadlineSearch
from jupyter_sky.decisions.optimizer.solver.context import SolveContext, SolverResult, WarmStart
from jupyter_sky.decisions.optimizer.solver.evaluator import (
    evaluate,
    is_within_limits,
    objective_value,
)
from jupyter_sky.decisions.optimizer.solver.glpk import check_installed
from jupyter_sky.decisions.optimizer.solver.longest_paths import reduce_cost
from jupyter_sky.decisions.optimizer.solver.model import (
    CompiledModel,
    ModelBuilder,
    find_structure,
    pick_solver,
    solve_model,
)
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
from jupyter_sky.decisions.optimizer.solver.time_expanded import TimeExpandedBound
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
        return solve_by_model(work, kept)
    tied = problem.rows or problem.same or problem.hook or objective.limits()
    if objective.is_timed or tied:
        return solve_constrained(work, kept)
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
    better = solve_by_model(work, open_labels, unit=found.best)
    return combine_results(work, known, better)


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


# -- Objectives with time, limits and side constraints: bound, filter, and solve the rest by ------

_SMALL = 150  # labels from which bounding first pays
_TOO_LARGE_constrained_solver = (
    25_000  # labels beyond which a model would not be solved within any limit
)
_STEPS = (100, 400, 800, 1600, 3200, 6400)  # into which a deadline is divided, one after the other
_FEW_LABELS = 1_000
"""So many labels a model solves sooner than messages over times can bound them."""
_NUMBERS = 12_000_000  # that messages over labels and steps may have
_SWEEPS = (4, 40)  # at least and at most, for each number of steps
_LEAST_RISE = 0.01  # of the gap, by which a sweep raises the bound as long as sweeps go on
_SHARE = 0.75  # of the seconds left, for bounds over times
_SHARE_NEAR = 0.15  # for each search near them
_NEIGHBOURHOODS = (6, 12, 24)  # labels of a task, on average, in each neighbourhood


def solve_constrained(work: SolveContext, kept: Sequence[Ints]) -> SolverResult:
    """Return the best plan under limits, or what is known of it when time is up."""
    search = DeadlineSearch(work, kept)
    with work.stage("reduce"):
        early = search.prepare()
        work.count_labels(search.kept)
    if early is not None:
        return early
    if work.kept > _TOO_LARGE_constrained_solver and not search.hard and _knows_times(work, search):
        nothing = [np.zeros(len(task)) for task in work.problem.tasks]
        bound_over_times(work, search, nothing, search.low)
        if search.is_closed() or not search.has_labels():
            return search.final_result("dual")
        work.count_labels(search.kept)
    if work.is_over or work.kept > _TOO_LARGE_constrained_solver:
        return search.current_result()
    if work.kept > _SMALL and not search.hard:
        early = solve_relaxation(work, search)
        if early is not None:
            return early
    shown = solve_by_model(work, search.kept, search.best, plan=search.choice)
    return combine_results(work, search.current_result(), shown)


def solve_by_model(
    work: SolveContext,
    kept: Sequence[Ints],
    unit: float = np.inf,
    seconds: float = np.inf,
    plan: tuple[int, ...] | None = None,
) -> SolverResult:
    """Solve the model of record over the kept labels, from a plan among them if there is one."""
    known = plan is not None and all(
        label in labels for label, labels in zip(plan, kept, strict=True)
    )
    model = _compile_model(work, kept, unit, parametric=known)
    with work.stage("solve"):
        if known and work.used == "highs":
            # HiGHS starts from the last point of the same model: let that be the plan.
            model.open.value = np.concatenate(
                [(labels == label) * 1.0 for label, labels in zip(plan, kept, strict=True)]  # pyright: ignore
            )
            solve_model(model, work.used, work.wall_seconds(min(work.seconds_left, seconds)))
            model.open.value = np.ones(len(model.open.value))
        outcome = solve_model(
            model, work.used, work.wall_seconds(min(work.seconds_left, seconds)), work.gap
        )
    return _verify_result(work, model, outcome)


def _compile_model(
    work: SolveContext,
    kept: Sequence[Ints],
    unit: float,
    relaxed: bool = False,
    parametric: bool = False,
) -> CompiledModel:
    """Return the model over the kept labels."""
    problem, objective, shapes = work.problem, work.objective, work.state.shapes
    with work.stage("build"):
        builder = ModelBuilder(problem, objective, kept)
        key = tuple(builder.kinds)
        if key not in shapes:
            shapes[key] = find_structure(problem, builder.kinds)
        unit = unit if np.isfinite(unit) and unit > 0 else _objective_scale(builder, objective)
        model = builder.build(shapes[key], unit, relaxed, parametric)
    work.rows, work.variables = max(work.rows, model.rows), max(work.variables, model.variables)
    work.kept = work.kept or builder.total
    limits = {**objective.limits(), **{row.name: 0.0 for row in problem.rows}}
    hard = bool(limits) and model.rows > 400
    work.used = pick_solver(work.solver, model.rows, hard)
    return model


def solve_relaxation(work: SolveContext, search: DeadlineSearch) -> SolverResult | None:
    """Solve without whole numbers first: a bound, a plan near it, and fewer labels.

    A label whose reduced cost lifts the relaxed value above the plan at hand is in no better
    plan: the relaxed value plus the reduced cost is below every plan with that label, by duality.
    The plan at hand comes from the model over the few labels that the relaxation uses or that
    are close to it.
    """
    model = _compile_model(work, search.kept, search.best, relaxed=True)
    with work.stage("solve"):
        outcome = solve_model(
            model, work.used, work.wall_seconds(work.seconds_left * 0.5), warm=False
        )
    if outcome.status == "infeasible":
        return search.final_result("lp")
    if outcome.status != "optimal":
        return None
    low = model.program.value / model.scale
    low -= 1e-8 * (abs(low) + abs(search.best if np.isfinite(search.best) else low))
    search.low = max(search.low, low)
    search.try_plan(outcome.choice)
    rise = search.expand_values(np.maximum(model.floor.dual_value, 0) / model.scale)
    if search.is_closed():
        return search.final_result("lp")
    with work.stage("reduce"):
        prices = search.find_time_prices(model)
        early = search.solve_branches(prices, rise, low)
        if early is None:
            search.try_priced_plans(prices)
    if early is not None:
        return early
    if _knows_times(work, search) and sum(map(len, search.kept)) > _FEW_LABELS:
        low, rise = bound_over_times(work, search, rise, low)
    return _finish_near(work, search, rise, low)


def _knows_times(work: SolveContext, search: DeadlineSearch) -> bool:
    return work.objective.kind == "cost" and search.paths is not None


def bound_over_times(
    work: SolveContext, search: DeadlineSearch, rise: Sequence[Floats], low: float
) -> tuple[float, Sequence[Floats]]:
    """Bound the cost under a deadline by messages over labels and times, and search near them.

    Steps of time get finer while labels go that raise the bound above the plan at hand.

    Parameters
    ----------
    rise, low
        The relaxed value, and how far each label raises it.

    Returns
    -------
    The higher bound, and how far each label raises it.
    """
    deadline, paths = work.objective.deadline_h, search.paths
    assert deadline is not None and paths is not None
    states, sweep = None, 0.0
    pause = time.process_time() + _SHARE * work.seconds_left
    for steps in _STEPS:
        with work.stage("reduce"):
            search.drop_labels(rise, low)
            if search.is_closed() or not search.has_labels():
                break
            if states is None:
                if steps * _count_ends(search) > _NUMBERS:
                    break
                limit = deadline * (1 + 1e-9)
                states = TimeExpandedBound(work.problem, search.kept, paths, limit, steps)
            else:
                more = steps // states.steps
                if time.process_time() + _SWEEPS[0] * sweep * more > pause:
                    break
                states = states.refine(search.kept, steps)
            sweep = _sweep(search, states, pause)
            if np.isinf(states.bound):  # no plan is within the deadline
                search.kept = [labels[:0] for labels in search.kept]
                break
            bound, rises = states.find_rises()
            bound -= 1e-9 * abs(bound)
            search.drop_labels(rises, bound)
            if bound >= low:
                low, rise = bound, rises
            search.low = max(search.low, low)
            states.close_states(search.best * (1 + 1e-9), bound)
        if search.has_labels():
            _try_near(work, search, rises, _NEIGHBOURHOODS[0], _SHARE_NEAR)
    return low, rise


def _count_ends(search: DeadlineSearch) -> int:
    """Return the labels at both ends of all edges."""
    sizes, edges = np.array([len(labels) for labels in search.kept]), search.problem.edges
    return int((sizes[edges.src] + sizes[edges.dst]).sum())


def _sweep(search: DeadlineSearch, states: TimeExpandedBound, pause: float) -> float:
    """Pass messages, and try the plans that they lead to, as long as the bound rises.

    Returns
    -------
    CPU seconds of a sweep.
    """
    seconds = 0.0
    for count in range(_SWEEPS[1]):
        before, begin = states.bound, time.process_time()
        plan = states.sweep()
        seconds = time.process_time() - begin
        search.try_plan(plan)
        search.try_plan(reduce_cost(search.problem, search.kept, plan, states.deadline))
        search.low = max(search.low, states.bound * (1 - 1e-9))
        gap = min(search.best, 2 * states.bound) - states.bound
        slow = count >= _SWEEPS[0] and states.bound - before < _LEAST_RISE * gap
        over = time.process_time() + seconds > pause
        if np.isinf(states.bound) or search.is_closed() or slow or over:
            break
    return seconds


def _finish_near(
    work: SolveContext, search: DeadlineSearch, rise: Sequence[Floats], low: float
) -> SolverResult | None:
    """Try plans among the labels that raise the bound least, and drop those that raise it most."""
    # where cost counts, the plan at hand is as good already: this only took time
    if work.objective.kind == "time" and search.has_labels() and not search.is_closed():
        _search_neighbourhoods(work, search, rise, low)
    if search.choice is not None and np.isfinite(search.best):
        with work.stage("reduce"):
            search.drop_labels(rise, low)
    if search.is_closed() or not search.has_labels():
        return search.final_result("lp")
    return None


def _search_neighbourhoods(
    work: SolveContext, search: DeadlineSearch, rise: Sequence[Floats], low: float
) -> None:
    """Try plans among few labels, then among more, while that is quick."""
    for mean in _NEIGHBOURHOODS:
        size, status = _try_near(work, search, rise, mean)
        left = sum(
            np.count_nonzero(low + part[labels] <= search.best)
            for labels, part in zip(search.kept, rise, strict=True)
        )
        if left < 2 * size or status != "optimal":
            break


def _try_near(
    work: SolveContext,
    search: DeadlineSearch,
    rise: Sequence[Floats],
    mean: int,
    share: float = 0.2,
) -> tuple[int, str]:
    """Try the best plan of the labels that raise the bound least, so many a task on average."""
    near = _near_labels(search.kept, rise, mean, search.choice)
    size = sum(len(labels) for labels in near)
    answer = solve_by_model(work, near, search.best, share * work.seconds_left, search.choice)
    search.try_plan(answer.choice)
    return size, answer.status


def _near_labels(
    kept: Sequence[Ints], rise: Sequence[Floats], mean: int, choice: tuple[int, ...] | None
) -> list[Ints]:
    """Return labels that raise the bound least, one of each task, and those of the plan."""
    parts = [rise[v][labels] for v, labels in enumerate(kept)]
    every = np.concatenate(parts)
    count = min(mean * len(kept), len(every)) - 1
    allowance = np.partition(every, count)[count]
    near = []
    for v, (labels, part) in enumerate(zip(kept, parts, strict=True)):
        found = labels[part <= max(allowance, part.min())]
        near.append(np.union1d(found, [choice[v]] if choice is not None else []).astype(np.int64))
    return near


def _objective_scale(builder: ModelBuilder, objective: Objective) -> float:
    """Return the rough size of the objective: the sum of the least values of all tasks."""
    name = {"time": "hours", "carbon": "gco2"}.get(objective.kind, "usd")
    values, total = builder.gather(name), 0.0
    for start, end in zip(builder.ends[:-1], builder.ends[1:], strict=True):
        total += float(values[start:end].min())
    return total or 1.0


def _verify_result(work: SolveContext, model, outcome: SolverResult) -> SolverResult:
    """Check a solver's answer before it is believed."""
    if outcome.status in ("infeasible", "infeasible_inaccurate", "infeasible_or_unbounded"):
        return SolverResult("infeasible", None, np.inf, outcome.proof)
    if outcome.choice is None or not is_within_limits(
        work.problem, work.objective, outcome.choice, 1e-5
    ):
        return SolverResult("unknown", None, outcome.bound, "limit")
    if work.problem.hook is not None:
        broken = [rule for rule in model.program.constraints if np.max(rule.violation()) > 1e-4]
        if broken:
            return SolverResult("unknown", None, outcome.bound, "limit")
    status = "optimal" if outcome.status == "optimal" else "feasible"
    proof = outcome.proof if status == "optimal" else "limit"
    return SolverResult(status, outcome.choice, outcome.bound, proof)


def combine_results(work: SolveContext, known: SolverResult, shown: SolverResult) -> SolverResult:
    """Combine what the reductions and the model know."""
    if shown.status == "infeasible":
        # Filters cut by the plan at hand: with nothing better left, that plan is the best.
        return replace(known, status="optimal", proof="branch-and-bound") if known.choice else shown
    bound = max(known.bound, shown.bound)
    if shown.choice is None:
        return replace(known, bound=bound)
    if known.choice is None:
        return replace(shown, bound=bound)
    ours = objective_value(work.objective, evaluate(work.problem, known.choice))
    theirs = objective_value(work.objective, evaluate(work.problem, shown.choice))
    if shown.status == "optimal":
        return shown if theirs <= ours else replace(shown, choice=known.choice)
    return replace(shown if theirs <= ours else known, bound=bound)
