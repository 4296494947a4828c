"""Stopped clusters in the panel: shown with their cost, started again, and deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyNoCapacity
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.clouds.launches.machine_records import launch_records
from jupyter_sky.execution.clusters import stopped_clusters as power
from jupyter_sky.execution.clusters import stopped_records
from jupyter_sky.interfaces.server.service import SkyService
from jupyter_sky.knowledge.ledger.billing import MONTH_HOURS
from tests.server.test_clusters import refused, until
from tests.store.rows import CLUSTER

OFFER = {
    "cloud": "aws",
    "region": "us-east-1",
    "instance_type": "g5.xlarge",
    "vcpus": 4,
    "memory": 16,
}


@pytest.fixture
def row(service: SkyService, store: Store) -> ClusterRow:
    """A cluster that was stopped an hour ago and is off."""
    now = time.time()
    machine = {"id": "us-east-1/i-1", "lease_end": now + 86400}
    made = replace(
        CLUSTER,
        state="stopped",
        spot=False,
        offer=OFFER,
        machines=[machine],
        nodes=2,
        created=now - 7200,
        connection={"file": "c.json", "token": "train-1"},
        note="stopped in a.ipynb",
    )
    service.configure()
    note = {"cloud": "aws", "machines": [machine], "stopped": now - 3600, "stop_phase": "off"}
    launch_records().create("train-1", note)
    store.save_cluster(made)
    store.begin_interval(made.id, made.price, made.created)
    store.change_price(made.id, stopped_records.stop_cost(made).price, now - 3600)
    return made


async def shown(ask: Callable[..., Any]) -> dict[str, Any]:
    (cluster,) = (await ask("state"))["clusters"]
    return cluster


async def test_stopped_cluster_is_shown_with_the_cost_of_its_disks(
    ask: Any, row: ClusterRow
) -> None:
    state = await ask("state")
    (cluster,) = state["clusters"]
    cost = stopped_records.stop_cost(row).price
    assert (cluster["state"], cluster["price"]) == ("stopped", cost)
    assert cluster["stopped"]["usd_month"] == pytest.approx(cost * MONTH_HOURS)
    assert cluster["stopped"]["disk_gib"] == 100.0
    assert cluster["stopped"]["since"] == pytest.approx(time.time() - 3600, abs=30)
    assert cluster["stopped"]["under_way"] == ""
    assert cluster["lease_end"] == row.machines[0]["lease_end"]
    assert cluster["idle_left"] is None and cluster["running"] == 0
    assert cluster["usd"] == pytest.approx(1.0 + cost, rel=0.05)
    assert state["rate"]["usd_h"] == cost


@pytest.mark.parametrize(
    ("phase", "told"), [("asked", "has not answered"), ("accepted", "is stopping it")]
)
async def test_cluster_that_was_not_seen_off_may_cost_in_full(
    ask: Any, row: ClusterRow, store: Store, phase: str, told: str
) -> None:
    record = launch_records().read("train-1")
    launch_records().write("train-1", record | {"stop_phase": phase})
    cluster = await shown(ask)
    assert told in cluster["stopped"]["under_way"] and cluster["price"] == row.price


async def test_start_from_the_panel_is_followed_and_its_failure_is_told(
    ask: Any, row: ClusterRow, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, names = threading.Event(), list[str]()

    def start(clusters: Any, found: ClusterRow, report: Callable[[str, str], None]) -> None:
        names.append(found.name)
        report("booting", "machine starting")
        assert goes_on.wait(30)
        report("booting", "controller")
        raise SkyNoCapacity("aws us-east-1 has none of these machines", hint="later")

    monkeypatch.setattr(power, "is_kept", lambda records, row: True)
    monkeypatch.setattr(power, "start_cluster", start)
    assert await ask("clusters", "train", "start", body={}) == {"starting": "train"}
    cluster = await until(lambda: _noted(ask, "machine starting"))
    assert cluster["state"] == "starting" and names == ["train"]
    for action in ("start", "down"):
        told = await refused(ask("clusters", "train", action, body={}), 409)
        assert "is being started" in told
    goes_on.set()
    cluster = await until(lambda: _noted(ask, "none of these machines"))
    assert cluster["state"] == "stopped" and "later" in cluster["note"]


async def _noted(ask: Callable[..., Any], text: str) -> dict[str, Any] | None:
    cluster = await shown(ask)
    return cluster if text in (cluster["note"] or "") else None


async def test_what_is_not_stopped_cannot_be_started(
    ask: Any, row: ClusterRow, store: Store
) -> None:
    for action in ("extend", "metrics", "ssh"):
        body = {"time": "1h"} if action == "extend" else None
        told = await refused(ask("clusters", "train", action, body=body), 409)
        assert "is stopped" in told and "start" in told
    store.save_cluster(replace(row, state="up"))
    assert "up already" in await refused(ask("clusters", "train", "start", body={}), 409)
    assert "no cluster" in await refused(ask("clusters", "other", "start", body={}), 404)
