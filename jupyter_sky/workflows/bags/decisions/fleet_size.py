"""Number of machine groups with which a bag keeps its deadline.

The paper (SciSpot, section 4.2) prints ``k = D / E[T]``. That is the number of jobs that *one*
group can finish by the deadline D, the inverse of what is wanted; with n jobs it must be
``k = ceil(n E[T] / D)``. That again is late in 60 to 100 % of runs: it leaves no room for the
spread of run times, for losses above their mean, and for the last jobs, while which other groups
have nothing to do. Here k is the least number with ``P(makespan <= D) >= 0.95``, by simulation
with the run times and the losses that are known. A few groups more cost almost nothing: what is
paid is the work, and groups are given back once the queue is empty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.renewals import turnaround
from jupyter_sky.workflows.bags.decisions.backlog import Backlog, MachineKind
from jupyter_sky.workflows.bags.decisions.group_simulation import GroupTimes, simulate_groups

CHANCE = 0.95
"""Chance with which a deadline is to be kept."""
SLACK = 0.02
"""Difference of chances that more groups must make: it is asked often, by simulation."""
FEW = 10
"""Finished jobs below which the doubt about run times is left out."""


@dataclass(frozen=True)
class FleetSize:
    """Number of groups for a deadline.

    Attributes
    ----------
    groups : int
        Groups in all, those that are there among them.
    chance : float
        Chance that the bag ends by the deadline with that many.
    is_enough : bool
        Whether this chance is the one asked for. Otherwise `groups` is the most that are allowed,
        or that help.
    by_mean : int
        ``ceil(n E[T] / D)``, for comparison.

    Examples
    --------
    >>> FleetSize(6, 0.99, True, by_mean=5).groups
    6
    """

    groups: int
    chance: float
    is_enough: bool
    by_mean: int


def choose_fleet_size(
    backlog: Backlog,
    kind: MachineKind,
    deadline: float,
    *,
    chance: float = CHANCE,
    most: int | None = None,
    seed: int = 0,
) -> FleetSize:
    """Return the least number of groups that keep a deadline with a given chance.

    It is meant to be asked again at each twentieth of the jobs. So long as fewer than ten jobs have
    finished, their spread counts but not how little is known of it: machines for the worst that
    three jobs allow would be many, and can be added when ten jobs say so. Groups that are there
    are enough within 0.02 of the chance.

    Parameters
    ----------
    backlog
        Rest of the bag, with the groups that are there.
    kind
        Machines of further groups.
    deadline
        Hours from now.
    chance
        Wanted chance.
    most
        Most groups that are allowed, for a budget or a quota.
    seed
        Seed of the simulation.

    Returns
    -------
    FleetSize
        Groups, and the chance that they have.

    Raises
    ------
    SkyUsageError
        For a deadline or a chance that makes no sense.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
    >>> from jupyter_sky.knowledge.lifetimes import FloorHyperbolic
    >>> kind = MachineKind("spot", FloorHyperbolic(0.0075, 0.615, 0.3, 24.0), 0.24, boot=0.05)
    >>> size = choose_fleet_size(Backlog(36, RunTimes.of([0.24] * 5)), kind, deadline=2.0)
    >>> size.by_mean, size.groups
    (5, 6)
    """
    validation.check_number(deadline, "deadline (hours)", above=0)
    if not 0 < chance < 1:
        raise SkyUsageError(
            _("a chance of {chance:g}").format(chance=chance), hint=_("give one between 0 and 1")
        )
    backlog = backlog.ordered()
    if sum(backlog.run_times.weights) < FEW + 1:
        backlog = replace(backlog, run_times=backlog.run_times.without_doubt())
    least = max(1, sum(group.is_running for group in backlog.groups))
    most = max(least, min(backlog.jobs, most or backlog.jobs))
    by_mean = mean_groups(backlog, kind, deadline)
    backlog = backlog.coarse(2 * by_mean)
    # the last jobs start early enough for a long one, and the mean is not quite known
    tail = min(backlog.run_times.quantile(0.995) * kind.ratio, deadline / 2)
    guess = 1.15 * by_mean * deadline / (deadline - tail) + 2
    upper = min(most, max(least, math.ceil(guess)))
    reached = 0.0
    while True:
        times = simulate_groups(backlog, kind, upper, deadline, seed)
        before, reached = reached, times.chance(upper, backlog.jobs, backlog.target)
        if reached >= chance or upper == most or 0 < before > reached - SLACK:
            break
        upper = min(most, 2 * upper)
    there = len(backlog.groups)
    if 0 < there <= upper:
        now = times.chance(there, backlog.jobs, backlog.target)
        if now >= min(chance, reached) - SLACK:
            return FleetSize(there, now, now >= chance - SLACK, by_mean)
    # where nothing is enough, no more than help
    wanted = chance if reached >= chance else max(reached - SLACK, 1e-9)
    groups, found = _least(times, backlog, least, upper, wanted)
    return FleetSize(groups, found, reached >= chance, by_mean)


def mean_groups(backlog: Backlog, kind: MachineKind, deadline: float) -> int:
    """Return ``ceil(n E[T] / D)``, with the expected turnaround E[T] of a new group.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> kind = MachineKind("safe", Exponential(0.0), 0.24)
    >>> mean_groups(Backlog(36, RunTimes((0.24,), (1.0,))), kind, 2.0)
    5
    """
    work = backlog.run_times.mean * kind.ratio
    hours = turnaround(kind.lifetime, work, kind.nodes, restart=kind.boot).hours
    if hours == math.inf:
        return backlog.jobs
    return max(1, min(backlog.jobs, math.ceil(backlog.target * hours / deadline - 1e-9)))


def earliest_deadline(
    backlog: Backlog, kind: MachineKind, groups: int, *, chance: float = CHANCE, seed: int = 0
) -> float:
    """Return the earliest deadline that some groups keep with a given chance.

    Parameters
    ----------
    backlog, kind, chance, seed
        As in `choose_fleet_size`.
    groups
        Number of groups.

    Returns
    -------
    float
        Hours from now; ``inf`` where jobs never end on these machines.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> kind = MachineKind("safe", Exponential(0.0), 0.24, boot=0.1)
    >>> earliest_deadline(Backlog(8, RunTimes((1.0,), (1.0,))), kind, 4)
    2.1
    """
    backlog = backlog.ordered().coarse(groups)
    times = simulate_groups(backlog, kind, groups, seed=seed)
    hours = sorted(times.finish(groups, backlog.jobs, backlog.target).tolist())
    return float(hours[min(len(hours) - 1, math.ceil(chance * len(hours)) - 1)])


def _least(
    times: GroupTimes, backlog: Backlog, low: int, high: int, chance: float
) -> tuple[int, float]:
    """Bisect for the least number of groups; `high` is known to be enough."""
    reached = times.chance(high, backlog.jobs, backlog.target)
    while low < high:
        middle = (low + high) // 2
        found = times.chance(middle, backlog.jobs, backlog.target)
        if found >= chance:
            high, reached = middle, found
        else:
            low = middle + 1
    return high, reached
