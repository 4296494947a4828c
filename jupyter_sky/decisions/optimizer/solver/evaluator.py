"""Cost, time and carbon of a plan, in plain arithmetic.

The judge of every plan: it shares no code with the reductions, the model or the solvers, so that
their mistakes cannot hide in it. Equations 1 to 3 of the SkyPilot paper (NSDI 2023), literally.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from jupyter_sky.decisions.optimizer.solver.problem import Objective, Problem


class Evaluation(NamedTuple):
    """USD, h of makespan, g of CO2 and the finish time of each task, h."""

    cost: float
    hours: float
    gco2: float
    finish: tuple[float, ...]


def evaluate(problem: Problem, choice: Sequence[int]) -> Evaluation:
    """Return cost, makespan and emissions when task v takes its label `choice[v]`.

    Examples
    --------
    >>> import numpy as np
    >>> from jupyter_sky.decisions.optimizer.solver.problem import (
    ...     Places,
    ...     make_edges,
    ...     make_task_labels,
    ... )
    >>> work = (make_task_labels("u", [0, 1], [1, 2], [3, 1]), make_task_labels("v", [0], [1], [1]))
    >>> evaluate(Problem(Places(("a", "b")), work, make_edges([])), (1, 0))[:2]
    (3.0, 1.0)
    """
    place = [int(task.place[label]) for task, label in zip(problem.tasks, choice, strict=True)]
    usd = [float(task.usd[label]) for task, label in zip(problem.tasks, choice, strict=True)]
    grams = [float(task.gco2[label]) for task, label in zip(problem.tasks, choice, strict=True)]
    arrivals: list[list[tuple[int, float]]] = [[] for _ in problem.tasks]
    for e in range(len(problem.edges.src)):
        u, v = int(problem.edges.src[e]), int(problem.edges.dst[e])
        size = float(problem.edges.scale[e])
        table = problem.tables[int(problem.edges.table[e])]
        arrivals[v].append((u, _times(size, table.hours[place[u]][place[v]])))
        usd.append(_times(size, table.usd[place[u]][place[v]]))
        if table.gco2 is not None:
            grams.append(_times(size, table.gco2[place[u]][place[v]]))
    finish = _finish(problem, choice, arrivals)
    return Evaluation(math.fsum(usd), max(finish, default=0.0), math.fsum(grams), finish)


def is_within_limits(
    problem: Problem, objective: Objective, choice: Sequence[int], slack: float = 1e-6
) -> bool:
    """Return whether a plan keeps every limit and side constraint (except the user's own hook)."""
    outcome = evaluate(problem, choice)
    limits = (
        (outcome.hours, objective.deadline_h),
        (outcome.cost, objective.budget_usd),
        (outcome.gco2, objective.carbon_cap_g),
    )
    if not math.isfinite(outcome.cost + outcome.hours + outcome.gco2):
        return False
    if any(limit is not None and value > limit + slack * (1 + limit) for value, limit in limits):
        return False
    if not all(mask.allowed[choice[mask.task]] for mask in problem.masks):
        return False
    for row in problem.rows:
        used = math.fsum(float(values[choice[task]]) for task, values in row.terms.items())
        if used > row.limit + slack * (1 + abs(row.limit)):
            return False
    for same in problem.same:
        if len({int(problem.tag(task, same.by)[choice[task]]) for task in same.tasks}) > 1:
            return False
    return True


def objective_value(objective: Objective, outcome: Evaluation) -> float:
    """Return the number that the objective makes small; the cost with ``time_then_cost``."""
    if objective.kind == "weighted":
        return (
            objective.usd_weight * outcome.cost
            + objective.hour_weight * outcome.hours
            + objective.gram_weight * outcome.gco2
        )
    return {"time": outcome.hours, "carbon": outcome.gco2}.get(objective.kind, outcome.cost)


def _times(size: float, price: float) -> float:
    """Return the price of what moves; nothing costs nothing to move, whatever the price."""
    return size * float(price) if size else 0.0


def _finish(
    problem: Problem, choice: Sequence[int], arrivals: list[list[tuple[int, float]]]
) -> tuple[float, ...]:
    done: dict[int, float] = {}
    for start in range(len(problem.tasks)):
        pending = [start]
        while pending:  # recursion would not survive a chain of 1,000 tasks
            v = pending[-1]
            missing = [u for u, _ in arrivals[v] if u not in done]
            if missing:
                pending += missing
                continue
            pending.pop()
            labels, label = problem.tasks[v], choice[v]
            ready = max((done[u] + hours for u, hours in arrivals[v]), default=0.0)
            ready = max(ready, float(labels.ready_hours[label]))
            done[v] = ready + float(labels.hours[label])
    return tuple(done[v] for v in range(len(problem.tasks)))
