from __future__ import annotations

from datetime import date

import pytest

from jupyter_sky.catalog.statistics import size, spread, zone_prices


def test_region(shipped):
    found = shipped.region("gcp", "europe-north1")
    assert (found.country, found.jurisdiction, found.carbon) == ("FI", "EU", 39.32)
    assert found.zones == ("europe-north1-a", "europe-north1-b", "europe-north1-c")
    assert (round(found.latitude), round(found.longitude)) == (61, 27)
    assert shipped.region("aws", "nowhere").country == ""


def test_marketplace_regions_are_countries(shipped):
    assert shipped.region("vast", "BG").jurisdiction == "EU"
    assert {o.region for o in shipped.filter(cloud="vast", region="au")} == {"AU"}


def test_interruption(shipped):
    band = shipped.interruption("aws", "us-east-1", "m5.large")
    assert (band.low_pct, band.high_pct, band.savings_pct, band.date) == (15, 20, 66, "2025-06-28")
    assert shipped.interruption("aws", "af-south-1", "c5.12xlarge").high_pct is None
    assert shipped.interruption("gcp", "us-central1", "n2-standard-2") is None


def test_age(shipped):
    assert shipped.age("gcp", date(2026, 8, 10)) == 11
    assert shipped.age("lambda", date(2026, 8, 10)) == 267
    assert shipped.age("vast", date(2026, 8, 10)) is None
    spot = shipped.filter(cloud="azure", spot=True)
    assert spot.age(date(2026, 8, 9)) == 730


def test_names(shipped):
    assert {"eu-west-1", "westeurope"} < set(shipped.names("region"))
    assert {"EU", "US", "GB"} < set(shipped.names("jurisdiction"))
    assert "p4d.24xlarge" in shipped.names("instance-type") and "" not in shipped.names("zone")


@pytest.mark.parametrize(
    ("cloud", "regions", "zones", "types"),
    [("aws", 36, 95, 1426), ("azure", 56, 108, 1706), ("gcp", 44, 134, 567)],
)
def test_sizes_of_clouds(shipped, cloud, regions, zones, types):
    found = size(shipped, cloud)
    assert (found.regions, found.zones, found.types) == (regions, zones, types)
    assert 0 < found.us_regions < regions and 0 < found.us_zones < zones
    assert found.local_zones == (68 if cloud == "aws" else 0)


def test_spread_over_zones(shipped):
    found = spread(shipped, gpus="tpu-v2-8")
    assert (found.zones, round(found.ratio, 2), round(found.cv, 2)) == (5, 1.16, 0.06)
    none = spread(shipped, gpus="K80:1", clouds=("gcp",))
    assert none.zones == 0 and none.ratio != none.ratio


def test_spread_by_hand(catalog_of):
    row = {"cloud": "aws", "instance_type": "m", "vcpus": 2.0, "kind": "vm"}
    catalog = catalog_of(
        offers=[
            {**row, "region": "a", "zone": "a1", "on_demand_usd_h": 1.0},
            {**row, "region": "a", "zone": "a1", "instance_type": "n", "on_demand_usd_h": 2.0},
            {**row, "region": "b", "on_demand_usd_h": 3.0},
            {**row, "region": "c"},
        ],
        regions=[{"cloud": "aws", "region": "b", "zones": "b1;b2"}],
    )
    assert zone_prices(catalog, cpus=2) == {
        ("aws", "a1"): 1.0,
        ("aws", "b1"): 3.0,
        ("aws", "b2"): 3.0,
    }
    found = spread(catalog, cpus=2)
    assert (found.zones, found.ratio) == (3, 3.0)
    assert found.cv == pytest.approx((8 / 9) ** 0.5 / (7 / 3))
