"""Threads of this process as machines of a bag: jobs are real, losses are asked for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from jupyter_sky.base.errors import SkyClusterLost, SkyError, SkyTaskLost
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import FleetView
from jupyter_sky.workflows.bags.fleet.node import run_jobs
from jupyter_sky.workflows.bags.queue.application import App, JobOutcome, OpenJob


class ThreadFleet:
    """One thread that runs jobs one after the other, at a price.

    Attributes
    ----------
    runs
        How often each job has run.
    sent
        Numbers of the jobs of each message.
    lose
        Asked before each message: an error to lose it with, or None.
    """

    def __init__(self, slots: int = 1, usd_h: float = 0.0) -> None:
        self.slots, self.usd_h, self.usd = slots, usd_h, 0.0
        self.error: SkyError | None = None
        self.runs: Counter[int] = Counter()
        self.sent: list[list[int]] = []
        self.lose: Callable[[Sequence[OpenJob]], SkyError | None] = lambda jobs: None
        self.is_ended = False
        self.machines = FleetView()
        self.grown: list[int] = []
        self.kinds: list[MachineKind | None] = []
        self.exchanged: list[float] = []
        self.others: tuple[DegradedOption, ...] = ()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(slots)

    def begin(self, jobs: int) -> None:
        """Be up already."""

    def submit(
        self, app: App, jobs: Sequence[OpenJob], timeout: float | None
    ) -> Future[list[JobOutcome]]:
        """Run jobs in a thread."""
        self.sent.append([job.number for job in jobs])
        return self._pool.submit(self._run, app, list(jobs))

    def _run(self, app: App, jobs: Sequence[OpenJob]) -> list[JobOutcome]:
        if (error := self.lose(jobs)) is not None:
            raise error
        outcomes = run_jobs(app, [(j.number, j.attempts, j.parameters) for j in jobs], 1.0)
        with self._lock:
            self.runs.update(outcome.number for outcome in outcomes)
        return outcomes

    def spending(self) -> tuple[float, float]:
        """Return what tests have set."""
        return self.usd, self.usd_h

    def describe(self, rank: int) -> tuple[str, float]:
        """Return the place of all jobs."""
        return "a thread", self.usd_h

    def clusters(self) -> list[str]:
        """Return no cluster: none is in the ledger."""
        return []

    def take_events(self) -> list[str]:
        """Return no event."""
        return []

    def view(self, now: float) -> FleetView:
        """Return the machines that tests have set."""
        return self.machines

    def alternatives(self) -> tuple[DegradedOption, ...]:
        """Return what tests have set."""
        return self.others

    def grow(self, slots: int, kind: MachineKind | None = None) -> None:
        """Note for how many jobs at a time there should be machines, and of which kind."""
        self.grown.append(slots)
        self.kinds.append(kind)

    def exchange(self, age: float) -> None:
        """Note the age."""
        self.exchanged.append(age)

    def give_back(self, jobs: int) -> None:
        """Keep the threads."""

    def end(self) -> None:
        """End the threads."""
        self.is_ended = True
        self._pool.shutdown(wait=True, cancel_futures=True)


def engine_died(is_at_fault: bool) -> SkyError:
    """Return the error of a call whose engine died."""
    error = SkyTaskLost("its engine died")
    error.is_at_fault = is_at_fault
    return error


def machine_gone() -> SkyError:
    """Return the error of a call whose machine was taken."""
    return SkyClusterLost("the cloud took it")
