"""A lower bound on a sum over tasks and edges by passing messages, and what it proves.

Sequential tree-reweighted message passing (Kolmogorov, IEEE PAMI 28(10), 2006) over the task
graph taken level by level: no edge lies inside a level, so a level is one batch. The messages
are a certificate: `edge_bound` computes the bound from them anew and trusts no sweep.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import AdditiveProblem
from jupyter_sky.decisions.optimizer.solver.pareto import starts_of
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints
from jupyter_sky.decisions.optimizer.solver.validation import sort_edges


@dataclass(frozen=True, eq=False)
class TaskLevel:
    """The tasks of one level, and the edges that enter and leave them, grouped by task."""

    tasks: Ints
    entering: Ints
    entered: Ints  # position of the task among `tasks` for each group of entering edges
    entering_starts: Ints
    leaving: Ints
    left: Ints
    leaving_starts: Ints


def make_task_levels(count: int, src: Ints, dst: Ints) -> list[TaskLevel]:
    """Return tasks by the longest path that leads to them."""
    level = np.zeros(count, np.int64)
    for u, v in sort_edges(count, src, dst):
        level[v] = max(level[v], level[u] + 1)
    tasks_by_level = np.argsort(level, kind="stable")
    into, out = (np.lexsort((end, level[end])) for end in (dst, src))
    marks = np.arange(level.max(initial=0) + 2)
    at = np.searchsorted(level[tasks_by_level], marks)
    into_at = np.searchsorted(level[dst][into], marks)
    out_at = np.searchsorted(level[src][out], marks)
    made = []
    for k in range(len(marks) - 1):
        tasks = tasks_by_level[at[k] : at[k + 1]]
        entering, leaving = into[into_at[k] : into_at[k + 1]], out[out_at[k] : out_at[k + 1]]
        made.append(
            TaskLevel(
                tasks,
                entering,
                *_groups(tasks, dst[entering]),
                leaving,
                *_groups(tasks, src[leaving]),
            )
        )
    return made


def _groups(tasks: Ints, ends: Ints) -> tuple[Ints, Ints]:
    starts = starts_of(ends)
    return np.searchsorted(tasks, ends[starts]), starts


class DualBound:
    """Messages of one additive problem, improved sweep by sweep.

    Attributes
    ----------
    into, back : float array, m x P
        Messages along each edge to its head and to its tail.
    bound : float
        Highest lower bound so far.
    best : float
        Value of the best plan so far, at places `x`.
    """

    def __init__(
        self, problem: AdditiveProblem, messages: tuple[Floats, Floats] | None = None
    ) -> None:
        self.problem = problem
        n, places = problem.unary.shape
        m = len(problem.src)
        self.into, self.back = messages or (np.zeros((m, places)), np.zeros((m, places)))
        self.batches = make_task_levels(n, problem.src, problem.dst)
        indegree = np.bincount(problem.dst, minlength=n)
        outdegree = np.bincount(problem.src, minlength=n)
        self.share = 1.0 / np.maximum(np.maximum(indegree, outdegree), 1)
        self.edge_share = 1.0 / np.maximum(indegree + outdegree, 1)
        self.isolated = np.flatnonzero(indegree + outdegree == 0)
        self.bound, self.best, self.x = -np.inf, np.inf, np.zeros(n, np.int64)

    def sweep(self) -> None:
        """Pass messages to the sinks, which also finds a plan, and back, which bounds."""
        self._pass_forward()
        self._pass_backward()

    def try_plan(self, x: Ints) -> None:
        """Take a plan when it is better than the best."""
        value = self.problem.value(x)
        if value < self.best:
            self.best, self.x = value, x.copy()

    def try_one_place(self) -> None:
        """Try the plan that has all tasks at one place: the best start where transfers are dear."""
        p = self.problem
        moved = np.bincount(p.table, p.scale, minlength=len(p.hier.tables))
        totals = p.unary.sum(0) + moved @ p.hier.inside[:, 0]
        self.try_plan(np.full(len(self.x), totals.argmin()))

    def _theta(self, batch: TaskLevel) -> Floats:
        theta = self.problem.unary[batch.tasks].copy()
        if len(batch.entering):
            theta[batch.entered] += np.add.reduceat(
                self.into[batch.entering], batch.entering_starts, axis=0
            )
        if len(batch.leaving):
            theta[batch.left] += np.add.reduceat(
                self.back[batch.leaving], batch.leaving_starts, axis=0
            )
        return theta

    def _place_costs(self, batch: TaskLevel, x: np.ndarray) -> Floats:
        """Return the cost of each place for the tasks of a level, with transfers from others."""
        p, e = self.problem, batch.entering
        costs = p.unary[batch.tasks].copy()
        if len(e):
            moved = p.hier.tables[p.table[e], x[p.src[e]]] * p.scale[e, None]
            costs[batch.entered] += np.add.reduceat(moved, batch.entering_starts, axis=0)
        return costs

    def _pass_forward(self) -> None:
        p, x = self.problem, np.zeros(len(self.problem.unary), np.int64)
        for batch in self.batches:
            guess = self._place_costs(batch, x)
            if len(batch.leaving):
                e = batch.leaving
                guess[batch.left] += np.add.reduceat(self.back[e], batch.leaving_starts, axis=0)
            x[batch.tasks] = guess.argmin(1)
            if len(batch.leaving):
                e = batch.leaving
                theta = self._theta(batch) * self.share[batch.tasks, None]
                h = theta[self._rows(batch)] - self.back[e]
                new = p.hier.forward(h, p.scale[e], p.table[e])
                self.into[e] = new - new.min(1, keepdims=True)
        self.try_plan(x)

    def _rows(self, batch: TaskLevel) -> Ints:
        sizes = np.diff(np.r_[batch.leaving_starts, len(batch.leaving)])
        return np.repeat(batch.left, sizes)

    def _pass_backward(self) -> None:
        p, total = self.problem, 0.0
        for batch in reversed(self.batches):
            theta = self._theta(batch)
            least = theta.min(1, keepdims=True)
            total += float(least.sum())
            if not len(batch.entering):
                continue
            theta -= least
            e = batch.entering
            sizes = np.diff(np.r_[batch.entering_starts, len(e)])
            rows = np.repeat(batch.entered, sizes)
            h = theta[rows] * self.share[p.dst[e], None] - self.into[e]
            new = p.hier.backward(h, p.scale[e], p.table[e])
            low = new.min(1, keepdims=True)
            total += float(low.sum())
            self.back[e] = new - low
        self.bound = max(self.bound, total)

    def edge_bound(self) -> tuple[float, Floats]:
        """Return a bound from the messages alone, and its rise for each task and place.

        Each task's own costs, with all its messages, are shared out evenly over its edges; the
        least of every edge's small problem then adds up to a bound.

        *Proof:* for any messages the shares add up to the whole sum at every plan, so the sum of
        the least values is below every plan. A plan with task v at place k pays, on every edge at
        v, at least that edge's least value with v at k; the other edges pay at least their least.
        So bound + rise[v, k] is below every plan that has v at k, and k can go when that is above
        the value of a plan at hand.
        """
        p = self.problem
        theta = p.unary.copy()
        np.add.at(theta, p.dst, self.into)
        np.add.at(theta, p.src, self.back)
        rise = np.zeros_like(theta)
        total = 0.0
        if len(p.src):
            shared = theta * self.edge_share[:, None]
            at_src, at_dst = shared[p.src] - self.back, shared[p.dst] - self.into
            down = at_dst + p.hier.forward(at_src, p.scale, p.table)
            up = at_src + p.hier.backward(at_dst, p.scale, p.table)
            least = down.min(1, keepdims=True)
            total = float(least.sum())
            np.add.at(rise, p.dst, np.maximum(down - least, 0))
            np.add.at(rise, p.src, np.maximum(up - least, 0))
        alone = p.unary[self.isolated]
        least = alone.min(1, keepdims=True)
        rise[self.isolated] = alone - least
        return total + float(least.sum()), rise

    def find_removable(self, margin: float, above: float | None = None) -> Flags:
        """Return pairs of task and place that no plan better than `above` - margin uses."""
        low, rise = self.edge_bound()
        self.bound = max(self.bound, low)
        limit = self.best if above is None else above
        gone = low + rise > limit + margin
        # A plan at hand stays, whatever rounding says.
        gone[np.arange(len(gone)), self.x] &= above is not None
        return gone

    def descend(self) -> None:
        """Move single tasks to better places until none is left to move."""
        p = self.problem
        x = self.x.copy()
        current = self.best
        for _ in range(20):
            for batch in self.batches:
                costs = self._place_costs(batch, x)
                if len(batch.leaving):
                    e = batch.leaving
                    moved = p.hier.tables[p.table[e], :, x[p.dst[e]]] * p.scale[e, None]
                    costs[batch.left] += np.add.reduceat(moved, batch.leaving_starts, axis=0)
                x[batch.tasks] = costs.argmin(1)
            value = p.value(x)
            if not value < current:
                break
            current = value
        self.try_plan(x)
