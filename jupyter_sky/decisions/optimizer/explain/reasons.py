"""Reasons for the place of each task, and the plan under other conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jupyter_sky.base.clouds.register import sort_names
from jupyter_sky.base.errors import SkyError, SkyTimeout
from jupyter_sky.base.requests.dag.dag import Graph, TaskSpec
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.decisions.optimizer.constraints import Only
from jupyter_sky.decisions.optimizer.plan import (
    Alternative,
    Plan,
    PlanComparison,
    PlannedTask,
    Reason,
)
from jupyter_sky.decisions.optimizer.pricing import PricedTask
from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints, Objective
from jupyter_sky.decisions.optimizer.transfers import site_of
from jupyter_sky.knowledge.ledger.ledger import format_usd

_MAX_CLOUDS = 4
_MAX_SECONDS = 1.0
"""Seconds after which a comparison is the best that was found, or none."""


def find_reasons(plan: Plan, builder: ProblemBuilder, objective: Objective) -> tuple[Reason, ...]:
    """Return for each task the next best offer of its whole pool, with all other tasks as they are.

    An offer counts as another one if its region, its machine or its market is another.
    """
    return tuple(
        _make_reason(compare_offers(plan, builder, objective, task)) for task in range(len(plan))
    )


def _make_reason(found: OfferComparison) -> Reason:
    placed = found.placed
    what = f"{placed.task}: {_machine(placed.offer)}"
    alike, worse = found.equal_offers(), found.worse_offers()
    if not len(found.order):
        return Reason(placed.task, None, 0.0, 0.0, 0.0, f"{what}, the only offer that will do")
    index = int((worse if len(worse) else found.order)[0])
    other = found.offer(index)
    dearer, longer, emitted = found.difference(index)
    if len(alike):
        like = found.offer(int(alike[0]))
        what += f"; {_machine(like)} {_and_others(len(alike))} as good"
    text = f"{what}; the next best, {_machine(other)}, makes the plan {_difference(dearer, longer)}"
    return Reason(placed.task, other, dearer, longer, emitted, text)


def _and_others(count: int) -> str:
    return "is" if count == 1 else f"and {count - 1} more offers are"


def _machine(offer: Offer) -> str:
    gpu = f" ({offer.gpu}:{offer.gpu_count:g})" if offer.gpu else ""
    return f"{offer.place}{gpu}"


def _difference(usd: float, hours: float) -> str:
    """Return a difference in words: dearer or cheaper, longer or shorter.

    Examples
    --------
    >>> _difference(1.5, -0.25), _difference(0.0, 0.0)
    ('$1.50 dearer and 15:00 shorter', 'neither dearer nor longer')
    """
    parts = []
    if abs(usd) >= 5e-7:
        parts.append(f"{format_usd(abs(usd))} {'dearer' if usd > 0 else 'cheaper'}")
    if abs(hours) * 3600 >= 1:
        longer = "longer" if hours > 0 else "shorter"
        parts.append(f"{format_duration(round(abs(hours) * 3600))} {longer}")
    return " and ".join(parts) or "neither dearer nor longer"


def compare_conditions(
    plan: Plan,
    builder: ProblemBuilder,
    objective: Objective,
    labels: Sequence[PricedTask],
    replan: Callable[..., Plan],
    time_limit: float,
) -> tuple[PlanComparison, ...]:
    """Return the plan under other conditions, each solved anew; what takes long is left.

    Parameters
    ----------
    labels
        Offers of each task.
    replan
        Gives another plan under more demands and other settings.
    time_limit
        Seconds of the solver that the plan itself was given.
    """
    quick = {"time_limit": min(_MAX_SECONDS, time_limit)}
    return tuple(
        _plan_under(condition, lambda d=demands, s=settings: replan(*d, **(quick | s)))
        for condition, demands, settings in _conditions(plan, builder, objective, labels)
    )


def _conditions(
    plan: Plan, builder: ProblemBuilder, objective: Objective, labels: Sequence[PricedTask]
) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Yield conditions: in words, as demands, and as settings."""
    clouds = {builder.market.sites[k][0] for one in labels for k in np.unique(one.pool.site)}
    for cloud in sort_names(clouds)[:_MAX_CLOUDS] if len(clouds) > 1 else ():
        if plan.clouds != (cloud,):
            yield f"on {cloud} only", (Only(cloud=cloud),), {}
    spot = [one.offer.spot for one in plan.tasks]
    if any(spot):
        yield "on demand only", (Only(on_demand=True),), {}
    if not all(spot) and all(one.pool.spot.any() for one in labels):
        yield "on spot machines only", (Only(spot=True),), {}
    if objective.kind in ("time", "time_then_cost"):
        yield "as cheap as can be", (), {"minimize": "cost"}
    else:
        yield "as fast as can be", (), {"minimize": "time_then_cost"}
    for limit, value in (("deadline", objective.deadline_h), ("budget", objective.budget_usd)):
        if value is not None:
            yield f"without the {limit}", (), {limit: None}


def _plan_under(condition: str, solve: Callable[[], Plan]) -> PlanComparison:
    try:
        other = solve()
    except SkyTimeout:
        return PlanComparison(condition, error=f"not found in {_MAX_SECONDS:g} s")
    except SkyError as error:
        task = re.match(r"task (.+?): ", error.message)
        why = f"nothing there will do for {task[1]}" if task else error.message.splitlines()[0]
        return PlanComparison(condition, error=f"no plan: {why}")
    return PlanComparison(
        condition, other.usd, other.hours, other.gco2, where=f"on {', '.join(other.clouds)}"
    )


# -- Alternatives to the offer of each task, and what the whole plan would come to with them ------


def find_alternatives(
    plan: Plan, builder: ProblemBuilder, objective: Objective, count: int = 1
) -> tuple[Alternative, ...]:
    """Return for each task the next best places, the best in another cloud, and the other market.

    Another place is another region, another machine or another market; one that would be as good
    counts only where more than one is asked for.

    Parameters
    ----------
    count
        How many of the next best.
    """
    return tuple(
        one
        for task in range(len(plan))
        for one in _task_alternatives(plan, builder, objective, task, count)
    )


def _task_alternatives(
    plan: Plan, builder: ProblemBuilder, objective: Objective, task: int, count: int
) -> Iterator[Alternative]:
    found = compare_offers(plan, builder, objective, task)
    told: dict[int, list[str]] = {}
    ranked = found.order if count > 1 or not len(found.worse_offers()) else found.worse_offers()
    for index in _pick_distinct(found, ranked, count):
        told.setdefault(index, []).append("next best")
    chosen = found.placed.offer
    clouds = builder.pricer.clouds
    own = clouds.index(chosen.cloud)
    cloud = builder.pricer.cloud_of[found.priced.pool.site[found.order]]
    for index in found.order[cloud != own][:1].tolist():
        told.setdefault(index, []).append("other cloud")
    market = "on demand" if chosen.spot else "spot"
    for index in found.order[found.priced.pool.spot[found.order] != chosen.spot][:1].tolist():
        told.setdefault(index, []).append(market)
    yield from (_make_alternative(found, index, kinds) for index, kinds in told.items())
    spec = builder.graph.tasks[task]
    if any(need.spot is not None for need in spec.needs):
        spot = market == "spot"
        asked = replace(spec, needs=tuple(replace(need, spot=spot) for need in spec.needs))
        other = compare_offers(plan, builder, objective, task, asked)
        for index in other.order[:1].tolist():  # for what the request rules out
            yield _make_alternative(other, index, [f"{market}, if you allow it"])


def _pick_distinct(found: OfferComparison, ranked: Ints, count: int) -> list[int]:
    """Return the first few that differ in more than the zone and the number of the offer."""
    pool, regions = found.priced.pool, found.builder.pricer.regions
    picked: dict[tuple, int] = {}
    for index in ranked[: 50 * count].tolist():
        key = (regions[pool.site[index]], pool.machine[index], bool(pool.spot[index]))
        picked.setdefault(key, index)
        if len(picked) == count:
            break
    return list(picked.values())


def _make_alternative(found: OfferComparison, index: int, kinds: list[str]) -> Alternative:
    one = found.priced
    nodes = int(one.nodes[int(one.at[index])])
    usd, hours, grams = found.difference(index)
    kind = ", ".join(kinds)
    return Alternative(found.placed.task, kind, found.offer(index), nodes, usd, hours, grams)


# -- Comparison of all offers that a task could take, with all other tasks as they are ------------


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
