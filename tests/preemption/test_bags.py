"""The simulator of bags: seeded, consistent with the formulas, and a judge of policies."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import (
    Bag,
    Exponential,
    Fleet,
    FloorHyperbolic,
    KaplanMeier,
    Lifetimes,
    Outcome,
    Policy,
    average,
    fresh_turnaround,
    never,
    plan_checkpoints,
    simulate,
    simulate_turnaround,
)

YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)
SAFE = Exponential(0.0)
policies = st.sampled_from(
    [
        Policy(),
        Policy(keep=never),
        Policy(checkpoint=lambda remaining, age: 0.25, cost=0.02),
        Policy(keep=lambda age, hours: age + hours < 20),
    ]
)
bags = st.lists(st.floats(0.05, 2.0), min_size=1, max_size=12)
fleets = st.builds(
    Fleet,
    st.sampled_from([YOUNG, Exponential(0.2), SAFE]),
    groups=st.integers(1, 4),
    nodes=st.integers(1, 3),
    price=st.just(0.5),
    boot=st.sampled_from([0.0, 0.05]),
    shared_fate=st.sampled_from([0.0, 0.5]),
)


def counts(outcome: Outcome) -> Counter:
    return Counter(event.what for event in outcome.trace)


@given(bags, fleets, policies, st.integers(0, 5))
@settings(max_examples=80)
def test_a_run_adds_up(jobs: list[float], fleet: Fleet, policy: Policy, seed: int) -> None:
    outcome = simulate(jobs, fleet, policy, seed)
    seen = counts(outcome)
    assert outcome.finished == len(jobs) == seen["done"]
    assert seen["lost"] == outcome.failures and seen["lost"] + seen["gone"] == outcome.preemptions
    times = [event.at for event in outcome.trace]
    assert times == sorted(times) and times[-1] == outcome.hours
    work = sum(jobs) * fleet.nodes
    assert outcome.machine_hours >= work + outcome.lost_hours * fleet.nodes - 1e-6
    assert outcome.hours >= max(max(jobs), sum(jobs) / fleet.groups) - 1e-9
    assert outcome.machine_hours <= outcome.hours * fleet.groups * fleet.nodes + 1e-6
    assert outcome.usd == pytest.approx(0.5 * outcome.machine_hours)
    assert outcome.lost_hours == 0 or outcome.failures


@given(bags, fleets, policies, st.integers(0, 5))
@settings(max_examples=30)
def test_the_same_seed_gives_the_same_trace(
    jobs: list[float], fleet: Fleet, policy: Policy, seed: int
) -> None:
    assert simulate(jobs, fleet, policy, seed) == simulate(jobs, fleet, policy, seed)


def test_another_seed_gives_another() -> None:
    traces = {simulate([1.0] * 40, Fleet(YOUNG, 4), seed=seed).trace for seed in range(5)}
    assert len(traces) == 5


def test_without_failures_it_is_a_queue() -> None:
    outcome = simulate([3.0, 1.0, 1.0, 1.0], Fleet(SAFE, groups=2, nodes=2, price=0.1, boot=0.5))
    assert outcome.hours == 3.5 and outcome.preemptions == 0
    assert outcome.machine_hours == 2 * 2 * 3.5 and outcome.usd == pytest.approx(1.4)
    done = [event.job for event in outcome.trace if event.what == "done"]
    assert done == [1, 2, 0, 3] or done == [1, 2, 3, 0]


def test_by_hand_with_one_failure() -> None:
    """Machines live 1.5 h: the second job is cut off at 1.5 and starts again at 1.7."""
    short = KaplanMeier.of(Lifetimes.of([1.5], [True]))
    outcome = simulate([1.0, 0.9], Fleet(short, boot=0.2))
    assert [(round(e.at, 6), e.what, e.job) for e in outcome.trace] == [
        (0.0, "launch", None),
        (0.2, "start", 0),
        (1.2, "done", 0),
        (1.2, "start", 1),
        (1.5, "lost", 1),
        (1.5, "launch", 1),
        (1.7, "start", 1),
        (2.6, "done", 1),
        (2.6, "release", None),
    ]
    assert outcome.lost_hours == pytest.approx(0.3)
    saved = simulate([1.0, 0.9], Fleet(short, boot=0.2), Policy(checkpoint=lambda r, a: 0.2))
    assert saved.lost_hours == pytest.approx(0.1) and saved.hours == pytest.approx(2.4)
    fresh = simulate([1.0, 0.9], Fleet(short, boot=0.2), Policy(keep=never))
    assert fresh.preemptions == 0 and fresh.hours == pytest.approx(0.2 + 1.0 + 0.2 + 0.9)


@pytest.mark.slow
def test_one_job_takes_what_the_formulas_say() -> None:
    one = [simulate([3.0], Fleet(YOUNG), seed=seed) for seed in range(3000)]
    mean, error = average(one)
    assert mean == pytest.approx(fresh_turnaround(YOUNG, 3.0).hours, abs=4 * error)
    failures, spread = average(one, lambda outcome: outcome.failures)
    assert failures == pytest.approx(fresh_turnaround(YOUNG, 3.0).failures, abs=4 * spread)
    fleet = Fleet(YOUNG, nodes=4)
    four, error = average([simulate([2.0], fleet, seed=seed) for seed in range(1500)])
    quick, quick_error = simulate_turnaround(YOUNG, 2.0, 4, runs=5000)
    assert four == pytest.approx(quick, abs=4 * math.hypot(error, quick_error))
    all_new = [simulate([2.0], fleet, Policy(keep=never), seed) for seed in range(1500)]
    mean, error = average(all_new)
    assert mean == pytest.approx(fresh_turnaround(YOUNG, 2.0, 4).hours, abs=4 * error)


def test_reusing_machines_avoids_failures() -> None:
    """Section 6.2.2 of the paper: those that were young once are safer."""
    bag, fleet = Bag((0.243,) * 100), Fleet(YOUNG, groups=4)
    reuse, fresh = (
        [simulate(bag, fleet, policy, seed) for seed in range(25)]
        for policy in (Policy(), Policy(keep=never))
    )
    few, many = (average(one, lambda o: o.failures)[0] for one in (reuse, fresh))
    assert few < many / 2 and average(reuse)[0] < average(fresh)[0]


def test_enough_jobs_are_enough() -> None:
    outcome = simulate(Bag((1.0,) * 5, needed=3), Fleet(SAFE, groups=2))
    assert outcome.finished == 3 and outcome.hours == 2.0


def test_endless_bag_ends_at_the_limit() -> None:
    outcome = simulate([30.0], Fleet(YOUNG), limit=200.0)
    assert outcome.finished == 0 and outcome.hours == 200.0
    assert outcome.machine_hours == pytest.approx(200.0)
    plan = plan_checkpoints(YOUNG, 30.0, 0.05, step=0.1)
    saved = simulate([30.0], Fleet(YOUNG), Policy(checkpoint=plan.next, cost=0.05), limit=200.0)
    assert saved.finished == 1 and saved.hours < 40
    mean, _ = simulate_turnaround(YOUNG, 30.0, runs=5)
    assert mean == math.inf


@pytest.mark.slow
def test_shared_fate_spreads_outcomes() -> None:
    """Preemptions of a batch vary more than binomially; their mean hazard stays near."""

    def early(fleet: Fleet) -> np.ndarray:
        runs = [simulate([0.5] * 12, fleet, seed=seed) for seed in range(400)]
        return np.array([one.preemptions for one in runs])

    alone, together = (early(Fleet(YOUNG, groups=12, shared_fate=f)) for f in (0.0, 1.0))
    assert together.var() > 1.7 * alone.var()
    assert 0.6 < together.mean() / alone.mean() < 1.3


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bag(()),
        lambda: Bag((1.0, -1.0)),
        lambda: Bag((math.nan,)),
        lambda: Bag((1.0,), needed=2),
        lambda: Fleet(YOUNG, groups=0),
        lambda: Fleet(YOUNG, price=-1.0),
        lambda: Fleet(YOUNG, boot=math.nan),
        lambda: simulate([1.0], Fleet(YOUNG), limit=0.0),
        lambda: simulate([1.0], Fleet(YOUNG), Policy(checkpoint=lambda r, a: math.nan)),
        lambda: simulate([1.0], Fleet(YOUNG), Policy(checkpoint=lambda r, a: 0.0)),
        lambda: replace(Fleet(YOUNG), nodes=1.5),
    ],
)
def test_invalid_bags_are_refused(make) -> None:
    with pytest.raises(SkyUsageError):
        make()
