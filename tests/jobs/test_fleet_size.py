"""Number of groups for a deadline, beside the paper's formula and the event-driven simulator."""

from __future__ import annotations

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import Exponential, Fleet, FloorHyperbolic, simulate
from jupyter_sky.workflows.bags.decisions.backlog import Backlog, JobGroup, MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_size import (
    choose_fleet_size,
    earliest_deadline,
    mean_groups,
)
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes

YOUNG = FloorHyperbolic(0.0075, 0.615, 0.3, 24.0)
SPOT = MachineKind("spot", YOUNG, 0.24, boot=0.05)
HOURS = np.random.default_rng(3).lognormal(np.log(0.23), 0.3, 200)
KNOWN = RunTimes(tuple(np.sort(HOURS).tolist()), (1e6,) * len(HOURS))


def met(groups: int, jobs: int, deadline: float) -> float:
    """Share of simulated bags that end in time."""
    rng = np.random.default_rng(9)
    runs = [
        simulate(rng.choice(HOURS, jobs).tolist(), Fleet(YOUNG, groups, boot=0.05), seed=seed)
        for seed in range(80)
    ]
    return float(np.mean([run.hours <= deadline for run in runs]))


@pytest.mark.parametrize(("jobs", "deadline"), [(36, 2.0), (200, 3.0)])
def test_the_deadline_holds_where_the_mean_is_late(jobs: int, deadline: float) -> None:
    size = choose_fleet_size(Backlog(jobs, KNOWN), SPOT, deadline)
    assert size.is_enough and size.chance >= 0.95
    assert met(size.groups, jobs, deadline) >= 0.9
    assert met(size.by_mean, jobs, deadline) <= 0.6, "ceil(n E[T] / D) leaves no room"
    assert met(size.groups - 2, jobs, deadline) < 0.95, "it is not more than it takes"


def test_the_printed_formula_is_the_inverse() -> None:
    """D / E[T] is what one group can finish; it grows with the deadline."""
    groups = [mean_groups(Backlog(100, KNOWN), SPOT, hours) for hours in (1.0, 2.0, 4.0)]
    assert groups[0] > groups[1] > groups[2]


def test_machines_that_are_there_count() -> None:
    old = tuple(JobGroup(SPOT, age=5.0, elapsed=0.1) for _ in range(10))
    fresh = choose_fleet_size(Backlog(110, KNOWN), SPOT, 3.0)
    there = choose_fleet_size(Backlog(100, KNOWN, groups=old), SPOT, 3.0)
    assert 10 <= there.groups <= fresh.groups


def test_unsure_run_times_ask_for_more() -> None:
    sure = choose_fleet_size(Backlog(100, KNOWN), SPOT, 3.0)
    unsure = choose_fleet_size(Backlog(100, RunTimes.of(HOURS[:3])), SPOT, 3.0)
    wanted = sure.groups * np.mean(HOURS[:3]) / np.mean(HOURS)
    assert unsure.groups > wanted


def test_deadlines_that_nothing_meets_say_so() -> None:
    backlog = Backlog(20, KNOWN)
    size = choose_fleet_size(backlog, SPOT, 0.1)
    assert not size.is_enough and size.groups == 20 and size.chance == 0
    earliest = earliest_deadline(backlog, SPOT, 20)
    assert 0.3 < earliest < 1.5
    assert choose_fleet_size(backlog, SPOT, earliest * 1.1).is_enough


def test_a_limit_of_machines_is_kept() -> None:
    size = choose_fleet_size(Backlog(200, KNOWN), SPOT, 3.0, most=12)
    assert size.groups == 12 and not size.is_enough


def test_enough_of_the_jobs_need_fewer_machines() -> None:
    every, most = (
        choose_fleet_size(Backlog(100, KNOWN, needed=needed), SPOT, 1.0) for needed in (100, 85)
    )
    assert most.groups < every.groups


@pytest.mark.parametrize(
    "make",
    [
        lambda: choose_fleet_size(Backlog(5, KNOWN), SPOT, 0.0),
        lambda: choose_fleet_size(Backlog(5, KNOWN), SPOT, 1.0, chance=1.0),
        lambda: MachineKind("spot", Exponential(0.1), price=-1.0),
        lambda: RunTimes.of([]),
        lambda: RunTimes.of([0.0]),
    ],
)
def test_invalid_figures_are_refused(make) -> None:
    with pytest.raises(SkyUsageError):
        make()
