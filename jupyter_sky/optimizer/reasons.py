"""Why a task goes where it goes, and what the plan would come to under other conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import SkyError
from ..ledger import format_usd
from ..offers import Offer
from ..quantities import format_duration
from .constraints import Only
from .planned import Compared, Placed, Plan, Reason
from .pricing import Priced
from .problem import Floats

if TYPE_CHECKING:
    from .plan import Work

_MOST_CLOUDS = 4


def reasons(plan: Plan, work: Work) -> tuple[Reason, ...]:
    """For each task the next best offer of its whole pool, with all other tasks as they are.

    An offer counts as another one if its region, its machine or its market is another.
    """
    objective = work.objective
    found = []
    for task, placed in enumerate(plan.tasks):
        one = work.builder.pricer.priced(work.builder.graph.tasks[task])
        usd, hours, grams = _totals(plan, work, task, one)
        kept = np.isfinite(usd) & np.isfinite(hours) & _others(work, one, placed)
        for demand in work.builder.on_offers(one.spec):
            kept &= work.builder.allowed(demand, one)
        for values, limit in (
            (usd, objective.budget_usd),
            (hours, objective.deadline_h),
            (grams, objective.carbon_cap_g),
        ):
            if limit is not None:
                kept &= values <= limit * (1 + 1e-9)
        found.append(_reason(plan, work, one, placed, (usd, hours, grams), kept))
    return tuple(found)


def _others(work: Work, one: Priced, placed: Placed) -> np.ndarray:
    """Offers that differ from the one chosen in more than the zone."""
    market, offer = work.builder.market, placed.offer
    same_region = np.array([site[:2] == (offer.cloud, offer.region) for site in market.sites], bool)
    kinds = np.unique(one.pool.machine)
    alike = [k for k in kinds.tolist() if market.machine(k).instance_type == offer.instance_type]
    same = same_region[one.pool.site] & np.isin(one.pool.machine, alike)
    return ~(same & (one.pool.spot == offer.spot))


def _totals(plan: Plan, work: Work, task: int, one: Priced) -> tuple[Floats, Floats, Floats]:
    """USD, hours and grams of the whole plan with each offer in place of the chosen one.

    The time is that of the longest path through this task, or of the plan without it if that is
    longer.
    """
    graph, pricer = work.builder.graph, work.builder.pricer
    market, moves = pricer.market, pricer.moves
    used = np.flatnonzero(np.bincount(one.pool.site, minlength=len(market.sites)))
    usd, start = np.zeros(len(market.sites)), np.zeros(len(market.sites))
    after = np.zeros(len(market.sites))
    grams = np.zeros(len(market.sites))
    start[used] = one.ready_hours[used]
    tails = _tails(plan, work)
    for edge in graph.edges:
        if task not in (edge.src, edge.dst):
            continue
        other = edge.dst if edge.src == task else edge.src
        at = market.at[_site(plan.tasks[other].offer)]
        sites = [market.sites[s] for s in used.tolist()] + [market.sites[at]]
        table = moves.table(sites, edge.gb) if moves.tiered(edge.gb) else moves.table(sites)
        scale = 1.0 if moves.tiered(edge.gb) else edge.gb
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
    rest = _without(plan, graph, task)
    own = one.pool.site
    total = rest[0] + one.usd() + usd[own]
    through = start[own] + one.hours() + after[own]
    emitted = rest[1] + one.grams() + grams[own]
    return total, np.maximum(through, rest[2]), emitted


def _site(offer: Offer) -> tuple[str, str, str]:
    return (offer.cloud, offer.region, offer.zone or "")


def _tails(plan: Plan, work: Work) -> list[float]:
    """Hours from the start of each task to the end of the plan, along its longest path."""
    graph = work.builder.graph
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


def _without(plan: Plan, graph, task: int) -> tuple[float, float, float]:
    """USD and grams of all but one task and its moves, and the end of tasks that do not need it."""
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


def _reason(
    plan: Plan,
    work: Work,
    one: Priced,
    placed: Placed,
    totals: tuple[Floats, Floats, Floats],
    kept: np.ndarray,
) -> Reason:
    what = f"{placed.task}: {_machine(placed.offer)}"
    if not kept.any():
        return Reason(placed.task, None, 0.0, 0.0, 0.0, f"{what}, the only offer that will do")
    usd, hours, grams = totals
    objective = work.objective
    order = {
        "cost": (hours, usd),
        "time": (usd, hours),
        "time_then_cost": (usd, hours),
        "carbon": (usd, grams),
    }.get(objective.kind)
    if order is None:
        value = objective.usd_weight * usd + objective.hour_weight * hours
        order = (hours, value + objective.gram_weight * grams)
    which = np.flatnonzero(kept)
    which = which[np.lexsort([values[which] for values in order])]
    reached = {"time": plan.hours, "time_then_cost": plan.hours}.get(objective.kind, plan.usd)
    felt = hours if objective.kind in ("time", "time_then_cost") else usd
    alike = which[np.abs(felt[which] - reached) <= 1e-6 * max(1.0, reached)]
    worse = which[felt[which] > reached + 1e-6 * max(1.0, reached)]
    index = int((worse if len(worse) else which)[0])
    other = work.builder.market.offer(one.pool, index)
    dearer, longer = float(usd[index]) - plan.usd, float(hours[index]) - plan.hours
    emitted = float(grams[index]) - sum(p.gco2 for p in plan.tasks)
    if len(alike):
        like = work.builder.market.offer(one.pool, int(alike[0]))
        what += f"; {_machine(like)} {_and_others(len(alike))} as good"
    text = f"{what}; the next best, {_machine(other)}, makes the plan {_difference(dearer, longer)}"
    return Reason(placed.task, other, dearer, longer, emitted, text)


def _and_others(count: int) -> str:
    return "is" if count == 1 else f"and {count - 1} more offers are"


def _machine(offer: Offer) -> str:
    gpu = f" ({offer.gpu}:{offer.gpu_count:g})" if offer.gpu else ""
    return f"{offer.place}{gpu}"


def _difference(usd: float, hours: float) -> str:
    """Dearer or cheaper, longer or shorter: in words.

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


def compared(plan: Plan, work: Work) -> tuple[Compared, ...]:
    """The plan under other conditions, each solved anew."""
    clouds = {work.builder.market.sites[s][0] for s in _used_sites(work)}
    first = [cloud for cloud in ("aws", "gcp", "azure") if cloud in clouds]
    named = (first + sorted(clouds - set(first)))[:_MOST_CLOUDS]
    asked = [(f"on {cloud} only", Only(cloud=cloud)) for cloud in named if len(clouds) > 1]
    if any(one.offer.spot for one in plan.tasks):
        asked.append(("on demand only", Only(on_demand=True)))
    found = []
    for condition, demand in asked:
        try:
            other = work.again(demand)
        except SkyError as error:
            short = error.message.partition(" cannot hold together: ")
            found.append(Compared(condition, error=short[0] + short[1].rstrip(": ")))
        else:
            found.append(Compared(condition, other.usd, other.hours, other.gco2))
    return tuple(found)


def _used_sites(work: Work) -> set[int]:
    assert work.tables is not None
    return {site for one in work.tables.labels for site in np.unique(one.pool.site).tolist()}
