"""Fits: they find what made the data, say how sure they are, and refuse what cannot be fitted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import (
    MODELS,
    Constrained,
    Exponential,
    FloorHyperbolic,
    Lifetimes,
    Model,
    NormalisedConstrained,
    Weibull,
    bootstrap,
    fit,
    fit_least_squares,
    fit_proportional,
    google_2019,
    reference,
)
from jupyter_sky.knowledge.lifetimes.estimation import MIN_HOURS


def drawn(model: Model, size: int = 4000, seed: int = 0, stopped: float = 0.3) -> Lifetimes:
    """Lifetimes of a model, a share of them stopped by their owners at random."""
    rng = np.random.default_rng(seed)
    hours = model.sample(size, rng)
    stops = np.where(rng.random(size) < stopped, rng.uniform(0.1, 24, size), math.inf)
    return Lifetimes.of(np.minimum(hours, stops), hours <= stops)


def test_maximum_likelihood_finds_what_made_the_data() -> None:
    found = fit("exponential", drawn(Exponential(0.08, 24.0)))
    assert found.rate == pytest.approx(0.08, rel=0.05)  # pyright: ignore
    found = fit("weibull", drawn(Weibull(0.03, 0.5, 24.0)))
    assert isinstance(found, Weibull)
    assert found.shape == pytest.approx(0.5, rel=0.06) and found.rate == pytest.approx(
        0.03, rel=0.2
    )
    truth = FloorHyperbolic(0.01, 0.5, 0.4, 24.0)
    found = fit("floor-hyperbolic", drawn(truth, 8000))
    ages = np.array([0.1, 0.5, 2.0, 8.0, 20.0])
    assert found.survival(ages) == pytest.approx(truth.survival(ages), abs=0.02)
    truth = NormalisedConstrained(2.0, 0.7, 24.2)
    found = fit("constrained", drawn(truth))
    assert found.survival(ages) == pytest.approx(truth.survival(ages), abs=0.03)


def test_least_squares_finds_what_made_the_curve() -> None:
    truth = Constrained(0.42, 1.1, 0.8, 24.3)
    share = (np.arange(400) + 0.5) / 400
    grid = np.linspace(0, 24.8, 5000)
    curve = truth.formula(grid)
    ended = np.interp(share[share < curve[-1]], curve, grid)
    found = fit_least_squares("constrained", Lifetimes.of(ended, [True] * len(ended)))
    assert isinstance(found, Constrained)
    scaled = truth.scale * 400 / len(ended)  # the empirical distribution ends at 1
    assert (found.scale, found.tau1, found.b) == pytest.approx((scaled, 1.1, 24.3), rel=0.03)


def test_the_papers_parameters_come_out_of_the_papers_treatment() -> None:
    """Its ranges for the small types; the shipped part of the data deviates a little."""
    seen = google_2019()
    for kind in ("n1-highcpu-2", "n1-highcpu-4", "n1-highcpu-8", "n1-highcpu-16"):
        model = fit_least_squares("constrained", seen.of_kind(kind))
        assert isinstance(model, Constrained)
        assert 0.5 < 1 / model.tau1 < 1.6 and 1.2 < 1 / model.tau2 < 1.9 and 24 < model.b < 24.6
        assert model.expected_lifetime_paper() < 6.5 < 14 < model.expected_lifetime()


def test_stops_are_not_preemptions() -> None:
    """Counted as preemptions, or dropped, they make lives too short."""
    seen = google_2019().of_kind("n1-highcpu-32")
    truth = fit("kaplan-meier", seen).expected_lifetime()
    dropped = fit("kaplan-meier", seen.where(seen.preempted)).expected_lifetime()
    counted = Lifetimes.of(seen.hours, np.ones(len(seen), bool))
    assert fit("kaplan-meier", counted).expected_lifetime() < dropped < 0.6 * truth


@pytest.mark.slow
def test_the_models_rank_as_they_should_on_unseen_batches() -> None:
    seen, scores = google_2019(), dict.fromkeys(("proportional", *MODELS[:4]), 0.0)
    for train, judge in seen.folds(3):
        for name in MODELS[:4]:
            scores[name] += fit(name, train).log_likelihood(judge) / len(seen)
        scores["proportional"] += fit_proportional(train).log_likelihood(judge) / len(seen)
    order = ["proportional", "floor-hyperbolic", "weibull", "constrained", "exponential"]
    assert sorted(scores, key=lambda name: -scores[name]) == order


def test_the_reference_is_what_the_shipped_lifetimes_give() -> None:
    kept, fitted = reference(), fit_proportional(google_2019())
    for name in ("floor", "early", "scale", "cap"):
        assert getattr(kept.base, name) == pytest.approx(getattr(fitted.base, name), rel=2e-3)
    assert kept.doubling == pytest.approx(fitted.doubling, rel=2e-3)
    assert dict(kept.zones) == pytest.approx(dict(fitted.zones), abs=2e-3)


def test_larger_machines_fail_more() -> None:
    model = reference()
    assert 1.1 < math.exp(model.doubling) < 1.4
    zones = dict(model.zones)
    assert zones["us-central1-c"] > zones["us-east1-b"] > zones["us-west1-a"]
    assert model.at(8, "nowhere").survival(5.0) == pytest.approx(model.base.survival(5.0))
    assert abs(zones["europe-west4-a"]) < 0.7, "four machines must not say much"


def test_a_bootstrap_by_batch_is_wider_than_one_by_machine() -> None:
    seen = google_2019().of_kind("n1-highcpu-32")

    def alive(some: Lifetimes) -> float:
        return float(fit("kaplan-meier", some).survival(1.0))

    batches = bootstrap(alive, seen, 100, seed=1)
    alone = Lifetimes.of(seen.hours, seen.preempted)
    machines = bootstrap(alive, alone, 100, seed=1)
    assert batches.low < batches.estimate < batches.high
    assert batches.high - batches.low > 1.3 * (machines.high - machines.low)
    assert batches == bootstrap(alive, seen, 100, seed=1) != bootstrap(alive, seen, 100, seed=2)


def test_bootstrap_reports_samples_that_cannot_be_fitted() -> None:
    rare = Lifetimes.of([1.0] + [5.0] * 9, [True] + [False] * 9)
    found = bootstrap(lambda some: fit("exponential", some).survival(1.0), rare, 100)
    assert 10 < found.failed < 60 and found.samples + found.failed == 100
    with pytest.raises(SkyUsageError, match="could not be fitted"):
        bootstrap(lambda some: fit("weibull", some).survival(1.0), rare, 20)
    with pytest.raises(SkyUsageError, match="one batch"):
        bootstrap(len, Lifetimes.of([1.0, 2.0], [True, True], batch=["a", "a"]))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "kaplan-meier"])
def test_no_preemption_is_no_fit(name: str) -> None:
    stopped = Lifetimes.of([1.0, 2.0, 3.0, 24.5], [False, False, False, True])
    with pytest.raises(SkyUsageError, match="0 of 4 machines were preempted") as caught:
        fit(name, stopped)
    assert "posterior" in (caught.value.hint or "")
    with pytest.raises(SkyUsageError, match="too few for the 4"):
        fit_least_squares("constrained", stopped)
    with pytest.raises(SkyUsageError, match="needs 4"):
        fit_proportional(stopped)


def test_one_preemption_is_enough_for_one_parameter_only() -> None:
    one = Lifetimes.of([2.0, 4.0], [True, False])
    assert fit("exponential", one).rate == pytest.approx(1 / 6)  # pyright: ignore
    with pytest.raises(SkyUsageError, match="weibull needs 2"):
        fit("weibull", one)


def test_an_unknown_model_is_named_with_the_nearest() -> None:
    seen = Lifetimes.of([1.0], [True])
    with pytest.raises(SkyUsageError, match=r"weibul.*\n.*weibull"):
        fit("weibul", seen)
    with pytest.raises(SkyUsageError, match="least squares"):
        fit_least_squares("kaplan-meier", seen)
    with pytest.raises(SkyUsageError, match="needs a cap"):
        fit("constrained", Lifetimes.of([1.0, 2.0, 3.0], [True] * 3, cap=math.inf))
    with pytest.raises(SkyUsageError, match="all lifetimes are 0"):
        fit("exponential", Lifetimes.of([0.0], [True]))


@given(
    st.lists(st.tuples(st.floats(0, 24.9), st.booleans()), min_size=3, max_size=25),
    st.sampled_from(["exponential", "weibull", "floor-hyperbolic"]),
)
@example([(0.0, True), (0.0, True), (2.2e-313, True)], "exponential")
@settings(max_examples=20)
def test_any_lifetimes_are_fitted_or_refused(rows: list[tuple[float, bool]], name: str) -> None:
    """Whatever is seen, a fit is a distribution that is no worse than the exponential."""
    seen = Lifetimes.of(*zip(*rows, strict=True))
    try:
        model = fit(name, seen)
    except SkyUsageError:
        assert seen.events.sum() < 3 or seen.hours.sum() < MIN_HOURS
        return
    alive = np.asarray(model.survival(np.linspace(0, 24, 50)))
    assert (np.diff(alive) <= 1e-12).all() and np.isfinite(alive).all()
    simplest = fit("exponential", seen).log_likelihood(seen)
    assert model.log_likelihood(seen) >= simplest - 0.02 * len(seen) - 0.05


def test_weibull_as_lifelines_has_it() -> None:
    lifelines = pytest.importorskip("lifelines")
    seen = drawn(Weibull(0.03, 0.5, 24.0), 500, seed=4)
    theirs = lifelines.WeibullFitter().fit(np.minimum(seen.hours, 24.0), seen.events)
    ours = fit("weibull", seen)
    assert isinstance(ours, Weibull)
    assert ours.shape == pytest.approx(theirs.rho_, rel=1e-3)
    assert 1 / ours.rate == pytest.approx(theirs.lambda_, rel=2e-3)
    assert ours.log_likelihood(seen) == pytest.approx(theirs.log_likelihood_, abs=1e-3)
