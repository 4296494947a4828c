"""Labels of a task that can matter, found from the task alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jupyter_sky.decisions.optimizer.solver.pareto import find_front, sort_into_groups
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints, Objective, Problem

_BATCH = 200_000  # labels that are compared in one go


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
    flags = [np.zeros(len(task), bool) for task in problem.tasks]
    for own, labels in zip(flags, kept, strict=True):
        own[labels] = True
    return flags


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
    equal, made, start = equal_places(problem), [], 0
    while start < len(kept):  # many small tasks in one go, large ones by themselves
        end, count = start + 1, len(kept[start])
        while end < len(kept) and count + len(kept[end]) <= _BATCH:
            count, end = count + len(kept[end]), end + 1
        made += _front(problem, objective, range(start, end), kept[start:end], equal)
        start = end
    return made


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
    if not kinds:
        return np.zeros(len(problem.places), np.int64)
    stack, places = np.stack(kinds), np.arange(len(problem.places))
    found = places.copy()
    sums = np.stack([stack.sum((0, 2)), stack.sum((0, 1))], axis=1)
    _, first, count = np.unique(sums, axis=0, return_inverse=True, return_counts=True)
    known: dict[bytes, int] = {}
    for k in np.flatnonzero(count[first.reshape(-1)] > 1):  # others are equal to none
        key = stack[:, k].tobytes() + stack[:, :, k].tobytes()
        found[k] = known.setdefault(key, int(k))
    return found


def _criteria(
    problem: Problem, objective: Objective, tasks: Sequence[int], kept: Sequence[Ints]
) -> list[Floats]:
    """Return what counts, for the labels of one task after the other."""
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
    pairs = list(zip(tasks, kept, strict=True))
    columns = [
        np.concatenate([getattr(problem.tasks[v], name)[labels] for v, labels in pairs])
        for name in names
    ]
    for row in problem.rows:
        terms = [row.terms[v][labels] if v in row.terms else 0.0 * labels for v, labels in pairs]
        columns.append(np.concatenate(terms))
    return columns


def _front(
    problem: Problem,
    objective: Objective,
    tasks: Sequence[int],
    kept: Sequence[Ints],
    equal: Ints,
) -> list[Ints]:
    pairs = list(zip(tasks, kept, strict=True))
    sizes = [len(labels) for labels in kept]
    tags = [np.repeat(np.arange(len(kept)), sizes)]
    tags.append(np.concatenate([equal[problem.tasks[v].place[labels]] for v, labels in pairs]))
    tied: dict[str, set[int]] = {}
    for same in problem.same:  # pairs of one kind share a column: tasks are told apart already
        tied.setdefault(same.by, set()).update(same.tasks)
    for by, members in tied.items():
        parts = [problem.tag(v, by)[labels] if v in members else 0 * labels for v, labels in pairs]
        tags.append(np.concatenate(parts))
    order, group = sort_into_groups(tags)
    if not len(group) or group[-1] + 1 == len(group):
        return list(kept)
    columns = [values[order] for values in _criteria(problem, objective, tasks, kept)]
    left = np.zeros(len(group), bool)
    left[order[find_front(group, columns or [np.zeros(len(group))])]] = True
    parts = np.split(left, np.cumsum(sizes)[:-1])
    return [labels[part] for labels, part in zip(kept, parts, strict=True)]
