"""The cheapest plan under a deadline for chains and fork-joins, exactly and without a solver.

Given the labels of the first and the last task, the branches between them do not know of each
other: each has to be there in time. A branch is a resource-constrained shortest path, solved by
keeping, for each label along it, the pairs of time and cost that no other pair beats (Desrochers
and Soumis, INFOR 26(3), 1988), cut off where a bound says that they cannot lead to a better plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from jupyter_sky.decisions.optimizer.solver.pareto import find_front
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints, Problem

_CELLS = 12_000_000  # ways on from one task beyond which this is not the way


@dataclass(frozen=True)
class ForkJoin:
    """First and last task, and the tasks of each branch between them."""

    first: int
    last: int
    branches: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class _Step:
    """An edge and the task it leads to: USD and h to each of its labels."""

    usd: Floats  # of the edge, labels x labels
    hours: Floats
    own_usd: Floats
    own_hours: Floats
    ready: Floats


@dataclass(frozen=True, eq=False)
class _PartialPaths:
    """Ways to the labels of one task: from which first label, to which label, when, for what."""

    first: Ints
    label: Ints
    time: Floats
    usd: Floats
    parent: Ints


def find_fork_join(problem: Problem) -> ForkJoin | None:
    """Return the branches of a chain or fork-join; None for any other graph."""
    count, edges = len(problem.tasks), problem.edges
    into = np.bincount(edges.dst, minlength=count)
    out = np.bincount(edges.src, minlength=count)
    sources, sinks = np.flatnonzero(into == 0), np.flatnonzero(out == 0)
    if count < 2 or len(sources) != 1 or len(sinks) != 1:
        return None
    first, last = int(sources[0]), int(sinks[0])
    between = np.setdiff1d(np.arange(count), [first, last])
    if (into[between] != 1).any() or (out[between] != 1).any():
        return None
    after = {int(u): int(v) for u, v in zip(edges.src, edges.dst, strict=True) if u != first}
    branches = []
    for start in edges.dst[edges.src == first].tolist():
        tasks, v = [], start
        while v != last:
            tasks.append(v)
            v = after[v]
        branches.append(tuple(tasks))
    return ForkJoin(first, last, tuple(branches))


def solve_fork_join(
    problem: Problem, kept: Sequence[Ints], prices: Floats, deadline: float, upper: float
) -> tuple[str, tuple[int, ...] | None]:
    """Return the cheapest plan within the deadline (h) that costs at most `upper` (USD).

    Parameters
    ----------
    prices : float array
        USD for an hour on each edge; the better, the less there is to keep. Any are valid: with
        p >= 0 the price on a branch, a way of cost c that arrives in time has
        c + p (arrival - due) <= c, so the least of the left side over all ways, summed over the
        branches, is below every plan, and a way may exceed its branch's least by no more than
        what lies between that sum and `upper`.

    Returns
    -------
    ``optimal`` and a plan; ``infeasible`` when none costs so little; ``unknown`` when the graph is
    of another shape or there is too much to keep.
    """
    found = find_fork_join(problem)
    if found is None:
        return "unknown", None
    edge = {
        (int(u), int(v)): e
        for e, (u, v) in enumerate(zip(problem.edges.src, problem.edges.dst, strict=True))
    }
    if len(edge) < len(problem.edges):
        return "unknown", None
    start, end = (_own(problem, kept, v) for v in (found.first, found.last))
    begin = start[1] + start[2]
    due = np.where(end[1] + end[2] <= deadline, deadline - end[1], -np.inf)
    chains, tables = [], []
    for branch in found.branches:
        tasks = [found.first, *branch, found.last]
        steps = [_step(problem, kept, u, v, edge[u, v]) for u, v in pairwise(tasks)]
        price = float(prices[edge[tasks[-2], tasks[-1]]])
        togo = _backward(steps, price)
        chains.append((branch, steps, price, togo))
        tables.append(togo[0][0] + price * (begin[:, None] - np.where(due > -np.inf, due, 0)))
    low = start[0][:, None] + end[0] + sum(tables)
    slack = np.where(due > -np.inf, upper * (1 + 1e-12) - low, -np.inf)
    total, ways = start[0][:, None] + end[0] + 0.0, []
    for (_, steps, price, togo), least in zip(chains, tables, strict=True):
        limits = (slack + least, due)
        costs, trail = _branch(steps, price, togo, begin, limits)
        if costs is None:
            return "unknown", None
        total = total + costs
        ways.append(trail)
    i, j = np.unravel_index(int(np.argmin(total)), total.shape)
    if not total[i, j] <= upper * (1 + 1e-9):
        return "infeasible", None  # what is left above the limit need not be the best there
    return "optimal", _read_plan(found, kept, ways, (int(i), int(j)))


def _read_plan(
    graph: ForkJoin, kept: Sequence[Ints], ways: Sequence, ends: tuple[int, int]
) -> tuple[int, ...]:
    """Return the labels of the best ways between a first and a last label."""
    choice = np.zeros(len(kept), np.int64)
    choice[graph.first], choice[graph.last] = (
        kept[v][k] for v, k in zip((graph.first, graph.last), ends, strict=True)
    )
    for branch, (layers, last) in zip(graph.branches, ways, strict=True):
        state = int(last[ends])
        for v, layer in zip(reversed(branch), reversed(layers), strict=True):
            choice[v] = kept[v][layer.label[state]]
            state = int(layer.parent[state])
    return tuple(int(label) for label in choice)


def _own(problem: Problem, kept: Sequence[Ints], v: int) -> tuple[Floats, Floats, Floats]:
    task, labels = problem.tasks[v], kept[v]
    return task.usd[labels], task.hours[labels], task.ready_hours[labels]


def _step(problem: Problem, kept: Sequence[Ints], u: int, v: int, e: int) -> _Step:
    table, scale = problem.tables[int(problem.edges.table[e])], float(problem.edges.scale[e])
    grid = np.ix_(problem.tasks[u].place[kept[u]], problem.tasks[v].place[kept[v]])
    usd, hours = (part[grid] for part in (table.usd, table.hours))
    if scale:
        usd, hours = usd * scale, hours * scale
    else:
        usd, hours = np.zeros_like(usd), np.zeros_like(hours)
    return _Step(usd, hours, *_own(problem, kept, v))


def _backward(steps: list[_Step], price: float) -> list[tuple[Floats, Floats]]:
    """Return the least cost, time at its price, and the least time to the end of a branch.

    For each of its tasks: from each label to the arrival at each label of the last task.
    """
    togo = [(steps[-1].usd + price * steps[-1].hours, steps[-1].hours)]
    for step in reversed(steps[:-1]):
        cost, time = togo[0]
        cost = cost + (step.own_usd + price * step.own_hours)[:, None]
        time = time + step.own_hours[:, None]
        edge = step.usd + price * step.hours
        togo.insert(0, (_min_plus(edge, cost), _min_plus(step.hours, time)))
    return togo


def _min_plus(a: Floats, b: Floats) -> Floats:
    return np.stack([(row[:, None] + b).min(0) for row in a])


def _branch(steps, price, togo, begin, limits):
    """Return least cost of a branch for each first and last label, and the ways that have it."""
    allowance, due = limits
    count = len(begin)
    now = _PartialPaths(
        np.arange(count), np.arange(count), begin, np.zeros(count), np.arange(count)
    )
    layers = []
    for step, (cost, time) in zip(steps[:-1], togo[1:], strict=True):
        now = _extend(step, now, price, (cost, time), allowance, due)
        if now is None:
            return None, None
        layers.append(now)
    step = steps[-1]
    arrive = now.time[:, None] + step.hours[now.label]
    usd = np.where(arrive <= due, now.usd[:, None] + step.usd[now.label], np.inf)
    best = np.full((count, len(due)), np.inf)
    ends = np.zeros((count, len(due)), np.int64)
    for i in range(count):
        mine = np.flatnonzero(now.first == i)
        if len(mine):
            ends[i] = mine[usd[mine].argmin(0)]
            best[i] = usd[mine].min(0)
    return best, (layers, ends)


def _extend(step: _Step, now: _PartialPaths, price: float, togo, allowance: Floats, due: Floats):
    """Return every way on to every label of the next task that can be part of the best."""
    cost, time = togo
    if len(now.first) * len(step.own_usd) > _CELLS:
        return None
    # What a way may have cost so far, time at its price, by its first and its present label.
    reach = np.stack(
        [
            (row[None, :] + price * np.where(due > -np.inf, due, 0) - cost).max(1)
            for row in allowance
        ]
    )
    latest = (due[None, :] - time).max(1)
    when = np.maximum(now.time[:, None] + step.hours[now.label], step.ready) + step.own_hours
    usd = now.usd[:, None] + step.usd[now.label] + step.own_usd
    margin = 1e-9 * (1 + np.abs(reach).max(initial=0.0, where=np.isfinite(reach)))
    good = (usd + price * when <= reach[now.first] + margin) & (when <= latest * (1 + 1e-12))
    parent, label = np.nonzero(good)
    first, when, usd = now.first[parent], when[good], usd[good]
    group = first * len(step.own_usd) + label
    order = np.argsort(group, kind="stable")
    best = order[find_front(group[order], [usd[order], when[order]])]
    return _PartialPaths(first[best], label[best], when[best], usd[best], parent[best])
