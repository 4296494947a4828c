"""Longest paths: how early a task can end at a place, and how late it may.

A dynamic program over the graph gives a bound on the makespan (eqs. 2 and 3 of the SkyPilot
paper, NSDI 2023), the labels that no plan within a deadline can use, and good fast plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.decisions.optimizer.solver.dual_bound import make_task_levels
from jupyter_sky.decisions.optimizer.solver.hierarchy import Hierarchy, find_hierarchy
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints, Problem


@dataclass(frozen=True, eq=False)
class PathBounds:
    """Bounds on the time before and after each task at each place.

    Attributes
    ----------
    arrival : float array, n x P
        No plan has all inputs of task v at place l earlier, h.
    after : float array, n x P
        No plan ends earlier than so long after v has ended at l, h.
    bound : float
        No plan is faster, h; ``inf`` where some task has no label.
    """

    arrival: Floats
    after: Floats
    bound: float


def find_least_hours(problem: Problem, kept: Sequence[Ints]) -> tuple[Floats, Floats]:
    """Return least run time and least delay of stores for each task and place, h."""
    hours = np.full((len(problem.tasks), len(problem.places)), np.inf)
    ready = np.full_like(hours, np.inf)
    for v, (task, labels) in enumerate(zip(problem.tasks, kept, strict=True)):
        np.minimum.at(hours[v], task.place[labels], task.hours[labels])
        np.minimum.at(ready[v], task.place[labels], task.ready_hours[labels])
    return hours, np.where(np.isfinite(ready), ready, 0.0)


def build_hour_tables(problem: Problem) -> Hierarchy:
    """Return structure of the hours that transfers take; what cannot be is longer than any plan."""
    made = [table.hours for table in problem.tables] or [np.zeros((len(problem.places),) * 2)]
    return find_hierarchy(
        [np.where(np.isfinite(one), one, 1e9) for one in made], problem.places.levels
    )


def bound_paths(
    problem: Problem, kept: Sequence[Ints], tables: Hierarchy | None = None
) -> PathBounds:
    """Return bounds by a dynamic program from the sources and one from the sinks.

    *Proof:* copy every ancestor so that each task has its own, which makes the graph a tree; let
    copies choose differently. Every plan is a choice of the copies, so the best choice is not
    slower than the best plan, and on a tree the recursion

        F_v(l) = t_v(l) + max(r_v(l), max over u -> v of min over i of F_u(i) + P(i, l))

    is exact, tails likewise. A path through v at l takes at least F_v(l) and the tail after it, so
    a label for which that is above a deadline is in no plan that keeps it.

    Examples
    --------
    >>> from jupyter_sky.decisions.optimizer.solver.problem import Places, Problem
    >>> from jupyter_sky.decisions.optimizer.solver.problem import make_edges, make_task_labels
    >>> work = (make_task_labels("u", [0, 1], 0, [3, 1]), make_task_labels("v", [0], 0, [1]))
    >>> problem = Problem(Places(("a", "b")), work, make_edges([]))
    >>> bound_paths(problem, [np.arange(2), np.arange(1)]).bound
    1.0
    """
    tables = tables or build_hour_tables(problem)
    edges, count = problem.edges, len(problem.tasks)
    hours, ready = find_least_hours(problem, kept)
    order = make_task_levels(count, edges.src, edges.dst)
    arrival, after = np.zeros_like(hours), np.zeros_like(hours)
    head = np.empty_like(hours)
    for batch in order:
        if len(batch.entering):
            e = batch.entering
            came = tables.forward(head[edges.src[e]], edges.scale[e], edges.table[e])
            latest = np.maximum.reduceat(came, batch.entering_starts, axis=0)
            arrival[batch.tasks[batch.entered]] = latest
        v = batch.tasks
        head[v] = hours[v] + np.maximum(ready[v], arrival[v])
    tail = np.empty_like(hours)
    for batch in reversed(order):
        if len(batch.leaving):
            e = batch.leaving
            left = tables.backward(tail[edges.dst[e]], edges.scale[e], edges.table[e])
            after[batch.tasks[batch.left]] = np.maximum.reduceat(left, batch.leaving_starts, axis=0)
        tail[batch.tasks] = hours[batch.tasks] + after[batch.tasks]
    bound = float((head + after).min(1).max(initial=0.0)) if count else 0.0
    return PathBounds(arrival, after, bound)


def find_labels_in_time(
    problem: Problem, kept: Sequence[Ints], known: PathBounds, deadline: float
) -> list[Ints]:
    """Return labels that a plan within the deadline (h) may use; `bound_paths` has the proof."""
    left = []
    for v, (task, labels) in enumerate(zip(problem.tasks, kept, strict=True)):
        place = task.place[labels]
        start = np.maximum(task.ready_hours[labels], known.arrival[v, place])
        left.append(labels[start + task.hours[labels] + known.after[v, place] <= deadline])
    return left


def make_fast_plan(
    problem: Problem, kept: Sequence[Ints], known: PathBounds, within: float | None = None
) -> tuple[int, ...]:
    """Place each task in turn where it and what follows end first; cheaply where time is left.

    Parameters
    ----------
    within : float, optional
        Makespan (h) up to which a cheaper label is preferred to a faster one.
    """
    walk = TimedPlan(problem, kept)
    within = known.bound if within is None else within
    for v in walk.order:
        task, labels = problem.tasks[v], kept[v]
        place = task.place[labels]
        ends = walk.start(v, task.ready_hours[labels], place) + task.hours[labels]
        ends = ends + known.after[v, place]
        usd = task.usd[labels] + walk.usd_in(v, place)
        timely = ends <= within * (1 + 1e-9)
        best = np.lexsort((usd, np.where(timely, within, ends)))[0]
        walk.set_label(v, int(labels[best]))
    return tuple(walk.choice)


class TimedPlan:
    """A plan in the making or in change, with its finish times and tails."""

    def __init__(self, problem: Problem, kept: Sequence[Ints]) -> None:
        self.problem, self.kept = problem, kept
        count, edges = len(problem.tasks), problem.edges
        self.into: list[list[tuple[int, float, int]]] = [[] for _ in range(count)]
        self.out: list[list[tuple[int, float, int]]] = [[] for _ in range(count)]
        rows = (edges.src.tolist(), edges.dst.tolist(), edges.scale.tolist(), edges.table.tolist())
        self.edges_into: list[list[int]] = [[] for _ in range(count)]
        for e, (u, v, scale, k) in enumerate(zip(*rows, strict=True)):
            self.edges_into[v].append(e)
            self.into[v].append((u, scale, k))
            self.out[u].append((v, scale, k))
        self.order = [
            int(v) for batch in make_task_levels(count, edges.src, edges.dst) for v in batch.tasks
        ]
        self.hours = [_cap(t.hours, 1e9) for t in problem.tables]
        self.usd = [_cap(t.usd, 1e12) for t in problem.tables]
        self.choice = [0] * count
        self.place = [0] * count
        self.finish = [0.0] * count
        self.tail = [0.0] * count

    def start(self, v: int, ready: Floats, place: Ints) -> Floats:
        """Return when v could start at each place, given the finish of its inputs."""
        begin = ready
        for u, scale, k in self.into[v]:
            begin = np.maximum(begin, self.finish[u] + scale * self.hours[k][self.place[u], place])
        return begin

    def after(self, v: int, place: Ints) -> Floats:
        """Return how long the plan goes on after v has ended at each place."""
        longest = np.zeros(len(place))
        for w, scale, k in self.out[v]:
            longest = np.maximum(
                longest, scale * self.hours[k][place, self.place[w]] + self.tail[w]
            )
        return longest

    def usd_in(self, v: int, place: Ints) -> Floats:
        """Return USD of the transfers into a task at each place."""
        total = np.zeros(len(place))
        for u, scale, k in self.into[v]:
            total = total + scale * self.usd[k][self.place[u], place]
        return total

    def usd_out(self, v: int, place: Ints) -> Floats:
        """Return USD of the transfers out of a task at each place."""
        total = np.zeros(len(place))
        for w, scale, k in self.out[v]:
            total = total + scale * self.usd[k][place, self.place[w]]
        return total

    def set_label(self, v: int, label: int) -> None:
        """Take a label, and note when the task then ends."""
        task = self.problem.tasks[v]
        self.choice[v], self.place[v] = label, int(task.place[label])
        ready = float(task.ready_hours[label])
        for u, scale, k in self.into[v]:
            ready = max(
                ready, self.finish[u] + scale * float(self.hours[k][self.place[u], self.place[v]])
            )
        self.finish[v] = ready + float(task.hours[label])

    def take(self, choice: Sequence[int]) -> None:
        """Take a whole plan."""
        for v in self.order:
            self.set_label(v, int(choice[v]))
        self.update_tails()

    def critical_path(self) -> tuple[int, list[int]]:
        """Return the first task of a longest path, and its edges from the last to the first."""
        v, path = int(np.argmax(self.finish)), []
        while self.into[v]:
            arrivals = [
                self.finish[u] + scale * float(self.hours[k][self.place[u], self.place[v]])
                for u, scale, k in self.into[v]
            ]
            last = int(np.argmax(arrivals))
            path.append(self.edges_into[v][last])
            v = self.into[v][last][0]
        return v, path

    def update_tails(self) -> None:
        """Compute anew how long the plan goes on from the start of each task."""
        for v in reversed(self.order):
            longest = 0.0
            for w, scale, k in self.out[v]:
                moved = scale * float(self.hours[k][self.place[v], self.place[w]])
                longest = max(longest, moved + self.tail[w])
            self.tail[v] = longest + float(self.problem.tasks[v].hours[self.choice[v]])


def _cap(table: Floats, most: float) -> Floats:
    """Return a table with a finite number in place of infinity."""
    finite = np.isfinite(table)
    return table if finite.all() else np.where(finite, table, most)


def reduce_cost(
    problem: Problem, kept: Sequence[Ints], choice: Sequence[int], deadline: float, rounds: int = 10
) -> tuple[int, ...]:
    """Move single tasks to cheaper labels while the plan stays within the deadline (h)."""
    walk = TimedPlan(problem, kept)
    walk.take(choice)
    for _ in range(rounds):
        changed = False
        for v in walk.order:
            task, labels = problem.tasks[v], kept[v]
            if len(labels) < 2:
                continue
            place = task.place[labels]
            through = walk.start(v, task.ready_hours[labels], place) + task.hours[labels]
            timely: Flags = through + walk.after(v, place) <= deadline
            usd = task.usd[labels] + walk.usd_in(v, place) + walk.usd_out(v, place)
            usd = np.where(timely, usd, np.inf)
            best = int(usd.argmin())
            now = np.flatnonzero(labels == walk.choice[v])
            if np.isfinite(usd[best]) and (not len(now) or usd[best] < usd[now[0]] * (1 - 1e-12)):
                walk.set_label(v, int(labels[best]))
                for w in walk.order[walk.order.index(v) + 1 :]:
                    walk.set_label(w, walk.choice[w])
                walk.update_tails()
                changed = True
        if not changed:
            break
    return tuple(walk.choice)
