"""Simulated groups beside the event-driven simulator of bags, and exact cases."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jupyter_sky.knowledge.lifetimes import (
    Bag,
    Exponential,
    Fleet,
    FloorHyperbolic,
    KaplanMeier,
    Lifetimes,
    Policy,
    simulate,
    turnaround,
)
from jupyter_sky.workflows.bags.decisions.backlog import Backlog, JobGroup, MachineKind
from jupyter_sky.workflows.bags.decisions.group_simulation import simulate_groups
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes

YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)
SAFE = MachineKind("safe", Exponential(0.0), 0.5)
ALIKE = RunTimes((1.0,), (1.0,))
HOURS = np.random.default_rng(5).lognormal(math.log(0.4), 0.5, 60)


def certain(hours: np.ndarray) -> RunTimes:
    """Return a distribution that leaves no doubt about itself."""
    return RunTimes(tuple(np.sort(hours).tolist()), (1e6,) * len(hours))


def test_without_losses_it_is_a_queue() -> None:
    times = simulate_groups(Backlog(10, ALIKE), SAFE, 4)
    for groups, jobs, target, hours in (
        (4, 10, 10, 3),
        (3, 10, 10, 4),
        (4, 10, 8, 2),
        (1, 3, 2, 2),
    ):
        assert (times.finish(groups, jobs, target) == hours).all()
    assert times.release(4, 10, 10)[0].tolist() == [3, 3, 2, 2]
    few = simulate_groups(Backlog(2, ALIKE), SAFE, 4)
    assert few.release(4, 2, 2)[0].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("nodes", [1, 3])
def test_ends_and_hours_are_those_of_the_event_driven_simulator(nodes: int) -> None:
    kind = MachineKind("spot", YOUNG, 0.24, nodes=nodes, boot=0.1)
    backlog = Backlog(60, certain(HOURS), needed=55)
    times = simulate_groups(backlog, kind, 5, replicas=600)
    rng = np.random.default_rng(1)
    runs = [
        simulate(
            Bag(tuple(rng.choice(HOURS, 60).tolist()), needed=55),
            Fleet(YOUNG, groups=5, nodes=nodes, boot=0.1),
            seed=seed,
        )
        for seed in range(300)
    ]
    ends = np.array([run.hours for run in runs])
    mine = times.finish(5, 60, 55)
    error = math.hypot(ends.std() / 300**0.5, mine.std() / 600**0.5)
    assert mine.mean() == pytest.approx(ends.mean(), abs=4 * error)
    assert np.quantile(mine, 0.9) == pytest.approx(np.quantile(ends, 0.9), rel=0.05)
    hours = np.array([run.machine_hours for run in runs])
    assert nodes * times.release(5, 60, 55).sum(axis=1).mean() == pytest.approx(
        hours.mean(), rel=0.02
    )


def test_checkpoints_save_what_they_save_in_the_event_driven_simulator() -> None:
    lossy = Exponential(0.5)
    backlog = Backlog(20, RunTimes((2.0,), (1.0,)), save_every=0.25, save_cost=0.02)
    times = simulate_groups(backlog, MachineKind("spot", lossy, 0.2, boot=0.05), 4, replicas=600)
    policy = Policy(checkpoint=lambda work, age: 0.25, cost=0.02)
    runs = [
        simulate([2.0] * 20, Fleet(lossy, groups=4, boot=0.05), policy, seed).hours
        for seed in range(200)
    ]
    assert times.finish(4, 20, 20).mean() == pytest.approx(np.mean(runs), rel=0.02)


def test_a_running_job_on_an_old_machine_ends_when_the_formulas_say() -> None:
    """A job is cut off as seldom as its machine's age lets expect."""
    kind = MachineKind("spot", YOUNG, 0.24)
    old = Backlog(0, RunTimes((3.0,), (1.0,)), groups=(JobGroup(kind, age=5.0, elapsed=0.0),))
    mean = simulate_groups(old, kind, 1, replicas=4000).finish(1, 1, 1).mean()
    assert mean == pytest.approx(turnaround(YOUNG, 3.0, age=5.0).hours, rel=0.02)
    new = Backlog(1, RunTimes((3.0,), (1.0,)))
    mean = simulate_groups(new, kind, 1, replicas=4000).finish(1, 1, 1).mean()
    assert mean == pytest.approx(turnaround(YOUNG, 3.0).hours, rel=0.02)
    half = Backlog(0, RunTimes((3.0,), (1.0,)), groups=(JobGroup(SAFE, 5.0, elapsed=2.0),))
    assert simulate_groups(half, SAFE, 1).finish(1, 1, 1).tolist()[0] == 1.0


def test_a_loss_takes_what_ran_before_now() -> None:
    """The machine lives 2 h: 1.5 h of the job are over, the rest of 1 h does not fit."""
    two_hours = KaplanMeier.of(Lifetimes.of([2.0, 5.0], [True, True]))
    kind = MachineKind("spot", two_hours, 0.24)
    backlog = Backlog(0, RunTimes((2.5,), (1.0,)), groups=(JobGroup(kind, 1.5, elapsed=1.5),))
    ends = simulate_groups(backlog, kind, 1, replicas=400).finish(1, 1, 1)
    assert ends.min() == 1.0 and (ends >= 3.0 - 1e-6).any()


def test_chance_within_a_horizon_is_the_share_that_ends() -> None:
    kind = MachineKind("spot", YOUNG, 0.24, boot=0.1)
    backlog = Backlog(60, certain(HOURS))
    within = simulate_groups(backlog, kind, 12, horizon=3.0, seed=2)
    for groups in (6, 8, 9, 12):
        for target in (60, 57, 50):
            share = (within.finish(groups, 60, target) <= 3.0).mean()
            assert within.chance(groups, 60, target) == pytest.approx(share)
    assert 0.1 < within.chance(9, 60, 60) < within.chance(12, 60, 57)


def test_machines_are_exchanged_at_their_age() -> None:
    kind = MachineKind("safe", Exponential(0.0), 0.5, boot=0.5, exchange_age=2.0)
    assert simulate_groups(Backlog(4, ALIKE), kind, 1).finish(1, 4, 4).tolist()[0] == 5.0


def test_jobs_longer_than_any_life_never_end() -> None:
    kind = MachineKind("spot", YOUNG, 0.24)
    times = simulate_groups(Backlog(2, RunTimes((30.0,), (1.0,))), kind, 1, replicas=4)
    assert (times.finish(1, 2, 2) == math.inf).all()


def test_kinds_of_unlike_speed_and_size_work_side_by_side() -> None:
    slow = MachineKind("slow", Exponential(0.0), 0.1, nodes=2, ratio=2.0)
    backlog = Backlog(3, ALIKE, groups=(JobGroup(slow), JobGroup(slow)))
    times = simulate_groups(backlog, SAFE, 3)
    assert times.finish(3, 3, 3).tolist()[0] == 2.0
    assert sorted(times.release(3, 3, 3)[0]) == [1.0, 2.0, 2.0]
