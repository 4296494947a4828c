"""Decisions of a bag's controller on its machines, with threads as machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.knowledge.lifetimes.models import Exponential, FloorHyperbolic
from jupyter_sky.workflows.bags import controller as controller_module
from jupyter_sky.workflows.bags.controller import BagController
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_plan import BagView, FleetPlan
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption
from jupyter_sky.workflows.bags.decisions.outlook import FleetView
from jupyter_sky.workflows.bags.queue.application import BagSettings, FunctionApp
from jupyter_sky.workflows.bags.queue.exploration import AppTimes
from jupyter_sky.workflows.bags.queue.job_queue import JobQueue
from tests.jobs.thread_fleet import ThreadFleet

SPOT = MachineKind("spot", Exponential(1.0), 0.2)
ON_DEMAND = MachineKind("on demand", Exponential(0.0), 0.5)


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobQueue]:
    """A queue in a file of its own."""
    monkeypatch.setattr(controller_module, "ROUND_SECONDS", 0.01)
    queue = JobQueue(tmp_path / "jobs.db")
    yield queue
    queue.close()


def run(jobs: JobQueue, fleet: ThreadFleet, count: int, deadline: float | None) -> None:
    """Run a bag of jobs that take 0.15 s each."""
    settings = BagSettings("f", "function", deadline=deadline)
    jobs.add("bag", settings, b"", [{"n": n} for n in range(count)], time.time())
    app = FunctionApp(lambda n: time.sleep(0.15))
    BagController(jobs, jobs.read("bag"), app, fleet).run()


def test_machines_that_the_plan_takes_in_place_of_spot_are_launched(
    jobs: JobQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def plan(view: BagView) -> FleetPlan:
        asked.append(view)
        return FleetPlan(5, view.alternatives[0].kind, "degraded")

    monkeypatch.setattr(controller_module, "plan_fleet", plan)
    fleet = ThreadFleet(slots=2)
    fleet.machines = FleetView(SPOT, (0.1, 0.1), most=2)
    fleet.others = (DegradedOption(ON_DEMAND, 100),)
    run(jobs, fleet, 8, deadline=60.0)
    assert (fleet.grown[0], fleet.kinds[0]) == (5, ON_DEMAND)
    assert asked[0].most == 2, "more spot machines were refused"
    assert jobs.read("bag").warning == ""


def test_earliest_end_is_told_where_nothing_keeps_the_deadline(jobs: JobQueue) -> None:
    fleet = ThreadFleet()
    fleet.machines = FleetView(MachineKind("safe", Exponential(0.0), 0.2, boot=0.5), (0.1,))
    run(jobs, fleet, 20, deadline=1.0)
    assert "cannot be kept: the end is after" in jobs.read("bag").warning


def test_old_machines_are_exchanged_before_the_cap(jobs: JobQueue) -> None:
    fleet = ThreadFleet(slots=2)
    kind = MachineKind("spot", FloorHyperbolic(0.005, 0.41, 0.3, 24.0), 0.2, boot=0.05)
    fleet.machines = FleetView(kind, (0.1, 23.99))
    run(jobs, fleet, 6, deadline=None)
    assert 23 < fleet.exchanged[-1] < 24


def test_run_times_of_an_app_are_kept(jobs: JobQueue) -> None:
    times = AppTimes().measure("n1-highcpu-32", 2, 0.24)
    jobs.keep_times("command ./simulate", times)
    assert jobs.read_times("command ./simulate") == times
    assert jobs.read_times("another") == AppTimes()
