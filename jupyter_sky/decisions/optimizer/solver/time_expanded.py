"""A bound on the cost of plans under a deadline, from messages over labels and times.

A state of a task is one of its labels and the step of time in which it starts. From one start to
the next, run and transfer together are rounded down to whole steps, so that every plan within the
deadline is a plan of the states, and the least cost over states is a bound. Sequential
tree-reweighted message passing (Kolmogorov, IEEE PAMI 28(10), 2006) bounds that cost, as
`dual_bound` does without times. A relaxed model mixes a fast and a cheap label; states do not, and
their bound is the higher one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy, find_hierarchy
from jupyter_sky.decisions.optimizer.solver.longest_paths import PathBounds, TimedPlan
from jupyter_sky.decisions.optimizer.solver.model import transfer_amounts
from jupyter_sky.decisions.optimizer.solver.pareto import starts_of
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints, Problem

_MARGIN = 1e-9  # of a step, so that rounding errors never make a duration longer
_LATE_USD = 1e12  # what a label counts for that cannot keep the deadline


@dataclass(frozen=True, eq=False)
class _TaskStates:
    """Labels of a task in the order of their places, and the steps in which it can start.

    Attributes
    ----------
    used : int array
        Each place once.
    row : int array
        Index into `used` of each label.
    to_places : Ways
        From labels to their places.
    first : int
        Step of the first column.
    unary : float array, labels x steps
        USD; ``inf`` where the label cannot start in that step.
    """

    labels: Ints
    used: Ints
    row: Ints
    to_places: Ways
    first: int
    unary: Floats


@dataclass(frozen=True, eq=False)
class _Move:
    """An edge: ways from labels of its tail to groups of places, and back."""

    there: Ways
    back: Ways
    groups_of_place: Ways
    places_of_group: Ways


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
    coarser : TimeExpandedBound, optional
        Bound over fewer steps, of which these are parts: states that it closed stay closed.

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
        coarser: TimeExpandedBound | None = None,
    ) -> None:
        self.problem, self.paths, self.deadline, self.steps = problem, paths, deadline, steps
        self.tables = coarser.tables if coarser else _find_tables(problem)
        self.step_hours = deadline / steps
        self.states = [self._make_states(v, labels, coarser) for v, labels in enumerate(kept)]
        self.rises = [np.zeros_like(one.unary) for one in self.states]
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
        heads = [self.states[v] for v in self.dst]
        self.into = [np.zeros((len(one.used), one.unary.shape[1])) for one in heads]
        self.back = [np.zeros_like(self.states[u].unary) for u in self.src]
        self.bound = -np.inf

    def _make_states(self, v: int, labels: Ints, coarser: TimeExpandedBound | None) -> _TaskStates:
        task, paths = self.problem.tasks[v], self.paths
        labels = labels[np.argsort(task.place[labels], kind="stable")]
        place, hours = task.place[labels], task.hours[labels]
        used, row = np.unique(place, return_inverse=True)
        early = self._round_down(np.maximum(task.ready_hours[labels], paths.arrival[v, place]))
        late = (self.deadline - paths.after[v, place] - hours) / self.step_hours + _MARGIN
        late = np.floor(late).astype(np.int64)
        first = min(early.min(initial=self.steps), self.steps - 1)
        times = np.arange(first, max(late.max(initial=0), first) + 1)
        open_ = (times >= early[:, None]) & (times <= late[:, None])
        if coarser is not None:
            open_ &= coarser.find_open(v, labels, times, self.steps)
            ends = np.flatnonzero(open_.any(0))
            window = slice(ends[0], ends[-1] + 1) if len(ends) else slice(1)
            first, times, open_ = (
                first + window.start if len(ends) else first,
                times[window],
                open_[:, window],
            )
        unary = np.where(open_, task.usd[labels][:, None], np.inf)
        to_places = make_ways(np.arange(len(row)), row, (len(used), len(times)))
        return _TaskStates(labels, used, row, to_places, int(first), unary)

    def _make_move(self, e: int) -> _Move:
        """Return the ways along an edge, by level of separation and by the classes above."""
        tail, head = self.states[self.src[e]], self.states[self.dst[e]]
        shape, k, tables = self.tables, int(self.problem.edges.table[e]), len(self.problem.tables)
        place, before, count = tail.used[tail.row], 0, 0
        found: list[tuple] = []  # labels, groups, USD, h
        pairs: list[tuple[Ints, Ints]] = []  # places, groups
        for level, nodes in enumerate(shape.nodes):
            known, member = np.unique(nodes[head.used], return_inverse=True)
            group = np.minimum(np.searchsorted(known, nodes[place]), len(known) - 1)
            size = np.where(known[group] == nodes[place], np.bincount(member)[group], 0)
            rows = np.flatnonzero(size > before)  # others lead nowhere that a finer level does not
            usd, hours = (shape.inside[n, level, place[rows]] for n in (k, tables + k))
            found.append((rows, count + group[rows], usd, hours))
            pairs.append((np.arange(len(member)), count + member))
            before, count = size, count + len(known)
        if shape.across[0].size:
            known, member = np.unique(shape.column_class[head.used], return_inverse=True)
            usd, hours = (
                shape.across[n][np.ix_(shape.row_class[place], known)] for n in (k, tables + k)
            )
            rows, group = np.nonzero(np.isfinite(usd))
            found.append((rows, count + group, usd[rows, group], hours[rows, group]))
            pairs.append((np.arange(len(member)), count + member))
            count += len(known)
        label, group, usd, hours = (np.concatenate(part) for part in zip(*found, strict=True))
        scale, run = float(self.problem.edges.scale[e]), self._hours(self.src[e])[label]
        steps = self._round_down(run + scale * hours)
        at, group_at = (np.concatenate(part) for part in zip(*pairs, strict=True))
        ahead, widths = tail.first - head.first, (tail.unary.shape[1], head.unary.shape[1])
        ends = widths[0] + widths[1]
        there = np.clip(widths[1] - ahead - steps, 0, ends)
        back = np.clip(widths[0] + ahead + steps, 0, ends)
        return _Move(
            make_ways(label, group, (count, widths[1]), scale * usd, there),
            make_ways(group, label, (len(place), widths[0]), scale * usd, back),
            make_ways(group_at, at, (len(head.used), widths[1])),
            make_ways(at, group_at, (count, widths[1])),
        )

    def _hours(self, v: int) -> Floats:
        return self.problem.tasks[v].hours[self.states[v].labels]

    def _round_down(self, hours: Floats) -> Ints:
        steps = np.floor(hours / self.step_hours - _MARGIN)
        return np.clip(steps, 0, self.steps).astype(np.int64)

    def close_states(self, limit: float, low: float) -> None:
        """Close states that raise the bound `low` of `find_rises` above a limit, USD."""
        for one, rise in zip(self.states, self.rises, strict=True):
            one.unary[low + rise > limit] = np.inf

    def refine(self, kept: Sequence[Ints], steps: int) -> TimeExpandedBound:
        """Return the bound over some of the labels and a multiple of the steps."""
        finer = TimeExpandedBound(self.problem, kept, self.paths, self.deadline, steps, self)
        for e, (u, v) in enumerate(zip(self.src, self.dst, strict=True)):
            head, tail = (
                self._columns(w, finer.states[w].first, finer.states[w].unary.shape[1], steps)
                for w in (v, u)
            )
            places = np.searchsorted(self.states[v].used, finer.states[v].used)
            labels = self._rows(u, finer.states[u].labels)
            finer.into[e] = self.into[e][np.ix_(places, head)]
            finer.back[e] = self.back[e][np.ix_(labels, tail)]
        finer.bound = self.bound
        return finer

    def find_open(self, v: int, labels: Ints, times: Ints, steps: int) -> Flags:
        """Return whether labels may start in steps of a finer bound."""
        columns = self._columns(v, int(times[0]), len(times), steps)
        return np.isfinite(self.states[v].unary[np.ix_(self._rows(v, labels), columns)])

    def _rows(self, v: int, labels: Ints) -> Ints:
        """Return the rows of labels, which are sorted by place."""
        known = self.states[v].labels
        order = np.argsort(known)
        return order[np.searchsorted(known, labels, sorter=order)]

    def _columns(self, v: int, first: int, count: int, steps: int) -> Ints:
        """Return for steps of a finer bound the columns of the steps that they are parts of."""
        one = self.states[v]
        times = (first + np.arange(count)) * self.steps // steps
        return np.clip(times - one.first, 0, one.unary.shape[1] - 1)

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
                message = self._backward(e, _difference(theta, self._at_labels(e)))
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
        self.rises = rises
        thetas = [self._theta(v) for v in range(len(self.states))]
        for e, (u, v) in enumerate(zip(self.src, self.dst, strict=True)):
            at_tail = _difference(self.edge_share[u] * thetas[u], self.back[e])
            at_head = _difference(self.edge_share[v] * thetas[v], self._at_labels(e))
            down = at_head + self._forward(e, at_tail)[self.states[v].row]
            up = at_tail + self._backward(e, at_head)
            least = float(down.min())
            total += least
            rises[v] += np.maximum(down - least, 0)
            rises[u] += np.maximum(up - least, 0)
        wide = []
        for v, (one, rise) in enumerate(zip(self.states, rises, strict=True)):
            if not self.into_edges[v] and not self.out_edges[v]:
                total += float(thetas[v].min())
                rise = rises[v] = thetas[v] - thetas[v].min()
            full = np.full(len(self.problem.tasks[v]), np.inf)
            full[one.labels] = rise.min(1)
            wide.append(full)
        return total, wide

    def _theta(self, v: int) -> Floats:
        theta = self.states[v].unary.copy()
        for e in self.into_edges[v]:
            theta += self._at_labels(e)
        for e in self.out_edges[v]:
            theta += self.back[e]
        return theta

    def _at_labels(self, e: int) -> Floats:
        """Return the message to the head of an edge, for each of its labels."""
        return self.into[e][self.states[self.dst[e]].row]

    def _place(self, v: int) -> None:
        """Place a task of the plan by its costs and the messages of what follows."""
        one, task = self.states[v], self.problem.tasks[v]
        where = one.used[one.row]
        begin = self.plan.start(v, task.ready_hours[one.labels], where)
        ends = begin + task.hours[one.labels]
        usd = task.usd[one.labels] + self.plan.usd_in(v, where)
        at = (begin / self.step_hours).astype(np.int64) - one.first
        at = np.clip(at, 0, one.unary.shape[1] - 1)
        for e in self.out_edges[v]:
            usd = usd + self.back[e][np.arange(len(at)), at]
        timely = ends + self.paths.after[v, where] <= self.deadline
        usd = np.where(timely & np.isfinite(usd), usd, _LATE_USD * (1 + ends))
        self.plan.set_label(v, int(one.labels[usd.argmin()]))

    def _forward(self, e: int, h: Floats) -> Floats:
        """Return the least of h and of the move to each place and step of the head."""
        move, width = self.moves[e], self.states[self.dst[e]].unary.shape[1]
        best = np.empty((len(h), h.shape[1] + 2 * width))
        best[:, :width] = np.inf
        np.minimum.accumulate(h, axis=1, out=best[:, width:-width])
        best[:, -width:] = best[:, [-width - 1]]
        return move.groups_of_place.lead(move.there.lead(best))

    def _backward(self, e: int, h: Floats) -> Floats:
        """Return the least of h and of the move from each state of the tail."""
        head, move = self.states[self.dst[e]], self.moves[e]
        width, steps = self.states[self.src[e]].unary.shape[1], h.shape[1]
        least = head.to_places.lead(h)
        np.minimum.accumulate(least[:, ::-1], axis=1, out=least[:, ::-1])
        least = move.places_of_group.lead(least)
        best = np.empty((len(least), steps + 2 * width))
        best[:, width : width + steps] = least
        best[:, :width], best[:, width + steps :] = least[:, :1], np.inf
        return move.back.lead(best)


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


# -- Least of rows of values over steps of time, shifted in time, by the rows that they lead ------

_SIZES = np.unique([k << n for k in (2, 3) for n in range(24)] + [1])  # of bundles of ways


@dataclass(frozen=True, eq=False)
class Bundle:
    """Rows that equally many ways lead to.

    Attributes
    ----------
    target : int array
    source, shift : int arrays, targets x ways
        Row that each way leaves, and which column of the padded values is its first.
    usd : float array, targets x ways x 1
    """

    target: Ints
    source: Ints
    shift: Ints
    usd: Floats


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways from rows of values at some steps to `count` rows of `width` steps."""

    bundles: tuple[Bundle, ...]
    count: int
    width: int

    def lead(self, padded: Floats) -> Floats:
        """Return for each row the least that ways bring to it; ``inf`` where none does."""
        # a view made by hand: `sliding_window_view` takes as long as the copy itself
        rows, columns = padded.shape
        shape, (far, near) = (rows, columns - self.width + 1, self.width), padded.strides
        view = np.ndarray(shape, padded.dtype, padded, 0, (far, near, near))
        least = np.full((self.count, self.width), np.inf)
        for one in self.bundles:
            came = view[one.source, one.shift]
            came += one.usd
            least[one.target] = came.min(axis=1)
        return least


def make_ways(
    source: Ints,
    target: Ints,
    shape: tuple[int, int],
    usd: Floats | None = None,
    shift: Ints | None = None,
) -> Ways:
    """Return ways bundled by how many lead to a row: numpy is slow at groups of unequal sizes."""
    order = np.argsort(target, kind="stable")
    starts = starts_of(target[order])
    counts = np.diff(np.r_[starts, len(order)])
    sizes = _SIZES[np.searchsorted(_SIZES, counts)]
    usd = np.zeros(len(order)) if usd is None else usd
    shift = np.zeros(len(order), np.int64) if shift is None else shift
    bundles = []
    for size in np.unique(sizes):
        here = sizes == size
        # a way that is there twice changes nothing
        ways = starts[here, None] + np.minimum(np.arange(size), counts[here, None] - 1)
        ways = order[ways]
        bundles.append(Bundle(target[ways[:, 0]], source[ways], shift[ways], usd[ways][:, :, None]))
    return Ways(tuple(bundles), *shape)
