"""Checks of the numbers of a placement problem, made before any solver sees them.

GLPK ends the whole process on bad input, so nothing unchecked may come near it.
"""

from __future__ import annotations

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.solver.problem import (
    Floats,
    Ints,
    Objective,
    Problem,
    TaskLabels,
)

_KINDS = ("cost", "time", "time_then_cost", "weighted", "carbon")


def check_problem(problem: Problem) -> None:
    """Raise SkyUsageError that names what is wrong: sizes, ranges, nan, a cycle, two of a name."""
    names = [task.name for task in problem.tasks]
    twice = sorted({name for name in names if names.count(name) > 1}) if names else []
    if twice:
        raise SkyUsageError(
            _("two tasks are named {twice}").format(twice=twice[0]),
            hint=_("give each task a name of its own"),
        )
    for task in problem.tasks:
        _check_labels(task, len(problem.places))
    _check_levels(problem)
    _check_edges(problem)
    _check_constraints(problem)
    _check_cycles(problem)


def check_objective(objective: Objective) -> None:
    """Raise SkyUsageError for weights or limits that mean nothing."""
    if objective.kind not in _KINDS:
        raise SkyUsageError(
            _("cannot minimize {kind!r}").format(kind=objective.kind),
            hint=_("choose one of {kinds}").format(kinds=", ".join(_KINDS)),
        )
    weights = (objective.usd_weight, objective.hour_weight, objective.gram_weight)
    if objective.kind == "weighted" and not (
        all(np.isfinite(weights)) and min(weights) >= 0 and max(weights) > 0
    ):
        raise SkyUsageError(
            _("weights {weights} cannot be minimized").format(weights=weights),
            hint=_("weights are finite, none negative, one above 0"),
        )
    for name, value in objective.limits().items():
        if not value >= 0:
            raise SkyUsageError(
                _("{name} {value} is not a limit").format(name=name, value=value),
                hint=_("it must be 0 or more"),
            )


def sort_edges(count: int, src: Ints, dst: Ints) -> list[tuple[int, int]]:
    """Return edges so that those into a task come before those out of it; none of a cycle's."""
    below: list[list[int]] = [[] for __ in range(count)]
    waiting = [0] * count
    for u, v in zip(src.tolist(), dst.tolist(), strict=True):
        below[u].append(v)
        waiting[v] += 1
    ready = [v for v in range(count) if not waiting[v]]
    found = []
    for u in ready:  # grows while it is read
        for v in below[u]:
            found.append((u, v))
            waiting[v] -= 1
            if not waiting[v]:
                ready.append(v)
    return found


def _check_cycles(problem: Problem) -> None:
    edges = problem.edges
    free = set(sort_edges(len(problem.tasks), edges.src, edges.dst))
    pairs = zip(edges.src.tolist(), edges.dst.tolist(), strict=True)
    stuck = dict.fromkeys(problem.tasks[v].name for u, v in pairs if (u, v) not in free)
    if stuck:
        raise SkyUsageError(
            _("the tasks wait for each other in a cycle: {value}").format(
                value=", ".join([*stuck][:6])
            ),
            hint=_("remove an edge among them"),
        )


def _check_labels(task: TaskLabels, places: int) -> None:
    if len(task) and not (task.place.min() >= 0 and task.place.max() < places):
        raise SkyUsageError(
            _("{name} has a candidate at a place that is not among {places}").format(
                name=task.name, places=places
            )
        )
    for key in ("usd", "hours", "ready_hours", "gco2", "hourly_usd", "nodes"):
        values = getattr(task, key)
        if values.shape != task.place.shape:
            raise SkyUsageError(
                _("{name} has {size} values of {key} for {task_count} candidates").format(
                    name=task.name, size=values.size, key=key, task_count=len(task)
                )
            )
        if np.isnan(values).any() or (values < 0).any():
            raise SkyUsageError(
                _("{name}: {key} of a candidate is negative or not a number").format(
                    name=task.name, key=key
                ),
                hint=_("look at the estimator and the price of this task"),
            )


def _check_levels(problem: Problem) -> None:
    for name, nodes in problem.places.levels.items():
        if np.shape(nodes) != (len(problem.places),):
            raise SkyUsageError(
                _("level {name} must say a node for each of the places").format(name=name)
            )


def _check_edges(problem: Problem) -> None:
    edges, count = problem.edges, len(problem.tasks)
    for ends in (edges.src, edges.dst):
        if len(ends) and not (ends.min() >= 0 and ends.max() < count):
            raise SkyUsageError(
                _("an edge names a task that is not among the {count}").format(count=count)
            )
    if (edges.src == edges.dst).any():
        raise SkyUsageError(_("a task sends to itself"), hint=_("remove that edge"))
    if len(edges) and not (np.isfinite(edges.scale).all() and edges.scale.min() >= 0):
        raise SkyUsageError(_("the size of a transfer is negative or not a number"))
    if len(edges) and not (edges.table.min() >= 0 and edges.table.max() < len(problem.tables)):
        raise SkyUsageError(
            _("an edge names a table that is not among {tables_count}").format(
                tables_count=len(problem.tables)
            )
        )
    for table in problem.tables:
        for values in (table.usd, table.hours, table.gco2):
            if values is not None:
                _check_table(values, len(problem.places))


def _check_table(values: Floats, places: int) -> None:
    if values.shape != (places, places):
        raise SkyUsageError(
            _("a table of transfers is {shape}, not {value}").format(
                shape=values.shape, value=(places, places)
            )
        )
    if np.isnan(values).any() or (values < 0).any():
        raise SkyUsageError(_("a price or time of a transfer is negative or not a number"))


def _check_constraints(problem: Problem) -> None:
    sizes = [len(task) for task in problem.tasks]
    for mask in problem.masks:
        if not 0 <= mask.task < len(sizes) or np.shape(mask.allowed) != (sizes[mask.task],):
            raise SkyUsageError(
                _("{name} does not fit the candidates of its task").format(name=mask.name)
            )
    for row in problem.rows:
        for task, values in row.terms.items():
            fits = 0 <= task < len(sizes) and np.shape(values) == (sizes[task],)
            if not fits or not np.isfinite(values).all() or not np.isfinite(row.limit):
                raise SkyUsageError(
                    _("{name} does not fit the candidates of its tasks").format(name=row.name)
                )
    known = {"place", "cluster", "family", *problem.places.levels}
    for same in problem.same:
        if same.by not in known or not all(0 <= task < len(sizes) for task in same.tasks):
            raise SkyUsageError(
                _("{name}: tasks cannot share a {by}").format(name=same.name, by=same.by),
                hint=_("known: {known}").format(known=sorted(known)),
            )
