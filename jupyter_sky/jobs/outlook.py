"""View of a bag that the decisions on its machines and its forecast take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..offers import Offer
from ..store.store import ClusterRow
from .backlog import JobGroup, MachineKind
from .fleet_plan import BagView, machine_kind
from .values import BagCounts, BagSettings

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
    """

    kind: MachineKind | None = None
    ages: tuple[float, ...] = ()


def view_fleet(rows: Sequence[ClusterRow], per_machine: int, now: float) -> FleetView:
    """Return the machines of clusters that are up, a group for each job that runs at a time.

    Parameters
    ----------
    rows
        Records of the clusters.
    now
        Unix time.
    """
    if not rows:
        return FleetView()
    made = machine_kind(Offer(**rows[0].offer), boot=BOOT_HOURS)
    slots = [row for row in rows for _slot in range(row.nodes * per_machine)]
    ages = tuple(max(0.0, now - row.created) / 3600 for row in slots)
    return FleetView(replace(made, price=made.price / per_machine), ages)


def view_bag(
    counts: BagCounts,
    settings: BagSettings,
    fleet: FleetView,
    seconds: Sequence[float],
    running: Sequence[float],
    elapsed: float,
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

    Examples
    --------
    >>> from ..preemption import Exponential
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
    groups = tuple(
        JobGroup(fleet.kind, age, since) for age, since in zip(fleet.ages, elapsed_of, strict=True)
    )
    wanted = None if settings.needed is None else settings.needed - counts.succeeded
    left = None if settings.deadline is None else (settings.deadline - elapsed) / 3600
    return BagView(
        counts.open - len(busy),
        tuple(max(each, 1e-3) / 3600 for each in seconds),
        groups,
        fleet.kind,
        wanted,
        left,
    )
