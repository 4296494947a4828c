"""Reasons for the place of each task, and the plan under other conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jupyter_sky.base.clouds.register import sort_names
from jupyter_sky.base.errors import SkyError, SkyTimeout
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.decisions.optimizer.constraints import Only
from jupyter_sky.decisions.optimizer.explain.offer_comparison import OfferComparison, compare_offers
from jupyter_sky.decisions.optimizer.plan import Alternative, Plan, PlanComparison, Reason
from jupyter_sky.decisions.optimizer.pricing import PricedTask
from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder
from jupyter_sky.decisions.optimizer.solver.problem import Ints, Objective
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
