"""Stopped clusters whose cloud has not answered, or stops their machines late."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from jupyter_sky import clouds
from jupyter_sky.base.errors import SkyUnreachable, SkyUsageError
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds.aws.provider import Aws
from jupyter_sky.clouds.launches import lease_watch, retries, stopped_machines
from jupyter_sky.clouds.launches.launcher import Launcher
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.clouds.launches.stopped_machines import StopPhase, stop_phase
from jupyter_sky.execution.clusters import stopped_clusters, stopped_records
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.execution.sessions.reaper import reap_machines
from jupyter_sky.interfaces.api.clusters import stopped_row
from jupyter_sky.interfaces.api.doctor import describe_stopped
from jupyter_sky.knowledge.ledger.ledger import Ledger
from tests.clouds.aws_cases import (
    account_fixture,
    create,
    ec2_fixture,
    order,
    provider_fixture,
    running,
)
from tests.conftest import wait_until
from tests.emulators.ec2 import Ec2
from tests.store.rows import CLUSTER

__all__ = ["account_fixture", "ec2_fixture", "provider_fixture"]
ALWAYS = 1e9


@pytest.fixture
def launcher(ec2: Ec2, provider: Aws, monkeypatch: pytest.MonkeyPatch) -> Launcher:
    """The account's cloud, as this process has it, which does not wait long between requests."""
    made = Launcher(provider)
    monkeypatch.setattr(clouds, "get", lambda name: made)
    monkeypatch.setattr(clouds, "launcher_names", lambda: ("aws",))
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(lease_watch, "start_watch_process", lambda: None)
    return made


@pytest.fixture
def known(launcher: Launcher, tmp_path: Path) -> Iterator[ClusterRegistry]:
    """A notebook's clusters."""
    store = Store.open(tmp_path)
    yield ClusterRegistry(store, "a.ipynb", "kernel")
    store.close()


@pytest.fixture
def row(known: ClusterRegistry, provider: Aws) -> ClusterRow:
    """A cluster that is up, on a machine that does not ask for SSH."""
    asked = order()
    machines = [asdict(each) for each in running(provider, create(provider, asked))]
    launch_records().create(
        asked.token,
        {
            "cloud": "aws",
            "region": "us-east-1",
            "cluster": "train",
            "offer": asdict(asked.offer),
            "machines": machines,
            "nodes": [],
            "lease_end": time.time() + 3600,
        },
    )
    (launch_records().folder(asked.token) / "known_hosts").touch()
    made = replace(
        CLUSTER,
        instance_type="m5.large",
        spot=False,
        price=0.096,
        resources="",
        offer=asdict(asked.offer),
        machines=machines,
        connection={"token": asked.token},
        created=time.time(),
    )
    known.store.save_cluster(made)
    known.store.record_launch(made, time.time())
    return made


def prices(known: ClusterRegistry) -> list[float | None]:
    return [one.price for one in known.store.intervals("train")]


def state(known: ClusterRegistry) -> str:
    (found,) = known.store.live_clusters()
    return found.state


def lose_stop(ec2: Ec2, known: ClusterRegistry, row: ClusterRow, arrives: bool) -> None:
    """Stop a cluster, and hear nothing of it."""
    if arrives:
        ec2.lose("stop", ALWAYS)
    else:
        ec2.refuse("InternalError", action="stop", times=ALWAYS, status=500)
    with pytest.raises(SkyUnreachable) as caught:
        stopped_clusters.stop_cluster(known, row)
    ec2.scripts.clear()
    assert "stopped or not" in str(caught.value.hint)


def stored(known: ClusterRegistry, row: ClusterRow) -> ClusterRow:
    found = known.store.find_cluster(row.id)
    assert found is not None
    return found


@pytest.mark.parametrize("arrives", [True, False])
def test_lost_answer_of_a_stop_is_settled_by_status(
    ec2: Ec2, known: ClusterRegistry, row: ClusterRow, arrives: bool
) -> None:
    lose_stop(ec2, known, row, arrives)
    assert prices(known) == [0.096], "it may run"
    told = stopped_row(stored(known, row), Ledger(known.store))
    assert any("has not answered" in text for text in told), told
    assert "$0.10/h" in told, "not the price of its disk"
    assert "has not answered" in describe_stopped(stored(known, row)).text
    assert stopped_records.reconcile_stopped(known.records) == [stored(known, row)]
    wait_until(lambda: ec2.machines()[0]["state"] == "stopped", "it is asked again")
    stopped_records.reconcile_stopped(known.records)
    first, second = prices(known)
    assert first == 0.096 and second is not None and second < 0.01
    settled = stopped_row(stored(known, row), Ledger(known.store))
    assert any("jupyter sky start" in text for text in settled), settled
    assert stop_phase(row.connection["token"]) == StopPhase.OFF


def test_stop_whose_answer_was_lost_can_be_asked_for_again(
    ec2: Ec2, known: ClusterRegistry, row: ClusterRow
) -> None:
    lose_stop(ec2, known, row, arrives=False)
    with pytest.raises(SkyUsageError, match=r"it is stopped .*is stopping it"):
        stopped_clusters.find_stoppable(known, "train")
    wait_until(lambda: ec2.machines()[0]["state"] == "stopped")


def test_stop_that_is_refused_in_the_end_leaves_the_cluster_up(
    ec2: Ec2, known: ClusterRegistry, row: ClusterRow
) -> None:
    lose_stop(ec2, known, row, arrives=False)
    ec2.refuse("UnauthorizedOperation", action="stop")
    assert stopped_records.reconcile_stopped(known.records) == []
    assert state(known) == "up" and prices(known) == [0.096]
    assert not launch_records().read(row.connection["token"])["stopped"]
    with pytest.raises(SkyUsageError, match="up already"):
        stopped_clusters.find_startable(known, "train")


def test_cloud_that_goes_on_not_answering_settles_nothing(
    ec2: Ec2, known: ClusterRegistry, row: ClusterRow
) -> None:
    lose_stop(ec2, known, row, arrives=False)
    for action in ("stop", "describe"):
        ec2.refuse("InternalError", action=action, times=ALWAYS, status=500)
    assert stopped_records.reconcile_stopped(known.records) == [stored(known, row)]
    ec2.scripts.clear()
    assert state(known) == "stopped" and prices(known) == [0.096]
    assert stop_phase(row.connection["token"]) == StopPhase.ASKED


def test_reaper_settles_a_lost_stop(ec2: Ec2, known: ClusterRegistry, row: ClusterRow) -> None:
    lose_stop(ec2, known, row, arrives=True)
    wait_until(lambda: ec2.machines()[0]["state"] == "stopped")
    assert reap_machines(known.records, everywhere=False) == []
    assert len(prices(known)) == 2 and state(known) == "stopped"


@pytest.mark.parametrize("arrives", [True, False])
def test_machine_whose_stop_was_lost_is_off_before_it_is_started(
    ec2: Ec2, known: ClusterRegistry, launcher: Launcher, row: ClusterRow, arrives: bool
) -> None:
    lose_stop(ec2, known, row, arrives)
    (up,) = launcher.start(row.connection["token"])
    assert up.state == "running" and ec2.machines()[0]["state"] == "running"
    assert stop_phase(row.connection["token"]) == StopPhase.OFF


def test_late_stop_costs_in_full_until_it_is_seen(
    ec2: Ec2,
    known: ClusterRegistry,
    provider: Aws,
    row: ClusterRow,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as late:
        late.setattr(stopped_machines, "STOP_SECONDS", 0.0)
        late.setattr(Aws, "stop", lambda self, ids: None)  # accepted, and not begun
        with pytest.raises(SkyUnreachable, match="not off after 0 s"):
            stopped_clusters.stop_cluster(known, row)
    assert stopped_records.reconcile_stopped(known.records) == [stored(known, row)]
    assert stop_phase(row.connection["token"]) == StopPhase.ACCEPTED
    assert state(known) == "stopped" and prices(known) == [0.096]
    assert "is stopping it" in describe_stopped(stored(known, row)).text
    provider.stop([row.machines[0]["id"]])
    wait_until(lambda: ec2.machines()[0]["state"] == "stopped")
    stopped_records.reconcile_stopped(known.records)
    first, second = known.store.intervals("train")
    assert first.price == 0.096 and second.price == stopped_records.stop_cost(row).price
    assert first.ended == second.started


def test_price_of_a_cluster_that_is_being_started_is_left_alone(
    ec2: Ec2, known: ClusterRegistry, row: ClusterRow
) -> None:
    stopped_clusters.stop_cluster(known, row)
    found = stored(known, row)
    with stopped_records.hold_power(found) as is_free:
        assert is_free
        known.store.change_price(row.id, row.price, time.time())  # as by another process
        stopped_records.reconcile_stopped(known.records)
    assert len(prices(known)) == 3 and prices(known)[-1] == 0.096
