"""Chances and lifetimes: priors, Bayes' rule, intervals that hold what they promise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_sky.base.requests.offers import Place
from jupyter_sky.knowledge.tracker import estimates
from jupyter_sky.knowledge.tracker.estimates import (
    DecayedCounts,
    count_decayed,
    estimate_chance,
    estimate_lifetime,
    prior_chance,
    prior_hours,
)
from jupyter_sky.knowledge.tracker.knowledge import Knowledge
from jupyter_sky.knowledge.tracker.observations import DAY, Observation

HERE = Place("aws", "us-east-1", "us-east-1a", "g5.xlarge", True)
HOUR = 3600.0


@dataclass(frozen=True)
class Share:
    """An interruption band."""

    low_pct: float
    high_pct: float | None


BANDS = [Share(0, 5), Share(5, 10), Share(10, 15), Share(15, 20), Share(20, None)]
counts = st.floats(0, 1e4)
priors = st.floats(0.01, 0.99)


@given(priors, counts, counts)
def test_chance_is_a_chance_within_its_interval(prior: float, worked: float, failed: float) -> None:
    found = estimate_chance(prior, DecayedCounts(worked=worked, failed=failed))
    low, high = found.interval()
    assert 0 < found.mean < 1
    assert 0 <= low <= found.mean <= high <= 1 and low < high


@given(priors, st.integers(0, 500), st.integers(0, 500), st.integers(2, 50))
def test_more_of_the_same_narrows_the_interval(
    prior: float, worked: int, failed: int, times: int
) -> None:
    """From a sizeable sample on, since one surprise may rightly widen a confident prior."""
    worked, failed = worked + 20, failed + 20
    few = estimate_chance(prior, DecayedCounts(worked=worked, failed=failed)).interval()
    many = estimate_chance(
        prior, DecayedCounts(worked=worked * times, failed=failed * times)
    ).interval()
    assert many[1] - many[0] < few[1] - few[0]


@given(priors, counts, counts, st.floats(0.1, 100))
def test_chance_moves_with_the_evidence(
    prior: float, worked: float, failed: float, more: float
) -> None:
    now = estimate_chance(prior, DecayedCounts(worked=worked, failed=failed)).mean
    assert estimate_chance(prior, DecayedCounts(worked=worked + more, failed=failed)).mean > now
    assert estimate_chance(prior, DecayedCounts(worked=worked, failed=failed + more)).mean < now


@given(st.floats(1, 1e4), counts, st.floats(0, 1e6), st.floats(0.1, 1e3))
def test_lifetime_moves_with_the_evidence(
    prior: float, preempted: float, hours: float, more: float
) -> None:
    now = estimate_lifetime(prior, DecayedCounts(preempted=preempted, hours=hours))
    low, high = now.interval()
    assert 0 < low <= now.hours <= high
    longer = estimate_lifetime(prior, DecayedCounts(preempted=preempted, hours=hours + more))
    shorter = estimate_lifetime(prior, DecayedCounts(preempted=preempted + more, hours=hours))
    assert shorter.hours < now.hours < longer.hours
    assert shorter.survival(10) <= now.survival(10) <= longer.survival(10)


@given(st.floats(1, 1e4), counts, st.floats(0, 1e6), st.floats(0, 1e4), st.floats(0, 1e4))
def test_survival_falls_from_one(
    prior: float, preempted: float, hours: float, early: float, late: float
) -> None:
    found = estimate_lifetime(prior, DecayedCounts(preempted=preempted, hours=hours))
    early, late = sorted((early, late))
    assert found.survival(0) == 1
    assert 0 <= found.survival(late) <= found.survival(early) <= 1


def test_survival_is_the_mean_over_all_rates() -> None:
    found = estimate_lifetime(20, DecayedCounts(preempted=2, hours=40))
    rates = np.random.default_rng(0).gamma(found.preemptions, 1 / found.exposure, 200_000)
    assert np.exp(-rates * 12).mean() == pytest.approx(found.survival(12), abs=0.003)


# -- priors -----------------------------------------------------------------------------------


def test_priors_by_hand() -> None:
    """The rate of the docstring: ln(1/(1-s)) over 27 hours, the middle of the band for s."""
    assert math.sqrt(730.5) == pytest.approx(27.03, abs=0.01)
    expected = [1068, 347, 202, 141, 94]
    assert [prior_hours(True, band) for band in BANDS] == pytest.approx(expected, rel=0.01)
    assert prior_hours(True, None) == pytest.approx(31.7, abs=0.05)
    assert prior_hours(False, BANDS[0]) == 8766
    assert prior_chance(True, BANDS[1]) == pytest.approx(0.95 * 0.925)
    assert prior_chance(True, None) == pytest.approx(0.76)
    assert prior_chance(False, None) == 0.95


def test_a_band_without_an_end_may_be_nan() -> None:
    assert prior_hours(True, Share(20, math.nan)) == prior_hours(True, BANDS[-1])


def test_a_worse_band_means_worse_odds() -> None:
    hours = [prior_hours(True, band) for band in BANDS]
    chances = [prior_chance(True, band) for band in BANDS]
    assert hours == sorted(hours, reverse=True) and chances == sorted(chances, reverse=True)


def test_without_evidence_the_prior_is_the_answer() -> None:
    known = Knowledge.of([], 0.0, lambda cloud, region, kind: BANDS[2])
    assert known.chance(HERE).mean == pytest.approx(prior_chance(True, BANDS[2]))
    assert known.lifetime(HERE).hours == pytest.approx(prior_hours(True, BANDS[2]))
    assert known.lifetime(replace(HERE, spot=False)).hours == pytest.approx(8766)
    assert known.chance(HERE).seconds is None and known.chance(HERE).tried == 0


# -- calibration ------------------------------------------------------------------------------


@pytest.mark.parametrize("launches", [0, 1, 5, 25])
@pytest.mark.parametrize("level", [0.5, 0.8])
def test_chance_intervals_hold_the_truth_as_often_as_they_say(launches: int, level: float) -> None:
    """Truths drawn from the prior, launches from the truths; 3 standard errors are 3 points."""
    generator, prior, trials = np.random.default_rng(launches), 0.6, 2500
    a, b = estimates.PRIOR_LAUNCHES * prior, estimates.PRIOR_LAUNCHES * (1 - prior)
    held = 0
    for truth in generator.beta(a, b, trials):
        worked = int((generator.random(launches) < truth).sum())
        seen = [Observation("launched", HERE, 0.0)] * worked
        seen += [Observation("refused", HERE, 0.0, "capacity")] * (launches - worked)
        own = count_decayed(seen, 0.0).get(HERE, DecayedCounts())
        low, high = estimate_chance(prior, own).interval(level)
        held += low <= truth <= high
    assert held / trials == pytest.approx(level, abs=0.03)


@pytest.mark.parametrize("machines", [0, 1, 5, 25])
def test_lifetime_intervals_hold_the_truth_as_often_as_they_say(machines: int) -> None:
    """Machines are given back after a day at the latest, so many lives are censored."""
    generator, prior, trials = np.random.default_rng(machines), 30.0, 2500
    rates = generator.gamma(
        estimates.PRIOR_PREEMPTIONS, 1 / (estimates.PRIOR_PREEMPTIONS * prior), trials
    )
    held = 0
    for rate in rates:
        lives = generator.exponential(1 / rate, machines)
        kept = generator.uniform(0, 24, machines)
        seen = [
            Observation(
                "preempted" if life < keep else "ended",
                HERE,
                0.0,
                seconds=min(life, keep) * HOUR,
            )
            for life, keep in zip(lives, kept, strict=True)
        ]
        low, high = estimate_lifetime(
            prior, count_decayed(seen, 0.0).get(HERE, DecayedCounts())
        ).interval()
        held += low <= 1 / rate <= high
    assert held / trials == pytest.approx(0.8, abs=0.03)


def test_censoring_prevents_short_lifetimes() -> None:
    """With them the estimate finds the truth; without them it is far too low."""
    generator, truth = np.random.default_rng(5), 50.0
    lives, kept = generator.exponential(truth, 4000), generator.uniform(0, 24, 4000)
    ends = [
        Observation("preempted" if died else "ended", HERE, 0.0, seconds=hours * HOUR)
        for died, hours in zip(lives < kept, np.minimum(lives, kept), strict=True)
    ]
    whole = Knowledge.of(ends, 0.0).lifetime(HERE)
    assert whole.hours == pytest.approx(truth, rel=0.06)
    dropped = Knowledge.of([end for end in ends if end.kind == "preempted"], 0.0).lifetime(HERE)
    assert dropped.hours < truth / 4


# -- fading and neighbours --------------------------------------------------------------------


def test_observations_fade() -> None:
    seen = [Observation("launched", HERE, 0.0, seconds=40)] * 8
    seen += [Observation("preempted", HERE, 0.0, seconds=HOUR)] * 8
    day, fortnight = count_decayed(seen, DAY)[HERE], count_decayed(seen, 14 * DAY)[HERE]
    assert day.worked == pytest.approx(4) and day.tried == 8
    assert fortnight.preempted == pytest.approx(4) and fortnight.hours == pytest.approx(4)
    fresh, old = Knowledge.of(seen, 0.0), Knowledge.of(seen, 365 * DAY)
    untouched = Knowledge.of([], 0.0)
    assert old.chance(HERE).mean == pytest.approx(untouched.chance(HERE).mean)
    assert old.lifetime(HERE).hours == pytest.approx(untouched.lifetime(HERE).hours, rel=1e-4)
    assert fresh.chance(HERE).mean > untouched.chance(HERE).mean
    assert fresh.chance(HERE).seconds == 40


def test_quota_and_permission_say_nothing_about_the_place() -> None:
    seen = [Observation("refused", HERE, 0.0, cause) for cause in ("quota", "permission")]
    assert count_decayed(seen, 0.0) == {}
    passing = [Observation("refused", HERE, 0.0, "transient")]
    assert count_decayed(passing, 0.0)[HERE].failed == 1


def test_neighbours_lend_the_more_the_nearer_they_are() -> None:
    zone = replace(HERE, zone="us-east-1b")
    kin = replace(HERE, instance_type="g5.2xlarge")
    region = replace(HERE, region="us-west-2", zone="us-west-2a")
    stranger = replace(HERE, instance_type="c7i.large")
    market = replace(HERE, spot=False)
    seen = [Observation("refused", HERE, 0.0, "capacity")] * 2
    seen += [Observation("preempted", HERE, 0.0, seconds=60)]
    known, nothing = Knowledge.of(seen, 0.0), Knowledge.of([], 0.0)

    def drop(place: Place) -> float:
        return nothing.chance(place).mean - known.chance(place).mean

    assert drop(HERE) > drop(zone) > drop(kin) > drop(region) > 0
    assert drop(stranger) == drop(market) == 0
    lives = [known.lifetime(place).hours for place in (HERE, zone, kin, region, stranger)]
    assert lives == sorted(lives) and lives[3] < lives[4]
    assert known.chance(zone).tried == 0


@given(st.integers(1, 300))
def test_neighbours_never_outweigh_what_is_seen_at_the_place(others: int) -> None:
    far = replace(HERE, zone="us-east-1b")
    bad = [Observation("refused", far, 0.0, "capacity")] * others
    known = Knowledge.of(bad, 0.0).chance(HERE)
    assert known.a + known.b <= 2 * estimates.PRIOR_LAUNCHES + 1e-9
    dead = [Observation("preempted", far, 0.0, seconds=60)] * others
    life = Knowledge.of(dead, 0.0).lifetime(HERE)
    assert life.preemptions <= 2 * estimates.PRIOR_PREEMPTIONS + 1e-9


def test_knowledge_is_immutable() -> None:
    seen = [Observation("launched", HERE, 0.0, seconds=9)]
    known = Knowledge.of(seen, 0.0)
    before = known.chance(HERE)
    seen.append(Observation("refused", HERE, 0.0, "capacity"))
    assert known.chance(HERE) == before and known.block(HERE) is None
