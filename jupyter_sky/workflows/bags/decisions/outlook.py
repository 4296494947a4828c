"""View of a bag that the decisions on its machines and its forecast take."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources, format_duration
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.recovery_places import launchable_offers
from jupyter_sky.workflows.bags.decisions.backlog import JobGroup, MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_plan import BagView, FleetPlan, machine_kind
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.queue.application import BagCounts, BagSettings

BOOT_HOURS = 0.05
"""Hours from the launch of a machine until it works, as assumed."""
LEAST_SECONDS = 0.1
"""Run time below which jobs are no question of machines: what is sent and stored takes longer."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """Machines of a bag at one moment.

    Attributes
    ----------
    kind
        Of each slot; None while nothing is up.
    ages
        Hours that the machine of each slot has lived.
    kinds
        Kind of each slot, where they are not all alike.
    most
        Slots in all that can be had of this kind, where more were refused lately.
    """

    kind: MachineKind | None = None
    ages: tuple[float, ...] = ()
    kinds: tuple[MachineKind, ...] = ()
    most: int | None = None


def view_fleet(rows: Sequence[ClusterRow], per_machine: int, now: float) -> FleetView:
    """Return the machines of clusters that are up, a group for each job that runs at a time.

    Parameters
    ----------
    rows
        Records of the clusters.
    now
        Unix time.
    """
    return _view(
        [row for row in rows for _slot in range(row.nodes * per_machine)], per_machine, now
    )


def view_groups(rows: Sequence[ClusterRow], now: float) -> FleetView:
    """Return groups of machines that are up, each of which runs one job at a time.

    Parameters
    ----------
    rows
        Records of their clusters.
    now
        Unix time.
    """
    return _view(rows, 1, now, is_group=True)


def _view(
    rows: Sequence[ClusterRow], per_machine: int, now: float, is_group: bool = False
) -> FleetView:
    if not rows:
        return FleetView()
    known: dict[str, MachineKind] = {}
    kinds = []
    for row in rows:
        key = json.dumps([row.offer, row.nodes if is_group else 1], sort_keys=True, default=str)
        if key not in known:
            made = machine_kind(Offer(**row.offer), row.nodes if is_group else 1, BOOT_HOURS)
            known[key] = replace(made, price=made.price / per_machine)
        kinds.append(known[key])
    ages = tuple(max(0.0, now - row.created) / 3600 for row in rows)
    return FleetView(kinds[0], ages, tuple(kinds))


def view_bag(
    counts: BagCounts,
    settings: BagSettings,
    fleet: FleetView,
    seconds: Sequence[float],
    running: Sequence[float],
    elapsed: float,
    alternatives: tuple[DegradedOption, ...] = (),
) -> BagView | None:
    """Return what is known of a bag; None while no machine is up, or where jobs are tiny.

    Parameters
    ----------
    seconds
        Run times of the jobs that have ended, s.
    running
        For how long those that run have, s.
    elapsed
        Since the begin, s.
    alternatives
        Other machines that can be had.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> fleet = FleetView(MachineKind("spot", Exponential(0.05), 0.24), (1.0, 1.0))
    >>> asked = BagSettings("f", "function", deadline=7200.0)
    >>> counts = BagCounts(queued=35, running=1, succeeded=5)
    >>> view = view_bag(counts, asked, fleet, [864.0] * 5, [36.0], elapsed=0.0)
    >>> view.jobs, view.deadline, [group.elapsed for group in view.groups]
    (36, 2.0, [0.01, None])
    """
    if fleet.kind is None or (seconds and max(seconds) < LEAST_SECONDS):
        return None
    busy = [each / 3600 for each in running][: len(fleet.ages)]
    elapsed_of = [*busy, *[None] * (len(fleet.ages) - len(busy))]
    kinds = fleet.kinds or (fleet.kind,) * len(fleet.ages)
    groups = tuple(map(JobGroup, kinds, fleet.ages, elapsed_of))
    wanted = None if settings.needed is None else settings.needed - counts.succeeded
    left = None if settings.deadline is None else (settings.deadline - elapsed) / 3600
    return BagView(
        counts.open - len(busy),
        tuple(max(each, 1e-3) / 3600 for each in seconds),
        groups,
        fleet.kind,
        wanted,
        left,
        alternatives=alternatives,
        most=fleet.most,
    )


def describe_late(plan: FleetPlan, left: float, settings: BagSettings) -> str:
    """Return a sentence on a deadline that no machines can keep, with the earliest end.

    Parameters
    ----------
    left
        Hours until the deadline.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> plan = FleetPlan(8, MachineKind("spot", Exponential(0.05), 0.24), "late", earliest=3.0)
    >>> describe_late(plan, 1.0, BagSettings("f", "function", deadline=7200.0))
    'the deadline of 2:00:00 cannot be kept: the end is after 4:00:00 at the earliest'
    """
    if plan.reason != "late" or plan.earliest is None or settings.deadline is None:
        return ""
    asked = format_duration(settings.deadline)
    end = settings.deadline + (plan.earliest - left) * 3600
    if not end < math.inf:
        return _("the deadline of {asked} cannot be kept: jobs never end on these machines").format(
            asked=asked
        )
    return _(
        "the deadline of {asked} cannot be kept: the end is after {end} at the earliest"
    ).format(asked=asked, end=format_duration(end))


# -- Machines on demand in place of spot machines: their price, and when they are an --------------

MOST_GROUPS = 10_000
"""Groups on demand that are taken to be there."""


@lru_cache(maxsize=64)
def cheapest_on_demand(resources: Resources) -> Offer | None:
    """Return the cheapest machine on demand that meets a request; None where there is none."""
    asked = replace(resources, spot=False, nodes=1, zone=None, max_hourly_cost=None)
    with suppress(SkyError):
        offers = [each for each in launchable_offers(asked) if each.price is not None]
        return min(offers, key=lambda offer: offer.price or 0.0, default=None)
    return None


def on_demand_option(
    resources: Resources, nodes: int = 1, per_machine: int = 1
) -> tuple[DegradedOption, ...]:
    """Return machines on demand as an alternative to spot machines; none for other requests.

    Parameters
    ----------
    nodes
        Machines of a group.
    per_machine
        Groups of one machine.
    """
    if not resources.spot:
        return ()
    offer = cheapest_on_demand(resources)
    if offer is None:
        return ()
    kind = machine_kind(offer, nodes, BOOT_HOURS)
    name = f"{kind.name} on demand"
    return (DegradedOption(replace(kind, name=name, price=kind.price / per_machine), MOST_GROUPS),)
