"""The emulators' own bills: what each cloud charges for, from when to when."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import Any

import pytest

from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.gcp.provider import Gcp
from tests.clouds import aws_cases, azure_requests, gcp_requests
from tests.clouds.aws_cases import account_fixture, ec2_fixture, provider_fixture  # noqa: F401
from tests.conftest import wait_until
from tests.emulators.arm import Arm
from tests.emulators.ec2 import Ec2
from tests.emulators.gce import Compute
from tests.emulators.multi_cloud import emulate_clouds
from tests.emulators.provider_billing import Bills, billed, units_apart

pytest_plugins = ["tests.clouds.gcp_fixtures"]


def bill_of(emulator: Any, id: str) -> dict[str, Any]:
    return next(bill for bill in emulator.bills() if bill["id"] == id)


def test_stretches_and_least_time() -> None:
    bills = Bills("aws")
    bills.begin("a", "disk", at=0.0, spot=False)
    bills.begin("a", "machine", "address", at=10.0)
    bills.begin("a", "machine", at=11.0)  # it costs already
    bills.end("a", "machine", "address", at=20.0)
    bills.begin("a", "machine", at=100.0)  # started again: the least time anew
    bills.end("a", at=300.5)
    bills.end("nobody")
    (bill,) = bills.listed(now=1e6)
    assert (bill["began"], bill["ended"], bill["seconds"]) == (10.0, 300.5, 210.5)
    assert (bill["billed"], bill["disk_seconds"], bill["address_seconds"]) == (261.0, 300.5, 10.0)
    assert billed("azure", 59.0) == 59.0
    assert units_apart(bill, 330.5) == 2.0 and units_apart(bill, 150.5) == -1.0


def test_ec2_bills_running_time_and_disk_while_stopped(ec2: Ec2, provider: Aws) -> None:
    (machine,) = aws_cases.running(provider, aws_cases.create(provider, aws_cases.order()))
    bill = bill_of(ec2, machine.id)
    assert bill["ended"] is None and bill["disk_gib"] == 50
    assert machine.started - 1.5 <= bill["began"] <= time.time()
    assert bill["tags"]["jupyter-sky-token"] == "train-0a1b2c3d"
    record = ec2.account._lives[machine.id.rpartition("/")[2]].record
    record.instance_initiated_shutdown_behavior = "stop"
    ec2.power_off(machine.id)
    stopped = bill_of(ec2, machine.id)
    time.sleep(0.05)
    later = bill_of(ec2, machine.id)
    assert stopped["ended"] is not None and later["seconds"] == stopped["seconds"]
    assert later["disk_seconds"] > stopped["disk_seconds"]
    provider.terminate([machine.id])
    time.sleep(0.05)
    gone = bill_of(ec2, machine.id)
    assert gone["disk_seconds"] == bill_of(ec2, machine.id)["disk_seconds"]
    assert gone["billed"] == 60.0 and not gone["waived"]


def test_ec2_waives_spot_machines_that_it_takes_back_at_once(ec2: Ec2, provider: Aws) -> None:
    (machine,) = aws_cases.running(provider, aws_cases.create(provider, aws_cases.order(spot=True)))
    ec2.preempt(machine.id)
    assert bill_of(ec2, machine.id)["waived"] and bill_of(ec2, machine.id)["ended"] is not None


def test_compute_engine_bills_disks_of_machines_that_are_off(compute: Compute) -> None:
    provider = Gcp()
    machine, other = gcp_requests.create(provider, nodes=2)
    wait_until(lambda: bill_of(compute, machine.id)["began"] is not None)
    compute.power_off(machine.id)
    off = bill_of(compute, machine.id)
    time.sleep(0.05)
    later = bill_of(compute, machine.id)
    assert later["seconds"] == off["seconds"] and later["billed"] == 60.0
    assert later["disk_seconds"] > off["disk_seconds"] and later["disk_gib"] == 50
    provider.terminate([machine.id, other.id])
    wait_until(lambda: compute.machines() == [])
    assert all(bill["ended"] for bill in compute.bills())
    assert {bill["id"] for bill in compute.bills()} == {machine.id, other.id}, "it forgets nothing"
    before = bill_of(compute, machine.id)["disk_seconds"]
    time.sleep(0.02)
    assert bill_of(compute, machine.id)["disk_seconds"] == before


def test_azure_bills_machines_that_are_off_until_they_are_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with contextmanager(azure_requests.an_azure)(monkeypatch) as arm:
        _check_azure(arm)


def _check_azure(arm: Arm) -> None:
    provider = Azure()
    (machine,) = azure_requests.launch(provider, azure_requests.an_order())
    wait_until(lambda: bill_of(arm, machine.id)["began"] is not None)
    arm.state._ended(arm.state.machine_of(machine.id), "shutdown")
    off = bill_of(arm, machine.id)
    time.sleep(0.05)
    assert off["ended"] is None and bill_of(arm, machine.id)["seconds"] > off["seconds"]
    provider.terminate([machine.id])
    wait_until(lambda: arm.machines() == [])
    gone = bill_of(arm, machine.id)
    time.sleep(0.02)
    assert gone["ended"] is not None and gone == bill_of(arm, machine.id)
    assert gone["disk_seconds"] >= gone["seconds"] and gone["address_seconds"] > 0


@pytest.mark.slow
def test_bills_of_several_clouds() -> None:
    with emulate_clouds("aws", "gcp", "azure", minute=1.0) as world:
        assert world.bills() == [] and world.minute == 1.0
