"""Launches whose process was killed, looked at only when their machines had ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.remote import processes
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds import LaunchRequest, Machine
from jupyter_sky.clouds.launches.launch_records import installation_id
from jupyter_sky.clouds.launches.machine_lease import BOOT_SECONDS
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.execution.clusters.cluster_launch import await_other_launch
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.execution.sessions.reaper import reap_machines
from tests.clouds import aws_cases, gcp_requests
from tests.clouds.aws_cases import account_fixture, ec2_fixture, provider_fixture  # noqa: F401
from tests.conftest import wait_until
from tests.emulators.ec2 import Ec2
from tests.emulators.gce import Compute

pytest_plugins = ["tests.clouds.gcp_fixtures"]
DEAD = {"pid": 0, "born": 0.0}


@pytest.fixture
def known(tmp_path: Path) -> Iterator[ClusterRegistry]:
    store = Store.open(tmp_path)
    yield ClusterRegistry(store, "a.ipynb", "kernel")
    store.close()


def put(
    known: ClusterRegistry, order: LaunchRequest, began: float, machines: list[Machine]
) -> ClusterRow:
    """Write what a killed process has left in the store; the bill is open if machines are noted."""
    offer = order.offer
    row = ClusterRow(
        name=order.cluster,
        state="starting",
        cloud=offer.cloud,
        region=offer.region,
        instance_type=offer.instance_type,
        spot=False,
        price=1.0,
        nodes=1,
        resources="",
        offer=asdict(offer),
        machines=[],
        connection={"token": order.token, "launcher": DEAD},
        notebook="a.ipynb",
        created=began,
        idle=600,
        price_source="aws",
        price_date="2026-11-20",
    )
    known.store.save_cluster(row)
    if machines:
        row = replace(row, machines=[asdict(machine) for machine in machines])
        known.store.record_launch(row, began)
    return row


def launched(cloud: str, order: LaunchRequest) -> list[Machine]:
    """Launch, as by a process that is killed at the answer."""
    machines = clouds.get_launcher(cloud).launch(order)
    records = launch_records()
    records.write(order.token, records.read(order.token) | {"launching": DEAD})
    return machines


def forget_answer(order: LaunchRequest) -> None:
    """Leave the note as it was before the cloud answered."""
    records = launch_records()
    records.write(order.token, records.read(order.token) | {"machines": []})


@pytest.mark.parametrize("noted", ["in the store", "in a file", "nowhere"])
def test_ended_machine_of_a_killed_launch_is_billed(
    ec2: Ec2, known: ClusterRegistry, noted: str
) -> None:
    order = aws_cases.order()
    machines = launched("aws", order)
    began = machines[0].started
    put(known, order, began - 0.5, machines if noted == "in the store" else [])
    if noted == "nowhere":
        forget_answer(order)
    aws_cases.running(aws_cases.Aws(), machines)
    ec2.power_off(machines[0].id)
    wait_until(lambda: not ec2.machines())
    ended = time.time()
    time.sleep(1.1)
    reap_machines(known.records, everywhere=False)
    (bill,) = known.store.intervals()
    assert bill.ended is not None and bill.ended < ended + 1.0  # EC2 tells whole seconds
    assert not bill.bounded
    assert bill.started <= began and known.store.live_clusters() == []


def test_launch_that_never_reached_ec2_costs_nothing(ec2: Ec2, known: ClusterRegistry) -> None:
    order = aws_cases.order()
    ec2.refuse("InsufficientInstanceCapacity")
    with pytest.raises(Exception, match="capacity"):
        launched("aws", order)
    records = launch_records()
    note = {name: value for name, value in records.read(order.token).items() if name != "ended"}
    records.write(order.token, note | {"launching": DEAD})
    put(known, order, time.time(), [])
    reap_machines(known.records, everywhere=False)
    assert known.store.intervals() == [] and known.store.live_clusters() == []


@pytest.mark.usefixtures("own_data")
def test_bill_is_bounded_where_the_cloud_has_forgotten(
    compute: Compute, known: ClusterRegistry
) -> None:
    order = gcp_requests.order("train-0a1b2c3d")
    order = replace(order, owner=installation_id(Path(Sky.load().data_dir)))
    machines = launched("gcp", order)
    forget_answer(order)
    sent = time.time() - 2 * BOOT_SECONDS
    records = launch_records()
    records.write(order.token, records.read(order.token) | {"sent": sent})
    put(known, order, sent - 1, [])
    wait_until(lambda: [one["state"] for one in compute.machines()] == ["RUNNING"])
    clouds.get_launcher("gcp").provider.terminate([machine.id for machine in machines])
    wait_until(lambda: not compute.machines())
    reap_machines(known.records, everywhere=False)
    (bill,) = known.store.intervals()
    assert bill.bounded and bill.started == sent and bill.ended is not None
    assert bill.ended - bill.started == BOOT_SECONDS  # on its own it lived no longer
    assert known.store.live_clusters() == []


@pytest.mark.parametrize("up", [True, False])
def test_noted_launch_that_the_store_does_not_know_is_ended_and_billed(
    ec2: Ec2, known: ClusterRegistry, up: bool
) -> None:
    order = aws_cases.order()
    order = replace(order, owner=installation_id(Path(Sky.load().data_dir)))
    machines = launched("aws", order)
    aws_cases.running(aws_cases.Aws(), machines)
    if not up:
        ec2.power_off(machines[0].id)
    reap_machines(known.records, everywhere=False)
    wait_until(lambda: not ec2.machines())
    (bill,) = known.store.intervals()
    assert bill.cluster == "train" and bill.ended is not None and not bill.bounded
    assert bill.started <= machines[0].started and known.store.live_clusters() == []
    reap_machines(known.records, everywhere=False)
    assert len(known.store.intervals()) == 1


def test_launch_that_this_process_has_given_up_is_not_waited_for(
    ec2: Ec2, known: ClusterRegistry
) -> None:
    order = aws_cases.order()
    order = replace(order, owner=installation_id(Path(Sky.load().data_dir)))
    launched("aws", order)
    row = put(known, order, time.time(), [])
    here = {"token": order.token, "launcher": processes.identity()}
    known.store.save_cluster(replace(row, connection=here))
    await_other_launch(
        known.records, row.name, lambda stage, detail: pytest.fail(f"{stage}: {detail}")
    )
    assert known.store.live_clusters() == [] and not ec2.machines()


def test_noted_launch_does_not_take_the_name_of_a_live_cluster(
    ec2: Ec2, known: ClusterRegistry
) -> None:
    order = aws_cases.order()
    launched("aws", order)
    other = put(known, replace(order, token="train-new"), time.time(), [])
    mine = processes.identity(os.getppid())
    known.store.save_cluster(replace(other, connection={"token": "train-new", "launcher": mine}))
    reap_machines(known.records, everywhere=False)
    assert [bill.cluster for bill in known.store.intervals()] == [order.token]
    assert [row.id for row in known.store.starting_clusters()] == [other.id]


def test_machines_are_ended_that_a_full_disk_lets_nobody_note(
    ec2: Ec2, known: ClusterRegistry
) -> None:
    order = aws_cases.order()
    ec2.slow("create", 1.0)
    partial = launch_records().folder(order.token) / "machines.partial"

    def fill_disk() -> None:
        if "RunInstances us-east-1" in ec2.calls and not partial.is_symlink():
            partial.symlink_to("/dev/full")

    cloud = clouds.get_launcher("aws")
    with pytest.raises(SkyStoreError, match="No space left") as caught:
        cloud.launch(order, fill_disk)
    assert caught.value.hint and ec2.calls.count("RunInstances us-east-1") == 1
    assert not ec2.machines()
    assert len(cloud.recorded_machines(order.token)) == 1  # they are billed all the same


def test_end_that_a_full_disk_lets_nobody_note(ec2: Ec2, known: ClusterRegistry) -> None:
    order = aws_cases.order()
    machines = launched("aws", order)
    (launch_records().folder(order.token) / "machines.partial").symlink_to("/dev/full")
    clouds.get_launcher("aws").terminate([machine.id for machine in machines])
    assert not ec2.machines()
    assert [token for token, _ in launch_records().list_unfinished()] == [
        order.token
    ]  # looked at again


def test_noted_launch_that_has_ended_is_billed_though_its_store_was_lost(
    ec2: Ec2, known: ClusterRegistry
) -> None:
    machines = launched("aws", aws_cases.order())
    clouds.get_launcher("aws").terminate([machine.id for machine in machines])
    ended = time.time()
    for _ in range(2):
        reap_machines(known.records, everywhere=False)
    (bill,) = known.store.intervals()
    assert bill.started == machines[0].started and bill.ended is not None
    assert abs(bill.ended - ended) < 1 and known.store.live_clusters() == []
