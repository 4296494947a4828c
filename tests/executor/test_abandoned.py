"""Launches whose process was killed, looked at only when their machines had ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jupyter_sky import clouds, processes
from jupyter_sky.clouds import Launch, Machine
from jupyter_sky.clouds.machine_lease import BOOT_SECONDS
from jupyter_sky.clouds.records import identity
from jupyter_sky.clouds.rented import records_of
from jupyter_sky.config import Sky
from jupyter_sky.errors import SkyStoreError
from jupyter_sky.executor.clusters import Clusters
from jupyter_sky.executor.launching import await_other
from jupyter_sky.executor.reaper import reap
from jupyter_sky.store import ClusterRow, Store
from tests.clouds import aws_cases, gcp_orders
from tests.clouds.aws_cases import account_fixture, driver_fixture, ec2_fixture  # noqa: F401
from tests.conftest import wait_until
from tests.emulators.compute import Compute
from tests.emulators.ec2 import Ec2

pytest_plugins = ["tests.clouds.gcp_fixtures"]
DEAD = {"pid": 0, "born": 0.0}


@pytest.fixture
def known(tmp_path: Path) -> Iterator[Clusters]:
    store = Store.open(tmp_path)
    yield Clusters(store, "a.ipynb", "kernel")
    store.close()


def put(known: Clusters, order: Launch, began: float, machines: list[Machine]) -> ClusterRow:
    """What a killed process has left in the store; the bill is open if machines are noted."""
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
    known.store.put_cluster(row)
    if machines:
        row = replace(row, machines=[asdict(machine) for machine in machines])
        known.store.record_launch(row, began)
    return row


def launched(cloud: str, order: Launch) -> list[Machine]:
    """Launch, as by a process that is killed at the answer."""
    machines = clouds.rented_cloud(cloud).launch(order)
    records = records_of()
    records.write(order.token, records.read(order.token) | {"launching": DEAD})
    return machines


def forget_answer(order: Launch) -> None:
    """Leave the note as it was before the cloud answered."""
    records = records_of()
    records.write(order.token, records.read(order.token) | {"machines": []})


@pytest.mark.parametrize("noted", ["in the store", "in a file", "nowhere"])
def test_ended_machine_of_a_killed_launch_is_billed(ec2: Ec2, known: Clusters, noted: str) -> None:
    order = aws_cases.order()
    machines = launched("aws", order)
    began = machines[0].started
    put(known, order, began - 0.5, machines if noted == "in the store" else [])
    if noted == "nowhere":
        forget_answer(order)
    aws_cases.running(aws_cases.AwsDriver(), machines)
    ec2.power_off(machines[0].id)
    wait_until(lambda: not ec2.machines())
    ended = time.time()
    time.sleep(2.0)
    reap(known, everywhere=False)
    (bill,) = known.store.intervals()
    assert bill.ended is not None and bill.ended < ended + 1.0  # EC2 tells whole seconds
    assert not bill.bounded
    assert bill.started <= began and known.store.live() == []


def test_launch_that_never_reached_ec2_costs_nothing(ec2: Ec2, known: Clusters) -> None:
    order = aws_cases.order()
    ec2.refuse("InsufficientInstanceCapacity")
    with pytest.raises(Exception, match="capacity"):
        launched("aws", order)
    records = records_of()
    note = {name: value for name, value in records.read(order.token).items() if name != "ended"}
    records.write(order.token, note | {"launching": DEAD})
    put(known, order, time.time(), [])
    reap(known, everywhere=False)
    assert known.store.intervals() == [] and known.store.live() == []


@pytest.mark.usefixtures("own_data")
def test_bill_is_bounded_where_the_cloud_has_forgotten(compute: Compute, known: Clusters) -> None:
    order = gcp_orders.order("train-0a1b2c3d")
    order = replace(order, owner=identity(Path(Sky.load().data_dir)))
    machines = launched("gcp", order)
    forget_answer(order)
    sent = time.time() - 2 * BOOT_SECONDS
    records = records_of()
    records.write(order.token, records.read(order.token) | {"sent": sent})
    put(known, order, sent - 1, [])
    wait_until(lambda: [one["state"] for one in compute.machines()] == ["RUNNING"])
    clouds.rented_cloud("gcp").driver.remove([machine.id for machine in machines])
    wait_until(lambda: not compute.machines())
    reap(known, everywhere=False)
    (bill,) = known.store.intervals()
    assert bill.bounded and bill.started == sent and bill.ended is not None
    assert bill.ended - bill.started == BOOT_SECONDS  # on its own it lived no longer
    assert known.store.live() == []


@pytest.mark.parametrize("up", [True, False])
def test_noted_launch_that_the_store_does_not_know_is_ended_and_billed(
    ec2: Ec2, known: Clusters, up: bool
) -> None:
    order = aws_cases.order()
    order = replace(order, owner=identity(Path(Sky.load().data_dir)))
    machines = launched("aws", order)
    aws_cases.running(aws_cases.AwsDriver(), machines)
    if not up:
        ec2.power_off(machines[0].id)
    reap(known, everywhere=False)
    wait_until(lambda: not ec2.machines())
    (bill,) = known.store.intervals()
    assert bill.cluster == "train" and bill.ended is not None and not bill.bounded
    assert bill.started <= machines[0].started and known.store.live() == []
    reap(known, everywhere=False)
    assert len(known.store.intervals()) == 1


def test_launch_that_this_process_has_given_up_is_not_waited_for(ec2: Ec2, known: Clusters) -> None:
    order = aws_cases.order()
    order = replace(order, owner=identity(Path(Sky.load().data_dir)))
    launched("aws", order)
    row = put(known, order, time.time(), [])
    here = {"token": order.token, "launcher": processes.identity()}
    known.store.put_cluster(replace(row, connection=here))
    await_other(known, row.name, lambda stage, detail: pytest.fail(f"{stage}: {detail}"))
    assert known.store.live() == [] and not ec2.machines()


def test_noted_launch_does_not_take_the_name_of_a_live_cluster(ec2: Ec2, known: Clusters) -> None:
    order = aws_cases.order()
    launched("aws", order)
    other = put(known, replace(order, token="train-new"), time.time(), [])
    mine = processes.identity(os.getppid())
    known.store.put_cluster(replace(other, connection={"token": "train-new", "launcher": mine}))
    reap(known, everywhere=False)
    assert [bill.cluster for bill in known.store.intervals()] == [order.token]
    assert [row.id for row in known.store.starting()] == [other.id]


def test_machines_are_ended_that_a_full_disk_lets_nobody_note(ec2: Ec2, known: Clusters) -> None:
    order = aws_cases.order()
    ec2.slow("create", 1.0)
    partial = records_of().folder(order.token) / "machines.partial"

    def fill_disk() -> None:
        if "RunInstances us-east-1" in ec2.calls and not partial.is_symlink():
            partial.symlink_to("/dev/full")

    cloud = clouds.rented_cloud("aws")
    with pytest.raises(SkyStoreError, match="No space left") as caught:
        cloud.launch(order, fill_disk)
    assert caught.value.hint and ec2.calls.count("RunInstances us-east-1") == 1
    assert not ec2.machines()
    assert len(cloud.noted(order.token)) == 1  # they are billed all the same


def test_end_that_a_full_disk_lets_nobody_note(ec2: Ec2, known: Clusters) -> None:
    order = aws_cases.order()
    machines = launched("aws", order)
    (records_of().folder(order.token) / "machines.partial").symlink_to("/dev/full")
    clouds.rented_cloud("aws").terminate([machine.id for machine in machines])
    assert not ec2.machines()
    assert [token for token, _ in records_of().unfinished()] == [order.token]  # looked at again


def test_noted_launch_that_has_ended_is_billed_though_its_store_was_lost(
    ec2: Ec2, known: Clusters
) -> None:
    machines = launched("aws", aws_cases.order())
    clouds.rented_cloud("aws").terminate([machine.id for machine in machines])
    ended = time.time()
    for _ in range(2):
        reap(known, everywhere=False)
    (bill,) = known.store.intervals()
    assert bill.started == machines[0].started and bill.ended is not None
    assert abs(bill.ended - ended) < 1 and known.store.live() == []
