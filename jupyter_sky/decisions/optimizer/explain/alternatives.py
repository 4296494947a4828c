"""Alternatives to the offer of each task, and what the whole plan would come to with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jupyter_sky.decisions.optimizer.explain.offer_comparison import OfferComparison, compare_offers
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.plan_values import Alternative
from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder
from jupyter_sky.decisions.optimizer.solver.problem import Ints, Objective


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
