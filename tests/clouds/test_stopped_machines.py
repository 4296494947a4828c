"""Machines that are stopped by a request and started again, by each cloud that can."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.errors import SkyUnreachable
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds import stop_obstacle
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.azure.provider import Azure
from jupyter_sky.clouds.gcp.provider import Gcp
from jupyter_sky.clouds.launches import ssh_slot, stopped_machines
from jupyter_sky.clouds.launches.cloud_init import move_pinned_keys
from jupyter_sky.clouds.launches.lease_watch import is_watched
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.launches.retries import RetryingCaller
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.clouds.lease_watcher import SILENT_SECONDS, LeaseWatch
from jupyter_sky.clouds.provider.protocol import Provider
from jupyter_sky.clouds.provider.values import Machine
from tests.clouds import azure_requests, gcp_requests
from tests.clouds.aws_cases import (
    account_fixture,
    create,
    ec2_fixture,
    order,
    provider_fixture,
    running,
    trouble,
)
from tests.clouds.azure_fixtures import arm, azure
from tests.clouds.gcp_fixtures import compute, server
from tests.conftest import wait_until
from tests.emulators.arm import Arm
from tests.emulators.ec2 import Ec2
from tests.emulators.gce import Compute

__all__ = [
    "account_fixture",
    "arm",
    "azure",
    "compute",
    "ec2_fixture",
    "provider_fixture",
    "server",
]


def stop(provider: Provider, machine: Machine) -> None:
    provider.stop([machine.id])
    wait_until(lambda: provider.describe([machine.id])[0].stopped)


def seen(provider: Provider, machine: Machine) -> Machine:
    (found,) = provider.describe([machine.id])
    return found


def costs(api: Any) -> dict[str, bool]:
    """Whether a machine and its disk cost now."""
    bill = api.bills()[-1]
    before = {part: bill[f"{part}seconds"] for part in ("", "disk_")}
    time.sleep(0.01)
    later = api.bills()[-1]
    return {part: later[f"{part}seconds"] > before[part] for part in before}


def test_instance_of_aws_is_stopped_and_started(ec2: Ec2, provider: Aws) -> None:
    (machine,) = running(provider, create(provider, order()))
    stop(provider, machine)
    assert costs(ec2) == {"": False, "disk_": True}
    off = seen(provider, machine)
    assert not off.address and off.state != "ended"
    assert [each.id for each in provider.machines(owner="me")] == [machine.id], "its disk costs"
    provider.stop([machine.id])  # again
    provider.start([machine.id])
    (up,) = running(provider, [machine])
    assert up.address and up.address != machine.address and not up.stopped
    assert costs(ec2) == {"": True, "disk_": True}
    stop(provider, machine)
    provider.terminate([machine.id])
    wait_until(lambda: seen(provider, machine).state == "ended")
    assert not ec2.machines()


def test_start_is_refused_for_want_of_capacity(ec2: Ec2, provider: Aws) -> None:
    (machine,) = running(provider, create(provider, order()))
    stop(provider, machine)
    ec2.refuse("InsufficientInstanceCapacity", action="start")
    found = trouble(provider, lambda: provider.start([machine.id]))
    assert found.cause == "capacity" and seen(provider, machine).stopped


def test_spot_instance_cannot_be_stopped(ec2: Ec2, provider: Aws) -> None:
    (machine,) = running(provider, create(provider, order(spot=True)))
    assert "Spot Instance" in trouble(provider, lambda: provider.stop([machine.id])).message
    assert "loses its place" in stop_obstacle("aws", spot=True)


def test_machine_of_gcp_is_stopped_and_started(compute: Compute) -> None:
    provider = Gcp()
    (machine,) = gcp_requests.create(provider)
    stop(provider, machine)
    assert costs(compute) == {"": False, "disk_": True}
    (listed,) = provider.machines(owner=machine.owner)
    assert listed.id == machine.id and listed.stopped
    provider.start([machine.id])
    wait_until(lambda: seen(provider, machine).state == "running")
    assert seen(provider, machine).address and not seen(provider, machine).stopped
    assert costs(compute) == {"": True, "disk_": True}
    stop(provider, machine)
    compute.refuse("ZONE_RESOURCE_POOL_EXHAUSTED", action="start")
    assert gcp_requests.trouble_of(lambda: provider.start([machine.id])).cause == "capacity"
    provider.terminate([machine.id])
    wait_until(lambda: not compute.machines())


def test_machine_of_azure_is_deallocated_and_started(arm: Arm, azure: Azure) -> None:
    (machine,) = azure_requests.launch(azure, azure_requests.an_order())
    wait_until(lambda: seen(azure, machine).state == "running")
    stop(azure, machine)
    assert costs(arm) == {"": False, "disk_": True}
    azure.start([machine.id])
    assert seen(azure, machine).state == "running" and not seen(azure, machine).stopped
    assert costs(arm) == {"": True, "disk_": True}
    arm.power_off(machine.id)
    assert not seen(azure, machine).stopped, "off, not deallocated: billed in full"
    azure.terminate([machine.id])


def test_clouds_that_cannot_stop_say_why() -> None:
    for name, facts in BUILT_IN.items():
        if facts.launchable:
            assert bool(stop_obstacle(name)) != facts.can_stop, name
    assert "in full" in stop_obstacle("lambda") and "to others" in stop_obstacle("runpod")
    assert "only ended" in stop_obstacle("dataproc-serverless")


def test_machines_are_told_where_others_cannot_be_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []

    def run(address: Address, script: str, *words: str, **options: Any) -> ssh.CommandResult:
        told.append((address.host, script))
        if address.host == "away":
            raise SkyUnreachable("away does not answer")
        return ssh.CommandResult(0, b"", "")

    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    monkeypatch.setattr(ssh_slot.ssh, "run", run)
    hosts = [Address("sky", name, 22, "", "") for name in ("here", "away")]
    nodes = [asdict(Slot(rank, "t.0", host.host, host)) for rank, host in enumerate(hosts)]
    launch_records().create("t", {"cloud": "gcp", "nodes": nodes, "machines": []})
    with pytest.raises(SkyUnreachable, match="away does not answer"):
        stopped_machines.stop_machines(RetryingCaller(Gcp()), "t")
    here = [script for host, script in told if host == "here"]
    assert ["stopping" in script for script in here] == [True, True]
    assert here[-1] == ssh_slot._WITHDRAW_SCRIPT, "it ends with its cluster again"


# -- the end of a lease ------------------------------------------------------------------------


def test_stopped_machine_is_over_with_its_lease_and_not_for_its_silence() -> None:
    record = {"cloud": "aws", "offer": {"instance_type": "m5.large"}}
    assert is_watched(record | {"stopped": 1.0}) and not is_watched(record)
    watch = LeaseWatch()
    machine = Machine(
        "m", "aws", "c", 0, "running", 0.0, address="127.0.0.1", port=9, lease_end=5e3
    )
    watch._answered["m"] = 0.0
    assert not watch.is_over(machine, 2 * SILENT_SECONDS, is_stopped=True)
    assert watch.is_over(machine, 5e3, is_stopped=True)
    assert not watch.is_over(machine, 3 * SILENT_SECONDS), "started, and not heard of yet"


@pytest.mark.parametrize(
    ("moved", "hosts"),
    [
        ({"192.0.2.1": "198.51.100.9"}, ("198.51.100.9", "192.0.2.7")),
        ({"192.0.2.1": "192.0.2.7", "192.0.2.7": "192.0.2.1"}, ("192.0.2.7", "192.0.2.1")),
    ],
)
def test_pinned_keys_move_with_the_addresses(
    tmp_path: Path, moved: dict[str, str], hosts: tuple[str, str]
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text("192.0.2.1 ssh-ed25519 AAAA\n192.0.2.7 ssh-ed25519 BBBB\n")
    move_pinned_keys(tmp_path, moved)
    assert known.read_text() == f"{hosts[0]} ssh-ed25519 AAAA\n{hosts[1]} ssh-ed25519 BBBB\n"
