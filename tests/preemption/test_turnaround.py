"""Turnaround of a job: the paper's equations, the exact forms, and the simulator as referee."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import (
    Exponential,
    FloorHyperbolic,
    KaplanMeier,
    Lifetimes,
    Weibull,
    fresh_turnaround,
    google_2019,
    paper_turnaround,
    preemption_chance_paper,
    simulate_turnaround,
    turnaround,
)

YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)
SHAPES = {2: "n1-highcpu-32", 4: "n1-highcpu-16", 8: "n1-highcpu-8", 16: "n1-highcpu-4"}


def test_the_papers_equations() -> None:
    assert preemption_chance_paper(2.0, 3, 8.0) == pytest.approx(1 - 0.75**3)
    assert preemption_chance_paper(9.0, 1, 8.0) == 1
    assert paper_turnaround(2.0, 3, 8.0) == pytest.approx(2 + 1 * (1 - 0.75**3))
    assert paper_turnaround(4.0, 2, 4.0) == 6.0, "at most half of the work again"


@given(st.floats(0.01, 1.0), st.floats(0.1, 4.0), st.integers(1, 8))
@settings(max_examples=60)
def test_machines_that_do_not_age_have_a_closed_form(rate: float, work: float, nodes: int) -> None:
    expected = math.expm1(nodes * rate * work) / (nodes * rate)
    for way in (fresh_turnaround, turnaround):
        assert way(Exponential(rate), work, nodes).hours == pytest.approx(expected, rel=1e-6)
    found = turnaround(Exponential(rate), work, nodes)
    assert found.chance == pytest.approx(-math.expm1(-nodes * rate * work))
    assert found.failures == pytest.approx(math.expm1(nodes * rate * work), rel=1e-6)


def test_the_grid_finds_the_closed_form_too() -> None:
    """A capped exponential far from its cap goes the long way through renewals."""
    for nodes, rate, work in ((2, 0.1, 2.0), (16, 0.02, 4.0), (4, 0.3, 1.0)):
        found = turnaround(Exponential(rate, cap=5000.0), work, nodes)
        closed = math.expm1(nodes * rate * work) / (nodes * rate)
        assert found.hours == pytest.approx(closed, rel=0.02)


@pytest.mark.parametrize("nodes", SHAPES)
def test_prediction_is_within_two_percent_of_simulation(nodes: int) -> None:
    """On the lifetimes of 2019, where only the machine that is lost is replaced."""
    model = KaplanMeier.of(google_2019().of_kind(SHAPES[nodes]))
    for work in (0.5, 2.0, 4.0):
        truth, error = simulate_turnaround(model, work, nodes, runs=8000, seed=1)
        said = turnaround(model, work, nodes).hours
        assert said == pytest.approx(truth, abs=0.02 * truth + 3 * error)


def test_replacing_all_is_worse_where_young_machines_fail() -> None:
    one, all_new = turnaround(YOUNG, 4.0, 8), fresh_turnaround(YOUNG, 4.0, 8)
    assert one.hours < 0.7 * all_new.hours and one.chance == pytest.approx(all_new.chance)


def test_the_exact_form_against_simulation_of_one_machine() -> None:
    for model in (YOUNG, Weibull(0.05, 0.5, 24.0)):
        truth, error = simulate_turnaround(model, 3.0, 1, runs=20_000)
        assert fresh_turnaround(model, 3.0).hours == pytest.approx(truth, abs=4 * error)


def test_hazard_falls_after_the_early_phase() -> None:
    for way in (fresh_turnaround, turnaround):
        for nodes in (1, 4):
            new, old = (way(YOUNG, 2.0, nodes, age=age) for age in (0.0, 8.0))
            assert old.hours < new.hours and old.chance < new.chance
    assert turnaround(YOUNG, 2.0, 1, age=23.0).chance == 1, "the cap comes first"


def test_restarts_take_their_time() -> None:
    for nodes in (1, 3):
        plain, slow = (turnaround(YOUNG, 2.0, nodes, restart=r) for r in (0.0, 0.5))
        assert slow.hours == pytest.approx(plain.hours + 0.5 * plain.failures)


def test_endless_job_has_infinite_turnaround() -> None:
    for nodes in (1, 3):
        assert turnaround(YOUNG, 30.0, nodes).hours == math.inf
        assert fresh_turnaround(YOUNG, 30.0, nodes).hours == math.inf
    assert turnaround(Exponential(0.0), 30.0, 3).hours == 30.0
    weak = KaplanMeier.of(Lifetimes.of([1.0, 2.0], [True, True]))
    assert turnaround(weak, 3.0, 2).hours == math.inf


@given(
    st.builds(
        FloorHyperbolic, st.floats(0, 0.1), st.floats(0, 1), st.floats(0.1, 5), st.just(24.0)
    ),
    st.floats(0.2, 5.0),
    st.integers(1, 6),
)
@settings(max_examples=12)
def test_failures_only_cost(model: FloorHyperbolic, work: float, nodes: int) -> None:
    found = turnaround(model, work, nodes)
    assert found.hours >= work * 0.995 and 0 <= found.chance <= 1
    assert found.hours <= turnaround(model, work, nodes + 1).hours * 1.01
    if found.hours < model.cap / 4:  # else those that are left come to the provider's cap
        assert found.hours <= fresh_turnaround(model, work, nodes).hours * 1.02
    assert found.failures >= found.chance * 0.999


@pytest.mark.parametrize(
    "work, nodes, more",
    [
        (0.0, 1, {}),
        (-1.0, 1, {}),
        (math.nan, 1, {}),
        (1.0, 0, {}),
        (1.0, 1.5, {}),
        (1.0, 2, {"restart": -1.0}),
        (1.0, 2, {"age": 24.0}),
        (1.0, 1, {"age": 25.0}),
    ],
)
def test_invalid_jobs_are_refused(work: float, nodes: int, more: dict) -> None:
    for way in (turnaround, fresh_turnaround):
        with pytest.raises(SkyUsageError):
            way(YOUNG, work, nodes, **more)
