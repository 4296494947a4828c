"""The Retail Prices API and azure-mgmt-compute against an Azure on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.clouds.prices.azure import AzurePrices
from jupyter_sky.clouds.prices.runner import RefreshOutcome, refresh
from jupyter_sky.clouds.prices.source import SpotPrice
from jupyter_sky.clouds.prices.spot_prices import read_spot_prices
from tests.emulators.azure import AzureEmulator, meter, size

D2 = {"vCPUs": "2", "MemoryGB": "8", "CpuArchitectureType": "x64"}
T4 = {"vCPUs": "4", "MemoryGB": "28", "CpuArchitectureType": "x64", "GPUs": "1"}


class Credential:
    """Credential of azure-identity for an account that is logged in."""

    def get_token(self, *scopes: str, **_: Any) -> Any:
        from azure.core.credentials import AccessToken

        return AccessToken("token", int(time.time()) + 3600)


@pytest.fixture
def cloud() -> Iterator[AzureEmulator]:
    azure = AzureEmulator()
    azure.sizes = [
        size("Standard_D2s_v5", "westeurope", D2, ("1", "2", "3"), denied=("2",)),
        size("Standard_D2s_v5", "WestUS", D2),
        size("Standard_NC4as_T4_v3", "westeurope", T4, ("1",)),
        size("Standard_E4-2s_v5", "westeurope", {**D2, "vCPUsAvailable": "1"}),
        size("Premium_LRS", "westeurope", {}, kind="disks"),
    ]
    azure.meters = [
        meter("Standard_D2s_v5", "westeurope", 0.115),
        meter("Standard_D2s_v5", "westeurope", 0.023, skuName="D2s v5 Spot"),
        meter("Standard_D2s_v5", "westeurope", 0.2, productName="Virtual Machines Series Windows"),
        meter("Standard_D2s_v5", "westeurope", 0.03, skuName="D2s v5 Low Priority"),
        meter("Standard_D2s_v5", "westeurope", 0.09, productName="D Series CloudServices"),
        meter("Standard_D2s_v5", "westeurope", 0.119, isPrimaryMeterRegion=False),
        meter("Standard_D2s_v5", "westeurope", 0.4, type="Reservation"),
        meter("Standard_D2s_v5", "westus", 0.117),
        meter("Standard_NC4as_T4_v3", "westeurope", 0.66),
        meter("Standard_New_v9", "westeurope", 1.5),
    ]
    yield azure
    azure.close()


@pytest.fixture
def source(cloud: AzureEmulator) -> AzurePrices:
    return AzurePrices(f"{cloud.url}/api/retail/prices", cloud.url, "subscription", Credential())


def run(source: AzurePrices, data: Path, base: Path, **options: Any) -> RefreshOutcome:
    (outcome,) = refresh(
        ["azure"],
        directory=data,
        base=base,
        known={"azure": source},
        quiet=True,
        pause=0,
        **options,
    )
    return outcome


def by_place(rows: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["instance_type"], row["zone"] or row["region"]): row for row in rows}


def test_prices_of_both_kinds_in_each_zone(cloud, source, data, base, stored):
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    rows = by_place(stored("azure"))
    assert set(rows) == {
        ("Standard_D2s_v5", "westeurope-1"),
        ("Standard_D2s_v5", "westeurope-3"),
        ("Standard_D2s_v5", "westus"),
        ("Standard_NC4as_T4_v3", "westeurope-1"),
        ("Standard_E4-2s_v5", "westeurope"),
        ("Standard_New_v9", "westeurope"),
    }
    general = rows["Standard_D2s_v5", "westeurope-1"]
    assert (general["on_demand_usd_h"], general["spot_usd_h"]) == (0.115, 0.023)
    assert (general["vcpus"], general["memory_gib"], general["spot_scope"]) == (2, 8, "region")
    assert rows["Standard_D2s_v5", "westus"]["spot_usd_h"] is None
    gpu = rows["Standard_NC4as_T4_v3", "westeurope-1"]
    assert (gpu["accelerator"], gpu["accelerator_count"]) == ("T4", 1)
    assert rows["Standard_E4-2s_v5", "westeurope"]["vcpus"] == 1
    assert rows["Standard_E4-2s_v5", "westeurope"]["on_demand_usd_h"] is None
    assert rows["Standard_New_v9", "westeurope"]["vcpus"] is None


def test_without_an_account_known_sizes_get_new_prices(cloud, data, base, ship, stored):
    row = {
        "cloud": "azure",
        "instance_type": "Standard_D2s_v5",
        "kind": "vm",
        "zone_basis": "region",
    }
    ship(offers=[{**row, "region": "westeurope", "vcpus": 2, "on_demand_usd_h": 0.1}])
    outcome = run(AzurePrices(f"{cloud.url}/api/retail/prices"), data, base)
    assert outcome.state == "refreshed", outcome.error
    assert "AZURE_SUBSCRIPTION_ID" in outcome.notes[0]
    rows = by_place(stored("azure"))
    assert rows["Standard_D2s_v5", "westeurope"]["on_demand_usd_h"] == 0.115
    assert rows["Standard_D2s_v5", "westeurope"]["vcpus"] == 2
    assert ("Standard_D2s_v5", "westus") not in rows
    assert (outcome.diff.repriced, outcome.diff.new) == (1, 2)


def test_an_account_without_the_right_to_read_sizes_is_a_note(cloud, source, data, base, ship):
    row = {"cloud": "azure", "instance_type": "Standard_D2s_v5", "kind": "vm"}
    ship(offers=[{**row, "region": "westus", "on_demand_usd_h": 0.117}])
    cloud.trouble("skus", "refuse", times=9)
    outcome = run(source, data, base)
    assert outcome.state == "refreshed"
    assert "does not have access" in outcome.notes[0]
    assert cloud.count("skus") == 1


def test_no_account_and_no_known_regions_is_an_error_with_a_remedy(cloud, data, base):
    outcome = run(AzurePrices(f"{cloud.url}/api/retail/prices"), data, base)
    assert "az login" in str(outcome.error)
    assert "AZURE_SUBSCRIPTION_ID is not set" in str(outcome.error)


def test_without_regions_the_error_tells_why_the_sizes_could_not_be_read(cloud, source, data, base):
    cloud.trouble("skus", "refuse", times=9)
    outcome = run(source, data, base)
    assert "no region is known" in str(outcome.error)
    assert "does not have access" in str(outcome.error)
    assert "Microsoft.Compute/skus" in str(outcome.error)


@pytest.mark.parametrize("kind", ["throttle", "cut", "garble", "break"])
def test_transient_failures_are_retried(cloud, source, data, base, stored, kind):
    cloud.trouble("prices", kind, times=2)
    cloud.trouble("skus", kind)
    outcome = run(source, data, base)
    assert outcome.state == "refreshed", outcome.error
    assert len(outcome.notes) == 0
    assert len(stored("azure")) == 6


def test_persistently_damaged_response_is_an_error(cloud, source, data, base, stored):
    cloud.trouble("prices", "cut", times=99)
    outcome = run(source, data, base)
    assert "damaged 4 times" in str(outcome.error)
    assert stored("azure") == []


def test_malformed_meters_are_counted_by_reason(cloud, source, data, base, stored):
    bad = meter("Standard_X", "westeurope", 1.0)
    cloud.meters += [
        {**bad, "retailPrice": None},
        {**bad, "retailPrice": -1.0},
        {**bad, "retailPrice": 0.0},
        {**bad, "unitOfMeasure": "1/Month"},
        {**bad, "currencyCode": "EUR"},
        {name: value for name, value in bad.items() if name != "armSkuName"},
        {**bad, "retailPrice": "NaN"},
    ]
    cloud.sizes.append(size("Standard_X", "westeurope", {"MemoryGB": "8"}))
    outcome = run(source, data, base)
    assert outcome.skipped == {
        "no price": 2,
        "negative price": 1,
        "unit is not an hour": 1,
        "currency is not USD": 1,
        "a field is missing": 2,
        "price is not a number": 1,
    }
    assert "Standard_X" not in {row["instance_type"] for row in stored("azure")}


def test_a_link_to_another_host_is_not_followed(cloud, source, data, base):
    cloud.next_host = "https://elsewhere.example"
    outcome = run(source, data, base)
    assert "elsewhere.example" in str(outcome.error)


def test_spot_prices_alone_need_no_account(cloud, data, base, ship):
    ship(
        offers=[
            {"cloud": "azure", "region": region, "instance_type": "Standard_D2s_v5", "kind": "vm"}
            for region in ("westeurope", "westus")
        ]
    )
    spot = {"skuName": "D2s v5 Spot", "meterName": "D2s v5 Spot"}
    cloud.meters += [
        meter("Standard_D2s_v5", "westeurope", 0.021, **spot),
        meter("Standard_D2s_v5", "westus", 0.031, **spot),
        meter("Standard_D2s_v5", "westus", 0.05, **spot, productName="Virtual Machines Windows"),
    ]
    cloud.page, source = 1, AzurePrices(f"{cloud.url}/api/retail/prices")
    found = read_spot_prices("azure", data, base=base, source=source, pause=0).prices
    assert found == [
        SpotPrice("westeurope", "", "Standard_D2s_v5", 0.021),
        SpotPrice("westus", "", "Standard_D2s_v5", 0.031),
    ]
    assert cloud.count("skus") == 0
    assert cloud.count("contains(meterName, 'Spot')") == len(cloud.requests) == 3, "one page, two"
