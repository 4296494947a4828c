"""Jobs with a deadline: never late, and cheaper than fixed rules."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes.availability import Availability
from jupyter_sky.knowledge.lifetimes.deadlines import (
    AGES,
    LOSSES,
    DeadlineJob,
    DeadlinePolicy,
    DeadlineProgram,
    Greedy,
    Machine,
    Moment,
    UniformProgress,
    age_class,
    hazard_factor,
)
from jupyter_sky.knowledge.lifetimes.replays import replay_deadline

JOB = DeadlineJob(4.0, 6.0, change=0.1, spot_price=1.0, price=3.0)
STEP = 0.1
POLICIES: list[DeadlinePolicy] = [
    Greedy(STEP),
    UniformProgress(STEP),
    DeadlineProgram(STEP, STEP),
]


def place(*changes: float, is_up: bool = True) -> Availability:
    return Availability("a", changes, is_up, 100.0)


def flapping(seed: int) -> Availability:
    """Return a place whose state is the likelier to change the younger it is."""
    lengths = 0.1 + 0.4 * np.random.default_rng(seed).pareto(1.0, 60)
    return Availability("a", tuple(accumulate(lengths)), bool(seed % 2), 100.0)


@pytest.mark.parametrize("policy", POLICIES)
def test_spot_all_the_time_costs_spot(policy: DeadlinePolicy) -> None:
    found = replay_deadline(JOB, place(), policy, 0.0, STEP)
    assert found.usd == pytest.approx(4.1, abs=0.01)
    assert not found.is_late


@pytest.mark.parametrize("policy", POLICIES)
def test_without_spot_the_job_is_in_time(policy: DeadlinePolicy) -> None:
    found = replay_deadline(JOB, place(is_up=False), policy, 0.0, STEP)
    assert not found.is_late
    assert found.usd == pytest.approx(3 * 4.1, abs=0.2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(6))
def test_never_late(policy: DeadlinePolicy, seed: int) -> None:
    assert not replay_deadline(JOB, flapping(seed), policy, 0.0, STEP).is_late


def test_the_program_beats_fixed_rules() -> None:
    costs = [
        sum(replay_deadline(JOB, flapping(seed), policy, 0.0, STEP).usd for seed in range(30))
        for policy in POLICIES
    ]
    assert costs[2] < min(costs[:2])


def test_a_job_that_cannot_be_in_time() -> None:
    with pytest.raises(SkyUsageError, match="do not fit in 4 h"):
        DeadlineJob(4.0, 4.0, change=0.1, spot_price=1.0, price=3.0)


def test_hazards_are_learnt() -> None:
    hours = (0.0, 0.0, 10.0, 0.0)
    assert (
        hazard_factor((0, 0, 0, 0), hours, LOSSES) < 1 < hazard_factor((9, 0, 0, 0), hours, LOSSES)
    )
    assert [age_class(age) for age in (0, 0.1, 0.2, 1, 3.9, 30)] == [0, 0, 1, 2, 2, len(AGES) - 1]


def test_a_spot_machine_is_kept() -> None:
    moment = Moment(1.0, 3.0, Machine.SPOT, is_up=True)
    assert POLICIES[-1].choose(JOB, moment) is Machine.SPOT
