"""Small problems with every corner in them, and their optima by trying every plan."""

import functools
import itertools

import numpy as np

from jupyter_sky.decisions.optimizer.solver.evaluator import (
    Evaluation,
    evaluate,
    is_within_limits,
    objective_value,
)
from jupyter_sky.decisions.optimizer.solver.problem import (
    LabelMask,
    LinearLimit,
    Objective,
    Places,
    Problem,
    SameConstraint,
    TransferTable,
    make_edges,
    make_task_labels,
)


@functools.cache
def random_problem(
    seed: int,
    tasks: int = 4,
    places: int = 4,
    per_place: int = 1,
    ties: bool = False,
    infinite: bool = False,
    structured: bool = True,
) -> Problem:
    """A graph with random edges, sizes that may be 0, prices that may tie or be infinite."""
    rng = np.random.default_rng(seed)
    cloud = np.sort(rng.integers(0, 2, places))
    region = np.unique(cloud * 10 + np.sort(rng.integers(0, 2, places)), return_inverse=True)[1]
    where = Places(
        tuple(f"place{k}" for k in range(places)),
        {"region": region if structured else np.arange(places), "cloud": cloud},
    )

    def number(*size: int) -> np.ndarray:
        return rng.integers(0, 4, size) / 2 if ties else rng.random(size) * 2

    tables = tuple(_table(rng, region, cloud, structured, ties) for _ in range(2))
    if infinite and places > 1:
        tables[0].usd[0, places - 1] = np.inf
    made = []
    for v in range(tasks):
        size = places * per_place
        usd = number(size)
        if infinite and size > 1:
            usd[rng.integers(size)] = np.inf
        made.append(
            make_task_labels(
                f"task{v}",
                np.tile(np.arange(places), per_place),
                usd,
                number(size) + 0.1,
                ready_hours=number(size) * (rng.random() < 0.3),
                gco2=number(size),
                hourly_usd=number(size),
                nodes=rng.integers(1, 3, size),
                family=rng.integers(0, 2, size),
            )
        )
    edges = [
        (u, v, float(number(1)[0]), int(rng.integers(2)))
        for u, v in itertools.combinations(range(tasks), 2)
        if rng.random() < 0.5
    ]
    return Problem(where, tuple(made), make_edges(edges), tables)


def _table(rng, region, cloud, structured, ties) -> TransferTable:
    size = len(region)
    if not structured:
        free = rng.integers(0, 3, (2, size, size)) / 2 if ties else rng.random((2, size, size))
        return TransferTable(free[0], free[1], free[0] * free[1])
    level = (region[:, None] != region).astype(int) + (cloud[:, None] != cloud)
    steps = np.cumsum(rng.integers(0, 3, (2, 2, 3)) / 4, axis=2)
    by_cloud = steps[:, cloud][:, np.arange(size)[:, None], level]
    return TransferTable(by_cloud[0], by_cloud[1], by_cloud[0] / 2)


def with_demands(problem: Problem, seed: int) -> Problem:
    """Masks, a quota and sameness, at random."""
    rng = np.random.default_rng(seed + 1000)
    count = len(problem.tasks)
    masks = tuple(
        LabelMask(f"residency {v}", v, rng.random(len(problem.tasks[v])) < 0.7)
        for v in range(count)
        if rng.random() < 0.4
    )
    terms = {v: rng.integers(0, 3, len(problem.tasks[v])).astype(float) for v in range(count)}
    rows = (LinearLimit("quota", terms, float(rng.integers(0, 2 * count))),)
    same = ()
    if count > 1 and rng.random() < 0.5:
        same = (SameConstraint("together", (0, count - 1), str(rng.choice(["region", "family"]))),)
    return Problem(problem.places, problem.tasks, problem.edges, problem.tables, masks, rows, same)


def best_by_trying(problem: Problem, objective: Objective) -> tuple[float, float]:
    """The least value of all plans, and with ``time_then_cost`` the least makespan before it."""
    kept = [
        outcome
        for outcome, plan in _evaluate_all(problem)
        if is_within_limits(problem, objective, plan, 1e-9)
    ]
    if not kept:
        return np.inf, np.inf
    fastest = min(outcome.hours for outcome in kept)
    if objective.kind == "time_then_cost":
        kept = [one for one in kept if one.hours <= fastest * (1 + 1e-6) + 1e-9]
    return min(objective_value(objective, one) for one in kept), fastest


_evaluated: dict[tuple[int, ...], tuple[Problem, list[tuple[Evaluation, tuple[int, ...]]]]] = {}


def _evaluate_all(problem: Problem) -> list[tuple[Evaluation, tuple[int, ...]]]:
    """Return all plans of finite cost and time; masks, limits and objectives change none of them.

    What is kept holds the problem, so that no other takes the identity of its parts.
    """
    key = (id(problem.tasks), id(problem.edges), id(problem.tables))
    if key not in _evaluated:
        if len(_evaluated) == 16:
            del _evaluated[next(iter(_evaluated))]
        plans = itertools.product(*(range(len(task)) for task in problem.tasks))
        pairs = [(evaluate(problem, plan), plan) for plan in plans]
        _evaluated[key] = problem, [p for p in pairs if np.isfinite(p[0].cost + p[0].hours)]
    return _evaluated[key][1]
