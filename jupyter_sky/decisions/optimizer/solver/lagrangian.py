"""Good plans under a deadline: time gets a price, and the sum of both is made small.

The dual values of the relaxed model's time rows are a flow through the graph: what an hour on
each task and edge costs near the optimum. A subgradient search goes on from there. With time paid
at these prices the deadline needs no rows, and placement is a sum over tasks and edges again, for
which messages find plans at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import AdditiveProblem
from jupyter_sky.decisions.optimizer.solver.dual_bound import DualBound
from jupyter_sky.decisions.optimizer.solver.hierarchy import make_dense_hierarchy
from jupyter_sky.decisions.optimizer.solver.longest_paths import TimedPlan, reduce_cost
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints, Problem

_SWEEPS = 4
_ROUNDS = 30
_STEP = 0.15  # of the price of an hour of the whole plan, how far prices move at a time
_FALL = 0.93
_GROWTH = 1.15  # of the steps until a plan is in time
_CELLS = 4_000_000  # numbers that the tables of all edges may have


@dataclass(frozen=True, eq=False)
class TimePrices:
    """USD for an hour: of a start that waits for stores, and on each edge with its head's work."""

    start: Floats
    edge: Floats


def priced_plans(
    problem: Problem, kept: Sequence[Ints], prices: TimePrices, deadline: float
) -> Iterator[tuple[int, ...]]:
    """Yield plans within the deadline (h), found by a subgradient search from the given prices.

    Prices rise along the critical path of a plan that is late, and fall after one that is not.
    """
    used = np.unique(np.concatenate([t.place[k] for t, k in zip(problem.tasks, kept, strict=True)]))
    if len(problem.edges) * len(used) ** 2 > _CELLS:
        return
    walk = TimedPlan(problem, kept)
    start, edge = prices.start.copy(), prices.edge.copy()
    unit = _STEP * max(float(start.sum()), 1e-9)
    messages, timely = None, False
    for _ in range(_ROUNDS):
        sums, label = _priced(problem, kept, used, TimePrices(start, edge))
        dual = DualBound(sums, messages)
        for _ in range(_SWEEPS):
            dual.sweep()
        dual.descend()
        messages = dual.into, dual.back
        choice = tuple(int(label[v, k]) for v, k in enumerate(dual.x))
        walk.take(choice)
        late = max(walk.finish) / deadline - 1
        if late <= 0:
            yield reduce_cost(problem, kept, choice, deadline)
            timely = True
            start, edge = _FALL * start, _FALL * edge
            continue
        first, path = walk.critical_path()
        rise = unit * min(1.0, 4 * late + 0.1)
        start[first] += rise
        edge[path] += rise
        unit *= 1.0 if timely else _GROWTH


def _priced(
    problem: Problem, kept: Sequence[Ints], used: Ints, prices: TimePrices
) -> tuple[AdditiveProblem, Ints]:
    """Return the sum of USD and of hours at their prices, over the places in use."""
    edges, count = problem.edges, len(problem.tasks)
    flow = prices.start.copy()
    np.add.at(flow, edges.dst, prices.edge)
    unary = np.full((count, len(used)), np.inf)
    label = np.zeros((count, len(used)), np.int64)
    for v, (task, labels) in enumerate(zip(problem.tasks, kept, strict=True)):
        hours = flow[v] * task.hours[labels] + prices.start[v] * task.ready_hours[labels]
        values = task.usd[labels] + hours
        order = np.argsort(-values, kind="stable")
        place = np.searchsorted(used, task.place[labels])
        unary[v, place[order]] = values[order]
        label[v, place[order]] = labels[order]
    grid = np.ix_(used, used)
    usd = [np.where(np.isfinite(t.usd), t.usd, 1e9)[grid] for t in problem.tables]
    hours = [np.where(np.isfinite(t.hours), t.hours, 1e9)[grid] for t in problem.tables]
    tables = [
        scale * (usd[k] + price * hours[k])
        for scale, k, price in zip(edges.scale, edges.table, prices.edge, strict=True)
    ]
    own = np.arange(len(edges))
    dense = make_dense_hierarchy(tables or [np.zeros((len(used),) * 2)])
    return AdditiveProblem(
        unary, label, edges.src, edges.dst, np.ones(len(edges)), own, dense
    ), label
