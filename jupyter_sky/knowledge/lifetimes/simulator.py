"""The simulator of bags: seeded and event driven."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.bags import Bag, Event, Fleet, Outcome, Policy
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
    for _ in range(1000):
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
