"""The list of instance types of a Lambda on loopback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from jupyter_sky.clouds.prices.lambdalabs import LambdaPrices
from jupyter_sky.clouds.prices.runner import refresh
from tests.emulators.lambdalabs import KEY, LambdaEmulator, kind


@pytest.fixture
def cloud() -> Iterator[LambdaEmulator]:
    emulator = LambdaEmulator()
    emulator.kinds = [
        kind("gpu_1x_a10", 75, "A10 (24 GB PCIe)", 1, ("us-west-1", "us-east-1")),
        kind("gpu_8x_v100", 440, "Tesla V100 (16 GB)", 8),
        kind("gpu_1x_h100_pcie", 249, "H100 (80 GB PCIe)", 1, ("us-west-3",)),
        kind("cpu_4x_general", 20, "N/A", 0, ("us-west-1",)),
        kind("gpu_1x_broken", None, "A10 (24 GB PCIe)", 1, ("us-west-1",)),
    ]
    yield emulator
    emulator.close()


def run(cloud, data, base, key=KEY):
    source = LambdaPrices(f"{cloud.url}/api/v1/instance-types", key)
    (outcome,) = refresh(
        ["lambda"], directory=data, base=base, known={"lambda": source}, quiet=True, pause=0
    )
    return outcome


def test_types_in_available_and_known_regions(cloud, data, base, ship, stored):
    known = {"cloud": "lambda", "region": "us-south-1", "kind": "vm"}
    ship(offers=[{**known, "instance_type": "gpu_8x_v100", "on_demand_usd_h": 4.4}])
    outcome = run(cloud, data, base)
    assert outcome.state == "refreshed", outcome.error
    rows = {(row["instance_type"], row["region"]): row for row in stored("lambda")}
    assert set(rows) == {
        ("gpu_1x_a10", "us-east-1"),
        ("gpu_1x_a10", "us-west-1"),
        ("gpu_8x_v100", "us-south-1"),
        ("gpu_1x_h100_pcie", "us-west-3"),
        ("cpu_4x_general", "us-west-1"),
    }
    gpu = rows["gpu_8x_v100", "us-south-1"]
    assert (gpu["accelerator"], gpu["accelerator_count"]) == ("V100", 8)
    assert (gpu["on_demand_usd_h"], gpu["zone_basis"]) == (4.4, "known-before")
    assert rows["gpu_1x_h100_pcie", "us-west-3"]["accelerator"] == "H100-PCIe"
    assert rows["gpu_1x_a10", "us-west-1"]["accelerator"] == "A10"
    assert rows["cpu_4x_general", "us-west-1"]["accelerator"] == ""
    assert outcome.skipped == {"price is not a number": 1}


def test_invalid_api_key_is_an_error(cloud, data, base):
    outcome = run(cloud, data, base, key="wrong")
    assert "refuses us (401)" in str(outcome.error)
    assert len(cloud.requests) == 1


def test_no_key_asks_for_one(cloud, data, base, monkeypatch):
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    assert "LAMBDA_API_KEY" in str(run(cloud, data, base, key=None).error)


def test_a_busy_service_is_asked_again(cloud, data, base):
    cloud.trouble("GET", "throttle", times=2)
    assert run(cloud, data, base).state == "refreshed"
    assert len(cloud.requests) == 3
