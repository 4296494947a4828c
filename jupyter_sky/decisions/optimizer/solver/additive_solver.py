"""The cheapest plan of a sum over tasks and edges: bound, reduce, finish exactly.

Bounds come from messages (`dual_bound`), plans from decoding and descent; what the two leave open
goes to elimination when that is small, and to the model of record otherwise.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import TIE, AdditiveProblem
from jupyter_sky.decisions.optimizer.solver.dominance import find_undominated
from jupyter_sky.decisions.optimizer.solver.dual_bound import DualBound
from jupyter_sky.decisions.optimizer.solver.elimination import (
    EliminationOrder,
    eliminate,
    elimination_order,
)
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
