"""Checkpoint schedules: optimal under their own model, monotone where they must be, and cached."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import (
    Constrained,
    Exponential,
    Fleet,
    FloorHyperbolic,
    KaplanMeier,
    Lifetimes,
    Model,
    Policy,
    Weibull,
    average,
    best_interval,
    evaluate,
    next_checkpoint,
    plan_checkpoints,
    simulate,
    young_daly,
)

MINUTE = 1 / 60
YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)
models = st.one_of(
    st.builds(Exponential, st.floats(0.01, 1.0), st.sampled_from([24.0, math.inf])),
    st.builds(
        Weibull, st.floats(0.01, 0.5), st.floats(0.4, 2.0), st.sampled_from([24.0, math.inf])
    ),
    st.builds(
        FloorHyperbolic, st.floats(0, 0.1), st.floats(0, 1), st.floats(0.1, 5), st.just(24.0)
    ),
)


def by_definition(model: Model, steps: int, step: float, cost: int, restart: float) -> np.ndarray:
    """V(w, 0) for w steps of work by the recursion as it is written, one state at a time."""
    top = 24 * round(1 / step) + steps + cost + 2
    alive = np.asarray(model.survival(np.arange(top + 1) * step))
    area = np.asarray(model.integral(np.arange(top + 1) * step))
    value = np.zeros((steps + 1, top + 1))
    for w in range(1, steps + 1):
        best = math.inf
        for k in range(1, w + 1):
            j = k + cost if k < w else k
            if alive[j] > 0:
                lost = (1 - alive[j]) * restart
                best = min(best, (area[j] + lost + alive[j] * value[w - k, j]) / alive[j])
        value[w, 0] = best
        for a in range(1, top + 1):
            if alive[a] <= 0:
                value[w, a] = restart + best
                continue
            found = []
            for k in range(1, w + 1):
                j = min(a + (k + cost if k < w else k), top)
                p = alive[j] / alive[a]
                rest = p * value[w - k, j] + (1 - p) * (restart + best)
                found.append((area[j] - area[a]) / alive[a] + rest)
            value[w, a] = min(found)
    return value


def test_the_tables_are_those_of_the_recursion() -> None:
    for restart in (0.0, 0.1):
        plan = plan_checkpoints(YOUNG, 2.0, 0.25, restart, step=0.25)
        slow = by_definition(YOUNG, 8, 0.25, 1, restart)
        assert plan.hours == pytest.approx(slow[:, : plan.hours.shape[1]])


def test_no_sequence_of_checkpoints_is_better() -> None:
    """All 128 ways to cut eight steps, where a lost machine is followed by the best of them."""
    plan = plan_checkpoints(YOUNG, 2.0, 0.05, step=0.25)
    ways = []
    for cuts in itertools.product([False, True], repeat=7):
        ends = [i for i, cut in enumerate(cuts, 1) if cut] + [8]

        def policy(remaining: np.ndarray, age: np.ndarray, ends=ends) -> np.ndarray:
            done = np.rint((2.0 - remaining) / 0.25)
            after = np.array([min((e for e in ends if e > d), default=8) for d in done.ravel()])
            return ((after.reshape(done.shape) - done) * 0.25).astype(float)

        ways.append(evaluate(policy, YOUNG, 2.0, 0.05, step=0.25).expected())
    assert plan.expected() <= min(ways) + 1e-9
    assert plan.expected() == pytest.approx(min(ways), rel=0.01)


@given(models, st.sampled_from([1.0, 2.5, 4.0]), st.floats(0.01, 0.3), st.sampled_from([0.0, 0.2]))
@settings(max_examples=20)
def test_never_worse_than_the_best_fixed_interval(
    model: Model, work: float, cost: float, restart: float
) -> None:
    """Nor than no checkpoint at all, on any age, under its own model."""
    plan = plan_checkpoints(model, work, cost, restart, step=0.1)
    fixed = best_interval(model, work, cost, restart, step=0.1)
    for interval in (fixed, young_daly(cost, 5.0), work):
        other = evaluate(interval, model, work, cost, restart, step=0.1)
        assert (plan.hours <= other.hours + 1e-9).all()
    assert evaluate(plan, model, work, cost, restart, step=0.1).hours == pytest.approx(plan.hours)


@given(models, st.floats(0.01, 0.3))
@settings(max_examples=20)
def test_overhead_grows_with_its_parameters(model: Model, cost: float) -> None:
    plan = plan_checkpoints(model, 3.0, cost, step=0.1)
    assert (np.diff(plan.hours[:, 0]) > 0).all(), "more work takes longer"
    left = np.arange(len(plan.hours)) * plan.step
    assert (plan.hours[:, 0] >= left - 1e-9).all(), "no less than the work itself"
    assert (plan.choices[1:] >= 1).all() and (plan.choices <= np.arange(31)[:, None]).all()
    dearer = plan_checkpoints(model, 3.0, cost * 2, step=0.1)
    assert (dearer.hours >= plan.hours - 1e-9).all(), "a dearer checkpoint never helps"
    slower = plan_checkpoints(model, 3.0, cost, restart=0.5, step=0.1)
    assert (slower.hours >= plan.hours - 1e-9).all()


def test_intervals_grow_as_the_hazard_falls() -> None:
    plan = plan_checkpoints(YOUNG, 4.0, MINUTE)
    first = [60 * hours for hours in plan.intervals(0.0)]
    assert first[:4] == sorted(first[:4]) and sum(first) == pytest.approx(240)
    assert len(plan.intervals(0.0)) > len(plan.intervals(5.0)) >= len(plan.intervals(15.0))
    assert 20 < first[0] < 35 and 70 < 60 * plan.intervals(5.0)[0] < 95


def test_a_job_saves_just_before_the_cap() -> None:
    plan = plan_checkpoints(YOUNG, 4.0, MINUTE)
    saves = np.cumsum(np.array(plan.intervals(21.0)) + MINUTE) + 21.0
    assert 23.9 < max(saves[saves <= 24.0]) <= 24.0
    assert evaluate(4.0, YOUNG, 4.0, MINUTE).overhead(21.0) > 0.7 > 10 * plan.overhead(21.0)


def test_constant_hazard_gives_the_young_daly_interval() -> None:
    plan = plan_checkpoints(Exponential(0.1), 4.0, MINUTE)
    interval = young_daly(MINUTE, 10.0)
    assert all(0.9 * interval < one < 1.1 * interval for one in plan.intervals())
    assert plan.overhead(0.0) == pytest.approx(plan.overhead(12.0), rel=1e-6)
    assert young_daly(0.02, 9.0) == pytest.approx(0.6)


def test_no_checkpoints_without_preemptions() -> None:
    plan = plan_checkpoints(Exponential(0.0), 4.0, MINUTE)
    assert plan.intervals() == [pytest.approx(4.0)] and plan.overhead() == pytest.approx(0)


def test_a_cost_between_two_steps_lies_between() -> None:
    one, half, two = (
        plan_checkpoints(YOUNG, 2.0, m * MINUTE, step=2 * MINUTE).expected() for m in (2, 3, 4)
    )
    assert one < half < two and half == pytest.approx((one + two) / 2, rel=0.002)
    fine = plan_checkpoints(YOUNG, 2.0, 3 * MINUTE, step=MINUTE).expected()
    assert half == pytest.approx(fine, rel=2e-3)


def test_the_exact_figure_is_what_simulation_finds() -> None:
    """On Kaplan-Meier lifetimes, with restarts, from a new machine."""
    hours = YOUNG.sample(300, np.random.default_rng(3))
    truth = KaplanMeier.of(Lifetimes.of(hours, np.ones(300, bool)))
    plan = plan_checkpoints(YOUNG, 4.0, MINUTE)
    exact = evaluate(plan, truth, 4.0, MINUTE).expected()
    policy = Policy(checkpoint=plan.next, cost=MINUTE)
    runs = [simulate([4.0], Fleet(truth), policy, seed) for seed in range(1500)]
    mean, error = average(runs)
    assert exact == pytest.approx(mean, abs=4 * error)


def test_schedules_are_kept() -> None:
    plan = plan_checkpoints(YOUNG, 4.0, MINUTE)
    assert plan_checkpoints(FloorHyperbolic(0.005, 0.41, 0.3, 24.0), 4.0, MINUTE) is plan
    assert plan_checkpoints(YOUNG, 4.0, 2 * MINUTE) is not plan


def test_equation_1_can_be_planned_for_as_written() -> None:
    plan = plan_checkpoints(Constrained(0.42, 1.0, 0.8, 24.4), 4.0, MINUTE)
    assert sum(plan.intervals()) == pytest.approx(4.0) and 0 < plan.overhead() < 0.2


def test_a_running_job_asks_for_its_next_checkpoint() -> None:
    young, old = (next_checkpoint(3.3, age, MINUTE) for age in (0.0, 6.0))
    assert 0.2 < young < old <= 3.3
    assert next_checkpoint(0.001, 0.0, MINUTE) == 0.001
    assert next_checkpoint(3.3, 0.0, MINUTE, Exponential(0.0)) == 3.3
    assert next_checkpoint(60.0, 2.0, MINUTE, Exponential(0.1)) == pytest.approx(
        young_daly(MINUTE, 10.0), rel=0.2
    )


@pytest.mark.parametrize(
    "work, cost, more",
    [
        (0.0, MINUTE, {}),
        (math.nan, MINUTE, {}),
        (4.0, 0.0, {}),
        (4.0, -MINUTE, {}),
        (4.0, MINUTE, {"restart": -1.0}),
        (4.0, MINUTE, {"step": 0.0}),
        (100.0, MINUTE, {}),
    ],
)
def test_invalid_plans_are_refused(work: float, cost: float, more: dict) -> None:
    with pytest.raises(SkyUsageError):
        plan_checkpoints(YOUNG, work, cost, **more)


def test_unanswerable_question_is_refused() -> None:
    plan = plan_checkpoints(YOUNG, 4.0, MINUTE)
    for remaining, age in ((5.0, 0.0), (-1.0, 0.0), (1.0, math.nan)):
        with pytest.raises(SkyUsageError):
            plan.next(remaining, age)
    with pytest.raises(SkyUsageError, match="does not fit"):
        evaluate(plan, YOUNG, 4.0, MINUTE, step=2 * MINUTE)
    short = KaplanMeier.of(Lifetimes.of([0.5] * 3, [True] * 3))
    with pytest.raises(SkyUsageError, match="no machine lives long enough"):
        evaluate(4.0, short, 4.0, MINUTE)
    assert plan_checkpoints(short, 4.0, MINUTE).expected() > 4.1
    with pytest.raises(SkyUsageError):
        young_daly(MINUTE, 0.0)
