"""Priors from bands, moved by observations by Bayes' rule, and shown with what is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_sky import catalog, preemption
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.knowledge.catalog.catalog import Band
from jupyter_sky.knowledge.lifetimes import (
    Beliefs,
    Exponential,
    FloorHyperbolic,
    posterior,
    reference,
)
from jupyter_sky.knowledge.tracker import Observation, Place
from jupyter_sky.knowledge.tracker.estimates import LIFETIME_HALF_LIFE, prior_hours
from jupyter_sky.knowledge.tracker.knowledge import Knowledge

HERE = Place("aws", "us-east-1", "us-east-1a", "m5.large", spot=True)
GOOGLE = Offer("gcp", "us-west1", "n1-highcpu-32", 32, 29, zone="us-west1-b", spot=True)


def bands(cloud: str, region: str, instance_type: str) -> Band | None:
    return Band(5, 10, 70, "2026-07-01") if cloud == "aws" else None


def died(place: Place = HERE, hours: float = 1.0, kind: str = "preempted") -> Observation:
    return Observation(kind, place, 0.0, seconds=3600 * hours)


def test_prior_of_a_band_has_the_mean_of_the_tracker() -> None:
    found = posterior(HERE, bands=bands)
    assert found.model == Exponential(1 / prior_hours(True, bands("aws", "", "")))
    assert "interruption band of 5 to 10 %" in str(found) and "none seen" in str(found)
    rarer = posterior(HERE, bands=lambda *_: Band(0, 5, 70, ""))
    assert rarer.model.survival(24.0) > found.model.survival(24.0)


def test_the_shipped_bands_order_machines() -> None:
    found = catalog.load()
    rows = found.rows("interruptions")
    low, high = (
        next(row for row in rows if row["band_low_pct"] == pct and row["cloud"] == "aws")
        for pct in (0, 20)
    )
    beliefs = Beliefs(found.interruption)
    hours = [
        beliefs.posterior(Place("aws", row["region"], "", row["instance_type"], spot=True))
        for row in (low, high)
    ]
    assert hours[0].model.survival(24.0) > hours[1].model.survival(24.0) + 0.05


def test_prior_without_a_band_is_the_2019_model() -> None:
    found = posterior(GOOGLE)
    assert isinstance(found.model, FloorHyperbolic)
    assert found.model.survival(3.0) == pytest.approx(reference().at(32).survival(3.0))
    small = posterior(replace(GOOGLE, vcpus=2, instance_type="n1-highcpu-2"))
    assert small.model.survival(3.0) > found.model.survival(3.0)
    huge = posterior(replace(GOOGLE, vcpus=416))
    assert huge.model == posterior(replace(GOOGLE, vcpus=64)).model, "not beyond what was seen"
    capped = posterior(GOOGLE, caps={"gcp": 24.0})
    assert capped.model.survival(24.0) == 0 < capped.model.survival(23.9)


def test_on_demand_lives_long() -> None:
    found = posterior(replace(GOOGLE, spot=False))
    assert found.model.survival(24.0) > 0.99 and "on demand" in str(found)


def test_bayes_rule_by_hand() -> None:
    rate = 1 / prior_hours(True, bands("aws", "", ""))
    seen = [died(hours=2.0), died(hours=10.0, kind="ended")]
    found = posterior(HERE, seen, bands=bands)
    assert found.preemptions == pytest.approx(2.0)
    assert found.exposure == pytest.approx(1 + rate * 12.0)
    assert found.machines == 2 and "2 machines seen" in str(found)
    base = reference().at(32)
    found = posterior(GOOGLE, [died(Place.of(GOOGLE), 2.0)])
    assert found.exposure == pytest.approx(1 + float(base.cumulative_below(np.array([2.0]))[0]))


def test_an_early_loss_says_more_than_a_late_one() -> None:
    """Falling hazards: half an hour lived is more exposure than the same half hour later."""
    place = Place.of(GOOGLE)
    early, late = (posterior(GOOGLE, [died(place, h)]).ratio for h in (0.1, 20.0))
    assert early > late
    added = [posterior(GOOGLE, [died(place, h, "ended")]).exposure for h in (1.0, 2.0, 10.0, 11.0)]
    assert added[1] - added[0] > 3 * (added[3] - added[2])


def test_much_data_outweighs_the_prior() -> None:
    truth = reference().base.times(6.0)
    place = Place.of(replace(GOOGLE, vcpus=8))
    hours = truth.sample(1000, np.random.default_rng(1))
    stop = 12.0
    seen = [died(place, min(h, stop), "preempted" if h < stop else "ended") for h in hours]
    found = Beliefs.of(seen, 0.0).posterior(replace(GOOGLE, vcpus=8))
    assert found.ratio == pytest.approx(6.0, rel=0.12)
    low, high = found.interval()
    assert low < truth.expected_lifetime(24.0) < high and high - low < 0.25 * high


def test_old_observations_fade_and_later_ones_are_left_out() -> None:
    seen = [died()]
    fresh, old = (Beliefs.of(seen, now, bands).posterior(HERE) for now in (0, LIFETIME_HALF_LIFE))
    assert (fresh.own, old.own) == pytest.approx((1.0, 0.5))
    assert Beliefs.of(seen, -1.0, bands).posterior(HERE).machines == 0


def test_neighbour_evidence_is_limited_as_in_the_tracker() -> None:
    zone = replace(HERE, zone="us-east-1b")
    kin = replace(HERE, instance_type="m5.xlarge")
    far = replace(HERE, region="eu-west-1", zone="eu-west-1a")
    for place, share in ((zone, 0.25), (kin, 0.1), (far, 0.05)):
        assert posterior(HERE, [died(place)], bands=bands).lent == pytest.approx(share)
    crowd = posterior(HERE, [died(zone)] * 100, bands=bands)
    assert crowd.lent == pytest.approx(1.0) and crowd.own == 0 == crowd.machines
    assert posterior(HERE, [died(replace(HERE, spot=False))], bands=bands).lent == 0


@given(
    st.lists(st.tuples(st.floats(0.01, 400.0), st.booleans(), st.floats(0, 5e6)), max_size=8),
    st.sampled_from([HERE, replace(HERE, zone="us-east-1b")]),
)
@settings(max_examples=40)
def test_exponential_posterior_equals_the_tracker_estimate(rows: list, place: Place) -> None:
    """The same prior, data and neighbours: two ways to one posterior."""
    seen = [
        Observation("preempted" if lost else "ended", place, at, seconds=3600 * hours)
        for hours, lost, at in rows
    ]
    now = 5e6
    theirs = Knowledge.of(seen, now, bands).lifetime(HERE)
    ours = Beliefs.of(seen, now, bands).posterior(HERE)
    assert isinstance(ours.model, Exponential)
    assert ours.model.rate == pytest.approx(theirs.rate, rel=1e-9)
    for hours in (1.0, 30.0):
        assert ours.survival(hours) == pytest.approx(theirs.survival(hours))


def test_estimates_have_intervals() -> None:
    vague = posterior(HERE, bands=bands)
    sure = posterior(HERE, [died(hours=300.0)] * 30, bands=bands)
    assert vague.interval(200.0)[0] < sure.interval(200.0)[0] < sure.interval(200.0)[1]
    short, long = vague.models()
    assert short.survival(24.0) < vague.model.survival(24.0) < long.survival(24.0)
    # over all factors that may be, some machines live longer than the mean factor says
    assert vague.survival(5000.0) > vague.model.survival(5000.0)
    assert posterior(GOOGLE, caps={"gcp": 24.0}).survival(25.0) == 0


def test_current_reads_the_tracker_and_the_catalog(own_data: None) -> None:
    from jupyter_sky import tracker

    row = catalog.load().rows("interruptions")[0]
    place = Place(row["cloud"], row["region"], "", row["instance_type"], spot=True)
    before = preemption.current().posterior(place)
    assert "interruption band" in before.basis and before.machines == 0
    tracker.observe("preempted", place, seconds=600.0)
    after = preemption.current().posterior(place)
    assert after.machines == 1 and after.ratio > 1.9 > before.ratio
