"""Objectives with time, limits and side constraints: bound, filter, and solve the rest by model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jupyter_sky.decisions.optimizer.solver.bounds import DeadlineSearch
from jupyter_sky.decisions.optimizer.solver.context import SolveContext, SolverResult
from jupyter_sky.decisions.optimizer.solver.evaluator import (
    evaluate,
    is_within_limits,
    objective_value,
)
from jupyter_sky.decisions.optimizer.solver.longest_paths import reduce_cost
from jupyter_sky.decisions.optimizer.solver.model import (
    CompiledModel,
    ModelBuilder,
    find_structure,
    pick_solver,
    solve_model,
)
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints, Objective
from jupyter_sky.decisions.optimizer.solver.time_expanded import TimeExpandedBound

_SMALL = 150  # labels from which bounding first pays
_TOO_LARGE = 25_000  # labels beyond which a model would not be solved within any limit
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
    if work.kept > _TOO_LARGE and not search.hard and _knows_times(work, search):
        nothing = [np.zeros(len(task)) for task in work.problem.tasks]
        bound_over_times(work, search, nothing, search.low)
        if search.is_closed() or not search.has_labels():
            return search.final_result("dual")
        work.count_labels(search.kept)
    if work.is_over or work.kept > _TOO_LARGE:
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
