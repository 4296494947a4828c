"""Comparison of all offers that a task could take, with all other tasks as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.base.requests.dag.dag import Graph, TaskSpec
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.plan import Plan, PlannedTask
from jupyter_sky.decisions.optimizer.pricing import PricedTask
from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints, Objective
from jupyter_sky.decisions.optimizer.transfers import site_of


@dataclass(frozen=True, eq=False)
class OfferComparison:
    """Totals of a plan with each offer of one task in place of the chosen one.

    Attributes
    ----------
    placed : PlannedTask
        The task as it is placed.
    priced : PricedTask
        All offers that meet its request.
    usd, hours, grams : float array
        Of the whole plan, with each of them.
    order : int array
        Those that are another offer and keep all demands, the best first.
    """

    plan: Plan
    builder: ProblemBuilder
    objective: Objective
    placed: PlannedTask
    priced: PricedTask
    usd: Floats
    hours: Floats
    grams: Floats
    order: Ints

    def offer(self, index: int) -> Offer:
        """Return one of the offers."""
        return self.builder.market.offer(self.priced.pool, int(index))

    def difference(self, index: int) -> tuple[float, float, float]:
        """Return USD, hours and grams that the plan comes to with an offer, more than it does."""
        emitted = sum(placed.gco2 for placed in self.plan.tasks)
        return (
            float(self.usd[index]) - self.plan.usd,
            float(self.hours[index]) - self.plan.hours,
            float(self.grams[index]) - emitted,
        )

    def equal_offers(self) -> Ints:
        """Return other offers that are as good."""
        felt, reached = self._objective_values()
        return self.order[np.abs(felt[self.order] - reached) <= 1e-6 * max(1.0, reached)]

    def worse_offers(self) -> Ints:
        """Return other offers that are not as good, the best of them first."""
        felt, reached = self._objective_values()
        return self.order[felt[self.order] > reached + 1e-6 * max(1.0, reached)]

    def _objective_values(self) -> tuple[Floats, float]:
        """Return the objective with each offer, and as it is."""
        plan, objective = self.plan, self.objective
        grams = sum(placed.gco2 for placed in plan.tasks)
        felt = _sort_keys(objective, self.usd, self.hours, self.grams)[-1]
        reached = _sort_keys(objective, *map(np.array, (plan.usd, plan.hours, grams)))[-1]
        return felt, float(reached)


def compare_offers(
    plan: Plan,
    builder: ProblemBuilder,
    objective: Objective,
    task: int,
    spec: TaskSpec | None = None,
) -> OfferComparison:
    """Compare all other offers of a task; `spec` asks for others than its request does.

    An offer counts as another one if its region, its machine or its market is another.
    """
    placed = plan.tasks[task]
    one = builder.pricer.price_task(spec or builder.graph.tasks[task])
    usd, hours, grams = _totals(plan, builder, task, one)
    kept = np.isfinite(usd) & np.isfinite(hours) & _find_other_offers(builder, one, placed)
    for demand in builder.offer_demands(one.spec):
        kept &= builder.allowed(demand, one)
    for values, limit in (
        (usd, objective.budget_usd),
        (hours, objective.deadline_h),
        (grams, objective.carbon_cap_g),
    ):
        if limit is not None:
            kept &= values <= limit * (1 + 1e-9)
    keys = _sort_keys(objective, usd, hours, grams)
    which = np.flatnonzero(kept)
    order = which[np.lexsort([values[which] for values in keys])]
    return OfferComparison(plan, builder, objective, placed, one, usd, hours, grams, order)


def _sort_keys(objective: Objective, usd: Floats, hours: Floats, grams: Floats) -> Sequence[Floats]:
    """Return keys by which offers are ordered, the most important one last."""
    if objective.kind == "weighted":
        value = objective.usd_weight * usd + objective.hour_weight * hours
        return hours, value + objective.gram_weight * grams
    return {"cost": (hours, usd), "carbon": (usd, grams)}.get(objective.kind, (usd, hours))


def _find_other_offers(builder: ProblemBuilder, one: PricedTask, placed: PlannedTask) -> Flags:
    """Return which offers differ from the chosen one in more than the zone."""
    market, offer = builder.market, placed.offer
    same_region = np.array([site[:2] == (offer.cloud, offer.region) for site in market.sites], bool)
    kinds = np.unique(one.pool.machine)
    alike = [k for k in kinds.tolist() if market.machine(k).instance_type == offer.instance_type]
    same = same_region[one.pool.site] & np.isin(one.pool.machine, alike)
    return ~(same & (one.pool.spot == offer.spot))


def _totals(
    plan: Plan, builder: ProblemBuilder, task: int, one: PricedTask
) -> tuple[Floats, Floats, Floats]:
    """Return USD, hours and grams of the whole plan with each offer in place of the chosen one.

    The time is that of the longest path through this task, or of the plan without it if that is
    longer.
    """
    graph, pricer = builder.graph, builder.pricer
    market, moves = pricer.market, pricer.moves
    used = np.flatnonzero(np.bincount(one.pool.site, minlength=len(market.sites)))
    usd, start = np.zeros(len(market.sites)), np.zeros(len(market.sites))
    after = np.zeros(len(market.sites))
    grams = np.zeros(len(market.sites))
    start[used] = one.ready_hours[used]
    tails = _tails(plan, builder.graph)
    for edge in graph.edges:
        if task not in (edge.src, edge.dst):
            continue
        other = edge.dst if edge.src == task else edge.src
        at = market.at[site_of(plan.tasks[other].offer)]
        sites = [market.sites[s] for s in used.tolist()] + [market.sites[at]]
        table = moves.table(sites, edge.gb) if moves.has_tiers(edge.gb) else moves.table(sites)
        scale = 1.0 if moves.has_tiers(edge.gb) else edge.gb
        pick = (slice(None, -1), -1) if edge.src == task else (-1, slice(None, -1))
        free = used == at  # the last row stands for a place of its own
        usd[used] += np.where(free, 0.0, scale * table.usd[pick])
        hours = scale * table.hours[pick]
        if table.gco2 is not None:
            grams[used] += np.where(free, 0.0, scale * table.gco2[pick])
        if edge.src == task:
            after[used] = np.maximum(after[used], hours + tails[other])
        else:
            start[used] = np.maximum(start[used], plan.tasks[other].finish_h + hours)
    rest = _totals_without(plan, graph, task)
    own = one.pool.site
    total = rest[0] + one.usd() + usd[own]
    through = start[own] + one.hours() + after[own]
    emitted = rest[1] + one.grams() + grams[own]
    return total, np.maximum(through, rest[2]), emitted


def _tails(plan: Plan, graph: Graph) -> list[float]:
    """Return hours from the start of each task to the end of the plan, on its longest path."""
    hours = {(m.source, m.target): m.hours for m in plan.moves if m.kind == "edge"}
    tails = [0.0] * len(graph.tasks)
    for task in reversed(range(len(graph.tasks))):  # every edge goes forward
        placed = plan.tasks[task]
        later = [
            hours[graph.tasks[task].name, graph.tasks[e.dst].name] + tails[e.dst]
            for e in graph.edges
            if e.src == task
        ]
        tails[task] = placed.finish_h - placed.start_h + max(later, default=0.0)
    return tails


def _totals_without(plan: Plan, graph: Graph, task: int) -> tuple[float, float, float]:
    """Return USD and grams without a task and its transfers, and the end of independent tasks."""
    name = plan.tasks[task].task
    mine = [move for move in plan.moves if name in (move.source, move.target)]
    usd = plan.usd - plan.tasks[task].usd - sum(move.usd for move in mine)
    reached = {task}
    for edge in graph.edges:
        if edge.src in reached:
            reached.add(edge.dst)
    ends = [one.finish_h for index, one in enumerate(plan.tasks) if index not in reached]
    grams = sum(one.gco2 for index, one in enumerate(plan.tasks) if index != task)
    return usd, grams, max(ends, default=0.0)
