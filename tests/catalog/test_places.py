from __future__ import annotations

from datetime import date


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
