"""A world with a virtual clock in which decisions of `jupyter_sky.workflows.bags` run bags of jobs.

Job times and lives of machines are drawn once for each seed, by number of the job and of the
machine: policies that are compared meet the same ones. What decides sees finished jobs, running
jobs and ages of machines, never what is drawn.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from jupyter_sky.knowledge.lifetimes import Model
from jupyter_sky.workflows.bags.decisions.backlog import JobGroup, MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_plan import BagView, is_due
from jupyter_sky.workflows.bags.decisions.reuse import ReusePlan, plan_reuse
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
from jupyter_sky.workflows.bags.decisions.scheduling import consider_copy

DETECTION = 10 / 3600
"""Hours from the silent loss of a machine until its replacement is asked for."""


@dataclass(frozen=True)
class Bag:
    """Jobs of a bag, and the machines on which the world runs them."""

    hours: np.ndarray
    kind: MachineKind
    lifetime: Model
    seed: int = 0
    needed: int | None = None
    deadline: float | None = None
    slow: float = 0.0
    """Share of attempts that take four times as long, by no fault of the job."""


@dataclass(frozen=True)
class Rules:
    """What decides while a bag runs.

    Attributes
    ----------
    wanted
        From the world to the number of groups; asked at the start, at each twentieth of the jobs
        and at each twentieth of the deadline.
    """

    wanted: Callable[[World], int]
    reuse: bool = True
    fresh: bool = False
    copies: float | None = None
    """USD that an hour sooner is worth; without, stragglers are not copied."""
    results_on_workers: bool = False


@dataclass(eq=False)
class Machines:
    """One group: its machines' births and ends, and its job."""

    number: int
    kind: MachineKind
    born: list[float]
    ends: list[float]
    ready: float
    job: int | None = None
    began: float = math.nan
    epoch: int = 0
    kept: list[int] = field(default_factory=list)
    released: bool = False


@dataclass(frozen=True)
class Result:
    """What a bag took."""

    hours: float
    usd: float
    machine_hours: float
    losses: int
    attempts: int
    forecasts: tuple[tuple[float, float, float], ...]


class World:
    """One bag on its way through virtual time."""

    def __init__(self, bag: Bag, rules: Rules, probe: Callable[[World], tuple] | None = None):
        self.bag, self.rules, self.probe = bag, rules, probe
        self.lives = np.random.default_rng([bag.seed, 1])
        self.slowness = np.random.default_rng([bag.seed, 2])
        self.queue, self.done = deque(range(len(bag.hours))), dict[int, float]()
        self.groups: list[Machines] = []
        self.events: list[tuple[float, int, str, Machines | None, int]] = []
        self.now = self.usd = self.machine_hours = 0.0
        self.order = self.losses = self.attempts = 0
        self.finished_hours: list[float] = []
        self.asked = 0
        self.forecasts: list[tuple[float, float, float]] = []
        self.plan: ReusePlan | None = None
        self.kind = bag.kind

    @property
    def target(self) -> int:
        return self.bag.needed or len(self.bag.hours)

    def run(self) -> Result:
        self._resize()
        if self.bag.deadline:
            for part in range(1, 20):
                self._push(self.bag.deadline * part / 20, "ask", None)
        while len(self.done) < self.target:
            at, _, what, group, epoch = heapq.heappop(self.events)
            self.now = at
            if what == "ask":
                self._resize()
            elif group is not None and not group.released and epoch == group.epoch:
                getattr(self, f"_{what}")(group)
        for group in self.groups:
            self._release(group)
        forecasts = tuple(self.forecasts)
        return Result(self.now, self.usd, self.machine_hours, self.losses, self.attempts, forecasts)

    def view(self) -> BagView:
        """Return what the product knows of the bag."""
        groups = tuple(
            JobGroup(
                group.kind,
                max(self.now - max(group.born), 0.0),
                None if group.job is None else max(self.now - group.began, 0.0),
            )
            for group in self.groups
            if not group.released
        )
        finished = tuple(self.finished_hours)
        needed = self.target - len(self.done)
        return BagView(len(self.queue), finished, groups, self.bag.kind, needed)

    # -- machines --------------------------------------------------------------------------------

    def _resize(self) -> None:
        wanted = self.rules.wanted(self)
        alive = sum(not group.released for group in self.groups)
        for _ in range(min(wanted - alive, len(self.queue))):
            group = Machines(len(self.groups), self.kind, [], [], self.now)
            self.groups.append(group)
            self._launch_all(group)

    def _life(self, kind: MachineKind) -> float:
        model = self.bag.lifetime if kind.name == self.bag.kind.name else kind.lifetime
        return float(model.sample(1, self.lives)[0])

    def _launch_all(self, group: Machines) -> None:
        nodes = group.kind.nodes
        group.born = [self.now] * nodes
        group.ends = [self.now + self._life(group.kind) for _ in range(nodes)]
        group.ready = self.now + group.kind.boot
        self._await(group, group.ready, "ready")

    def _await(self, group: Machines, at: float, what: str) -> None:
        """Let a group's next event be this one, or the loss of a machine before it."""
        group.epoch += 1
        first = min(group.ends)
        self._push(min(at, first), "lost" if first < at else what, group)

    def _push(self, at: float, what: str, group: Machines | None) -> None:
        self.order += 1
        epoch = group.epoch if group else 0
        heapq.heappush(self.events, (at, self.order, what, group, epoch))

    def _pay(self, group: Machines, born: float) -> None:
        self.machine_hours += self.now - born
        self.usd += (self.now - born) * group.kind.price

    def _release(self, group: Machines) -> None:
        if not group.released:
            group.released = True
            for born in group.born:
                self._pay(group, born)

    def _lost(self, group: Machines) -> None:
        self.losses += 1
        place = group.ends.index(min(group.ends))
        self._pay(group, group.born[place])
        if group.job is not None and not self._has_other(group):
            self.queue.appendleft(group.job)
        group.job = None
        if self.rules.results_on_workers:
            for job in group.kept:
                if self.done.pop(job, None) is not None:
                    self.queue.append(job)
            group.kept = []
        if not self.queue and not self.rules.results_on_workers:
            group.born.pop(place)
            self._release(group)
            return
        launched = self.now + DETECTION
        group.born[place] = launched
        group.ends[place] = launched + self._life(group.kind)
        group.ready = launched + group.kind.boot
        self._await(group, group.ready, "ready")

    # -- jobs ------------------------------------------------------------------------------------

    def _has_other(self, group: Machines) -> bool:
        others = (g for g in self.groups if g is not group and not g.released)
        return any(other.job == group.job for other in others)

    def _ready(self, group: Machines) -> None:
        if not self.queue:
            self._idle(group)
            return
        group.job = self.queue.popleft()
        self._start(group)

    def _start(self, group: Machines) -> None:
        assert group.job is not None
        self.attempts += 1
        hours = float(self.bag.hours[group.job]) * group.kind.ratio
        if self.bag.slow and self.slowness.random() < self.bag.slow:
            hours *= 4
        group.began = self.now
        self._await(group, self.now + hours, "finished")

    def _idle(self, group: Machines) -> None:
        """Give the machines back, or copy the worst straggler."""
        running = [g for g in self.groups if g.job is not None and not g.released]
        if self.rules.copies is not None and running and self.finished_hours:
            times = RunTimes.of(self.finished_hours, [self.now - g.began for g in running])
            alone = [g for g in running if not self._has_other(g)]
            for slowest in sorted(alone, key=lambda g: g.began):
                elapsed = self.now - slowest.began
                worth = {"price": self.kind.price, "value": self.rules.copies}
                if consider_copy(elapsed, times, **worth).pays:
                    group.job = slowest.job
                    self._start(group)
                    return
            if alone:  # looked at again when one of them may have become a straggler
                self._await(group, self.now + 0.1 * times.median, "ready")
                return
        if self.rules.results_on_workers:
            self._await(group, self.now + 0.05, "ready")
        else:
            self._release(group)

    def _finished(self, group: Machines) -> None:
        job, hours = group.job, self.now - group.began
        assert job is not None
        group.job = None
        if job not in self.done:
            self.done[job] = self.now
            self.finished_hours.append(hours / group.kind.ratio)
            group.kept.append(job)
        for other in self.groups:
            if other.job == job and not other.released:  # the race is over
                other.job = None
                self._await(other, self.now, "ready")
        self._ask_again()
        if self.queue and not self._keeps(group):
            for born in group.born:
                self._pay(group, born)
            self._launch_all(group)
        else:
            self._ready(group)

    def _ask_again(self) -> None:
        """Ask for the number of groups, and for a forecast, where that is due."""
        if is_due(len(self.done), self.target, self.asked):
            self.asked = len(self.done)
            self._resize()
            if self.probe and len(self.done) >= 3:
                self.forecasts.append(self.probe(self))

    def _keeps(self, group: Machines) -> bool:
        if self.rules.fresh:
            return False
        if not self.rules.reuse:
            return True
        if self.plan is None:
            mean = float(np.mean(self.finished_hours))
            kind = replace(group.kind)
            self.plan = plan_reuse(kind.lifetime.times(kind.nodes), mean, kind.boot)
        ahead = max(1, math.ceil(len(self.queue) / max(1, len(self.groups))))
        return self.plan.keeps(self.now - min(group.born), ahead)
