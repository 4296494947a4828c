"""Objectives with time, limits and side constraints: bound, filter, and solve the rest by model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jupyter_sky.optimizer.evaluate import evaluate, meets, value
from jupyter_sky.optimizer.limits import Search
from jupyter_sky.optimizer.model import Builder, Model, Outcome, pick_solver, run, structure
from jupyter_sky.optimizer.problem import Floats, Ints, Objective
from jupyter_sky.optimizer.work import Answer, Work

_SMALL = 150  # labels from which relaxing first pays
_TOO_LARGE = 25_000  # labels beyond which a model would not be solved within any limit
# Of the relaxed value, how far a label may lift it; and how many labels of a task at most.
_WIDENING = ((2e-4, 12), (2e-3, 24), (1e-2, 48), (5e-2, 96))


def bounded(work: Work, kept: Sequence[Ints]) -> Answer:
    """The best plan under limits, or what is known of it when time is up."""
    search = Search(work, kept)
    with work.stage("reduce"):
        early = search.prepare()
        work.note(search.kept)
    if early is not None:
        return early
    if work.over or work.kept > _TOO_LARGE:
        return search.known()
    if work.kept > _SMALL and not search.hard and work.problem.hook is None:
        early = relax(work, search)
        if early is not None:
            return early
    shown = by_model(work, search.kept, search.best, plan=search.choice)
    return combine(work, search.known(), shown)


def by_model(
    work: Work,
    kept: Sequence[Ints],
    unit: float = np.inf,
    seconds: float = np.inf,
    plan: tuple[int, ...] | None = None,
) -> Answer:
    """Solve the model of record over the kept labels, from a plan among them if there is one."""
    known = plan is not None and all(
        label in labels for label, labels in zip(plan, kept, strict=True)
    )
    model = _compiled(work, kept, unit, parametric=known)
    with work.stage("solve"):
        if known and work.used == "highs":
            # HiGHS starts from the last point of the same model: let that be the plan.
            model.open.value = np.concatenate(
                [(labels == label) * 1.0 for label, labels in zip(plan, kept, strict=True)]  # pyright: ignore
            )
            run(model, work.used, work.wall(min(work.left, seconds)))
            model.open.value = np.ones(len(model.open.value))
        outcome = run(model, work.used, work.wall(min(work.left, seconds)), work.gap)
    return _trusted(work, model, outcome)


def _compiled(
    work: Work,
    kept: Sequence[Ints],
    unit: float,
    relaxed: bool = False,
    parametric: bool = False,
) -> Model:
    """The model over the kept labels; the one of before where only its labels are others."""
    problem, objective, shapes = work.problem, work.objective, work.state.shapes
    with work.stage("build"):
        builder = Builder(problem, objective, kept)
        key = tuple(builder.kinds)
        if key not in shapes:
            shapes[key] = structure(problem, builder.kinds)
        unit = unit if np.isfinite(unit) and unit > 0 else _typical(builder, objective)
        if work.presolve:
            model = builder.build(shapes[key], unit, relaxed, parametric)
        else:
            model = _reopened(work, shapes, key, kept, unit)
    work.rows, work.variables = max(work.rows, model.rows), max(work.variables, model.variables)
    work.kept = work.kept or builder.total
    limits = {**objective.limits(), **{row.name: 0.0 for row in problem.rows}}
    hard = bool(limits) and model.rows > 400
    work.used = pick_solver(work.solver, model.rows, hard)
    return model


def _reopened(work: Work, shapes: dict, key: tuple, kept: Sequence[Ints], unit: float) -> Model:
    """The model over all labels, compiled once: labels that are not kept get an upper bound of 0.

    The same arrays of tasks and constraints mean the same model.
    """
    problem, objective = work.problem, work.objective
    every = [np.arange(len(task)) for task in problem.tasks]
    usable = [
        labels[np.isfinite(task.usd + task.hours + task.ready_hours + task.gco2)]
        for labels, task in zip(every, problem.tasks, strict=True)
    ]
    parts = (*problem.tasks, problem.rows, problem.same, problem.hook)
    known = ("model", key, objective, *(id(part) for part in parts))
    if known not in shapes:
        builder = Builder(problem, objective, usable)
        shapes[known] = builder.build(shapes[key], unit, parametric=True)
    model = shapes[known]
    model.open.value = np.concatenate(
        [np.isin(all_, labels).astype(float) for all_, labels in zip(usable, kept, strict=True)]
    )
    return model


def relax(work: Work, search: Search) -> Answer | None:
    """Solve without whole numbers first: a bound, a plan near it, and fewer labels.

    A label whose reduced cost lifts the relaxed value above the plan at hand is in no better
    plan: the relaxed value plus the reduced cost is below every plan with that label, by duality.
    The plan at hand comes from the model over the few labels that the relaxation uses or that
    are close to it.
    """
    model = _compiled(work, search.kept, search.best, relaxed=True)
    with work.stage("solve"):
        outcome = run(model, work.used, work.wall(work.left * 0.5), warm=False)
    if outcome.status == "infeasible":
        if search.choice is None:
            return Answer("infeasible", None, np.inf, "lp")
        return Answer("optimal", search.choice, search.best, "lp")
    if outcome.status != "optimal":
        return None
    low = model.program.value / model.scale
    low -= 1e-8 * (abs(low) + abs(search.best if np.isfinite(search.best) else low))
    search.low = max(search.low, low)
    search.offer(outcome.choice)
    rise = search.spread(np.maximum(model.floor.dual_value, 0) / model.scale)
    if search.closed():
        return Answer("optimal", search.choice, search.best, "lp")
    with work.stage("reduce"):
        prices = search.offer_priced(model)
        early = search.branches(prices, rise, low)
    if early is not None:
        return early
    _widen(work, search, rise, low)
    if search.closed():
        return Answer("optimal", search.choice, search.best, "lp")
    if search.choice is not None and np.isfinite(search.best):
        with work.stage("reduce"):
            search.drop(rise, low)
    if not all(len(labels) for labels in search.kept):
        return Answer("optimal", search.choice, search.best, "lp")
    return None


def _widen(work: Work, search: Search, rise: Sequence[Floats], low: float) -> None:
    """Better plans among few labels, then among more, while that is quick."""
    pause = time.process_time() + 0.25 * work.left
    for allowance, nearest in _WIDENING:
        near = _near(search.kept, rise, allowance * abs(low), nearest, search.choice)
        size = sum(len(labels) for labels in near)
        answer = by_model(work, near, search.best, 0.25 * work.left, search.choice)
        search.offer(answer.choice)
        left = sum(
            np.count_nonzero(low + part[labels] <= search.best)
            for labels, part in zip(search.kept, rise, strict=True)
        )
        if left < 2 * size or time.process_time() > pause:
            break


def _near(
    kept: Sequence[Ints],
    rise: Sequence[Floats],
    allowance: float,
    nearest: int,
    choice: tuple[int, ...] | None,
) -> list[Ints]:
    """Labels of each task that the relaxation takes or nearly takes, and those of the plan."""
    near = []
    for v, labels in enumerate(kept):
        part = rise[v][labels]
        first = np.argsort(part, kind="stable")[:nearest]
        close = part[first] <= max(allowance, part[first[0]])
        found = labels[first[close]]
        near.append(np.union1d(found, [choice[v]] if choice is not None else []).astype(np.int64))
    return near


def _typical(builder: Builder, objective: Objective) -> float:
    """The size of the objective, roughly: what the labels themselves come to at their least."""
    name = {"time": "hours", "carbon": "gco2"}.get(objective.kind, "usd")
    values, total = builder.gather(name), 0.0
    for start, end in zip(builder.ends[:-1], builder.ends[1:], strict=True):
        total += float(values[start:end].min())
    return total or 1.0


def _trusted(work: Work, model, outcome: Outcome) -> Answer:
    """What a solver says, after a look of our own."""
    if outcome.status in ("infeasible", "infeasible_inaccurate", "infeasible_or_unbounded"):
        return Answer("infeasible", None, np.inf, outcome.proof)
    if outcome.choice is None or not meets(work.problem, work.objective, outcome.choice, 1e-5):
        return Answer("unknown", None, outcome.bound, "limit")
    if work.problem.hook is not None:
        broken = [rule for rule in model.program.constraints if np.max(rule.violation()) > 1e-4]
        if broken:
            return Answer("unknown", None, outcome.bound, "limit")
    status = "optimal" if outcome.status == "optimal" else "feasible"
    proof = outcome.proof if status == "optimal" else "limit"
    return Answer(status, outcome.choice, outcome.bound, proof)


def combine(work: Work, known: Answer, shown: Answer) -> Answer:
    """What the reductions and the model know together."""
    if shown.status == "infeasible":
        # Filters cut by the plan at hand: with nothing better left, that plan is the best.
        return replace(known, status="optimal", proof="branch-and-bound") if known.choice else shown
    bound = max(known.bound, shown.bound)
    if shown.choice is None:
        return replace(known, bound=bound)
    if known.choice is None:
        return replace(shown, bound=bound)
    ours = value(work.objective, evaluate(work.problem, known.choice))
    theirs = value(work.objective, evaluate(work.problem, shown.choice))
    if shown.status == "optimal":
        return shown if theirs <= ours else replace(shown, choice=known.choice)
    return replace(shown if theirs <= ours else known, bound=bound)
