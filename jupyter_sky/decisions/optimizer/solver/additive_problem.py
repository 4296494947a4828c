"""Objectives that are sums over tasks and edges: one number for each task, place and edge.

Cost, carbon and their weighted sum are such; so is the cost part of every other objective. Of the
labels that a task has at one place only the best can matter, because transfers know of places
alone (placement without time, eq. 1 of the SkyPilot paper, NSDI 2023).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy, find_hierarchy
from jupyter_sky.decisions.optimizer.solver.pareto import first_minimum
from jupyter_sky.decisions.optimizer.solver.problem import (
    Flags,
    Floats,
    Ints,
    Objective,
    Problem,
    TransferTable,
)

TIE = 1e-9  # values closer than this, relative, are equal; the first labels then win


@dataclass(frozen=True, eq=False)
class AdditiveProblem:
    """Minimize the sum of `unary[v, x_v]` + `scale[e]` * M[`table[e]`][x_u, x_v].

    Attributes
    ----------
    unary : float array, n x P
        ``inf`` where a task cannot be.
    label : int array, n x P
        The task's label that stands for the place.
    src, dst, scale, table : arrays of m
        Edges that move anything at all.
    hier : Hierarchy
        The tables M and their structure.
    """

    unary: Floats
    label: Ints
    src: Ints
    dst: Ints
    scale: Floats
    table: Ints
    hier: Hierarchy

    def value(self, x: Ints) -> float:
        """Return the sum at places x."""
        moved = self.hier.tables[self.table, x[self.src], x[self.dst]] * self.scale
        return float(self.unary[np.arange(len(x)), x].sum() + moved.sum())

    def take(self, keep: Ints) -> AdditiveProblem:
        """Return the same problem over some of the places."""
        unary, label = self.unary[:, keep], self.label[:, keep]
        edges = (self.src, self.dst, self.scale, self.table)
        return AdditiveProblem(unary, label, *edges, self.hier.take(keep))


def criterion_weights(objective: Objective) -> tuple[float, float]:
    """Return what a USD and a gram count in the additive part of an objective."""
    if objective.kind == "weighted":
        return objective.usd_weight, objective.gram_weight
    return (0.0, 1.0) if objective.kind == "carbon" else (1.0, 0.0)


def make_additive(
    problem: Problem,
    allowed: Sequence[Flags],
    weight: tuple[float, float],
    structure: Hierarchy | None = None,
) -> AdditiveProblem:
    """Return the additive problem of a weighted sum of USD and grams.

    The best label of each place stands for the place. *Proof that an optimum is kept:* replace in
    an optimal plan every label by the best one at its place; no transfer changes, no term grows.

    Equal values are told apart by the order of places and labels: each unary gets its rank times
    an amount so small that all of them together stay under `TIE` of the value, so no plan that is
    better by more can lose. The smallest sum of ranks wins among plans that are equal.

    Parameters
    ----------
    allowed : sequence of bool array
        For each task the labels that its masks leave.
    structure : Hierarchy, optional
        Of the same tables, when it is known already.
    """
    count, places = len(problem.tasks), len(problem.places)
    unary = np.full((count, places), np.inf)
    label = np.zeros((count, places), np.int64)
    for v, task in enumerate(problem.tasks):
        values = np.zeros(len(task))
        for factor, amounts in zip(weight, (task.usd, task.gco2), strict=True):
            if factor:
                values = values + factor * amounts
        values[~allowed[v] | ~np.isfinite(task.usd + task.hours + task.gco2)] = np.inf
        order = np.argsort(task.place, kind="stable")
        best = order[first_minimum(task.place[order], values[order])]
        unary[v, task.place[best]], label[v, task.place[best]] = values[best], best
    everywhere = all(reachable_pairs(table).all() for table in problem.tables)
    if structure is None or not everywhere:  # what stands for infinite depends on the prices
        structure = find_hierarchy(_tables(problem, weight, unary), problem.places.levels)
    edges, moving = problem.edges, problem.edges.scale > 0
    return AdditiveProblem(
        unary + _ranks(unary),
        label,
        edges.src[moving],
        edges.dst[moving],
        edges.scale[moving],
        edges.table[moving],
        structure,
    )


def _tables(problem: Problem, weight: tuple[float, float], unary: Floats) -> list[Floats]:
    """Return a matrix for each table; instead of infinity, more than any plan costs without it."""
    made = []
    for table in problem.tables:
        amounts = weight[0] * table.usd if weight[0] else np.zeros_like(table.usd)
        if table.gco2 is not None and weight[1]:
            amounts = amounts + weight[1] * table.gco2
        made.append(np.where(reachable_pairs(table), amounts, np.inf))
    if not made:
        return [np.zeros((unary.shape[1],) * 2)]
    finite = [matrix[np.isfinite(matrix)].max(initial=0.0) for matrix in made]
    highest = np.where(np.isfinite(unary), unary, 0).max(1).sum()
    largest = highest + float((problem.edges.scale * np.array(finite)[problem.edges.table]).sum())
    smallest = problem.edges.scale[problem.edges.scale > 0].min(initial=1.0)
    ceiling = (1.0 + 2 * largest) / smallest
    return [np.where(np.isfinite(matrix), matrix, ceiling) for matrix in made]


def reachable_pairs(table: TransferTable) -> Flags:
    """Return between which places data can move at all."""
    finite = np.isfinite(table.usd) & np.isfinite(table.hours)
    return finite if table.gco2 is None else finite & np.isfinite(table.gco2)


def _ranks(unary: Floats) -> Floats:
    count, places = unary.shape
    least = np.where(np.isfinite(unary), unary, np.inf).min(1, initial=np.inf)
    floor = float(least[np.isfinite(least)].sum()) or 1.0
    step = TIE * floor / (2 * max(count * places, 1))
    return np.arange(places) * step
