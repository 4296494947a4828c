"""Why a task goes where it goes, and what the plan would come to under other conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import SkyError, SkyTimeout
from ...ledger.ledger import format_usd
from ...offers import Offer
from ...quantities import format_duration
from ..constraints import Only
from ..plan import Plan, PlanComparison, Reason
from .offer_comparison import OfferComparison, compare_offers

if TYPE_CHECKING:
    from ..planner import Planner

_MAX_CLOUDS = 4
_MAX_SECONDS = 1.0
"""Seconds after which a comparison is the best that was found, or none."""


def find_reasons(plan: Plan, work: Planner) -> tuple[Reason, ...]:
    """For each task the next best offer of its whole pool, with all other tasks as they are.

    An offer counts as another one if its region, its machine or its market is another.
    """
    return tuple(_make_reason(compare_offers(plan, work, task)) for task in range(len(plan)))


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


def compare_conditions(plan: Plan, work: Planner) -> tuple[PlanComparison, ...]:
    """The plan under other conditions, each solved anew; what takes long is left."""
    quick = {"time_limit": min(_MAX_SECONDS, float(work.settings.get("time_limit", _MAX_SECONDS)))}
    return tuple(
        _plan_under(condition, lambda d=demands, s=settings: work.replan(*d, **(quick | s)))
        for condition, demands, settings in _conditions(plan, work)
    )


def _conditions(plan: Plan, work: Planner) -> Iterator[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """What is asked beside the plan: in words, as demands, and as settings."""
    clouds = {work.builder.market.sites[s][0] for s in _used_sites(work)}
    first = [cloud for cloud in ("aws", "gcp", "azure") if cloud in clouds]
    for cloud in (first + sorted(clouds - set(first)))[:_MAX_CLOUDS] if len(clouds) > 1 else ():
        if plan.clouds != (cloud,):
            yield f"on {cloud} only", (Only(cloud=cloud),), {}
    spot = [one.offer.spot for one in plan.tasks]
    if any(spot):
        yield "on demand only", (Only(on_demand=True),), {}
    assert work.tables is not None
    if not all(spot) and all(one.pool.spot.any() for one in work.tables.labels):
        yield "on spot machines only", (Only(spot=True),), {}
    objective = work.objective
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


def _used_sites(work: Planner) -> set[int]:
    assert work.tables is not None
    return {site for one in work.tables.labels for site in np.unique(one.pool.site).tolist()}
