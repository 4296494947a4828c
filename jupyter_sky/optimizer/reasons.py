"""Why a task goes where it goes, and what the plan would come to under other conditions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..errors import SkyError
from ..ledger import format_usd
from ..offers import Offer
from ..quantities import format_duration
from .constraints import Only
from .planned import Compared, Plan, Reason
from .weighed import Weighed, weigh

if TYPE_CHECKING:
    from .plan import Work

_MOST_CLOUDS = 4


def reasons(plan: Plan, work: Work) -> tuple[Reason, ...]:
    """For each task the next best offer of its whole pool, with all other tasks as they are.

    An offer counts as another one if its region, its machine or its market is another.
    """
    return tuple(_reason(weigh(plan, work, task)) for task in range(len(plan)))


def _reason(found: Weighed) -> Reason:
    placed = found.placed
    what = f"{placed.task}: {_machine(placed.offer)}"
    alike, worse = found.alike(), found.worse()
    if not len(found.order):
        return Reason(placed.task, None, 0.0, 0.0, 0.0, f"{what}, the only offer that will do")
    index = int((worse if len(worse) else found.order)[0])
    other = found.offer(index)
    dearer, longer, emitted = found.more(index)
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
