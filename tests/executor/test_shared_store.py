"""Several notebooks, a reaper and a Jupyter server on one store."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyUnreachable, SkyUsageError
from jupyter_sky.base.remote import processes
from jupyter_sky.base.remote.processes import FOREIGN_SECONDS
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds import Machine
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.execution.clusters import stopped_clusters
from jupyter_sky.execution.clusters.cluster_launch import await_other_launch
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.execution.sessions.reaper import reap_machines
from jupyter_sky.knowledge.ledger import budget

OFFER = Offer("aws", "us-east-1", "p5.48xlarge", 192, 2048, price=98.32)
FOREIGN = {"pid": os.getpid(), "born": 1.0, "boot": "of another machine", "host": "old-name.lan"}


class ListedCloud:
    """A cloud of one machine, which notes what it is asked to end."""

    name = "aws"

    def __init__(self) -> None:
        self.listed: list[Machine] = []
        self.ended: list[str] = []

    def list_mine(self, everywhere: bool = False) -> list[Machine]:
        return list(self.listed)

    def describe(self, ids: list[str]) -> list[Machine]:
        return [machine for machine in self.listed if machine.id in ids]

    def terminate(self, ids: list[str]) -> None:
        self.ended += ids

    def read_recorded_end(self, token: str) -> dict[str, Any]:
        return {}

    def close_ended_records(self) -> None:
        pass

    def delete_unused_resources(self, *_: Any) -> list[str]:
        return []


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> ListedCloud:
    cloud = ListedCloud()
    monkeypatch.setattr(clouds, "get", lambda name: cloud)
    monkeypatch.setattr(clouds, "get_launcher", lambda name: cloud)
    monkeypatch.setattr(clouds, "launchable", lambda: ("aws",))
    monkeypatch.setattr(clouds, "launcher_names", lambda: ("aws",))
    monkeypatch.setattr(clouds, "recorded_names", lambda: ("aws",))
    return cloud


@pytest.fixture
def known(own_data: None, tmp_path: Path) -> Iterator[ClusterRegistry]:
    """A notebook's clusters."""
    store = Store.open(tmp_path)
    yield ClusterRegistry(store, "a.ipynb", "kernel")
    store.close()


@pytest.fixture
def other(own_data: None, tmp_path: Path) -> Iterator[ClusterRegistry]:
    """The same store as another process has it, such as the Jupyter server."""
    store = Store.open(tmp_path)
    yield ClusterRegistry(store, "Jupyter server", "server")
    store.close()


def machine(name: str = "us-east-1/i-1", token: str = "train-1", **more: Any) -> Machine:
    return Machine(name, "aws", "train", 0, "running", time.time() - 60, token=token, **more)


def cluster(created: float, state: str = "up", *machines: Machine, **more: Any) -> ClusterRow:
    values: dict[str, Any] = {
        "name": "train",
        "state": state,
        "cloud": "aws",
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "spot": False,
        "price": 98.32,
        "nodes": 1,
        "resources": "",
        "offer": asdict(OFFER),
        "machines": [asdict(one) for one in machines],
        "connection": {"token": "train-1"},
        "notebook": "a.ipynb",
        "created": created,
        "idle": 600.0,
        "price_source": "",
        "price_date": "",
    }
    return ClusterRow(**(values | more))


def test_late_end_of_a_cluster_leaves_the_next_of_its_name_alone(
    known: ClusterRegistry, other: ClusterRegistry, cloud: ListedCloud
) -> None:
    """The server's SSH to the dead machine takes time; by then there is a new cluster."""
    now = time.time()
    old = cluster(now - 3600, "up", machine("us-east-1/i-old"))
    known.store.save_cluster(old)
    known.store.record_launch(old, now - 3600)
    gone = replace(machine("us-east-1/i-old"), state="ended", ended=now - 60, reason="idle")
    assert known.records.record_end(old, gone)
    new = cluster(now, "starting")
    known.store.save_cluster(new)
    new = replace(new, machines=[asdict(machine("us-east-1/i-new"))])
    known.store.record_launch(new, now)
    known.store.save_cluster(replace(new, state="up"))

    assert not other.records.record_end(old, gone)
    assert [row.id for row in known.store.clusters()] == [new.id]
    spans = {row.cluster_created: row.ended for row in known.store.intervals("train")}
    assert spans == {old.created: now - 60, new.created: None}
    assert budget.assess(known.store).rate.usd == 98.32
    assert "us-east-1/i-new" in known.records.live_identities()[0]


@pytest.mark.parametrize("before", ["up", "stopped"])
def test_cluster_that_another_process_has_changed_is_left_alone(
    known: ClusterRegistry, other: ClusterRegistry, before: str
) -> None:
    """It was up, or stopped, when the user was asked; until the answer another one acted."""
    read, after = cluster(time.time(), before), {"up": "stopped", "stopped": "up"}[before]
    launch_records().create("train-1", {"cloud": "aws", "machines": []})
    other.store.save_cluster(replace(read, state=after))
    with pytest.raises(SkyUsageError, match="another process stops or starts cluster train"):
        if before == "up":
            stopped_clusters.stop_cluster(known, read)
        else:
            stopped_clusters.start_cluster(known, read, lambda stage, detail: None)
    (found,) = known.store.live_clusters()
    assert found.state == after


def test_machines_that_cannot_be_stopped_again_cost_as_before(
    known: ClusterRegistry, cloud: ListedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They have started, and no cluster on them."""

    def refuse(token: str) -> None:
        raise SkyUnreachable("the cloud does not answer")

    row = cluster(time.time(), "stopped", machine())
    known.store.save_cluster(row)
    known.store.record_launch(row, time.time())
    monkeypatch.setattr(cloud, "stop_again", refuse, raising=False)
    stopped_clusters._stop_again(known, row)
    assert [one.price for one in known.store.intervals()] == [98.32]
    monkeypatch.setattr(cloud, "stop_again", lambda token: None, raising=False)
    stopped_clusters._stop_again(known, row)
    before, after = (one.price for one in known.store.intervals())
    assert before == 98.32 and after is not None and after < 0.1
    known.store.end_cluster(row.id, "down", time.time(), "ended by you")
    stopped_clusters._stop_again(known, row)
    assert known.store.live_clusters() == [], "another one has ended it meanwhile"


def test_reaper_leaves_what_is_launched_while_it_lists(
    known: ClusterRegistry,
    other: ClusterRegistry,
    cloud: ListedCloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def list_mine(everywhere: bool = False) -> list[Machine]:  # 17 regions take their time
        launcher = processes.identity(os.getppid())
        connection = {"token": "fresh-1", "launcher": launcher}
        other.store.save_cluster(cluster(time.time(), "starting", connection=connection))
        return [machine("us-east-1/i-fresh", "fresh-1"), machine("us-east-1/i-orphan", "other-1")]

    monkeypatch.setattr(cloud, "list_mine", list_mine)
    found = reap_machines(known.records)
    assert cloud.ended == ["us-east-1/i-orphan"]
    assert [finding.what for finding in found] == ["us-east-1/i-orphan"]


def test_clusters_are_looked_at_side_by_side(
    known: ClusterRegistry, cloud: ListedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may wait for long: a cloud that is down, a machine that does not answer."""
    names = [f"us-east-1/i-{number}" for number in range(3)]
    for number, name in enumerate(names):
        row = cluster(time.time(), "up", machine(name, f"t-{number}"), name=f"train-{number}")
        known.store.save_cluster(row)
    all_asked = threading.Barrier(3)

    def describe(ids: list[str]) -> list[Machine]:
        all_asked.wait(10)
        return [machine(name) for name in ids]

    monkeypatch.setattr(cloud, "describe", describe)
    assert [row.name for row in known.records.reconcile()] == ["train-0", "train-1", "train-2"]


def test_orphans_are_ended_in_parallel(
    known: ClusterRegistry, cloud: ListedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.listed = [machine("us-east-1/i-1", "t-1"), machine("us-east-1/i-2", "t-2")]
    all_ending = threading.Barrier(2)
    monkeypatch.setattr(cloud, "terminate", lambda ids: all_ending.wait(10))
    assert [finding.what for finding in reap_machines(known.records)] == [
        "us-east-1/i-1",
        "us-east-1/i-2",
    ]


def test_orphans_are_not_what_comes_up_while_clouds_are_listed(
    known: ClusterRegistry,
    other: ClusterRegistry,
    cloud: ListedCloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def list_mine(everywhere: bool = False) -> list[Machine]:
        other.store.save_cluster(cluster(time.time(), "up", machine("us-east-1/i-fresh")))
        return [machine("us-east-1/i-fresh")]

    monkeypatch.setattr(cloud, "list_mine", list_mine)
    assert known.records.find_orphans() == {}


def test_running_cluster_is_billed_up_to_the_last_check(
    known: ClusterRegistry, other: ClusterRegistry, cloud: ListedCloud
) -> None:
    """Its kernel died long ago; the server has just seen it running."""
    now = time.time()
    row = cluster(now - 36_000, "up", machine())
    known.store.save_cluster(row)
    known.store.record_launch(row, now - 36_000)
    known.store.record_heartbeat(row.id, now - 35_700)
    cloud.listed = [machine()]
    assert [up.name for up in other.records.reconcile()] == ["train"]
    assert known.store.intervals()[0].last_beat == pytest.approx(time.time(), abs=5)


@pytest.mark.parametrize(("lease_end", "ended"), [(None, 0.0), (-7200.0, -7200.0), (7200.0, 0.0)])
def test_end_that_nobody_saw_is_bounded_from_above(
    known: ClusterRegistry, cloud: ListedCloud, lease_end: float | None, ended: float
) -> None:
    now = time.time()
    lost = machine(lease_end=None if lease_end is None else now + lease_end)
    row = cluster(now - 36_000, "up", lost)
    known.store.save_cluster(row)
    known.store.record_launch(row, now - 36_000)
    known.store.record_heartbeat(row.id, now - 35_700)
    cloud.listed = [replace(lost, state="ended", reason="the cloud no longer knows it")]
    assert known.records.reconcile() == []
    (interval,) = known.store.intervals()
    assert interval.bounded and interval.ended == pytest.approx(now + ended, abs=5)


def test_cloud_that_cannot_be_asked_is_no_sign_of_life(
    known: ClusterRegistry, cloud: ListedCloud
) -> None:
    now = time.time()
    row = cluster(now - 3600, "up", machine())
    known.store.save_cluster(row)
    known.store.record_launch(row, now - 3600)
    cloud.listed = [machine(reason="its interface does not answer")]
    assert [up.name for up in known.records.reconcile()] == ["train"]
    assert known.store.intervals()[0].last_beat == now - 3600


def test_launch_noted_on_another_machine_is_waited_for_and_not_for_ever(
    known: ClusterRegistry, cloud: ListedCloud
) -> None:
    """After a change of the host's name, or in a home folder that machines share."""
    now = time.time()
    connection = {"token": "train-1", "launcher": FOREIGN}
    row = cluster(now - 900, "starting", connection=connection, renewed=now)
    known.store.save_cluster(row)
    said: list[str] = []

    def report(stage: str, detail: str) -> None:
        said.append(detail)
        if len(said) == 3:  # its last sign of life is long ago by now
            db = known.store.database
            sql = "UPDATE clusters SET renewed = ?"
            db.write((sql, (now - FOREIGN_SECONDS - 1,)))

    with pytest.raises(SkyUsageError, match=r"launched by a\.ipynb \(process \d+ on old-name\.lan"):
        known.terminate("train")
    cloud.listed = [machine()]
    await_other_launch(known.records, "train", report)
    assert len(said) == 3 and "old-name.lan" in said[0]
    assert cloud.ended == ["us-east-1/i-1"]
    (interval,) = known.store.intervals()
    assert interval.ended is not None and known.store.live_clusters() == []


def test_launch_that_others_gave_up_gives_its_machines_back(
    known: ClusterRegistry,
    other: ClusterRegistry,
    cloud: ListedCloud,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A laptop sleeps while it launches; another process takes the launch for abandoned."""
    from jupyter_sky.base.errors import SkyClusterLost
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.execution.clusters import cluster_launch
    from jupyter_sky.machines.provisioner import Lease

    def provision(order: Any, report: Any, launched: Any) -> Lease:
        (row,) = other.store.starting_clusters()
        other.store.end_cluster(row.id, "down", time.time(), "its notebook was killed")
        try:
            launched([machine()])
        except BaseException:
            cloud.terminate(["us-east-1/i-1"])  # as the provisioner does
            raise
        raise AssertionError

    monkeypatch.setattr(cluster_launch, "provision", provision)
    monkeypatch.setattr(
        cluster_launch.broker, "place", lambda need, launch, *_: (launch(OFFER), [])
    )
    with pytest.raises(SkyClusterLost, match="ended by another process"):
        known.launch(ClusterRequest(Resources(), "train", 60.0), lambda stage, detail: None)
    assert cloud.ended == ["us-east-1/i-1"] and known.store.live_clusters() == []
    assert all(row.ended is not None for row in known.store.intervals())


def test_paid_launch_is_refused_where_it_cannot_be_recorded(
    tmp_path: Path, own_data: None, cloud: ListedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    from jupyter_sky.base.errors import SkyStoreError
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.execution.clusters import cluster_launch

    (tmp_path / "file").write_text("in the way")
    store = Store.open(tmp_path / "file" / "sky")
    known = ClusterRegistry(store, "a.ipynb", "kernel")
    launched: list[Any] = []
    monkeypatch.setattr(cluster_launch, "provision", lambda *args: launched.append(args))
    monkeypatch.setattr(
        cluster_launch.broker, "place", lambda need, launch, *_: (launch(OFFER), [])
    )
    with pytest.raises(SkyStoreError, match="not started unrecorded"):
        known.launch(ClusterRequest(Resources(), "train", 60.0), lambda stage, detail: None)
    assert launched == []


@pytest.mark.parametrize("after_launch", [False, True])
def test_account_of_a_launch_stays_open_until_its_machines_have_ended(
    after_launch: bool, known: ClusterRegistry, cloud: ListedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cloud does not answer when a failed launch is given back: it bills on."""
    from jupyter_sky.base.requests.resources import Resources
    from jupyter_sky.execution.clusters import cluster_launch
    from jupyter_sky.machines.provisioner import Lease

    def refuse(ids: list[str]) -> None:
        raise SkyUnreachable("the cloud does not answer")

    def provision(order: Any, report: Any, launched: Any) -> Lease:
        cloud.listed = [machine(token=order.token)]
        launched(cloud.listed)
        if after_launch:
            return Lease(order, tuple(cloud.listed), Path("nowhere"))
        cloud.terminate(["us-east-1/i-1"])
        raise AssertionError

    end = cloud.terminate
    monkeypatch.setattr(cluster_launch, "END_SECONDS", 0.1)
    monkeypatch.setattr(cloud, "terminate", refuse)
    monkeypatch.setattr(cluster_launch, "provision", provision)
    placed = SimpleNamespace(result=None, notes=[])
    monkeypatch.setattr(
        cluster_launch.broker, "place", lambda need, launch, *_: launch(OFFER) and placed
    )
    with pytest.raises(Exception, match=r"nowhere|does not answer"):
        known.launch(ClusterRequest(Resources(), "train", 60.0), lambda stage, detail: None)
    (row,) = known.store.live_clusters()
    assert not row.is_being_launched() and [m["id"] for m in row.machines] == ["us-east-1/i-1"]
    assert [interval.ended for interval in known.store.intervals()] == [None]

    monkeypatch.setattr(cloud, "terminate", end)
    known.terminate("train")
    assert cloud.ended == ["us-east-1/i-1"] and known.store.live_clusters() == []
    assert all(interval.ended is not None for interval in known.store.intervals())
