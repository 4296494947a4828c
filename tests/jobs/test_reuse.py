"""Reuse of machines by age: the plan beside simulated fleets and the exact turnaround."""

from __future__ import annotations

import math

import pytest

from jupyter_sky.knowledge.lifetimes import (
    Exponential,
    Fleet,
    FloorHyperbolic,
    KaplanMeier,
    Lifetimes,
    Policy,
    average,
    never,
    simulate,
    turnaround,
)
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.reuse import plan_reuse, with_exchange

YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)


def test_one_job_takes_what_the_turnaround_says() -> None:
    plan = plan_reuse(YOUNG, job=2.0, boot=0.1, jobs=1)
    for age in (0.0, 1.0, 5.0):
        expected = turnaround(YOUNG, 2.0, age=age, restart=0.1).hours
        assert plan.hours[0, round(age / plan.step)] == pytest.approx(expected, rel=0.01)


def test_machines_are_kept_until_the_next_job_would_meet_the_cap() -> None:
    for job in (0.5, 1.0, 4.0):
        assert plan_reuse(YOUNG, job, boot=0.05).exchange_age() == pytest.approx(24 - job, abs=0.1)
    assert plan_reuse(Exponential(0.2), 1.0, 0.05).exchange_age() == math.inf


def test_ageing_machines_are_exchanged_early() -> None:
    """Most of these machines end between 4 and 6 h: a boot costs less than the loss of a job."""
    ages = [4.0 + 0.02 * step for step in range(100)]
    model = KaplanMeier.of(Lifetimes.of(ages, [True] * 100))
    cheap, dear = (plan_reuse(model, 1.0, boot).exchange_age() for boot in (0.05, 3.0))
    assert 3.0 < cheap < 4.0 < dear


def test_the_plan_costs_less_than_always_and_never_keeping() -> None:
    plan = plan_reuse(YOUNG, job=3.0, boot=0.2)
    policies = {
        "plan": Policy(keep=lambda age, hours: plan.keeps(age)),
        "always": Policy(),
        "never": Policy(keep=never),
    }
    hours = {}
    for name, policy in policies.items():
        runs = [
            simulate([3.0] * 40, Fleet(YOUNG, groups=2, boot=0.2), policy, seed)
            for seed in range(60)
        ]
        hours[name] = average(runs, lambda run: run.machine_hours)[0]
    assert hours["plan"] < 0.99 * hours["always"] and hours["plan"] < 0.95 * hours["never"]


def test_jobs_that_no_machine_outlives_keep_none() -> None:
    plan = plan_reuse(YOUNG, job=30.0, boot=0.1)
    assert not plan.keeps(1.0) and math.isinf(plan.hours[0, 0])


def test_groups_are_exchanged_by_the_age_of_the_plan() -> None:
    kind = with_exchange(MachineKind("spot", YOUNG, 0.24, nodes=4, boot=0.05), job=2.0)
    assert kind.exchange_age == pytest.approx(22.0, abs=0.2)
