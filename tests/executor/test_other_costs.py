"""Costs besides machines by the hour: disks, egress, spot prices, unseen ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky import catalog, clouds, tracker
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds.launches.launch_records import installation_id
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.execution.clusters import cluster_launch
from jupyter_sky.execution.clusters.cluster import EgressMeter
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.knowledge.ledger import report
from jupyter_sky.knowledge.ledger.ledger import Ledger
from tests.clouds.gcp_requests import order
from tests.conftest import wait_until
from tests.emulators.gce import Compute
from tests.emulators.provider_billing import units_apart

pytest_plugins = ["tests.clouds.gcp_fixtures"]


@pytest.fixture
def known(
    compute: Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ClusterRegistry]:
    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    store = Store.open(tmp_path)
    yield ClusterRegistry(store, "a.ipynb", "session")
    store.close()


def up(known: ClusterRegistry, spot: bool = False, price: float = 98.32) -> ClusterRow:
    """A cluster with a machine in the emulated cloud."""
    asked = order(
        "train-00000001", price=price, spot=spot, owner=installation_id(Path(Sky.load().data_dir))
    )
    row = cluster_launch._new_row(asked, named=True)
    known.store.save_cluster(row)
    machines = clouds.get("gcp").launch(asked)
    row = replace(row, state="up", machines=[asdict(machine) for machine in machines])
    known.store.save_cluster(row)
    known.store.begin_interval(row.id, row.price, time.time())
    return row


def test_plan_and_ledger_agree_on_disks(known: ClusterRegistry) -> None:
    need = Resources.parse(cpus="4", disk="500+", cloud=["aws"], region="us-east-1", on_demand=True)
    found = plan(replace(need, nodes=2))
    offer = found.tasks[0].offer
    asked = replace(order("train-00000001"), offer=offer, resources=replace(need, nodes=2))
    price = cluster_launch._new_row(asked, named=True).price
    assert offer.price is not None and price is not None
    assert price - 2 * offer.price == pytest.approx(2 * 500 * 0.10 / 730.5)
    task = found.tasks[0]
    assert task.machine_usd / (2 * offer.price) == pytest.approx(
        (task.machine_usd + task.disk_usd) / price
    ), "the same hours, whether the plan counts them or the ledger"


def test_egress_is_booked(known: ClusterRegistry) -> None:
    row = up(known)
    egress = EgressMeter(row, known.store)
    egress.add(600_000)
    assert known.store.other_costs() == [], "too little yet"
    egress.add(2_000_000_000)
    wait_until(known.store.other_costs)
    (spend,) = known.store.other_costs()
    usd = catalog.load().egress("gcp/us-central1", "internet", 2.0006).usd
    assert spend.usd is not None and spend.usd > 0.1
    assert spend.usd == pytest.approx(usd) and spend.what == "egress of 2 GB"
    local = EgressMeter(replace(row, cloud="local"), known.store)
    local.add(10**10)
    time.sleep(0.1)
    assert len(known.store.other_costs()) == 1


def test_new_spot_prices_are_billed_from_when_they_are_seen(known: ClusterRegistry) -> None:
    row = up(known, spot=True, price=1.0)
    offer = Offer(**row.offer)
    tracker.observe("price", offer, usd=1.0, at=time.time() - 3600)  # before it was launched
    known.records.reconcile()
    assert [one.price for one in known.store.intervals()] == [1.0]
    tracker.observe("price", offer, usd=2.5)
    known.records.reconcile()
    known.records.reconcile()
    assert [one.price for one in known.store.intervals()] == [1.0, 2.5]


def test_unobserved_time_is_billed(known: ClusterRegistry, compute: Compute) -> None:
    """Its kernel died after a beat; the cloud forgets the machine; it is opened again."""
    row = up(known)
    known.store.record_heartbeat(row.id, time.time())
    time.sleep(1.5)
    known.records.reconcile()  # any look at it, as the server's
    time.sleep(0.5)
    zone, _, name = row.machines[0]["id"].partition("/")
    compute.world._gone((zone, name))
    _noted_as_up(known, row)
    time.sleep(0.5)
    assert known.records.reconcile() == []
    (interval,) = known.store.intervals()
    (charged,) = compute.bills()
    assert interval.ended is not None and interval.bounded
    lasted = interval.ended - interval.started
    assert lasted >= charged["seconds"] - 0.1, "never less than the cloud's"
    assert abs(units_apart(charged, lasted)) <= 1.0
    (line,) = Ledger(known.store).summary("cluster")
    assert line.bounded and line.mark == "at most"
    made = report.make_report(known.store, by="cluster")
    assert "at most" in made.to_csv() and any("nobody saw it end" in note for note in made.notes)
    assert made.total.estimated and made.to_dict()["lines"][0]["bounded"]


def test_an_unseen_end_is_no_later_than_the_lease(known: ClusterRegistry, compute: Compute) -> None:
    row = up(known)
    lease_end = time.time() + 0.5
    machine: dict[str, Any] = row.machines[0] | {"lease_end": lease_end}
    known.store.save_cluster(replace(row, machines=[machine]))
    zone, _, name = machine["id"].partition("/")
    compute.world._gone((zone, name))
    _noted_as_up(known, row)
    time.sleep(1.0)
    assert known.records.reconcile() == []
    (interval,) = known.store.intervals()
    assert interval.ended is not None and interval.bounded
    assert abs(interval.ended - lease_end) < 1e-3


def test_end_by_a_process_that_was_killed_before_it_closed_the_account(
    known: ClusterRegistry, compute: Compute
) -> None:
    row = up(known)
    cloud, ids = clouds.get("gcp"), [machine["id"] for machine in row.machines]
    begun = time.time()
    cloud.terminate(ids)
    wait_until(lambda: all(each.state == "ended" for each in cloud.describe(ids)))
    gone = time.time()
    _noted_as_up(known, row)
    time.sleep(1.0)
    assert known.records.reconcile() == []
    (interval,) = known.store.intervals()
    assert interval.ended is not None and begun - 0.1 < interval.ended < gone + 0.5
    assert interval.bounded
    (charged,) = compute.bills()
    assert interval.ended - interval.started >= charged["seconds"] - 0.1


def test_unbooked_costs_are_named(known: ClusterRegistry) -> None:
    assert not any("public IPv4" in note for note in report.make_report(known.store).notes)
    up(known)
    assert any("public IPv4" in note for note in report.make_report(known.store).notes)


def _noted_as_up(known: ClusterRegistry, row: ClusterRow) -> None:
    """Let the note of the machines be older: those just launched may not be listed yet."""
    from jupyter_sky.clouds.launches.machine_records import VISIBILITY_SECONDS, launch_records

    records, token = launch_records(), row.connection["token"]
    record = records.read(token)
    for machine in record["machines"]:
        machine["started"] -= 10 * VISIBILITY_SECONDS
    records.write(token, record)
