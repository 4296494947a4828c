"""google-cloud-billing and google-cloud-compute against a Google Cloud on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.clouds.prices import gcp as skus
from jupyter_sky.clouds.prices.gcp import GcpPrices
from jupyter_sky.clouds.prices.runner import RefreshOutcome, refresh
from jupyter_sky.clouds.prices.spot_prices import read_spot_prices
from tests.emulators.gcp import GcpEmulator, machine, sku

ZONE = "us-central1-a"
SPOT = {"usage": "Preemptible"}
ON_SPOT = "attached to Spot Preemptible VMs running in Americas"


@pytest.fixture
def cloud() -> Iterator[GcpEmulator]:
    google = GcpEmulator()
    google.zones = [
        {"name": ZONE, "status": "UP", "region": "https://x/regions/us-central1"},
        {"name": "us-central1-b", "status": "UP", "region": "https://x/regions/us-central1"},
        {"name": "us-central1-c", "status": "DOWN", "region": "https://x/regions/us-central1"},
    ]
    google.skus = [
        sku("N2 Instance Core running in Americas", 0.031611),
        sku("N2 Instance Ram running in Americas", 0.004237, unit="GiBy.h", group="RAM"),
        sku("Spot Preemptible N2 Instance Core running in Americas", 0.00765, **SPOT),
        sku(
            "Spot Preemptible N2 Instance Ram running in Americas", 0.001025, unit="GiBy.h", **SPOT
        ),
        sku("N2 Custom Instance Core running in Americas", 0.9),
        sku("N2 Sole Tenancy Instance Core running in Americas", 0.9),
        sku("Commitment v1: N2 Cpu in Americas for 1 Year", 0.02, usage="Commit1Yr"),
        sku("A2 Instance Core running in Americas", 0.031611),
        sku("A2 Instance Ram running in Americas", 0.004237, unit="GiBy.h"),
        sku("Nvidia Tesla A100 GPU running in Americas", 2.933908, group="GPU"),
        sku("Nvidia Tesla T4 GPU running in Americas", 0.35, group="GPU"),
        sku(f"Nvidia Tesla T4 GPU {ON_SPOT}", 0.14, group="GPU", **SPOT),
        sku("N1 Predefined Instance Core running in Americas", 0.031611, group="N1Standard"),
        sku("N1 Predefined Instance Ram running in Americas", 0.004237, unit="GiBy.h"),
        sku("E2 Instance Core running in Americas", 0.02181159),
        sku("E2 Instance Ram running in Americas", 0.00292353, unit="GiBy.h"),
        sku("SSD backed Local Storage", 0.08, family="Storage", group="LocalSSD", unit="GiBy.mo"),
    ]
    gpu = [{"guestAcceleratorType": "nvidia-tesla-a100", "guestAcceleratorCount": 1}]
    google.machines = [
        machine("n2-standard-8", ZONE, 8, 32),
        machine("n2-standard-8", "us-central1-b", 8, 32),
        machine("n2-standard-8", "us-central1-c", 8, 32),
        machine("a2-highgpu-1g", ZONE, 12, 85, accelerators=gpu),
        machine("e2-micro", ZONE, 2, 1, isSharedCpu=True),
        machine("n1-standard-8", ZONE, 8, 30),
        machine("n1-standard-16", ZONE, 16, 60),
        machine("n2-standard-8-lssd", ZONE, 8, 32, bundledLocalSsds={"partitionCount": 2}),
        machine("q9-standard-2", ZONE, 2, 8, architecture="ARM64"),
    ]
    google.accelerators = [
        {"name": "nvidia-tesla-t4", "zone": ZONE, "maximumCardsPerInstance": 4},
        {"name": "nvidia-tesla-a100", "zone": ZONE, "maximumCardsPerInstance": 16},
        {"name": "ct5lp", "zone": ZONE, "maximumCardsPerInstance": 8},
    ]
    yield google
    google.close()


@pytest.fixture
def source(cloud: GcpEmulator) -> GcpPrices:
    from google.oauth2.credentials import Credentials

    return GcpPrices(cloud.url, cloud.url, "project", Credentials("token"))


def run(source: GcpPrices, data: Path, base: Path, **options: Any) -> RefreshOutcome:
    (outcome,) = refresh(
        ["gcp"], directory=data, base=base, known={"gcp": source}, quiet=True, pause=0, **options
    )
    return outcome


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["instance_type"], row["zone"]): row for row in rows}


def test_machines_cost_the_sum_of_their_parts(cloud, source, data, base, ship, stored):
    tpu = {"cloud": "gcp", "region": "us-central1", "zone": ZONE, "kind": "tpu"}
    ship(offers=[{**tpu, "instance_type": "tpu-v5litepod-1", "on_demand_usd_h": 1.2}])
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    rows = by_place(stored("gcp"))
    assert set(rows) == {
        ("n2-standard-8", ZONE),
        ("n2-standard-8", "us-central1-b"),
        ("n2-standard-8-lssd", ZONE),
        ("a2-highgpu-1g", ZONE),
        ("e2-micro", ZONE),
        ("n1-standard-8", ZONE),
        ("n1-standard-16", ZONE),
        ("n1-standard-8+T4:1", ZONE),
        ("n1-standard-16+T4:2", ZONE),
        ("q9-standard-2", ZONE),
        ("n1-attach/T4", ZONE),
        ("tpu-v5litepod-1", ZONE),
    }

    def price(name: str) -> Any:
        return rows[name, ZONE]["on_demand_usd_h"]

    assert price("n2-standard-8") == pytest.approx(8 * 0.031611 + 32 * 0.004237)
    assert price("n2-standard-8-lssd") == pytest.approx(
        8 * 0.031611 + 32 * 0.004237 + 750 * 0.08 / 730, abs=1e-6
    )
    assert price("a2-highgpu-1g") == pytest.approx(3.673385)  # as in the catalog that ships
    assert price("e2-micro") == pytest.approx(0.25 * 0.02181159 + 0.00292353, abs=1e-6)
    assert price("n1-attach/T4") == 0.35
    assert price("n1-standard-16+T4:2") == pytest.approx(price("n1-standard-16") + 2 * 0.35)
    assert price("tpu-v5litepod-1") == 1.2  # not read, so as it was


def test_facts_and_spot_prices(cloud, source, data, base, stored):
    outcome = run(source, data, base)
    rows = by_place(stored("gcp"))
    general = rows["n2-standard-8", ZONE]
    assert general["spot_usd_h"] == pytest.approx(8 * 0.00765 + 32 * 0.001025)
    assert (general["vcpus"], general["memory_gib"], general["cpu_vendor"]) == (8, 32, "Intel")
    gpu = rows["a2-highgpu-1g", ZONE]
    assert (gpu["accelerator"], gpu["accelerator_count"]) == ("A100", 1)
    assert (gpu["accelerator_memory_gib"], gpu["spot_usd_h"]) == (40, None)
    hosted = rows["n1-standard-16+T4:2", ZONE]
    assert (hosted["accelerator"], hosted["accelerator_count"], hosted["vcpus"]) == ("T4", 2, 16)
    assert (hosted["kind"], hosted["spot_usd_h"]) == ("vm", None)
    assert rows["q9-standard-2", ZONE]["on_demand_usd_h"] is None
    assert rows["q9-standard-2", ZONE]["arch"] == "arm64"
    assert any(note.startswith("1 rows without a price") for note in outcome.notes)


@pytest.mark.parametrize(
    ("description", "part"),
    [
        ("N1 Predefined Instance Core running in Americas", "n1/core"),
        ("Spot Preemptible N2D AMD Instance Ram running in Belgium", "n2d/ram"),
        ("C4A Arm Instance Core running in Iowa", "c4a/core"),
        ("M3 Memory-optimized Instance Ram running in Iowa", "m3/ram"),
        ("Memory-optimized Instance Core running in Iowa", "m1/core"),
        ("Compute optimized Core running in Iowa", "c2/core"),
        ("M4Ultramem224 Instance Core running in Iowa", "m4ultramem224/core"),
        ("Nvidia H100 80GB Mega GPU running in Tokyo", "gpu/nvidia-h100-mega-80gb"),
        (
            "RTX 6000 96GB attached to Spot Preemptible VMs running in Belgium",
            "gpu/nvidia-rtx-pro-6000",
        ),
        ("A4 Nvidia B200 (1 gpu slice) running in Americas", "slice/nvidia-b200"),
        ("C4 Instance Local SSD running in Iowa", "c4/disk"),
        ("SSD backed Local Storage attached to Spot Preemptible VMs", "/disk"),
        ("Micro Instance with burstable CPU running in Americas", "f1-micro"),
        ("N2 Custom Extended Instance Ram running in Iowa", None),
        ("Reserved A2 Instance Core in Iowa", None),
        ("Network Internet Egress from Americas to Africa", None),
    ],
)
def test_sku_names_its_part(description, part):
    assert skus.part(description) == part


def test_tpu_slice_is_one_machine_with_its_spot_price(data):
    found = [
        skus.price(sku("A4 Nvidia B200 (1 gpu slice) running in Americas", 16.11)),
        skus.price(sku("Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Americas", 4.95)),
    ]
    prices = skus.index(record for record in found if record)
    a4 = {
        "name": "a4-highgpu-8g",
        "vcpus": 224,
        "memory_gib": 3968,
        "gpu": "nvidia-b200",
        "gpu_count": 8,
        "disks": 32,
    }
    assert skus.machine_price(prices, "us-central1", "OnDemand", a4) == pytest.approx(128.88)
    assert skus.machine_price(prices, "us-central1", "Preemptible", a4) == pytest.approx(39.6)


@pytest.mark.parametrize("kind", ["throttle", "cut", "garble", "break"])
def test_transient_failures_are_retried(cloud, source, data, base, stored, kind):
    cloud.trouble("/skus", kind)
    cloud.trouble("machineTypes", kind, after=1)
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert len(stored("gcp")) == 11
    assert [trouble.times for trouble in cloud.troubles] == [0, 0]


def test_expired_page_token_restarts_the_list(cloud, source, data, base, stored):
    cloud.trouble("/skus", "refuse", after=3)
    assert "Cloud Billing API" in str(run(source, data, base).error)
    cloud.epoch += 1
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert len(stored("gcp")) == 11


def test_malformed_skus_are_counted_by_reason(cloud, source, data, base, stored):
    bad = sku("N2 Instance Core running in Americas", 77.0, ("us-central1",))
    empty = sku("N2 Instance Ram running in Americas", 1.0, unit="GiBy.h")
    empty["pricingInfo"][0]["pricingExpression"]["tieredRates"] = []
    bare = sku("N2 Instance Ram running in Americas", 1.0)
    bare["pricingInfo"] = []
    cloud.skus += [
        sku("N2 Instance Core running in Americas", 77.0, unit="mo"),
        sku("N2 Instance Core running in Americas", 77.0, currency="EUR"),
        sku("N2 Instance Core running in Americas", -77.0),
        sku("N2 Instance Core running in Americas", 0.0),
        empty,
        bare,
    ]
    assert skus.price(bad)["usd"] == 77.0
    outcome = run(source, data, base)
    assert outcome.skipped == {
        "unit is not an hour": 1,
        "currency is not USD": 1,
        "negative price": 1,
        "no price": 2,
        "a field is missing": 1,
    }
    assert by_place(stored("gcp"))["n2-standard-8", ZONE]["on_demand_usd_h"] < 1


def test_missing_credentials_error_names_the_remedy(cloud, data, base, tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    outcome = run(GcpPrices(cloud.url, cloud.url), data, base)
    assert "gcloud auth application-default login" in str(outcome.error)
    assert cloud.requests == []


def test_prices_between_regions_are_read_for_each_pair(cloud, source, data, base, ship, stored):
    old = {"cloud": "gcp", "tier_from_gb": 0.0, "usd_per_gb": 0.12, "source": "a list", "note": ""}
    ship(
        offers=[],
        egress=[
            old | {"source_region": "us-central1", "destination": "internet"},
            old | {"source_region": "*", "destination": "cross-region:same-continent-na-eu"},
        ],
    )
    core = "Spot Preemptible N2 Instance Core"
    network = {"family": "Network", "group": "InterregionEgress", "unit": "GiBy"}
    out = "Network Inter Region Data Transfer Out from"
    cloud.skus += [
        sku("N2 Instance Core running in Netherlands", 0.04, ("europe-west4",)),
        sku(f"{core} running in Finland", 0.01, ("europe-north1",), **SPOT),
        sku("E2 Instance Core running in EMEA", 0.04, ("europe-west1", "europe-west4")),
        sku(f"{out} Americas to Netherlands", 0.05, **network),
        sku(f"{out} Netherlands to Americas", 0.06, ("europe-west4",), **network),
        sku(f"{out} Americas to EMEA", 0.055, **network),
        sku(f"{out} Americas to Atlantis", 0.5, **network),
        sku(f"{out} Americas to Finland", 0.0, **network),
        sku(f"{out} EMEA to Netherlands", 0.02, ("europe-west1",), **{**network, "unit": "h"}),
        sku("Network Internet Data Transfer Out from Americas to EMEA", 0.12, **network),
    ]
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert outcome.skipped["unit is not a gigabyte"] == 1
    rows = {(row["source_region"], row["destination"]): row for row in stored("gcp", "egress")}
    pair = "cross-region:europe-west4<->us-central1"
    assert rows["us-central1", pair]["usd_per_gb"] == 0.05, "the name of the fewest regions"
    assert rows["europe-west4", pair]["usd_per_gb"] == 0.06
    emea = rows["us-central1", "cross-region:europe-west1<->us-central1"]
    assert (emea["usd_per_gb"], emea["source"]) == (0.055, "gcp-billing-catalog")
    assert emea["note"] == "from Americas to EMEA"
    assert len(rows) == 5, "what is not listed stays as it was"
    assert rows["us-central1", "internet"]["usd_per_gb"] == 0.12


def test_spot_prices_alone(cloud, source, data, base):
    found = read_spot_prices("gcp", data, base=base, source=source, pause=0).prices
    prices = {(price.region, price.zone, price.instance_type): price.usd for price in found}
    assert prices["us-central1", "", "n2-standard-8"] == pytest.approx(8 * 0.00765 + 32 * 0.001025)
    assert ("us-central1", "", "e2-micro") not in prices, "it has no spot price"
    assert len(prices) == len(found)
    assert not list((data / "catalog-fetched").rglob("*.gz")), "nothing is kept for the next hour"
