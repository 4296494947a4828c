"""The exact minimum of a sum over tasks and edges, with no solver and no bound.

Bucket elimination (Dechter, Artificial Intelligence 113, 1999): take one task away at a time,
leaving in its place the least it can add for every choice of its neighbours. Exponential only
in the width of the order, so chains, trees and fork-joins of any length are quick. It is the
referee of the other ways in tests, and finishes what the bounds leave open.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints


@dataclass(frozen=True, eq=False)
class Factor:
    """A table over the labels of the tasks in `scope`, one axis for each."""

    scope: tuple[int, ...]
    table: Floats


@dataclass(frozen=True)
class EliminationOrder:
    """Tasks in the order they are taken away; how many numbers that takes in all and at once."""

    tasks: tuple[int, ...]
    total: float
    largest: float


def elimination_order(
    sizes: Sequence[int], edges: Iterable[tuple[int, int]], most: float = np.inf
) -> EliminationOrder:
    """Return a greedy order: next goes the task whose removal makes the smallest table.

    Parameters
    ----------
    most : float
        Numbers in one table; an order that needs more is given up, and is infinitely large.

    Examples
    --------
    >>> elimination_order([2, 3, 4], [(0, 1), (1, 2)]).largest
    12.0
    """
    near: list[set[int]] = [set() for _ in sizes]
    for u, v in edges:
        near[u].add(v)
        near[v].add(u)
    logs = np.log2(np.maximum(np.asarray(sizes, float), 1.0)).tolist()
    current = [logs[v] + sum(logs[w] for w in near[v]) for v in range(len(sizes))]
    heap = [(cost, v) for v, cost in enumerate(current)]
    heapq.heapify(heap)
    order, total, largest = [], 0.0, 0.0
    while heap:
        cost, v = heapq.heappop(heap)
        if cost != current[v]:
            continue
        current[v] = -1.0
        order.append(v)
        cells = 2.0 ** min(cost, 200.0)
        if cells > most:
            return EliminationOrder((), np.inf, np.inf)
        total, largest = total + cells, max(largest, cells)
        for w in near[v]:
            added = near[v] - near[w] - {w}
            near[w] |= added
            near[w].discard(v)
            current[w] += sum(logs[x] for x in added) - logs[v]
            heapq.heappush(heap, (current[w], w))
    return EliminationOrder(tuple(order), round(total, 3), round(largest, 3))


def eliminate(
    unary: Sequence[Floats],
    pairs: Iterable[tuple[int, int, Floats]],
    order: EliminationOrder | None = None,
) -> tuple[float, Ints]:
    """Return the least sum of `unary[v][x_v]` and M[x_u, x_v] over pairs, and where it is.

    Among equal values the first labels win, the tasks taken away last deciding first.

    Parameters
    ----------
    unary : sequence of float array
        One for each task; ``inf`` where a label cannot be taken.
    pairs : iterable of (u, v, M)
        Any number for the same two tasks.

    Examples
    --------
    >>> move = np.array([[0.0, 5.0], [5.0, 0.0]])
    >>> value, x = eliminate([np.array([1.0, 0.0]), np.array([0.0, 3.0])], [(0, 1, move)])
    >>> value, x.tolist()
    (1.0, [0, 0])
    """
    pairs = list(pairs)
    sizes = [len(values) for values in unary]
    order = order or elimination_order(sizes, [(u, v) for u, v, _ in pairs])
    held: list[list[Factor]] = [[Factor((v,), values)] for v, values in enumerate(unary)]
    position = np.empty(len(sizes), np.int64)
    position[list(order.tasks)] = np.arange(len(sizes))
    for u, v, matrix in pairs:
        factor = Factor((u, v), matrix)
        held[u if position[u] < position[v] else v].append(factor)
    value, policies = 0.0, []
    for v in order.tasks:
        scope, table = _join_factors(v, held[v])
        policies.append((v, scope, table.argmin(0)))
        rest = table.min(0)
        if scope:
            held[min(scope, key=lambda w: position[w])].append(Factor(scope, rest))
        else:
            value += float(rest)
        held[v] = []
    x = np.zeros(len(sizes), np.int64)
    for v, scope, best in reversed(policies):
        x[v] = best[tuple(x[w] for w in scope)]
    return value, x


def _join_factors(v: int, factors: Sequence[Factor]) -> tuple[tuple[int, ...], Floats]:
    """Return sum of tables that know of task v, v's axis first."""
    others = sorted({*itertools.chain.from_iterable(one.scope for one in factors)} - {v})
    axis = {task: k for k, task in enumerate([v, *others])}
    total: Floats | None = None
    for factor in sorted(factors, key=lambda one: -one.table.size):
        order = sorted(range(len(factor.scope)), key=lambda k: axis[factor.scope[k]])
        shape = [1] * len(axis)
        for k in order:
            shape[axis[factor.scope[k]]] = factor.table.shape[k]
        part = factor.table.transpose(order).reshape(shape)
        total = part if total is None else total + part
    assert total is not None
    full = np.broadcast_shapes(total.shape)
    return tuple(others), np.broadcast_to(total, full)
