"""A bound on the cost of plans under a deadline, from messages over labels and times.

A state of a task is one of its labels and the step of time in which it ends. Durations are rounded
down to whole steps, so that every plan within the deadline is a plan of the states, and the least
cost over states is a bound. Sequential tree-reweighted message passing (Kolmogorov, IEEE PAMI
28(10), 2006) bounds that cost, as `dual_bound` does without times. A relaxed model mixes a fast
and a cheap label; states do not, and their bound is the higher one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.optimizer.solver.hierarchy import Hierarchy, find_hierarchy
from jupyter_sky.optimizer.solver.longest_paths import PathBounds, TimedPlan
from jupyter_sky.optimizer.solver.model import transfer_amounts
from jupyter_sky.optimizer.solver.problem import Floats, Ints, Problem

_MARGIN = 1e-9  # of a step, so that rounding errors never make a duration longer
_LATE_USD = 1e12  # what a label counts for that cannot keep the deadline


@dataclass(frozen=True, eq=False)
class _TaskStates:
    """Labels of a task in the order of their places.

    Attributes
    ----------
    place : int array
        Of each label.
    used, starts : int array
        Each place once, and the first label of it.
    run : int array
        Steps that each label runs.
    unary : float array, labels x steps
        USD; ``inf`` where the label cannot end in that step.
    """

    labels: Ints
    place: Ints
    used: Ints
    starts: Ints
    run: Ints
    unary: Floats


@dataclass(frozen=True, eq=False)
class _Move:
    """USD and steps of an edge, by level and place, and by the classes above all levels."""

    usd: Floats
    steps: Ints
    usd_across: Floats
    steps_across: Ints


class _Groups:
    """Groups of places, and the least of the rows of each."""

    def __init__(self, groups: Ints) -> None:
        self.groups, self.order = groups, np.argsort(groups, kind="stable")
        ordered = groups[self.order]
        self.starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])

    def minimum(self, values: Floats) -> Floats:
        """Return the least of the rows of each group."""
        return np.minimum.reduceat(values[self.order], self.starts, axis=0)

    def spread(self, values: Floats) -> Floats:
        """Return for each row the least of its group."""
        return self.minimum(values)[self.groups]


class TimeExpandedBound:
    """Messages between tasks over labels and steps of time.

    Parameters
    ----------
    kept : sequence of int array
        Labels of each task.
    paths : PathBounds
        Of these labels or of more.
    deadline : float
        Most hours of a plan.
    steps : int
        How many steps the deadline is divided into.
    tables : Hierarchy, optional
        Structure of the USD of all transfer tables, then of their hours.

    Attributes
    ----------
    bound : float
        No plan within the deadline costs less, USD; ``inf`` when there is none.
    """

    def __init__(
        self,
        problem: Problem,
        kept: Sequence[Ints],
        paths: PathBounds,
        deadline: float,
        steps: int,
        tables: Hierarchy | None = None,
    ) -> None:
        self.problem, self.paths, self.deadline, self.steps = problem, paths, deadline, steps
        self.tables = tables = tables or _find_tables(problem)
        self.groups = [_Groups(nodes) for nodes in tables.nodes[1:]]
        self.rows, self.columns = _Groups(tables.row_class), _Groups(tables.column_class)
        self.step_hours = deadline / steps
        self.states = [self._make_states(v, labels) for v, labels in enumerate(kept)]
        edges = problem.edges
        self.src, self.dst = edges.src.tolist(), edges.dst.tolist()
        self.plan = TimedPlan(problem, [one.labels for one in self.states])
        count = len(problem.tasks)
        self.into_edges = self.plan.edges_into
        self.out_edges: list[list[int]] = [[] for _ in range(count)]
        for e, u in enumerate(self.src):
            self.out_edges[u].append(e)
        sizes = [(len(a), len(b)) for a, b in zip(self.into_edges, self.out_edges, strict=True)]
        self.share = [1.0 / max(*pair, 1) for pair in sizes]
        self.edge_share = [1.0 / max(sum(pair), 1) for pair in sizes]
        self.moves = [self._make_move(e) for e in range(len(edges))]
        self.into = [np.zeros_like(self.states[v].unary) for v in self.dst]
        self.back = [np.zeros_like(self.states[u].unary) for u in self.src]
        self.bound = -np.inf

    def _make_states(self, v: int, labels: Ints) -> _TaskStates:
        task, paths = self.problem.tasks[v], self.paths
        labels = labels[np.argsort(task.place[labels], kind="stable")]
        place, hours = task.place[labels], task.hours[labels]
        used, starts = np.unique(place, return_index=True)
        start = np.maximum(task.ready_hours[labels], paths.arrival[v, place])
        early = self._round_down(start + hours)
        late = (self.deadline - paths.after[v, place]) / self.step_hours + _MARGIN
        times = np.arange(self.steps)
        open_ = (times >= early[:, None]) & (times <= late[:, None])
        unary = np.where(open_, task.usd[labels][:, None], np.inf)
        return _TaskStates(labels, place, used, starts, self._round_down(hours), unary)

    def _make_move(self, e: int) -> _Move:
        """Return USD and steps of an edge: to leave a node of each level, and across classes."""
        edges, shape = self.problem.edges, self.tables
        k, scale = int(edges.table[e]), float(edges.scale[e])
        count = len(self.problem.tables)
        across = np.where(np.isfinite(shape.across), shape.across, 0.0)
        return _Move(
            scale * shape.inside[k],
            self._round_down(scale * shape.inside[count + k]),
            np.where(np.isfinite(shape.across[k]), scale * across[k], np.inf),
            self._round_down(scale * across[count + k]),
        )

    def _round_down(self, hours: Floats) -> Ints:
        steps = np.floor(hours / self.step_hours - _MARGIN)
        return np.clip(steps, 0, self.steps).astype(np.int64)

    def refine(self, kept: Sequence[Ints], steps: int) -> TimeExpandedBound:
        """Return the bound over some of the labels and a multiple of the steps."""
        finer = TimeExpandedBound(self.problem, kept, self.paths, self.deadline, steps, self.tables)
        times = steps // self.steps
        rows = [
            np.flatnonzero(np.isin(old.labels, new.labels))
            for old, new in zip(self.states, finer.states, strict=True)
        ]
        for e, (u, v) in enumerate(zip(self.src, self.dst, strict=True)):
            finer.into[e] = np.repeat(self.into[e][rows[v]], times, axis=1)
            finer.back[e] = np.repeat(self.back[e][rows[u]], times, axis=1)
        finer.bound = self.bound
        return finer

    def sweep(self) -> tuple[int, ...]:
        """Pass messages to the sinks and back; return the plan that they lead to."""
        for v in self.plan.order:
            self._place(v)
            theta = self.share[v] * self._theta(v)
            for e in self.out_edges[v]:
                message = self._forward(e, _difference(theta, self.back[e]))
                low = message.min()
                if np.isinf(low):
                    self.bound = np.inf
                    return tuple(self.plan.choice)
                self.into[e] = message - low
        total = 0.0
        for v in reversed(self.plan.order):
            theta = self._theta(v)
            least = theta.min()
            total += float(least)
            if np.isinf(total):
                break
            theta = self.share[v] * (theta - least)
            for e in self.into_edges[v]:
                message = self._backward(e, _difference(theta, self.into[e]))
                low = message.min()
                total += float(low)
                self.back[e] = message - (low if np.isfinite(low) else 0.0)
        self.bound = max(self.bound, total)
        return tuple(self.plan.choice)

    def find_rises(self) -> tuple[float, list[Floats]]:
        """Return a bound, and how far each label of each task raises it; see `DualBound`.

        The proof is that of `DualBound.edge_bound`, over labels and times. A label takes the time
        that raises the bound least.
        """
        total, rises = 0.0, [np.zeros_like(one.unary) for one in self.states]
        thetas = [self._theta(v) for v in range(len(self.states))]
        for e, (u, v) in enumerate(zip(self.src, self.dst, strict=True)):
            at_tail = _difference(self.edge_share[u] * thetas[u], self.back[e])
            at_head = _difference(self.edge_share[v] * thetas[v], self.into[e])
            down = at_head + self._forward(e, at_tail)
            up = at_tail + self._backward(e, at_head)
            least = float(down.min())
            total += least
            rises[v] += np.maximum(down - least, 0)
            rises[u] += np.maximum(up - least, 0)
        wide = []
        for v, (one, rise) in enumerate(zip(self.states, rises, strict=True)):
            if not self.into_edges[v] and not self.out_edges[v]:
                total += float(thetas[v].min())
                rise = thetas[v] - thetas[v].min()
            full = np.full(len(self.problem.tasks[v]), np.inf)
            full[one.labels] = rise.min(1)
            wide.append(full)
        return total, wide

    def _theta(self, v: int) -> Floats:
        theta = self.states[v].unary.copy()
        for e in self.into_edges[v]:
            theta += self.into[e]
        for e in self.out_edges[v]:
            theta += self.back[e]
        return theta

    def _place(self, v: int) -> None:
        """Place a task of the plan by its costs and the messages of what follows."""
        one, task = self.states[v], self.problem.tasks[v]
        where = one.place
        ends = self.plan.start(v, task.ready_hours[one.labels], where) + task.hours[one.labels]
        usd = task.usd[one.labels] + self.plan.usd_in(v, where)
        at = np.minimum((ends / self.step_hours).astype(np.int64), self.steps - 1)
        for e in self.out_edges[v]:
            usd = usd + self.back[e][np.arange(len(at)), at]
        timely = ends + self.paths.after[v, where] <= self.deadline
        usd = np.where(timely & np.isfinite(usd), usd, _LATE_USD * (1 + ends))
        self.plan.set_label(v, int(one.labels[usd.argmin()]))

    def _forward(self, e: int, h: Floats) -> Floats:
        """Return the least of h and of the move to each state of the head."""
        tail, head, move = self.states[self.src[e]], self.states[self.dst[e]], self.moves[e]
        best = self._spread(tail, np.minimum.accumulate(h, axis=1))
        came = _delay(best, move.steps[0]) + move.usd[0][:, None]
        for group, steps, usd in zip(self.groups, move.steps[1:], move.usd[1:], strict=True):
            np.minimum(came, group.spread(_delay(best, steps) + usd[:, None]), out=came)
        if move.usd_across.size:
            rows = self.rows.minimum(best)[:, None]
            there = (_delay(rows, move.steps_across) + move.usd_across[:, :, None]).min(0)
            np.minimum(came, there[self.tables.column_class], out=came)
        return _delay(came[head.place], head.run)

    def _backward(self, e: int, h: Floats) -> Floats:
        """Return the least of h and of the move from each state of the tail."""
        tail, head, move = self.states[self.src[e]], self.states[self.dst[e]], self.moves[e]
        best = self._spread(head, _advance(h, head.run))
        best = np.minimum.accumulate(best[:, ::-1], axis=1)[:, ::-1]
        left = _advance(best, move.steps[0]) + move.usd[0][:, None]
        for group, steps, usd in zip(self.groups, move.steps[1:], move.usd[1:], strict=True):
            np.minimum(left, _advance(group.spread(best), steps) + usd[:, None], out=left)
        if move.usd_across.size:
            columns = self.columns.minimum(best)[None]
            there = (_advance(columns, move.steps_across) + move.usd_across[:, :, None]).min(1)
            np.minimum(left, there[self.tables.row_class], out=left)
        return left[tail.place]

    def _spread(self, one: _TaskStates, values: Floats) -> Floats:
        """Return the least over the labels of each place; ``inf`` where there is none."""
        wide = np.full((len(self.problem.places), self.steps), np.inf)
        wide[one.used] = np.minimum.reduceat(values, one.starts, axis=0)
        return wide


def _find_tables(problem: Problem) -> Hierarchy:
    amounts = [
        transfer_amounts(problem, k, kind)
        for kind in ("usd", "hours")
        for k in range(len(problem.tables))
    ] or [np.zeros((len(problem.places),) * 2)] * 2
    finite = [np.where(np.isfinite(one), one, _LATE_USD) for one in amounts]
    return find_hierarchy(finite, problem.places.levels)


def _difference(theta: Floats, message: Floats) -> Floats:
    """Return theta without a message that is part of it; ``inf`` stays."""
    possible = np.isfinite(theta)
    return np.where(possible, theta - np.where(possible, message, 0.0), np.inf)


def _delay(values: Floats, steps: Ints) -> Floats:
    """Return rows moved to later times; `steps` has a number for each row, or for several."""
    count = values.shape[-1]
    return _windows(np.full_like(values, np.inf), values, count - steps)


def _advance(values: Floats, steps: Ints) -> Floats:
    """Return rows moved to earlier times; `steps` has a number for each row, or for several."""
    return _windows(values, np.full_like(values, np.inf), steps)


def _windows(first: Floats, second: Floats, start: Ints) -> Floats:
    """Return of each row, followed by its row of `second`, as many values from `start` on."""
    wide = np.concatenate([first, second], axis=-1)
    *shape, count = first.shape
    *strides, step = wide.strides
    # a view made by hand: `sliding_window_view` takes as long as the copy itself
    view = np.ndarray((*shape, count + 1, count), wide.dtype, wide, 0, (*strides, step, step))
    return view[(*np.ogrid[tuple(slice(size) for size in shape)], start)]
