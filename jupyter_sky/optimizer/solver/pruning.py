"""Labels of a task that can matter, found from the task alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jupyter_sky.optimizer.solver.pareto import find_front
from jupyter_sky.optimizer.solver.problem import Flags, Floats, Ints, Objective, Problem


def allowed_labels(problem: Problem) -> list[Flags]:
    """Return labels of each task that every mask leaves and that can be had at all."""
    flags = [
        np.isfinite(task.usd)
        & np.isfinite(task.hours)
        & np.isfinite(task.ready_hours)
        & np.isfinite(task.gco2)
        for task in problem.tasks
    ]
    for mask in problem.masks:
        flags[mask.task] = flags[mask.task] & np.asarray(mask.allowed, bool)
    return flags


def make_flags(problem: Problem, kept: Sequence[Ints]) -> list[Flags]:
    """Return kept labels as one flag for each label."""
    return [
        np.isin(np.arange(len(task)), labels)
        for task, labels in zip(problem.tasks, kept, strict=True)
    ]


def pareto_labels(problem: Problem, objective: Objective, kept: Sequence[Ints]) -> list[Ints]:
    """Return labels that no other label of the task at an equal place beats in all that counts.

    What counts is the cost, the emissions where the objective knows of them, run time and delay
    where it knows of time, and the task's part in each row; labels that a demand for sameness
    tells apart are not compared.

    *Proof that an optimum is kept:* put the better label in the place of the worse one. It is at
    an `equal_places` one and of the same tags, so no transfer and no sameness changes, and no sum,
    path or row grows. Among labels equal in all, the first stays.
    """
    if problem.hook is not None:
        return list(kept)  # what the user's own rules look at is not known
    equal = equal_places(problem)
    return [_front(problem, objective, v, labels, equal) for v, labels in enumerate(kept)]


def equal_places(problem: Problem) -> Ints:
    """Return the same number for places that no transfer tells apart, not even one between them.

    Their rows are equal and so are their columns, in every table: with a and b equal,
    M[a, a] = M[b, a] by rows and M[b, a] = M[b, b] by columns, so moving tasks from one to the
    other changes no edge.
    """
    kinds = [
        part
        for table in problem.tables
        for part in (table.usd, table.hours, table.gco2)
        if part is not None
    ]
    known: dict[bytes, int] = {}
    if not kinds:
        return np.zeros(len(problem.places), np.int64)
    stack = np.stack(kinds)
    rows, columns = stack.transpose(1, 0, 2).copy(), stack.transpose(2, 0, 1).copy()
    keys = (rows[k].tobytes() + columns[k].tobytes() for k in range(len(problem.places)))
    return np.array([known.setdefault(key, len(known)) for key in keys], np.int64)


def _criteria(problem: Problem, objective: Objective, v: int, labels: Ints) -> list[Floats]:
    task = problem.tasks[v]
    names = []
    carbon = objective.kind in ("carbon", "weighted") or objective.carbon_cap_g is not None
    if objective.kind in ("cost", "time_then_cost", "weighted") or (
        objective.budget_usd is not None
    ):
        names.append("usd")
    if objective.is_timed:
        names += ["hours", "ready_hours"]
    if carbon:
        names.append("gco2")
    columns = [getattr(task, name)[labels] for name in names]
    return columns + [row.terms[v][labels] for row in problem.rows if v in row.terms]


def _front(problem: Problem, objective: Objective, v: int, labels: Ints, equal: Ints) -> Ints:
    tags = [equal[problem.tasks[v].place]]
    tags += [problem.tag(v, same.by) for same in problem.same if v in same.tasks]
    group = np.zeros(len(labels), np.int64)
    for tag in tags:
        pairs = np.stack([group, tag[labels]], axis=1)
        group = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    if group.max(initial=-1) + 1 == len(labels):
        return labels
    order = np.argsort(group, kind="stable")
    columns = [values[order] for values in _criteria(problem, objective, v, labels)]
    columns = columns or [np.zeros(len(labels))]
    return labels[np.sort(order[find_front(group[order], columns)])]
