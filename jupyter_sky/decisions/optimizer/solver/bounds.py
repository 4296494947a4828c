"""The work before the model: bounds, filters and plans for objectives under limits."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from jupyter_sky.decisions.optimizer.solver.additive_problem import criterion_weights, make_additive
from jupyter_sky.decisions.optimizer.solver.context import SolveContext, SolverResult
from jupyter_sky.decisions.optimizer.solver.dual_bound import DualBound
from jupyter_sky.decisions.optimizer.solver.evaluator import (
    evaluate,
    is_within_limits,
    objective_value,
)
from jupyter_sky.decisions.optimizer.solver.fork_join import solve_fork_join
from jupyter_sky.decisions.optimizer.solver.lagrangian import TimePrices, priced_plans
from jupyter_sky.decisions.optimizer.solver.longest_paths import (
    PathBounds,
    bound_paths,
    build_hour_tables,
    find_labels_in_time,
    make_fast_plan,
    reduce_cost,
)
from jupyter_sky.decisions.optimizer.solver.model import CompiledModel
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints
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
