"""Lifetime models: what every one must be, whatever its formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.lifetimes import (
    Constrained,
    Exponential,
    FloorHyperbolic,
    KaplanMeier,
    Lifetimes,
    Model,
    NormalisedConstrained,
    Weibull,
    expected_lifetime,
    fit,
)

CAP = 24.0
rates = st.floats(1e-3, 5.0)
caps = st.sampled_from([CAP, math.inf])
models = st.one_of(
    st.builds(Exponential, rates, caps),
    st.builds(Weibull, rates, st.floats(0.2, 4.0), caps),
    st.builds(FloorHyperbolic, st.floats(0, 0.5), rates, st.floats(0.02, 30.0), caps),
    st.builds(NormalisedConstrained, st.floats(0.1, 10), st.floats(0.1, 5), st.floats(12, 30)),
    st.builds(
        lambda hours: KaplanMeier.of(Lifetimes.of(hours, [True] * len(hours))),
        st.lists(st.floats(0.0, 24.5), min_size=1, max_size=30),
    ),
)
EXAMPLES = [
    Exponential(0.1, CAP),
    Weibull(0.01, 0.45, CAP),
    FloorHyperbolic(0.005, 0.41, 0.3, CAP),
    NormalisedConstrained(1.0, 0.8, 24.4),
    Exponential(0.3).times(2.0),
    Weibull(0.01, 0.45, CAP).times(3.0),
]


@given(models)
@settings(max_examples=150)
def test_survival_falls_from_one_to_the_cap(model: Model) -> None:
    ages = np.concatenate([[-1.0, 0.0], np.linspace(0.001, 23.999, 200)])
    alive = np.asarray(model.survival(ages))
    assert alive[0] == 1 and (np.diff(alive) <= 1e-12).all()
    assert ((alive >= 0) & (alive <= 1)).all()
    assert model.survival(0.0) == pytest.approx(1, abs=1e-9)
    assert np.allclose(model.cdf(ages), 1 - alive)
    if model._cap < math.inf:
        assert model.survival(CAP) == 0 == model.survival(CAP + 5)
        assert model.reaching(CAP) == pytest.approx(model.atom)
        assert model.hazard(CAP) == math.inf


@given(models, st.floats(0.0, 20.0))
@settings(max_examples=100)
def test_a_life_goes_on_as_its_age_says(model: Model, age: float) -> None:
    """E[min(L, 24)] = E[min(L, age)] + S(age) E[what is left after age]."""
    alive = float(model.survival(age))
    if alive < 1e-6:
        return
    whole = model.expected_lifetime(CAP)
    before, after = model.expected_lifetime(age or None) if age else 0.0, 0.0
    after = model.expected_lifetime(CAP, age=age)
    assert whole == pytest.approx(before + alive * after, rel=1e-4, abs=1e-6)
    assert after <= CAP - age + 1e-6


@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: repr(model)[:30])
def test_hazard_density_and_integral_belong_together(model: Model) -> None:
    for low, high in ((0.01, 0.5), (0.5, 3.0), (3.0, 23.0)):
        hazard, _ = quad(lambda t: float(model.hazard(t)), low, high)
        assert model.survival(high) == pytest.approx(model.survival(low) * math.exp(-hazard))
        density, _ = quad(lambda t: float(model.density(t)), low, high)
        assert model.survival(low) - model.survival(high) == pytest.approx(density)
        area, _ = quad(lambda t: float(model.survival(t)), low, high)
        assert model.integral(high) - model.integral(low) == pytest.approx(area, rel=1e-6)


@pytest.mark.parametrize("age", [0.0, 2.0])
@pytest.mark.parametrize("model", EXAMPLES, ids=lambda model: repr(model)[:30])
def test_samples_are_of_the_model(model: Model, age: float) -> None:
    """Kolmogorov's distance of 20,000 samples: 0.0138 is passed once in a thousand times."""
    lives = np.sort(model.sample(20_000, np.random.default_rng(5), age))
    assert lives[0] >= age
    below = lives[lives < model._cap]
    expected = 1 - np.asarray(model.survival(below)) / float(model.survival(age))
    seen = np.arange(1, len(below) + 1) / len(lives)
    assert np.abs(seen - expected).max() < 0.0138
    assert (lives == model._cap).mean() == pytest.approx(model.atom / model.survival(age), abs=0.02)


def test_the_exponential_does_not_age_and_the_hyperbolic_grows_safer() -> None:
    assert Exponential(0.2).expected_lifetime(age=7.0) == pytest.approx(5.0, rel=1e-6)
    young, old = (
        FloorHyperbolic(0.01, 0.4, 0.3).expected_lifetime(12.0 + age, age) for age in (0, 9)
    )
    assert old > 1.2 * young


def test_the_chance_to_live_on_depends_on_age() -> None:
    for model in EXAMPLES[:4]:
        assert model.outlives(2.0) == model.survival(2.0)
        whole = float(model.survival(5.0)) / float(model.survival(3.0))
        assert model.outlives(2.0, age=3.0) == pytest.approx(whole)
        assert model.outlives(2.0, age=22.5) == 0, "the cap comes first"
        with pytest.raises(SkyUsageError, match="alive at an age of 24 h"):
            model.outlives(1.0, age=24.0)
    assert Exponential(0.1).outlives(3.0, 50.0) == pytest.approx(math.exp(-0.3))


def test_a_life_without_end_is_infinite() -> None:
    assert FloorHyperbolic(0.0, 0.1, 1.0).expected_lifetime() == math.inf
    assert Exponential(0.0).expected_lifetime() == math.inf
    assert Exponential(0.0, CAP).expected_lifetime() == CAP
    assert FloorHyperbolic(0.0, 3.0, 1.0).expected_lifetime() == pytest.approx(0.5, rel=1e-4)


def test_hazards_that_many_times_as_high() -> None:
    for model in EXAMPLES:
        three = model.times(3.0)
        assert three.survival(2.5) == pytest.approx(model.survival(2.5) ** 3)
        assert three.hazard(2.5) == pytest.approx(3 * model.hazard(2.5))


def test_likelihood_counts_stops_and_the_cap_as_survival() -> None:
    model = Weibull(0.05, 0.6, CAP)
    seen = Lifetimes.of([2.0, 3.0, 24.4], [True, False, True])
    expected = math.log(float(model.density(2.0))) + math.log(float(model.survival(3.0)))
    assert model.log_likelihood(seen) == pytest.approx(expected + math.log(model.atom))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Exponential(-1.0),
        lambda: Exponential(math.nan),
        lambda: Weibull(0.1, 0.0),
        lambda: FloorHyperbolic(0.1, 0.1, -2.0),
        lambda: FloorHyperbolic(0.1, 0.1, 1.0, cap=0.0),
        lambda: Constrained(0.4, 0.0, 1.0, 24.0),
        lambda: Constrained(0.4, 1.0, 1.0, 24.0, cap=math.inf),
        lambda: Exponential(0.1, CAP).expected_lifetime(age=24.0),
        lambda: Exponential(0.1).expected_lifetime(age=-1.0),
    ],
)
def test_figures_that_cannot_be_are_refused(make) -> None:
    with pytest.raises(SkyUsageError):
        make()


class TestEquation1:
    """The paper's formula, to the letter."""

    model = Constrained(0.4, 1.2, 0.8, 24.3)

    def test_it_is_written_as_in_the_paper(self) -> None:
        for t in (0.0, 1.0, 12.0, 23.9):
            value = 0.4 * (1 - math.exp(-t / 1.2) + math.exp((t - 24.3) / 0.8))
            assert self.model.cdf(t) == pytest.approx(value)
            slope = (self.model.formula(t + 1e-6) - self.model.formula(t - 1e-6)) / 2e-6
            assert self.model.rate(t) == pytest.approx(slope, rel=1e-4)

    def test_equation_3_is_the_integral_of_its_density(self) -> None:
        area, _ = quad(lambda t: t * float(self.model.rate(t)), 0, CAP, points=[20.0])
        assert self.model.expected_lifetime_paper() == pytest.approx(area)
        assert expected_lifetime(self.model, formula="paper") == pytest.approx(area)

    def test_the_correct_lifetime_adds_those_that_reach_the_cap(self) -> None:
        missing = CAP * (1 - self.model.formula(CAP))
        correct = expected_lifetime(self.model)
        assert correct == pytest.approx(self.model.expected_lifetime_paper() + missing, rel=1e-5)
        lives = self.model.sample(100_000, np.random.default_rng(0))
        assert lives.mean() == pytest.approx(correct, abs=0.15)

    def test_it_is_no_distribution_and_says_so(self) -> None:
        late = Constrained(0.55, 0.77, 21.5, 31.4)
        assert late.cdf(0.0) > 0.1 and late.atom > 0.04
        assert Constrained(0.9, 1.0, 5.0, 20.0).survival(23.9) < 0
        assert "not a distribution" in (Constrained.__doc__ or "")

    def test_the_normalised_form_is_one(self) -> None:
        model = NormalisedConstrained(1.2, 0.8, 24.3)
        assert model.survival(0.0) == 1 and 0 < model.atom < 1
        raw = Constrained(1.0, 1.2, 0.8, 24.3).formula
        share = (raw(12.0) - raw(0.0)) / (raw(25.0) - raw(0.0))
        assert model.cdf(12.0) == pytest.approx(share)

    def test_equation_3_is_refused_for_other_models(self) -> None:
        with pytest.raises(SkyUsageError, match=r"equation \(3\)"):
            expected_lifetime(Exponential(0.1), formula="paper")
        with pytest.raises(SkyUsageError, match="did you mean exact"):
            expected_lifetime(Exponential(0.1), formula="exakt")


class TestKaplanMeier:
    def test_by_hand(self) -> None:
        seen = Lifetimes.of([1, 2, 2, 3, 24.3], [True, True, False, True, True])
        model = KaplanMeier.of(seen)
        assert model.ages == (1.0, 2.0, 3.0)
        assert model.alive == pytest.approx((0.8, 0.6, 0.3))
        assert model.expected_lifetime() == pytest.approx(1 + 0.8 + 0.6 + 21 * 0.3)
        assert model.atom == pytest.approx(0.3)
        assert model.reaching(2.0) == pytest.approx(0.8) and model.survival(2.0) < 0.61

    def test_as_lifelines_has_it(self) -> None:
        lifelines = pytest.importorskip("lifelines")
        rng = np.random.default_rng(2)
        hours = np.minimum(rng.weibull(0.6, 300) * 12, 24.2)
        seen = Lifetimes.of(hours, (rng.random(300) < 0.7) | (hours > 24))
        model = KaplanMeier.of(seen)
        theirs = lifelines.KaplanMeierFitter().fit(np.minimum(seen.hours, CAP), seen.events)
        ages = np.array([0.1, 1.0, 5.0, 12.0, 23.0])
        assert model.survival(ages) == pytest.approx(theirs.predict(ages).to_numpy())
        area = lifelines.utils.restricted_mean_survival_time(theirs, t=CAP)
        assert model.expected_lifetime() == pytest.approx(area)

    def test_one_machine_and_no_preemption(self) -> None:
        assert KaplanMeier.of(Lifetimes.of([2.0], [True])).expected_lifetime() == 2.0
        nothing = KaplanMeier.of(Lifetimes.of([2.0, 24.1], [False, True]))
        assert nothing.expected_lifetime() == CAP
        with pytest.raises(SkyUsageError, match="none of 1 machines"):
            KaplanMeier.of(Lifetimes.of([2.0], [False], cap=math.inf))

    def test_samples_are_what_was_seen(self) -> None:
        model = KaplanMeier.of(Lifetimes.of([1, 2, 24.3, 24.2], [True] * 4))
        lives = model.sample(40_000, np.random.default_rng(0))
        assert set(lives) == {1.0, 2.0, CAP}
        assert (lives == CAP).mean() == pytest.approx(0.5, abs=0.01)
        assert set(model.sample(1000, np.random.default_rng(0), age=1.5)) == {2.0, CAP}

    def test_likelihood_of_the_unseen_is_nothing(self) -> None:
        model = fit("kaplan-meier", Lifetimes.of([1.0, 5.0, 24.3], [True] * 3))
        assert model.log_likelihood(Lifetimes.of([7.0], [True])) < -100
        assert model.log_likelihood(Lifetimes.of([4.0], [True])) > -10
