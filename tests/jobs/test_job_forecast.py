"""Forecasts of bags, the choice near a deadline, and copies of stragglers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jupyter_sky.knowledge.lifetimes import Exponential, Fleet, FloorHyperbolic, simulate
from jupyter_sky.workflows.bags.decisions.backlog import Backlog, JobGroup, MachineKind
from jupyter_sky.workflows.bags.decisions.group_simulation import simulate_groups
from jupyter_sky.workflows.bags.decisions.job_forecast import (
    DegradedOption,
    choose_degraded,
    forecast_bag,
    on_demand_cost,
)
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes
from jupyter_sky.workflows.bags.decisions.scheduling import consider_copy

YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)
SPOT = MachineKind("spot", YOUNG, 0.24, boot=0.05)
SURE = MachineKind("on demand", Exponential(0.0), 1.13, boot=0.05)
HOURS = np.random.default_rng(4).lognormal(np.log(0.3), 0.4, 80)


def test_the_range_holds_eight_of_ten_bags() -> None:
    known = RunTimes(tuple(np.sort(HOURS).tolist()), (1e6,) * len(HOURS))
    forecast = forecast_bag(Backlog(80, known), SPOT, groups=8)
    rng = np.random.default_rng(0)
    runs = [
        simulate(rng.choice(HOURS, 80).tolist(), Fleet(YOUNG, 8, price=0.24, boot=0.05), seed=seed)
        for seed in range(200)
    ]
    for mine, seen in (
        (forecast.hours, [run.hours for run in runs]),
        (forecast.usd, [run.usd for run in runs]),
    ):
        assert mine.mean == pytest.approx(np.mean(seen), rel=0.03)
        inside = np.mean([mine.low <= one <= mine.high for one in seen])
        assert 0.68 < inside < 0.92


def test_jobs_that_never_end_are_forecast_as_such() -> None:
    forecast = forecast_bag(Backlog(2, RunTimes((30.0,), (1.0,))), SPOT, groups=2, deadline=50)
    assert forecast.hours.mean == math.inf and forecast.chance == 0


def test_nothing_left_costs_nothing() -> None:
    forecast = forecast_bag(Backlog(0, RunTimes((1.0,), (1.0,))), SPOT, deadline=1.0)
    assert forecast.usd.mean == 0 and forecast.chance == 1


def test_on_demand_costs_the_work_and_the_boots() -> None:
    assert on_demand_cost(100.0, SURE, 4) == pytest.approx(1.13 * 100.2)


def test_degraded_mode_is_the_cheapest_that_keeps_the_deadline() -> None:
    times = RunTimes.of(HOURS[:40].tolist())
    there = tuple(JobGroup(SPOT, age=2.0, elapsed=0.1) for _ in range(4))
    backlog = Backlog(40, times, groups=there)
    small = MachineKind("half the size", YOUNG, 0.13, boot=0.05, ratio=1.9)
    wait = DegradedOption(SPOT, most=4)
    options = (wait, DegradedOption(small, most=20), DegradedOption(SURE, most=40))
    picked = {hours: choose_degraded(backlog, options, hours) for hours in (0.2, 1.15, 3.0, 8.0)}
    assert picked[8.0].option is wait and picked[8.0].keeps_deadline
    assert picked[3.0].option.kind.name == "half the size" and picked[3.0].keeps_deadline
    assert picked[1.15].option.kind.name == "on demand"
    assert not picked[0.2].keeps_deadline
    for choice in picked.values():
        kept = [one.usd.mean for _, one in choice.others if one.chance >= 0.95]
        assert not choice.keeps_deadline or all(choice.forecast.usd.mean <= usd for usd in kept)


def test_only_stragglers_are_copied() -> None:
    alike = RunTimes.of([1.0, 1.05, 0.95, 1.1, 0.9] * 4)
    tailed = RunTimes.of([1.0, 1.05, 0.95, 1.1, 0.9] * 8 + [4.0, 5.0])
    assert not consider_copy(1.2, alike).pays, "it is about to end"
    assert consider_copy(2.0, tailed).pays
    assert not consider_copy(2.0, tailed, slow_share=0.0).pays, "the job itself is long"
    assert not consider_copy(2.0, tailed, boot=4.0).pays, "the machine would come too late"


def test_a_race_ends_with_the_first_of_both() -> None:
    """Against draws of both run times."""
    times = RunTimes((1.0, 2.0, 6.0), (2.0, 1.0, 1.0))
    race = consider_copy(1.5, times)
    rng = np.random.default_rng(0)
    rests, runs = times.beyond(1.5).sample(20_000, rng) - 1.5, times.sample(20_000, rng)
    assert race.race == pytest.approx(np.minimum(rests, runs).mean(), rel=0.02)
    assert race.saved == pytest.approx(rests.mean() - race.race, rel=0.05)


def test_many_short_jobs_are_forecast_as_a_few_long_ones() -> None:
    """10,000 jobs are taken five by five: the same end and cost as one by one."""
    times = RunTimes.of((HOURS / 100).tolist())
    backlog = Backlog(10_000, times, needed=9_500)
    assert backlog.coarse(8).jobs == 2_000 and backlog.coarse(500).jobs == 10_000
    coarse = forecast_bag(backlog, SPOT, groups=8)
    whole = simulate_groups(backlog, SPOT, 8, replicas=100)
    ends = whole.finish(8, 10_000, 9_500)
    assert coarse.hours.mean == pytest.approx(ends.mean(), rel=0.02)
    spread = np.quantile(ends, 0.9) - np.quantile(ends, 0.1)
    assert coarse.hours.high - coarse.hours.low == pytest.approx(spread, rel=0.35)
    usd = 0.24 * whole.release(8, 10_000, 9_500).sum(axis=1).mean()
    assert coarse.usd.mean == pytest.approx(usd, rel=0.02)
