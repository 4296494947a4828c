from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.knowledge.catalog.transfer import Location, Tiers

PLACES = (
    *("aws/us-east-1", "aws/us-east-1/us-east-1a", "aws/eu-central-1", "azure/eastus", "azure"),
    *("gcp/us-central1", "gcp/europe-west4/europe-west4-a", "gcp/australia-southeast1"),
    *("aws/ap-east-2", "lambda/us-east-1", "internet", "local"),
)
places = st.sampled_from(PLACES)
volumes = st.floats(0, 1e6, allow_nan=False)


@given(source=places, destination=places, small=volumes, more=volumes)
def test_egress_is_monotone_and_additive(shipped, source, destination, small, more):
    first = shipped.egress(source, destination, small)
    both = shipped.egress(source, destination, small + more)
    rest = shipped.egress(source, destination, more, already_gb=small)
    if both.usd is None:
        assert both.basis == "not known" and first.usd in (None, 0.0)
        return
    assert 0 <= first.usd <= both.usd
    assert first.usd + rest.usd == pytest.approx(both.usd, abs=1e-6)


@given(
    steps=st.lists(st.tuples(st.floats(0.001, 1e5), st.floats(0, 1)), min_size=1, max_size=6).map(
        lambda steps: tuple(sorted(dict(steps).items()))
    ),
    parts=st.lists(st.floats(0, 1e5), max_size=6),
)
def test_tiers_add_up_over_any_parts(steps, parts):
    tiers, total, sent = Tiers(steps), 0.0, 0.0
    for part in parts:
        total += tiers.usd(part, sent)
        sent += part
    assert total == pytest.approx(tiers.usd(sum(parts)), rel=1e-9, abs=1e-6)


def test_ten_terabytes_cost_more_than_nine_point_nine(shipped):
    """The volume inside each tier at its own price: nothing falls to zero at a boundary."""
    costs = [
        shipped.egress("aws/us-east-1", "internet", tb * 1024).usd for tb in (9.9, 10, 12, 50, 200)
    ]
    assert costs == sorted(set(costs))
    assert costs[1] == pytest.approx(10240 * 0.09)
    assert costs[3] == pytest.approx(10240 * 0.09 + 40960 * 0.085)
    assert costs[4] == pytest.approx(costs[3] + 102400 * 0.07 + 51200 * 0.05)


@pytest.mark.parametrize(
    ("source", "destination", "relation", "basis", "usd"),
    [
        ("aws/us-east-1/us-east-1a", "aws/us-east-1/us-east-1a", "same zone", "listed", 0),
        ("aws/us-east-1/us-east-1a", "aws/us-east-1/us-east-1b", "other zone", "listed", 2),
        ("aws/us-east-1", "aws/us-east-1", "other zone", "estimate", 2),
        ("aws/us-east-1", "aws/us-east-2", "other region", "listed", 1),
        ("aws/us-east-1", "aws/eu-west-1", "other region", "listed", 2),
        ("aws/us-east-1", "gcp/us-central1", "other cloud", "listed", 9),
        ("aws/us-east-1", "local", "internet", "listed", 9),
        ("local", "aws/us-east-1", "internet", "listed", 0),
        ("local", "local", "same place", "listed", 0),
        ("gcp/us-central1", "gcp/us-east1", "other region", "listed", 2),
        ("gcp/asia-east1", "gcp/asia-east2", "other region", "listed", 8),
        ("gcp/us-central1", "gcp/europe-west4", "other region", "estimate", 12),
        ("gcp/us-central1", "azure/australiaeast", "other cloud", "listed", 19),
        ("azure/eastus", "azure/eastus2", "other region", "estimate", 2),
        ("azure/eastus", "azure/westeurope", "other region", "estimate", 8),
        ("aws/ap-east-2", "aws/us-east-1", "other region", "estimate", 14.7),
        ("lambda/us-east-1", "aws/us-east-1", "other cloud", "not known", None),
    ],
)
def test_relation_of_two_places_sets_the_price(shipped, source, destination, relation, basis, usd):
    found = shipped.egress(source, destination, 100)
    assert (found.relation, found.basis) == (relation, basis)
    assert found.usd == (None if usd is None else pytest.approx(usd))
    assert found.note or basis == "listed", "what is not a list price says why"


def test_azure_s_two_ladders_are_one(shipped):
    cost = shipped.egress("azure/eastus", "internet", 10_100 + 1000).usd
    assert cost == pytest.approx(10_100 * 0.08 + 1000 * 0.065)


@pytest.mark.parametrize("gb", [-1, math.nan, math.inf, None, "much"])
def test_an_amount_that_is_none(shipped, gb):
    for ask in (
        lambda: shipped.egress("aws/us-east-1", "internet", gb),
        lambda: shipped.egress("aws/us-east-1", "internet", 1, already_gb=gb),
        lambda: shipped.transfer_hours("aws/us-east-1", "internet", gb),
        lambda: shipped.storage("aws", "us-east-1", gb),
    ):
        with pytest.raises(SkyUsageError, match="not a volume in GB"):
            ask()


@pytest.mark.parametrize("text", ["", "aws/b/c/d", "/us-east-1", None, 3])
def test_places_that_are_none(text):
    with pytest.raises(SkyUsageError, match="such as aws/us-east-1"):
        Location.parse(text)


@pytest.mark.parametrize(
    ("source", "destination", "basis", "gbit_s"),
    [
        ("aws/us-east-1", "aws/us-west-2", "measured", 4.47),
        ("aws/us-east-1", "azure/westeurope", "measured", 3.14),
        ("aws/us-east-1", "aws/us-east-1", "limit", 5),
        ("aws/us-east-1", "gcp/us-central1", "limit", 5),
        ("local", "aws/us-east-1", "assumed", 1),
        ("lambda/us-east-1", "nebius/eu-north1", "assumed", 2),
    ],
)
def test_time_of_a_transfer_says_what_it_rests_on(shipped, source, destination, basis, gbit_s):
    found = shipped.transfer_hours(source, destination, 450)
    assert (found.basis, found.gbit_s) == (basis, gbit_s)
    assert found.hours == pytest.approx(450 * 8 / gbit_s / 3600)
    assert bool(found.source) == (basis != "assumed") and found.note


def test_data_in_place_take_no_time(shipped):
    assert shipped.transfer_hours("local", "local", 450).hours == 0


def test_storage(shipped):
    found = shipped.storage("aws", "us-east-1", 1000)
    assert (found.usd, found.storage_class) == (pytest.approx(23.0), "S3 Standard")
    much = shipped.storage("aws", "us-east-1", 51200 + 1000).usd
    assert much == pytest.approx(51200 * 0.023 + 1000 * 0.022)
    cold = shipped.storage("gcp", "us-central1", 1000, "GCS Archive")
    assert cold.usd < shipped.storage("gcp", "us-central1", 1000).usd and cold.date
    assert shipped.storage("azure", "northeurope", 1).usd is None


def test_unknown_cloud_has_no_price(shipped):
    with pytest.raises(SkyUsageError, match="no cloud is called asw") as caught:
        shipped.egress("aws/us-east-1", "asw/us-east-2", 1)
    assert "aws" in str(caught.value)
    assert Location.parse("AWS/us-east-1") == Location("aws", "us-east-1")
