"""Plan of a bag's machines: how many, of which kind, asked again and again while it runs.

A bag begins on a few groups. Once three jobs have ended, or where an earlier bag of the same app
has told run times, the number is the least that keeps the deadline. It is asked again at each
twentieth of the jobs and of the time; machines are only added, since those that have nothing to do
are given back by themselves. Where the machines that run the bag cannot keep the deadline, other
ones are weighed by their expected cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.knowledge.lifetimes.models import Exponential
from jupyter_sky.knowledge.lifetimes.servers import LifetimesBy, find_lifetime
from jupyter_sky.workflows.bags.decisions.backlog import Backlog, JobGroup, MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_size import choose_fleet_size, earliest_deadline
from jupyter_sky.workflows.bags.decisions.job_forecast import (
    BagForecast,
    DegradedOption,
    choose_degraded,
    forecast_bag,
)
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes

FIRST_GROUPS = 8
"""Groups while next to nothing is known of run times."""
KNOWN = 3
"""Finished jobs from which on groups are counted by their run times."""
PARTS = 20
"""Parts of the jobs, and of the time, after each of which the plan is asked again."""


@dataclass(frozen=True)
class BagView:
    """What is known of a bag at one moment. Times are hours.

    Attributes
    ----------
    queued : int
        Jobs that no group has.
    finished : tuple of float
        Run times of the jobs that have ended, over the `ratio` of their machines.
    groups : tuple of JobGroup
        Machines that are there or are being launched.
    kind : MachineKind
        Machines that run the bag.
    needed : int, optional
        Jobs that must still succeed; all unless given.
    deadline : float, optional
        Time that is left.
    earlier : tuple of float
        Run times of earlier bags of the same app on this kind, used while too few have ended.
    alternatives : tuple of DegradedOption
        Other machines, for when these cannot be had or are not enough.
    most : int, optional
        Most groups that are allowed.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> view = BagView(36, (), (), MachineKind("spot", Exponential(0.05), 0.24), deadline=2.0)
    >>> view.backlog is None
    True
    """

    queued: int
    finished: tuple[float, ...]
    groups: tuple[JobGroup, ...]
    kind: MachineKind
    needed: int | None = None
    deadline: float | None = None
    earlier: tuple[float, ...] = ()
    alternatives: tuple[DegradedOption, ...] = ()
    most: int | None = None

    @property
    def backlog(self) -> Backlog | None:
        """Rest of the bag; None while its run times are not known."""
        known = self.finished if len(self.finished) >= KNOWN else self.finished + self.earlier
        if len(known) < KNOWN:
            return None
        running = [group.elapsed for group in self.groups if group.elapsed is not None]
        return Backlog(self.queued, RunTimes.of(known, running), self.groups, self.needed)

    @property
    def jobs(self) -> int:
        """Jobs that are queued or run."""
        return self.queued + sum(group.is_running for group in self.groups)


@dataclass(frozen=True)
class FleetPlan:
    """Machines for the rest of a bag.

    Attributes
    ----------
    groups : int
        Groups in all.
    kind : MachineKind
        Kind of those that are added.
    reason : str
        ``little known``; ``no deadline``; ``deadline``: the least that keep it; ``degraded``: the
        cheapest that keep it are others; ``waiting``: these do not, but others can still be taken
        later; ``late``: nothing keeps it.
    earliest : float, optional
        Where nothing does, the hours after which the bag ends at the earliest with 95 %.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> FleetPlan(8, MachineKind("spot", Exponential(0.05), 0.24), "little known").earliest is None
    True
    """

    groups: int
    kind: MachineKind
    reason: str
    earliest: float | None = None


def plan_fleet(view: BagView, again: float | None = None, seed: int = 0) -> FleetPlan:
    """Return how many groups a bag should have now, and of which kind those are that are added.

    Parameters
    ----------
    view
        What is known of the bag.
    again
        Hours until this is asked again; a twentieth of the time that is left unless given.
    seed
        Seed of the simulations.

    Returns
    -------
    FleetPlan
        Never fewer groups than there are.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import FloorHyperbolic
    >>> kind = MachineKind("spot", FloorHyperbolic(0.0075, 0.615, 0.3, 24.0), 0.24, boot=0.05)
    >>> plan_fleet(BagView(36, (), (), kind, deadline=2.0)).groups
    8
    >>> plan_fleet(BagView(36, (0.24,) * 5, (), kind, deadline=2.0)).groups
    6
    """
    there, backlog = len(view.groups), view.backlog
    most = min(view.jobs, view.most or view.jobs)
    if not view.queued or view.deadline is None or backlog is None:
        reason = "little known" if backlog is None else "no deadline"
        return FleetPlan(max(there, min(most, FIRST_GROUPS)), view.kind, reason)
    left = max(view.deadline, 1e-6)
    size = choose_fleet_size(backlog, view.kind, left, most=most, seed=seed)
    if size.is_enough:
        return FleetPlan(max(there, size.groups), view.kind, "deadline")
    kind, groups, reason = view.kind, size.groups, "late"
    if view.alternatives:
        options = (DegradedOption(view.kind, most), *view.alternatives)
        again = left / PARTS if again is None else again
        choice = choose_degraded(backlog, options, left, again=again, seed=seed)
        kind, groups = choice.option.kind, choice.forecast.groups
        reason = "waiting" if choice.can_wait else "degraded" if choice.keeps_deadline else "late"
    if reason != "late":
        return FleetPlan(max(there, groups), kind, reason)
    earliest = earliest_deadline(backlog, kind, max(groups, there, 1), seed=seed)
    return FleetPlan(max(there, groups), kind, reason, earliest)


def is_due(done: int, total: int, asked: int) -> bool:
    """Return whether so many more jobs have ended that the plan is asked again.

    Parameters
    ----------
    done, asked
        Jobs that have ended, now and when it was asked last.
    total
        Jobs that must succeed.

    Returns
    -------
    bool
        At the third job, and at each twentieth of all.

    Examples
    --------
    >>> is_due(3, 1000, 0), is_due(4, 1000, 3), is_due(50, 1000, 3)
    (True, False, True)
    """
    if asked < KNOWN:
        return done >= KNOWN
    step = max(1, total // PARTS)
    return done // step > asked // step


def forecast_view(view: BagView, seed: int = 0) -> BagForecast | None:
    """Return the expected end and cost with the groups that are there; None while unknown.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> kind = MachineKind("safe", Exponential(0.0), price=0.5)
    >>> forecast = forecast_view(BagView(7, (1.0,) * 30, (JobGroup(kind, 3.0, 0.0),), kind))
    >>> 7.8 < forecast.hours.mean < 8.2 and 3.9 < forecast.usd.mean < 4.1
    True
    """
    backlog = view.backlog
    return None if backlog is None else forecast_bag(backlog, view.kind, None, view.deadline, seed)


def machine_kind(
    offer: Offer,
    nodes: int = 1,
    boot: float = 0.0,
    lifetimes: LifetimesBy | None = None,
    ratio: float = 1.0,
) -> MachineKind:
    """Return the machines of an offer, with the lifetimes that are known of it.

    Parameters
    ----------
    offer
        Offer of the catalog.
    nodes
        Machines of a group.
    boot
        Hours from a launch until a machine can work.
    lifetimes
        As `preemption.select_server` takes them; those of `preemption.current()` hold what the
        tracker has seen. Machines on demand are taken never to be lost.
    ratio
        Run time on them over that of the machines which were measured.

    Returns
    -------
    MachineKind
        The machines.

    Examples
    --------
    >>> offer = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> machine_kind(offer, nodes=4, boot=0.05).price
    0.12
    """
    model = find_lifetime(lifetimes, offer) if offer.spot else None
    if model is None:
        model = Exponential(0.0) if not offer.spot else find_lifetime(None, offer)
    assert model is not None  # assumed lifetimes are known of every spot offer
    price = offer.price or 0.0
    return MachineKind(offer.place, model, price, nodes, boot, ratio)
