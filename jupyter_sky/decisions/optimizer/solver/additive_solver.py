"""The cheapest plan of a sum over tasks and edges: bound, reduce, finish exactly.

Bounds come from messages (`dual_bound`), plans from decoding and descent; what the two leave open
goes to elimination when that is small, and to the model of record otherwise.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import TIE, AdditiveProblem
from jupyter_sky.decisions.optimizer.solver.dual_bound import DualBound
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints

_CHEAP = 400_000  # numbers that elimination may handle at once and for each sweep already done
_LARGEST = 20_000_000  # numbers in one table of elimination
_NEAR = 8  # mean costs of a task within which the bound must be for places to go
_PATIENCE = ((400, 20), (1_200, 80), (3_000, 200))  # labels a model may have after sweeps


@dataclass(frozen=True, eq=False)
class ReducedProblem:
    """Best plan and bound of an additive problem, and the places still open.

    Attributes
    ----------
    x : int array
        Place of each task in the best plan.
    best, bound : float
        Its value, and a value that no plan is under (ranks of ties included).
    proof : str
        ``dual`` or ``elimination`` when the plan is proven optimal, else empty.
    open : bool array, n x P
        Places that a better plan might use.
    messages : tuple of float array, m x P
        Over all places of the problem given, for `warm`.
    """

    x: Ints
    best: float
    bound: float
    proof: str
    open: Flags
    messages: tuple[Floats, Floats]

    @property
    def labels(self) -> int:
        """Number of open labels of tasks that have more than one."""
        counts = self.open.sum(1)
        return int(counts[counts > 1].sum())


class AdditiveSearch:
    """Search for the minimum of an additive problem, from all places to few."""

    def __init__(
        self, full: AdditiveProblem, dominance: bool, warm: tuple[Floats, Floats] | None
    ) -> None:
        self.full, self.dominance = full, dominance
        self.places = find_undominated(full) if dominance else np.arange(full.unary.shape[1])
        messages = None
        if warm is not None:
            messages = tuple(part[:, self.places] for part in warm)
        self.dual = DualBound(full.take(self.places), messages)  # pyright: ignore[reportArgumentType]
        self.sweeps = 0
        self.dual.try_one_place()

    @property
    def is_closed(self) -> bool:
        """Whether the plan is proven, but for ties."""
        dual = self.dual
        return dual.best - dual.bound <= 2 * TIE * abs(dual.best)

    def step(self) -> None:
        """Sweep once; at times look for better plans, and for labels that no plan needs."""
        dual = self.dual
        dual.sweep()
        self.sweeps += 1
        if self.is_closed:
            return
        if self.sweeps in (2, 4, 8) or self.sweeps % 10 == 0:
            dual.descend()
            if not self.is_closed and dual.best - dual.bound < _NEAR * dual.best / len(dual.x):
                self._shrink()

    def _shrink(self) -> None:
        dual = self.dual
        gone = dual.find_removable(TIE * abs(dual.best))
        unary = np.where(gone, np.inf, dual.problem.unary)
        reduced = replace(dual.problem, unary=unary)
        used = np.unique(dual.x)
        useful = np.flatnonzero(np.isfinite(unary).any(0))
        if self.dominance and len(useful) < 0.8 * unary.shape[1]:
            useful = find_undominated(reduced)
        keep = np.union1d(useful, used)
        messages = dual.into[:, keep], dual.back[:, keep]
        fresh = DualBound(reduced.take(keep), messages)
        fresh.bound, fresh.best = dual.bound, dual.best
        fresh.x = np.searchsorted(keep, dual.x)
        self.dual, self.places = fresh, self.places[keep]

    def find_order(self) -> EliminationOrder:
        """Return an elimination order of the open labels."""
        counts = np.isfinite(self.dual.problem.unary).sum(1)
        src, dst = self.dual.problem.src, self.dual.problem.dst
        both = (counts[src] > 1) & (counts[dst] > 1)
        edges = zip(src[both].tolist(), dst[both].tolist(), strict=True)
        return elimination_order(counts.tolist(), edges, _LARGEST)

    def finish(self, order: EliminationOrder) -> None:
        """Solve the open rest by elimination."""
        p = self.dual.problem
        labels = [np.flatnonzero(np.isfinite(row)) for row in p.unary]
        unary = [row[kept].copy() for row, kept in zip(p.unary, labels, strict=True)]
        pairs = []
        for u, v, scale, k in zip(p.src, p.dst, p.scale, p.table, strict=True):
            matrix = scale * p.hier.tables[k][np.ix_(labels[u], labels[v])]
            if len(labels[u]) > 1 and len(labels[v]) > 1:
                pairs.append((int(u), int(v), matrix))
            elif len(labels[u]) > 1:
                unary[u] += matrix[:, 0]
            else:
                unary[v] += matrix[0]
        _, chosen = eliminate(unary, pairs, order)
        x = np.array([kept[k] for kept, k in zip(labels, chosen, strict=True)], np.int64)
        self.dual.try_plan(x)
        self.dual.bound = max(self.dual.bound, min(self.dual.best, p.value(x)))

    def result(self, proof: str) -> ReducedProblem:
        """Return the state over the places of the given problem."""
        dual, shape = self.dual, self.full.unary.shape
        still = np.zeros(shape, bool)
        still[:, self.places] = np.isfinite(dual.problem.unary)
        messages = tuple(np.zeros((len(dual.into), shape[1])) for _ in range(2))
        messages[0][:, self.places], messages[1][:, self.places] = dual.into, dual.back
        bound = min(dual.bound, dual.best)
        x = self.places[dual.x]
        return ReducedProblem(x, dual.best, bound, proof, still, messages)  # pyright: ignore


def reduce_problem(
    problem: AdditiveProblem,
    until: float,
    *,
    dominance: bool = True,
    exact: bool = True,
    target: float = 0.0,
    warm: tuple[Floats, Floats] | None = None,
) -> ReducedProblem:
    """Bound and reduce a sum until it is solved, small enough for a model, or time is up.

    Parameters
    ----------
    problem : AdditiveProblem
        Every task has a place.
    until : float
        CPU second (`time.process_time`) to stop at.
    dominance : bool
        Whether a place may stand for another: not with constraints that tie tasks together.
    exact : bool
        Whether elimination may finish; otherwise the model of record does.
    target : float
        Relative gap that is good enough.
    warm : tuple of float array, optional
        Messages of an earlier, similar problem.
    """
    search = AdditiveSearch(problem, dominance, warm)
    while True:
        search.step()
        dual = search.dual
        if search.is_closed or dual.best - dual.bound <= target * abs(dual.best):
            return search.result("dual" if search.is_closed else "limit")
        if search.sweeps >= 2 and (search.sweeps in (2, 4, 8) or search.sweeps % 10 == 0):
            order = search.find_order() if exact else EliminationOrder((), np.inf, np.inf)
            if order.largest < _LARGEST and order.total < _CHEAP * search.sweeps**2:
                search.finish(order)
                return search.result("elimination")
            result = search.result("")
            haste = 1 if exact else 3
            if any(result.labels <= n and search.sweeps * haste >= k for n, k in _PATIENCE):
                return result
        if time.process_time() >= until:
            return search.result("")


# -- Places that no optimal plan needs, found before any search -----------------------------------
#
# A reduction here is exact for a sum over tasks and edges with no constraint that ties tasks
# together: a quota or "not this plan again" may need the very place that is otherwise dominated.

_CELLS = 3_000_000  # numbers that one comparison may hold


def find_undominated(problem: AdditiveProblem) -> Ints:
    """Return places that remain when those are gone that another place can stand for.

    Place a dominates b when for every task C_v(a) <= C_v(b), and for every table that an edge
    uses and every other place k, Q(a, k) <= Q(b, k), Q(k, a) <= Q(k, b), and Q(a, a) is not above
    Q(b, b), Q(a, b) or Q(b, a).

    *Proof that an optimum is kept:* in an optimal plan move all tasks at b to a. No unary grows.
    An edge inside b becomes one inside a, an edge between a and b becomes one inside a, and an
    edge between b and k becomes one between a and k; by assumption none of them grows. With
    places deleted one after the other, each deletion starts from a problem with the same optimum.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.hierarchy import find_hierarchy
    >>> one = np.array([0]), np.array([1]), np.ones(1), np.array([0])
    >>> free = find_hierarchy([np.zeros((3, 3))], {})
    >>> unary = np.array([[1.0, 2, 0], [1, 1, 3]])
    >>> find_undominated(AdditiveProblem(unary, np.zeros((2, 3), int), *one, free))
    array([0, 2])
    """
    useful = np.flatnonzero(np.isfinite(problem.unary).any(0))
    useful = useful[_within_nodes(problem.take(useful))]
    unary = problem.unary[:, useful]
    used = np.unique(problem.table)
    tables = problem.hier.tables[used][:, useful][:, :, useful]
    worse = _never_better(unary.T)
    if worse.sum() > len(useful):
        worse &= _moves_no_better(tables)
    return useful[_remove_dominated(worse, unary)]


def _within_nodes(problem: AdditiveProblem) -> Ints:
    """Return undominated among places of one node of the finest level above places.

    Such places are the same to every place outside the node, and data that comes from within it
    costs the same to either: what is left to compare is what leaving costs at each level.
    """
    hier, alive = problem.hier, np.ones(problem.unary.shape[1], bool)
    if len(hier.nodes) == 1:
        return np.flatnonzero(alive)
    nodes = hier.nodes[1]
    for node in np.flatnonzero(np.bincount(nodes) > 1):
        members = np.flatnonzero(nodes == node)
        leaving = hier.inside[:, :, members].reshape(-1, len(members))
        unary = problem.unary[:, members]
        worse = _never_better(unary.T) & _never_better(leaving.T)
        rows, columns = hier.row_class[members], hier.column_class[members]
        worse &= (rows[:, None] == rows) & (columns[:, None] == columns)
        alive[members[~_remove_dominated(worse, unary)]] = False
    return np.flatnonzero(alive)


def _remove_dominated(worse: Flags, unary: Floats) -> Flags:
    """Return which rows are left when dominated ones go one by one, the dearest first."""
    alive = np.ones(len(worse), bool)
    np.fill_diagonal(worse, False)
    for b in np.argsort(-np.where(np.isfinite(unary), unary, 1e300).mean(0), kind="stable"):
        if (worse[:, b] & alive).any():
            alive[b] = False
    return alive


def _never_better(rows: Floats) -> Flags:
    """Return for rows a and b whether a is nowhere above b."""
    count, width = rows.shape
    result = np.ones((count, count), bool)
    step = max(1, _CELLS // max(count * count, 1))
    for start in range(0, width, step):
        part = rows[:, start : start + step]
        result &= (part[:, None, :] <= part[None, :, :]).all(2)
    return result


def _moves_no_better(tables: Floats) -> Flags:
    count = tables.shape[1]
    result = np.ones((count, count), bool)
    index = np.arange(count)
    for table in tables:
        own = np.diag(table)
        result &= (own[:, None] <= own[None, :]) & (own[:, None] <= table)
        result &= own[:, None] <= table.T
        # Pairs (a, k) and (b, k) with k of {a, b} are the cases above, not this one.
        for rows in (table, table.T):
            bad = np.empty((count, count), np.int64)
            for a in index:
                bad[a] = (rows[a][None, :] > rows).sum(1)
            bad -= (own[:, None] > rows.T).astype(np.int64)  # k = a: own(a) > rows[b, a]
            bad -= (rows > own[None, :]).astype(np.int64)  # k = b: rows[a, b] > own(b)
            np.fill_diagonal(bad, 0)
            result &= bad == 0
    return result


# -- The exact minimum of a sum over tasks and edges, with no solver and no bound -----------------
#
# Bucket elimination (Dechter, Artificial Intelligence 113, 1999): take one task away at a time,
# leaving in its place the least it can add for every choice of its neighbours. Exponential only
# in the width of the order, so chains, trees and fork-joins of any length are quick. It is the
# referee of the other ways in tests, and finishes what the bounds leave open.


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
