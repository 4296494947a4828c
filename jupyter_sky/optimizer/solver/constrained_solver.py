"""Objectives with time, limits and side constraints: bound, filter, and solve the rest by model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jupyter_sky.optimizer.solver.bounds import DeadlineSearch
from jupyter_sky.optimizer.solver.context import SolveContext, SolverResult
from jupyter_sky.optimizer.solver.evaluator import evaluate, is_within_limits, objective_value
from jupyter_sky.optimizer.solver.model import (
    CompiledModel,
    ModelBuilder,
    ModelResult,
    find_structure,
    pick_solver,
    solve_model,
)
from jupyter_sky.optimizer.solver.problem import Floats, Ints, Objective

_SMALL = 150  # labels from which relaxing first pays
_TOO_LARGE = 25_000  # labels beyond which a model would not be solved within any limit
# Of the relaxed value, how far a label may lift it; and how many labels of a task at most.
_NEIGHBOURHOODS = ((2e-4, 12), (2e-3, 24), (1e-2, 48), (5e-2, 96))


def solve_constrained(work: SolveContext, kept: Sequence[Ints]) -> SolverResult:
    """Return the best plan under limits, or what is known of it when time is up."""
    search = DeadlineSearch(work, kept)
    with work.stage("reduce"):
        early = search.prepare()
        work.count_labels(search.kept)
    if early is not None:
        return early
    if work.is_over or work.kept > _TOO_LARGE:
        return search.current_result()
    if work.kept > _SMALL and not search.hard and work.problem.hook is None:
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
        if search.choice is None:
            return SolverResult("infeasible", None, np.inf, "lp")
        return SolverResult("optimal", search.choice, search.best, "lp")
    if outcome.status != "optimal":
        return None
    low = model.program.value / model.scale
    low -= 1e-8 * (abs(low) + abs(search.best if np.isfinite(search.best) else low))
    search.low = max(search.low, low)
    search.try_plan(outcome.choice)
    rise = search.expand_values(np.maximum(model.floor.dual_value, 0) / model.scale)
    if search.is_closed():
        return SolverResult("optimal", search.choice, search.best, "lp")
    with work.stage("reduce"):
        prices = search.find_time_prices(model)
        early = search.solve_branches(prices, rise, low)
        if early is None:
            search.try_priced_plans(prices)
    if early is not None:
        return early
    _search_neighbourhoods(work, search, rise, low)
    if search.is_closed():
        return SolverResult("optimal", search.choice, search.best, "lp")
    if search.choice is not None and np.isfinite(search.best):
        with work.stage("reduce"):
            search.drop_labels(rise, low)
    if not all(len(labels) for labels in search.kept):
        return SolverResult("optimal", search.choice, search.best, "lp")
    return None


def _search_neighbourhoods(
    work: SolveContext, search: DeadlineSearch, rise: Sequence[Floats], low: float
) -> None:
    """Try plans among few labels, then among more, while that is quick."""
    pause = time.process_time() + 0.25 * work.seconds_left
    for allowance, nearest in _NEIGHBOURHOODS:
        near = _near_labels(search.kept, rise, allowance * abs(low), nearest, search.choice)
        size = sum(len(labels) for labels in near)
        answer = solve_by_model(work, near, search.best, 0.25 * work.seconds_left, search.choice)
        search.try_plan(answer.choice)
        left = sum(
            np.count_nonzero(low + part[labels] <= search.best)
            for labels, part in zip(search.kept, rise, strict=True)
        )
        if left < 2 * size or time.process_time() > pause:
            break


def _near_labels(
    kept: Sequence[Ints],
    rise: Sequence[Floats],
    allowance: float,
    nearest: int,
    choice: tuple[int, ...] | None,
) -> list[Ints]:
    """Return labels that the relaxation takes or nearly takes, and those of the plan."""
    near = []
    for v, labels in enumerate(kept):
        part = rise[v][labels]
        first = np.argsort(part, kind="stable")[:nearest]
        close = part[first] <= max(allowance, part[first[0]])
        found = labels[first[close]]
        near.append(np.union1d(found, [choice[v]] if choice is not None else []).astype(np.int64))
    return near


def _objective_scale(builder: ModelBuilder, objective: Objective) -> float:
    """Return the rough size of the objective: the sum of the least values of all tasks."""
    name = {"time": "hours", "carbon": "gco2"}.get(objective.kind, "usd")
    values, total = builder.gather(name), 0.0
    for start, end in zip(builder.ends[:-1], builder.ends[1:], strict=True):
        total += float(values[start:end].min())
    return total or 1.0


def _verify_result(work: SolveContext, model, outcome: ModelResult) -> SolverResult:
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
