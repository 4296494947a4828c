"""The work before the model: bounds, filters and plans for objectives under limits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import (
    AdditiveProblem,
    criterion_weights,
    make_additive,
)
from jupyter_sky.decisions.optimizer.solver.context import SolveContext, SolverResult
from jupyter_sky.decisions.optimizer.solver.dual_bound import DualBound
from jupyter_sky.decisions.optimizer.solver.evaluator import (
    evaluate,
    is_within_limits,
    objective_value,
)
from jupyter_sky.decisions.optimizer.solver.hierarchy import make_dense_hierarchy
from jupyter_sky.decisions.optimizer.solver.longest_paths import (
    PathBounds,
    TimedPlan,
    bound_paths,
    build_hour_tables,
    find_labels_in_time,
    make_fast_plan,
    reduce_cost,
)
from jupyter_sky.decisions.optimizer.solver.model import CompiledModel
from jupyter_sky.decisions.optimizer.solver.pareto import find_front
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints, Problem
from jupyter_sky.decisions.optimizer.solver.pruning import make_flags, pareto_labels

_NOISE = 1e-9
_SWEEPS = 16
_PATIENCE = 3  # plans in a row that are no better, after which prices of time do not move on
_LARGE = 500_000  # labels beyond which plans are not improved task by task
# Above the relaxed value, where plans are looked for one after the other.
_EXCESS = (1e-3, 3e-3, 1e-2, 2e-2, 4e-2, 8e-2, np.inf)


class DeadlineSearch:
    """Bounds and filters before the model, and the best plan they come by."""

    def __init__(self, work: SolveContext, kept: Sequence[Ints]) -> None:
        self.work, self.problem, self.objective = work, work.problem, work.objective
        self.kept = list(kept)
        self.best, self.choice = np.inf, None
        self.low = 0.0  # no plan has a smaller value
        self.paths: PathBounds | None = None
        self.hard = bool(self.problem.hook)

    def prepare(self) -> SolverResult | None:
        """Bound, filter and try plans; return an answer when no model is needed."""
        if self.objective.is_timed:
            late = self._bound_time()
            if late is not None:
                return late
        self.kept = pareto_labels(self.problem, self.objective, self.kept)
        if not self.hard:
            for plan in self._try_quick_plans():
                self.try_plan(plan)
        if self.is_closed():
            return SolverResult("optimal", self.choice, self.best, "paths")
        if self._has_sum():
            self._bound_sum()
            if self.is_closed():
                return SolverResult("optimal", self.choice, self.best, "dual")
        return None if self.has_labels() else self.final_result("dual")

    def has_labels(self) -> bool:
        """Return whether every task has a label left."""
        return all(len(labels) for labels in self.kept)

    def final_result(self, proof: str) -> SolverResult:
        """Return the plan at hand as the best; without one, there is none."""
        if self.choice is None:
            return SolverResult("infeasible", None, np.inf, proof)
        return SolverResult("optimal", self.choice, self.best, proof)

    def find_time_prices(self, model: CompiledModel) -> TimePrices | None:
        """Return the prices of time that the relaxed model found, where time has a price."""
        if self.objective.deadline_h is None or not model.clock or self._is_large():
            return None
        starts = np.maximum(model.clock[0].dual_value, 0) / model.scale
        edges = np.zeros(0)
        if len(model.clock) > 2:
            edges = np.maximum(model.clock[2].dual_value, 0) / model.scale
        return TimePrices(starts, edges)

    def try_priced_plans(self, prices: TimePrices | None) -> None:
        """Try plans that are cheap when time has a price."""
        if prices is not None and self.objective.deadline_h is not None:
            limit = self.objective.deadline_h * (1 + _NOISE)
            idle = 0
            for plan in priced_plans(self.problem, self.kept, prices, limit):
                before = self.best
                self.try_plan(plan)
                idle = 0 if self.best < before else idle + 1
                if idle == _PATIENCE:
                    break

    def solve_branches(
        self, prices: TimePrices | None, rise: Sequence[Floats], low: float
    ) -> SolverResult | None:
        """Solve chains and fork-joins under nothing but a deadline, without the model.

        A plan is looked for below a limit a little above the bound, then below higher ones: the
        lower the limit, the less there is to keep, and a plan below any limit is the best.
        """
        deadline, problem = self.objective.deadline_h, self.problem
        tied = problem.rows or problem.same or problem.hook or len(self.objective.limits()) > 1
        if prices is None or deadline is None or tied or self.objective.kind != "cost":
            return None
        for excess in _EXCESS:
            limit = min(low * (1 + excess) if np.isfinite(excess) else np.inf, self.best)
            if not np.isfinite(limit):
                return None
            near = [
                labels[low + part[labels] <= limit]
                for labels, part in zip(self.kept, rise, strict=True)
            ]
            status, choice = "infeasible", None
            if all(len(labels) for labels in near):
                status, choice = solve_fork_join(
                    problem, near, prices.edge, deadline * (1 + _NOISE), limit
                )
            if status == "unknown":
                return None
            self.try_plan(choice)
            if status == "optimal" or limit >= self.best:
                return SolverResult("optimal", self.choice, self.best, "elimination")
            self.low = max(self.low, limit)
            if time.process_time() > self.work.begin + 0.5 * (self.work.until - self.work.begin):
                return None
        return None

    def current_result(self) -> SolverResult:
        """Return the best known plan and bound."""
        status = "feasible" if self.choice is not None else "unknown"
        return SolverResult(status, self.choice, self.low, "limit")

    def is_closed(self) -> bool:
        """Return whether the plan is proven."""
        return self.choice is not None and self.best - self.low <= _NOISE * abs(self.best)

    def try_plan(self, choice: tuple[int, ...] | None) -> None:
        """Take a plan when it keeps all limits and is better."""
        if (
            choice is None
            or self.hard
            or not is_within_limits(self.problem, self.objective, choice, _NOISE)
        ):
            return
        reached = objective_value(self.objective, evaluate(self.problem, choice))
        if reached < self.best:
            self.best, self.choice = reached, choice

    def _bound_time(self) -> SolverResult | None:
        """Bound paths, and drop labels that are too late for the deadline."""
        if self.work.state.hours is None:
            self.work.state = replace(self.work.state, hours=build_hour_tables(self.problem))
        self.paths = bound_paths(self.problem, self.kept, self.work.state.hours)
        deadline = self.objective.deadline_h
        if self.objective.kind == "time":
            self.low = self.paths.bound
        elif self.objective.kind == "weighted":
            self.low = self.objective.hour_weight * self.paths.bound
        if deadline is None:
            return None
        if deadline < self.paths.bound * (1 - _NOISE):
            return SolverResult("infeasible", None, np.inf, "paths")
        self.kept = find_labels_in_time(
            self.problem, self.kept, self.paths, deadline * (1 + _NOISE)
        )
        if not all(len(labels) for labels in self.kept):
            return SolverResult("infeasible", None, np.inf, "paths")
        return None

    def _try_quick_plans(self) -> Iterator[tuple[int, ...]]:
        """Yield plans that are quick to come by."""
        if self.paths is None:
            return
        deadline = self.objective.deadline_h
        quick = make_fast_plan(self.problem, self.kept, self.paths)
        yield quick
        if deadline is not None:
            yield make_fast_plan(self.problem, self.kept, self.paths, deadline)
        if self.objective.kind != "time" and not self._is_large():
            hours = evaluate(self.problem, quick).hours
            for limit in (deadline,) if deadline else (hours, 1.2 * hours, 1.5 * hours, 2 * hours):
                yield reduce_cost(self.problem, self.kept, quick, limit * (1 + _NOISE))

    def _is_large(self) -> bool:
        return sum(len(labels) for labels in self.kept) > _LARGE

    def _has_sum(self) -> bool:
        return self.objective.kind != "time" or self.objective.budget_usd is not None

    def _weight(self) -> tuple[float, float]:
        return (1.0, 0.0) if self.objective.kind == "time" else criterion_weights(self.objective)

    def _bound_sum(self) -> None:
        """Bound the additive part, try its plans, and drop labels that cost too much."""
        problem = self.problem
        state = self.work.state
        flags = make_flags(problem, self.kept)
        sums = make_additive(problem, flags, self._weight(), state.sums)
        dual = DualBound(sums, state.messages)
        pause = self.work.begin + 0.4 * (self.work.until - self.work.begin)
        for sweep in range(_SWEEPS):
            before = dual.bound
            dual.sweep()
            if sweep in (2, 7):
                dual.descend()
            if dual.best - dual.bound <= _NOISE * abs(dual.best) or (
                sweep > 3 and dual.bound - before < 1e-4 * abs(dual.bound)
            ):
                break
            if time.process_time() > pause:
                break
        dual.descend()
        self.work.state = replace(state, sums=sums.hier, messages=(dual.into, dual.back))
        self._bounds(dual.bound)
        self._try_places(sums, dual.x)
        if self.is_closed():
            return
        limit = self._sum_limit()
        if np.isfinite(limit):
            self._filter_labels(sums, dual, limit)

    def _try_places(self, sums, x: Ints) -> None:
        choice = tuple(int(sums.label[v, place]) for v, place in enumerate(x))
        self.try_plan(choice)
        if self.paths is not None and self.objective.deadline_h and not self._is_large():
            self.try_plan(
                reduce_cost(
                    self.problem, self.kept, choice, self.objective.deadline_h * (1 + _NOISE)
                )
            )

    def _bounds(self, low: float) -> None:
        low -= _NOISE * abs(low)
        if self.objective.kind == "weighted":
            self.low = max(self.low, low + self.objective.hour_weight * self._fastest())
        elif self.objective.kind != "time":
            self.low = max(self.low, low)

    def _fastest(self) -> float:
        return self.paths.bound if self.paths is not None else 0.0

    def _sum_limit(self) -> float:
        """Return what the additive part of a better plan can be at most."""
        objective, limits = self.objective, [np.inf]
        if objective.kind == "weighted":
            limits.append(self.best - objective.hour_weight * self._fastest())
        elif objective.kind != "time":
            limits.append(self.best)
        if objective.budget_usd is not None and self._weight() == (1.0, 0.0):
            limits.append(objective.budget_usd)
        return min(limits)

    def _filter_labels(self, sums, dual: DualBound, limit: float) -> None:
        """Drop labels that take a plan over the limit: `DualBound.edge_bound` has the proof.

        A label that is not the best of its place adds at least what it costs more than that one.
        """
        low, rise = dual.edge_bound()
        self._bounds(low)
        margin = limit + _NOISE * (1 + abs(limit))
        factor = self._weight()
        for v, labels in enumerate(self.kept):
            task = self.problem.tasks[v]
            own = factor[0] * task.usd[labels] + factor[1] * task.gco2[labels]
            place = task.place[labels]
            extra = np.maximum(own - sums.unary[v, place], 0)
            self.kept[v] = labels[low + rise[v, place] + extra <= margin]

    def expand_values(self, values: Floats) -> list[Floats]:
        """Return values of kept labels as values of all labels of each task; 0 for the others."""
        ends = np.cumsum([len(labels) for labels in self.kept])[:-1]
        wide = [np.zeros(len(task)) for task in self.problem.tasks]
        for full, labels, part in zip(wide, self.kept, np.split(values, ends), strict=True):
            full[labels] = part
        return wide

    def drop_labels(self, rise: Sequence[Floats], low: float) -> None:
        """Remove labels whose reduced cost alone is too much; those of the plan at hand stay."""
        plan = self.choice or (-1,) * len(self.kept)
        self.kept = [
            labels[(low + part[labels] <= self.best) | (labels == own)]
            for labels, part, own in zip(self.kept, rise, plan, strict=True)
        ]


# -- Good plans under a deadline: time gets a price, and the sum of both is made small ------------
#
# The dual values of the relaxed model's time rows are a flow through the graph: what an hour on
# each task and edge costs near the optimum. A subgradient search goes on from there. With time paid
# at these prices the deadline needs no rows, and placement is a sum over tasks and edges again, for
# which messages find plans at once.

_SWEEPS_lagrangian = 4
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
        for _ in range(_SWEEPS_lagrangian):
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


# -- The cheapest plan under a deadline for chains and fork-joins, exactly and without a ----------
#
# Given the labels of the first and the last task, the branches between them do not know of each
# other: each has to be there in time. A branch is a resource-constrained shortest path, solved by
# keeping, for each label along it, the pairs of time and cost that no other pair beats (Desrochers
# and Soumis, INFOR 26(3), 1988), cut off where a bound says that they cannot lead to a better plan.

_CELLS_fork_join = 12_000_000  # ways on from one task beyond which this is not the way


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
    for step, (cost, hours) in zip(steps[:-1], togo[1:], strict=True):
        now = _extend(step, now, price, (cost, hours), allowance, due)
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
    if len(now.first) * len(step.own_usd) > _CELLS_fork_join:
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
