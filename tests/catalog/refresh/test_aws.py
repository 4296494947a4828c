"""boto3 against an AWS on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.clouds.prices.aws import AwsPrices
from jupyter_sky.clouds.prices.runner import RefreshOutcome, refresh
from jupyter_sky.clouds.prices.spot_prices import read_spot_prices
from tests.catalog.refresh.conftest import rows_of
from tests.emulators.aws import AwsEmulator, product, spot, transfer


def described(name: str, vcpus: int, gib: float, arch: str = "x86_64", **more: Any) -> Any:
    return {
        "InstanceType": name,
        "SupportedUsageClasses": ["on-demand", "spot"],
        "ProcessorInfo": {"SupportedArchitectures": [arch], "Manufacturer": "Intel"},
        "VCpuInfo": {"DefaultVCpus": vcpus},
        "MemoryInfo": {"SizeInMiB": int(gib * 1024)},
        **more,
    }


def gpus(name: str, count: int, mib: int, share: float = 1.0, parts: int = 0) -> Any:
    """As EC2 tells: of parts of a GPU there are zero whole ones."""
    device = {
        "Name": name,
        "Manufacturer": "NVIDIA",
        "Count": count,
        "LogicalGpuCount": parts or count,
        "GpuPartitionSize": share,
        "MemoryInfo": {"SizeInMiB": mib},
    }
    return {"GpuInfo": {"Gpus": [device]}}


TRANSFERS = [
    transfer(
        "AWS Outbound",
        "us-east-1",
        "DataTransfer-Out-Bytes",
        [("0", "0.0900000000"), ("10240", "0.0850000000"), ("51200", "0.0700000000")],
        to="External",
    ),
    transfer("InterRegion Outbound", "us-east-1", "USE1-USE2-AWS-Out-Bytes", [("0", "0.01")], "b"),
    transfer("InterRegion Outbound", "us-east-1", "USE1-EUW1-AWS-Out-Bytes", [("0", "0.02")], "c"),
    transfer("InterRegion Outbound", "us-east-1", "USE1-EUC1-AWS-Out-Bytes", [("0", "0.02")], "d"),
    transfer(
        "InterRegion Outbound", "us-east-1", "MRAP-Out-Bytes", [("0", "0.0033")], to="External"
    ),
    transfer("IntraRegion", "us-east-1", "DataTransfer-Regional-Bytes", [("0", "0.01")]),
]

ADVISOR = {
    "ranges": [
        {"index": 0, "label": "<5%", "dots": 0, "max": 5},
        {"index": 1, "label": "5-10%", "dots": 1, "max": 11},
        {"index": 4, "label": ">20%", "dots": 4, "max": 100},
    ],
    "spot_advisor": {
        "us-east-1": {
            "Linux": {"m5.large": {"s": 62, "r": 1}, "c5.large": {"s": 50, "r": 4}},
            "Windows": {"m5.large": {"s": 10, "r": 0}},
        }
    },
}


def world() -> AwsEmulator:
    """Three regions, five types, a zone in a city far from its region."""
    aws = AwsEmulator()
    aws.regions = {
        "us-east-1": "opt-in-not-required",
        "us-west-2": "opt-in-not-required",
        "af-south-1": "not-opted-in",
    }
    aws.products["AmazonEC2"] = [
        product("m5.large", "us-east-1", "0.0960000000"),
        product("m5.large", "us-east-1", "0.1880000000", operatingSystem="Windows"),
        product("m5.large", "us-east-1", "0.0960000000", usage="UnusedBox"),
        product("p3dn.24xlarge", "us-east-1", "31.2120000000"),
        product("g6f.xlarge", "us-east-1", "0.2375000000"),
        product("old.large", "us-east-1", "0.5000000000", memory="16 GiB"),
        product("m5.large", "us-west-2", "0.0970000000"),
        product("m5.large", "af-south-1", "0.1200000000"),
        product("m5.large", "us-west-2-lax-1", "0.1150000000", place="AWS Local Zone"),
    ]
    common = [
        described("m5.large", 2, 8),
        described("p3dn.24xlarge", 96, 768, **gpus("V100", 8, 32768)),
        described("g6f.xlarge", 4, 16, **gpus("L4", 0, 2861, 0.125, 1)),
    ]
    aws.machines = {"us-east-1": common, "us-west-2": common[:1]}
    aws.offerings = {
        "us-east-1": [
            ("m5.large", "us-east-1a"),
            ("m5.large", "us-east-1b"),
            ("p3dn.24xlarge", "us-east-1b"),
            ("g6f.xlarge", "us-east-1a"),
        ],
        "us-west-2": [("m5.large", "us-west-2a"), ("m5.large", "us-west-2-lax-1a")],
    }
    aws.spot = {
        "us-east-1": [
            spot("m5.large", "us-east-1a", "0.036000"),
            spot("m5.large", "us-east-1a", "0.035000", "2026-11-19T10:00:00.000Z"),
            spot("m5.large", "us-east-1b", "0.041000"),
            spot("p3dn.24xlarge", "us-east-1b", "33.000000"),
        ]
    }
    aws.products["AWSDataTransfer"] = TRANSFERS
    aws.advisor = ADVISOR
    return aws


@pytest.fixture
def cloud() -> Iterator[AwsEmulator]:
    aws = world()
    yield aws
    aws.close()


@pytest.fixture
def source(cloud: AwsEmulator) -> AwsPrices:
    return at(cloud)


def at(cloud: AwsEmulator) -> AwsPrices:
    return AwsPrices(endpoint=cloud.url, advisor=f"{cloud.url}/spot-advisor-data.json")


def run(source: AwsPrices, data: Path, base: Path, **options: Any) -> RefreshOutcome:
    (outcome,) = refresh(
        ["aws"], directory=data, base=base, known={"aws": source}, quiet=True, pause=0, **options
    )
    return outcome


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["instance_type"], row["zone"] or row["region"]): row for row in rows}


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory after one refresh of the world as it is."""
    cloud, folder = world(), tmp_path_factory.mktemp("fetched")
    outcome = run(at(cloud), folder, folder / "none")
    assert outcome.state == "refreshed", outcome.error
    yield folder
    cloud.close()


@pytest.fixture(scope="module")
def rows(fetched: Path) -> dict[tuple[str, str], dict[str, Any]]:
    return by_place(rows_of(fetched, "aws"))


def test_a_row_for_each_type_and_zone(rows):
    assert set(rows) == {
        ("m5.large", "us-east-1a"),
        ("m5.large", "us-east-1b"),
        ("p3dn.24xlarge", "us-east-1b"),
        ("g6f.xlarge", "us-east-1a"),
        ("old.large", "us-east-1"),
        ("m5.large", "us-west-2a"),
        ("m5.large", "us-west-2-lax-1a"),
        ("m5.large", "af-south-1"),
    }
    east = rows["m5.large", "us-east-1a"]
    assert (east["on_demand_usd_h"], east["spot_usd_h"]) == (0.096, 0.036)
    assert (east["vcpus"], east["memory_gib"], east["zone_basis"]) == (2, 8, "zone")
    assert (east["spot_scope"], east["source"]) == ("zone", "aws-price-list+ec2-offerings")
    assert east["price_date"] == east["spot_date"] != ""


def test_spot_prices_differ_by_zone_and_one_above_on_demand_is_flagged(rows):
    assert rows["m5.large", "us-east-1b"]["spot_usd_h"] == 0.041
    assert rows["m5.large", "us-west-2a"]["spot_usd_h"] is None
    assert rows["p3dn.24xlarge", "us-east-1b"]["spot_above_on_demand"] is True
    assert rows["m5.large", "us-east-1b"]["spot_above_on_demand"] is False


def test_accelerators_are_told_apart_by_memory_and_counted_by_share(rows):
    volta, ada = rows["p3dn.24xlarge", "us-east-1b"], rows["g6f.xlarge", "us-east-1a"]
    assert (volta["accelerator"], volta["accelerator_count"]) == ("V100-32GB", 8)
    assert (ada["accelerator"], ada["accelerator_count"]) == ("L4", 0.125)
    assert (volta["accelerator_memory_gib"], ada["accelerator_memory_gib"]) == (32, 3)


def test_local_zones_have_their_own_price_and_old_types_their_own_facts(rows):
    lax = rows["m5.large", "us-west-2-lax-1a"]
    assert (lax["region"], lax["on_demand_usd_h"]) == ("us-west-2", 0.115)
    assert lax["zone_basis"] == "local-zone"
    old = rows["old.large", "us-east-1"]
    assert (old["memory_gib"], old["zone_basis"]) == (16, "price-list-only")


def test_disabled_region_keeps_its_known_zones(cloud, source, data, base, ship, stored):
    known = {"cloud": "aws", "region": "af-south-1", "instance_type": "m5.large", "kind": "vm"}
    zones = [{**known, "zone": f"af-south-1{z}", "zone_basis": "zone"} for z in "ab"]
    ship(offers=zones)
    outcome = run(source, data, base)
    rows = by_place(stored("aws"))
    assert rows["m5.large", "af-south-1b"]["on_demand_usd_h"] == 0.12
    assert ("m5.large", "af-south-1") not in rows
    assert any("af-south-1: not enabled" in note for note in outcome.notes)
    assert cloud.count("DescribeInstanceTypes af-south-1") == 0


def test_egress_of_each_kind(cloud, source, data, base, ship, stored):
    old = {"cloud": "aws", "source_region": "us-east-1", "tier_from_gb": 0, "source": "a rule"}
    ship(
        offers=[],
        egress=[
            {**old, "destination": "same-zone", "usd_per_gb": 0},
            {**old, "destination": "internet", "usd_per_gb": 9.0},
        ],
    )
    run(source, data, base)
    found = {
        (row["destination"], row["tier_from_gb"]): row["usd_per_gb"]
        for row in stored("aws", "egress")
    }
    assert found == {
        ("internet", 0): 0.09,
        ("internet", 10240): 0.085,
        ("internet", 51200): 0.07,
        ("cross-region", 0): 0.02,
        ("cross-region:b<->us-east-1", 0): 0.01,
        ("cross-zone", 0): 0.02,
        ("same-zone", 0): 0,
    }


def test_interruption_bands(fetched):
    bands = {row["instance_type"]: row for row in rows_of(fetched, "aws", "interruptions")}
    assert (bands["m5.large"]["band_low_pct"], bands["m5.large"]["band_high_pct"]) == (5, 10)
    assert (bands["c5.large"]["band_low_pct"], bands["c5.large"]["band_high_pct"]) == (20, None)
    assert bands["m5.large"]["savings_pct_vs_on_demand"] == 62


def test_unreachable_advisor_is_only_a_note(cloud, source, data, base, stored):
    run(source, data, base)
    before = cloud.count("advisor")
    cloud.trouble("advisor", "refuse", times=9)
    outcome = run(source, data, base)
    assert outcome.state == "refreshed"
    assert cloud.count("advisor") > before
    assert any(note.startswith("interruption bands stay") for note in outcome.notes)
    assert len(stored("aws", "interruptions")) == 2


def test_malformed_entries_are_counted_by_reason(cloud, source, data, base, stored):
    cloud.products["AmazonEC2"] += [
        product("a.large", "us-east-1", None),
        product("b.large", "us-east-1", "-0.1"),
        product("c.large", "us-east-1", "0.1", unit="Quantity"),
        product("d.large", "us-east-1", "0.7", currency="CNY"),
        product("e.large", "us-east-1", "0.1", without=("instanceType",)),
        product("f.large", "us-east-1", "much"),
        product("g.large", "us-east-1", "0.0000000000"),
        product("h.large", "us-east-1", "0.1", vcpu="NA"),
    ]
    outcome = run(source, data, base)
    assert outcome.skipped == {
        "no price": 2,
        "negative price": 1,
        "unit is not Hrs": 1,
        "currency is not USD": 1,
        "a field is missing": 1,
        "price is not a number": 1,
        "a field has no sensible value": 1,
    }
    assert not {row["instance_type"] for row in stored("aws")} & {f"{x}.large" for x in "abcdefgh"}


def test_an_item_that_is_no_json_is_counted(cloud, source, data, base):
    cloud.products["AmazonEC2"].append('{"product": {"attributes": {')
    outcome = run(source, data, base)
    assert outcome.state == "refreshed"
    assert set(outcome.skipped) == {"a field has no sensible value"}


@pytest.mark.parametrize("kind", ["throttle", "cut", "break"])
def test_transient_failures_are_retried(cloud, source, data, base, stored, kind):
    cloud.trouble("GetProducts AmazonEC2", kind)
    cloud.trouble("DescribeInstanceTypes us-east-1", kind)
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert len(stored("aws")) == 8
    assert [trouble.times for trouble in cloud.troubles] == [0, 0]


def test_garbled_page_is_requested_again_then_an_error(cloud, source, data, base, stored):
    cloud.trouble("DescribeInstanceTypes us-east-1", "garble", times=2)
    assert run(source, data, base).state == "refreshed"
    before = stored("aws")
    cloud.trouble("GetProducts AmazonEC2", "garble", times=1000)
    outcome = run(source, data, base)
    assert outcome.state == "not refreshed"
    assert "damaged" in str(outcome.error) or "parse" in str(outcome.error)
    assert stored("aws") == before


def test_a_refusal_says_what_the_account_needs(cloud, source, data, base):
    cloud.trouble("DescribeRegions", "refuse", times=9)
    outcome = run(source, data, base)
    assert "ec2:DescribeInstanceTypes" in str(outcome.error)
    assert cloud.count("DescribeRegions") == 1  # a refusal is not worth another try


def test_expired_token_restarts_the_list(cloud, source, data, base, stored):
    prices = "GetProducts AmazonEC2 Linux Shared NA Used OnDemand us-east-1"
    cloud.trouble(prices, "refuse", after=1)
    assert run(source, data, base).state == "not refreshed"
    cloud.epoch += 1
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert len(stored("aws")) == 8
    assert cloud.count(prices) == 2 + 1 + 3  # kept and refused; expired; anew


def test_missing_credentials_error_names_the_remedy(cloud, source, data, base, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    outcome = run(source, data, base)
    assert "aws configure" in str(outcome.error)
    assert cloud.requests == []


def test_spot_prices_alone_take_few_requests(cloud, data, base):
    found = read_spot_prices("aws", data, base=base, source=at(cloud), pause=0).prices
    prices = {(price.zone, price.instance_type): price.usd for price in found}
    assert prices["us-east-1a", "m5.large"] == 0.036, "the latest"
    assert prices["us-east-1b", "p3dn.24xlarge"] == 33.0
    kinds = {request.partition(" ")[0] for request in cloud.requests}
    assert kinds == {"DescribeRegions", "DescribeSpotPriceHistory"}


def test_spot_prices_that_no_region_tells_are_an_error(cloud, data, base):
    cloud.trouble("DescribeSpotPriceHistory", "refuse", times=99)
    with pytest.raises(SkyError, match="not authorized") as refused:
        read_spot_prices("aws", data, base=base, source=at(cloud), pause=0)
    assert "ec2:DescribeSpotPriceHistory" in refused.value.hint


def test_clouds_without_spot_prices_are_refused(data):
    with pytest.raises(SkyUsageError, match="no source"):
        read_spot_prices("lambda", data)
