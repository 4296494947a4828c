"""The controller of bags on machines of a virtual clock: the product's loop and its file.

Everything is real but the machines: jobs take the time that was drawn for them, machines are lost
when their lives are over, and the clock moves on to the next event whenever the controller has
sent what it can.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import cloudpickle
import numpy as np

from jupyter_sky.base.errors import SkyError, SkyNodeLost
from jupyter_sky.knowledge.lifetimes import Model
from jupyter_sky.workflows.bags import controller
from jupyter_sky.workflows.bags.controller import BagController
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import FleetView
from jupyter_sky.workflows.bags.queue.application import (
    App,
    BagSettings,
    FunctionApp,
    JobOutcome,
    OpenJob,
)
from jupyter_sky.workflows.bags.queue.job_queue import JobQueue

HOUR = 3600.0


@dataclass(eq=False)
class Machine:
    """One machine: its birth and end, and the message it works on (hours)."""

    born: float
    end: float
    ready: float
    future: Future[list[JobOutcome]] | None = None
    jobs: list[OpenJob] = field(default_factory=list)
    began: float = math.nan
    due: float = math.inf


class VirtualFleet:
    """Machines that live as a model says, for `BagController`."""

    def __init__(
        self, hours: np.ndarray, count: int, lifetime: Model, boot: float, late: float, seed: int
    ) -> None:
        self.hours, self.lifetime, self.boot, self.late = hours, lifetime, boot, late
        self.rng = np.random.default_rng([seed, 1])
        self.now = self.machine_hours = 0.0
        self.count, self.losses = count, 0
        self.machines: list[Machine] = []
        self.waiting: list[tuple[Future[list[JobOutcome]], list[OpenJob]]] = []
        self.had_turn = False

    error: SkyError | None = None

    @property
    def slots(self) -> int:
        return sum(machine.ready <= self.now for machine in self.machines)

    def begin(self, jobs: int) -> None:
        while len(self.machines) < min(self.count, jobs):
            self.machines.append(self._launch(self.now))

    def _launch(self, at: float) -> Machine:
        life = float(self.lifetime.sample(1, self.rng)[0])
        return Machine(at, at + life, at + self.boot)

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None
    ) -> Future[list[JobOutcome]]:
        future: Future[list[JobOutcome]] = Future()
        self.waiting.append((future, list(jobs)))
        self._assign()
        return future

    def _assign(self) -> None:
        for machine in self.machines:  # copies that lost their race
            if machine.future is not None and machine.future.cancelled():
                machine.future, machine.jobs, machine.due = None, [], math.inf
        self.waiting = [pair for pair in self.waiting if not pair[0].cancelled()]
        idle = [m for m in self.machines if m.future is None and m.ready <= self.now]
        for machine in idle[: len(self.waiting)]:
            machine.future, machine.jobs = self.waiting.pop(0)
            machine.began = self.now
            machine.due = self.now + sum(float(self.hours[job.number]) for job in machine.jobs)

    def spending(self) -> tuple[float, float]:
        """Move the clock on, unless the controller has not yet sent what it can."""
        self._assign()
        idle = any(m.future is None and m.ready <= self.now for m in self.machines)
        at_work = any(m.future is not None or m.ready > self.now for m in self.machines)
        if not at_work or (idle and not self.had_turn):
            self.had_turn = True
        else:
            self.had_turn = False
            self._advance()
        return 0.0, 0.0

    def _advance(self) -> None:
        events = [
            (min(machine.due, machine.end, machine.ready if machine.ready > self.now else math.inf))
            for machine in self.machines
        ]
        if not events or min(events) == math.inf:
            return
        self.now = min(events)
        for place, machine in enumerate(self.machines):
            if machine.end <= self.now:
                self._lose(place, machine)
            elif machine.due <= self.now and machine.future is not None:
                self._finish(machine)
        self._assign()

    def _finish(self, machine: Machine) -> None:
        future, jobs = machine.future, machine.jobs
        machine.future, machine.jobs, machine.due = None, [], math.inf
        outcomes = [
            JobOutcome(
                job.number,
                cloudpickle.dumps(job.number),
                seconds=HOUR * float(self.hours[job.number]),
            )
            for job in jobs
        ]
        if future is not None and not future.cancelled():
            future.set_result(outcomes)

    def _lose(self, place: int, machine: Machine) -> None:
        self.losses += 1
        self.machine_hours += self.now - machine.born
        if machine.future is not None and not machine.future.cancelled():
            machine.future.set_exception(SkyNodeLost("its machine was taken"))
        self.machines[place] = self._launch(self.now + self.late)

    def give_back(self, jobs: int) -> None:
        idle = [m for m in self.machines if m.future is None]
        for machine in idle[: max(0, len(self.machines) - jobs)]:
            self.machine_hours += max(self.now - machine.born, 0.0)
            self.machines.remove(machine)

    def describe(self, rank: int) -> tuple[str, float]:
        return "virtual", 0.0

    def clusters(self) -> list[str]:
        return []

    def take_events(self) -> list[str]:
        return []

    def view(self, now: float) -> FleetView:
        return FleetView()

    def alternatives(self) -> tuple[DegradedOption, ...]:
        return ()

    def grow(self, slots: int, kind: MachineKind | None = None) -> None: ...

    def exchange(self, age: float) -> None: ...

    def end(self) -> None:
        for machine in self.machines:
            self.machine_hours += max(self.now - machine.born, 0.0)
        self.machines = []


@dataclass(frozen=True)
class ControllerResult:
    """What a bag took under the real controller."""

    hours: float
    machine_hours: float
    losses: int


def run_controller(
    hours: np.ndarray,
    machines: int,
    lifetime: Model,
    boot: float,
    late: float,
    seed: int,
    copies: bool = True,
) -> ControllerResult:
    """Carry a bag out with the product's controller and file."""
    fleet = VirtualFleet(hours, machines, lifetime, boot, late, seed)
    with tempfile.TemporaryDirectory() as folder:
        jobs = JobQueue(Path(folder, "jobs.db"))
        settings = BagSettings("f", "function", machines=machines, idempotent=copies)
        jobs.add("bag", settings, b"", [{"n": n} for n in range(len(hours))], 0.0)
        before, controller.ROUND_SECONDS = controller.ROUND_SECONDS, 0.0
        try:
            record = jobs.read("bag")
            app = FunctionApp(int)
            BagController(jobs, record, app, fleet, clock=lambda: HOUR * fleet.now).run()
        finally:
            controller.ROUND_SECONDS = before
            jobs.close()
    return ControllerResult(fleet.now, fleet.machine_hours, fleet.losses)


class Killed(BaseException):
    """The controller's process ends here."""


LOSS = 0.02
"""Share of messages that are lost with their machine, and of those whose answer is."""


class InstantFleet:
    """Machines that have a result as soon as a job is sent; counts how often each has run.

    Some messages are lost before their jobs run, as with a machine that is taken, and of some the
    jobs run and the answer is lost, as with a link that breaks.
    """

    error: SkyError | None = None
    slots = 2

    def __init__(self, runs: dict[int, int], rng: random.Random) -> None:
        self.runs, self.rng = runs, rng

    def begin(self, jobs: int) -> None: ...

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None
    ) -> Future[list[JobOutcome]]:
        future: Future[list[JobOutcome]] = Future()
        fate = self.rng.random()
        if fate < LOSS:
            future.set_exception(SkyNodeLost("the cloud took it"))
            return future
        for job in jobs:
            self.runs[job.number] = self.runs.get(job.number, 0) + 1
        if fate < 2 * LOSS:
            future.set_exception(SkyNodeLost("the link broke"))
            return future
        value = cloudpickle.dumps(None)
        future.set_result([JobOutcome(job.number, value, seconds=1e-4) for job in jobs])
        return future

    def spending(self) -> tuple[float, float]:
        return 0.0, 0.0

    def describe(self, rank: int) -> tuple[str, float]:
        return "instant", 0.0

    def clusters(self) -> list[str]:
        return []

    def take_events(self) -> list[str]:
        return []

    def view(self, now: float) -> FleetView:
        return FleetView()

    def alternatives(self) -> tuple[DegradedOption, ...]:
        return ()

    def grow(self, slots: int, kind: MachineKind | None = None) -> None: ...

    def exchange(self, age: float) -> None: ...

    def give_back(self, jobs: int) -> None: ...

    def end(self) -> None: ...


class _Watch:
    """Ends a controller at a step, and notes when it has sent its first jobs."""

    def __init__(self, last: int) -> None:
        self.last, self.steps, self.begun = last, 0, time.perf_counter()
        self.first_sent: list[float] = []

    def __call__(self, name: str) -> None:
        self.steps += 1
        if name == "after sending" and not self.first_sent:
            self.first_sent.append(time.perf_counter() - self.begun)
        if self.steps == self.last:
            raise Killed


def kill_controllers(jobs: int, seed: int) -> dict[str, float]:
    """Kill controllers of one bag at random steps until one ends it; lose machines and links.

    Returns
    -------
    dict
        ``lost_or_twice``: jobs without a result, and jobs that ran again after their result was
        kept; ``resume_s``: median seconds from a kill to the next job that is sent;
        ``controller_jobs_per_s``: jobs that the controller and its file take in a second.
    """
    rng = random.Random(seed)
    runs: dict[int, int] = {}
    resumed: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        queue = JobQueue(Path(folder, "jobs.db"))
        queue.add(
            "bag",
            BagSettings("f", "function", machines=2),
            b"",
            [{"n": n} for n in range(jobs)],
            time.time(),
        )
        kept_again, begun = 0, time.perf_counter()
        is_over = False
        while not is_over:
            kept = {number for number, _value in queue.values("bag")}
            before = dict(runs)
            watch = _Watch(rng.randrange(3, 60))
            try:
                record, app = queue.read("bag"), FunctionApp(int)
                BagController(queue, record, app, InstantFleet(runs, rng), at_point=watch).run()
                is_over = True
            except Killed:
                resumed += watch.first_sent
            kept_again += sum(runs[number] > before.get(number, 0) for number in kept)
        spent = time.perf_counter() - begun
        lost = jobs - len(dict(queue.values("bag")))
        queue.close()
    return {
        "lost_or_twice": float(lost + kept_again),
        "resume_s": float(np.median(resumed)),
        "controller_jobs_per_s": jobs / spent,
    }
