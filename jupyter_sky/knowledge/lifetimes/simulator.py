"""The simulator of bags: seeded and event driven."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model

YEAR = 8766.0
_BLOCK = 256


def simulate(
    bag: Bag | Iterable[float],
    fleet: Fleet,
    policy: Policy | None = None,
    seed: int = 0,
    limit: float = YEAR,
) -> Outcome:
    """Run a bag once; the same seed gives the same trace.

    Parameters
    ----------
    bag
        A bag, or the run times of its jobs in hours.
    limit
        Hours after which the simulation ends, finished or not.

    Returns
    -------
    Outcome
        Time, cost and trace.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential, Fleet
    >>> simulate([1.0] * 4, Fleet(Exponential(0.0), groups=2)).hours
    2.0
    """
    jobs = bag if isinstance(bag, Bag) else Bag(tuple(bag))
    run = _Run(
        jobs, fleet, policy or Policy(), seed, validation.check_number(limit, "limit", above=0)
    )
    return run.outcome()


def average(
    outcomes: Sequence[Outcome], figure: Callable[[Outcome], float] = lambda one: one.hours
) -> tuple[float, float]:
    """Return mean and standard error of a figure over several outcomes.

    Parameters
    ----------
    outcomes
        Results of `simulate`.
    figure
        From an outcome to a number; its hours unless given.

    Returns
    -------
    tuple of float
        Mean and standard error; NaN for the error of a single outcome.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential, Fleet
    >>> runs = [simulate([1.0], Fleet(Exponential(0.0)), seed=seed) for seed in range(3)]
    >>> average(runs)
    (1.0, 0.0)
    """
    values = np.array([figure(one) for one in outcomes], float)
    spread = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(spread)


@dataclass(eq=False)
class _Machine:
    born: float
    end: float
    ready: float
    alive: bool = True
    used: bool = False


@dataclass(eq=False)
class _Group:
    """One group: its machines, its job and the segment of it that runs."""

    number: int
    machines: list[_Machine]
    job: int | None = None
    remaining: float = 0.0
    began: float = math.nan
    work: float = 0.0
    epoch: int = 0

    @property
    def running(self) -> bool:
        return not math.isnan(self.began)


class _Run:
    """The state of one simulation."""

    def __init__(self, bag: Bag, fleet: Fleet, policy: Policy, seed: int, limit: float) -> None:
        self.bag, self.fleet, self.policy, self.limit = bag, fleet, policy, limit
        self.rng = np.random.default_rng(seed)
        self.pool: list[float] = []
        self.fates: dict[float, float] = {}
        self.queue = deque(range(len(bag.hours)))
        self.events: list[tuple[float, int, str, Any, int]] = []
        self.order = 0
        self.trace: list[Event] = []
        self.machine_hours = self.lost_hours = 0.0
        self.finished = self.preemptions = self.failures = 0
        self.groups = [_Group(number, []) for number in range(fleet.groups)]
        self.now = 0.0

    def outcome(self) -> Outcome:
        for group in self.groups:
            if self.queue:
                group.machines = [self._launch(group) for _ in range(self.fleet.nodes)]
                self._begin(group)
        while self.events and self.finished < self.bag.target:
            at, _, what, subject, epoch = heapq.heappop(self.events)
            if at > self.limit:
                self.now = self.limit
                break
            self.now = max(self.now, at)
            if what == "end":
                self._lose(*subject)
            elif epoch == subject.epoch:
                (self._start if what == "ready" else self._segment_done)(subject)
        for group in self.groups:
            self._release(group)
        return Outcome(
            hours=self.now,
            usd=self.machine_hours * self.fleet.price,
            machine_hours=self.machine_hours,
            finished=self.finished,
            preemptions=self.preemptions,
            failures=self.failures,
            lost_hours=self.lost_hours,
            trace=tuple(self.trace),
        )

    # -- machines ----------------------------------------------------------------------------

    def _launch(self, group: _Group) -> _Machine:
        born = self.now
        machine = _Machine(born, born + self._lifetime(), born + self.fleet.boot)
        if machine.end < math.inf:
            self._schedule_event(machine.end, "end", (group, machine))
        self._record_event("launch", group)
        return machine

    def _lifetime(self) -> float:
        if self.fleet.shared_fate:
            if self.now not in self.fates:
                shape = 1 / self.fleet.shared_fate
                self.fates = {self.now: float(self.rng.gamma(shape, 1 / shape))}
            hazard = max(self.fates[self.now], 1e-9)
            return float(self.fleet.lifetime.times(hazard).sample(1, self.rng)[0])
        if not self.pool:
            self.pool = self.fleet.lifetime.sample(_BLOCK, self.rng).tolist()[::-1]
        return self.pool.pop()

    def _stop(self, machine: _Machine) -> None:
        if machine.alive:
            machine.alive = False
            self.machine_hours += self.now - machine.born

    def _release(self, group: _Group) -> None:
        if group.machines:
            self._record_event("release", group)
        for machine in group.machines:
            self._stop(machine)
        group.machines = []

    def _lose(self, group: _Group, machine: _Machine) -> None:
        if not machine.alive:
            return
        self._stop(machine)
        self.preemptions += 1
        if group.running:
            self.failures += 1
            self.lost_hours += self.now - group.began
            self._record_event("lost", group)
        else:
            self._record_event("gone", group)
        group.began = math.nan
        group.machines[group.machines.index(machine)] = self._launch(group)
        self._begin(group)

    # -- jobs --------------------------------------------------------------------------------

    def _begin(self, group: _Group) -> None:
        """Take a job if the group has none, exchange machines, and start when all are up."""
        group.epoch += 1
        if group.job is None:
            if not self.queue:
                self._release(group)
                return
            group.job = self.queue.popleft()
            group.remaining = self.bag.hours[group.job]
        for place, machine in enumerate(group.machines):
            if machine.used and not self.policy.keep(self.now - machine.born, group.remaining):
                self._stop(machine)
                group.machines[place] = self._launch(group)
        ready = max(machine.ready for machine in group.machines)
        if ready > self.now:
            self._schedule_event(ready, "ready", group, group.epoch)
        else:
            self._start(group)

    def _start(self, group: _Group) -> None:
        for machine in group.machines:
            machine.used = True
        self._record_event("start", group)
        self._segment(group)

    def _segment(self, group: _Group) -> None:
        group.began = self.now
        group.work = self._work(group)
        saving = self.policy.cost if group.work < group.remaining else 0.0
        self._schedule_event(self.now + group.work + saving, "segment", group, group.epoch)

    def _work(self, group: _Group) -> float:
        if self.policy.checkpoint is None:
            return group.remaining
        age = max(self.now - machine.born for machine in group.machines)
        work = validation.check_number(
            self.policy.checkpoint(group.remaining, age), "work to the next checkpoint", above=0
        )
        # what a broken number leaves over is no work
        return work if work < group.remaining - 1e-9 else group.remaining

    def _segment_done(self, group: _Group) -> None:
        if group.work < group.remaining:
            group.remaining -= group.work
            self._record_event("save", group)
            self._segment(group)
            return
        self.finished += 1
        self._record_event("done", group)
        group.job, group.began = None, math.nan
        if self.finished < self.bag.target:
            self._begin(group)

    def _schedule_event(self, when: float, what: str, subject: Any, epoch: int = 0) -> None:
        self.order += 1
        heapq.heappush(self.events, (when, self.order, what, subject, epoch))

    def _record_event(self, what: str, group: _Group) -> None:
        self.trace.append(Event(self.now, what, group.number, group.job))


def simulate_turnaround(
    model: Model, work: float, nodes: int = 1, runs: int = 10_000, seed: int = 0
) -> tuple[float, float]:
    """Simulate one job many times; lost machines are replaced at once.

    The same as `simulate` with one job and no boot time, a hundred times faster. Runs that fail a
    thousand times are given up: the mean is then infinite.

    Parameters
    ----------
    model
        Lifetime of one machine.
    work
        Hours of the job without failures.
    nodes
        Number of machines.
    runs, seed
        Number of runs, and seed of the generator of random numbers.

    Returns
    -------
    tuple of float
        Mean hours and their standard error.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> simulate_turnaround(Exponential(0.0), 2.0, runs=10)
    (2.0, 0.0)
    """
    validation.check_number(work, "work (hours)", above=0)
    rng = np.random.default_rng(seed)
    ends = model.sample(runs * nodes, rng).reshape(runs, nodes)
    began, ended, open_runs = np.zeros(runs), np.full(runs, math.inf), np.arange(runs)
    for __ in range(1000):
        first = ends[open_runs].argmin(axis=1)
        lost = ends[open_runs, first]
        done = lost >= began[open_runs] + work
        ended[open_runs[done]] = began[open_runs[done]] + work
        open_runs, first, lost = open_runs[~done], first[~done], lost[~done]
        if not len(open_runs):
            break
        began[open_runs] = lost
        ends[open_runs, first] = lost + model.sample(len(open_runs), rng)
    if not np.isfinite(ended).all():
        return math.inf, math.inf
    return float(ended.mean()), float(ended.std() / math.sqrt(runs))


# -- Bags of jobs on machines that may be taken back: what is simulated, and what comes out -------
#
# A bag is many jobs of known run times. A fleet runs some of them at a time, each on a group of
# machines that work together. When a machine is lost its group's job goes back to its last
# checkpoint, a new machine takes the place, and the group goes on when it is up. A policy says when
# a group's machines are exchanged before they are lost, and when jobs save checkpoints. Policies
# are judged by the outcomes (section 4.2 of SciSpot: reuse machines, replenish, stop at m of n
# jobs).


@dataclass(frozen=True)
class Bag:
    """Jobs to run, in this order.

    Attributes
    ----------
    hours : tuple of float
        Run time of each job on one group without failures.
    needed : int, optional
        How many must finish; all unless given. The rest is given up then.

    Examples
    --------
    >>> Bag((1.0, 2.0, 4.0), needed=2).hours
    (1.0, 2.0, 4.0)
    """

    hours: tuple[float, ...]
    needed: int | None = None

    def __post_init__(self) -> None:
        if not self.hours:
            raise SkyUsageError(
                _("a bag without jobs"), hint=_("give the run time of each job, hours")
            )
        for hours in self.hours:
            validation.check_number(hours, "run time of a job (hours)", above=0)
        if self.needed is not None and validation.check_count(self.needed, "needed") > len(
            self.hours
        ):
            raise SkyUsageError(
                _("{needed} of {hours_count} jobs cannot finish").format(
                    needed=self.needed, hours_count=len(self.hours)
                ),
                hint=_("need fewer"),
            )

    @property
    def target(self) -> int:
        """Number of jobs that must finish."""
        return len(self.hours) if self.needed is None else self.needed


@dataclass(frozen=True)
class Fleet:
    """Machines that a bag runs on.

    Attributes
    ----------
    lifetime : Model
        Hours from the launch of a machine until its cloud takes it back.
    groups : int
        Jobs that run at once.
    nodes : int
        Machines of each group, all of which a job needs.
    price : float
        USD/h of one machine, from its launch to its end.
    boot : float
        Hours from a launch until the machine can work.
    shared_fate : float
        Variance of a gamma distributed factor, of mean 1, on the hazard of all machines that are
        launched at the same moment; 0 for independent machines. Batches of the 2019 data had 2.5
        times the binomial variance.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> Fleet(Exponential(0.1), groups=4, nodes=2, price=0.3).nodes
    2
    """

    lifetime: Model
    groups: int = 1
    nodes: int = 1
    price: float = 0.0
    boot: float = 0.0
    shared_fate: float = 0.0

    def __post_init__(self) -> None:
        for name in ("groups", "nodes"):
            validation.check_count(getattr(self, name), name)
        for name in ("price", "boot", "shared_fate"):
            validation.check_number(getattr(self, name), name)


def _always(age: float, hours: float) -> bool:
    return True


@dataclass(frozen=True)
class Policy:
    """Policy of reuse and checkpoints while a bag runs.

    Attributes
    ----------
    keep : callable
        From a machine's age and the hours that the next job will take on it to whether it is used
        again; asked before each attempt of a machine that has worked. By default always.
    checkpoint : callable, optional
        From the remaining work and the age of the group's oldest machine, both in hours, to the
        work until the next checkpoint. Without, jobs save nothing.
    cost : float
        Hours that a checkpoint takes.

    Examples
    --------
    >>> policy = Policy(checkpoint=lambda work, age: 0.5, cost=1 / 60)
    >>> policy.checkpoint(2.0, 0.0)
    0.5
    """

    keep: Callable[[float, float], bool] = _always
    checkpoint: Callable[[float, float], float] | None = None
    cost: float = 0.0


def never(age: float, hours: float) -> bool:
    """Decide, as a `keep`, for a new machine at every attempt.

    Parameters
    ----------
    age
        Hours that the machine has lived.
    hours
        Hours that the next job will take.

    Returns
    -------
    bool
        False.

    Examples
    --------
    >>> never(2.0, 1.0)
    False
    """
    return False


@dataclass(frozen=True, slots=True)
class Event:
    """Event of a simulated bag.

    Attributes
    ----------
    at : float
        Hours since the start.
    what : str
        ``launch``, ``start``, ``save``, ``done``, ``lost`` (a machine and the work since the last
        checkpoint), ``gone`` (a machine of an idle or booting group) or ``release``.
    group : int
        Number of the group.
    job : int, optional
        Number of the job; None when the group had none.

    Examples
    --------
    >>> Event(0.5, "start", group=0, job=3).what
    'start'
    """

    at: float
    what: str
    group: int
    job: int | None


@dataclass(frozen=True)
class Outcome:
    """Result of a simulated bag.

    Attributes
    ----------
    hours : float
        From the start until enough jobs have finished, or until the time limit.
    usd, machine_hours : float
        Over all machines, from launch to end.
    finished : int
        Jobs that ended.
    preemptions, failures : int
        Machines taken back, and attempts that this cut off.
    lost_hours : float
        Time of groups spent on work or checkpoints that were lost.
    trace : tuple of Event
        Everything that happened, in order.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential, Fleet, simulate
    >>> outcome = simulate([1.0] * 4, Fleet(Exponential(0.0), groups=2, price=0.5))
    >>> outcome.hours, outcome.usd, outcome.finished
    (2.0, 2.0, 4)
    """

    hours: float
    usd: float
    machine_hours: float
    finished: int
    preemptions: int
    failures: int
    lost_hours: float
    trace: tuple[Event, ...] = field(repr=False)
