"""Overview beside the ledger of the same store."""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError

from jupyter_sky.base.clouds.index import BUILT_IN
from jupyter_sky.base.remote import processes
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.interfaces.server.poller import SCHEMA
from jupyter_sky.interfaces.server.service import SkyService
from jupyter_sky.interfaces.server.snapshot import IdleReport, Snapshot, midnight
from jupyter_sky.interfaces.server.state import PanelState
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.billing import billed_seconds, billed_seconds_sql
from jupyter_sky.knowledge.ledger.ledger import Ledger, sum_usd
from tests.conftest import WAIT
from tests.server.conftest import Refused
from tests.store.rows import CLUSTER, MINE, RUN

OFFER = {
    "cloud": "aws",
    "region": "us-east-1",
    "instance_type": "g5.xlarge",
    "vcpus": 4,
    "memory": 16,
    "spot": True,
}


def cluster(name: str, age: float = 3600.0, **more: Any) -> ClusterRow:
    values = {"name": name, "created": time.time() - age, "offer": OFFER, "machines": [], **more}
    return replace(CLUSTER, **values)


def put(store: Store, row: ClusterRow) -> ClusterRow:
    store.save_cluster(row)
    store.begin_interval(row.id, row.price, row.created)
    return row


async def test_an_empty_store_is_told_as_such(ask: Any) -> None:
    state = await ask("state")
    assert state["clusters"] == state["runs"] == state["notices"] == []
    assert state["rate"] == {"usd_h": 0.0, "unknown": 0}
    assert state["today"] == {"usd": 0.0, "unknown": 0, "budget": None, "over": False}
    assert state["version"] and abs(state["at"] - time.time()) < 10


async def test_clusters_and_runs_are_told_with_what_they_cost(ask: Any, store: Store) -> None:
    now = time.time()
    machine = {"id": "i-1", "lease_end": now + 1000.0}
    row = put(store, cluster("train", 1800.0, price=2.0, machines=[machine], nodes=2))
    put(store, cluster("odd", 60.0, price=None, notebook="b.ipynb"))
    run = replace(RUN, price=2.0, started=now - 900.0, cell_id="c-7", name="fit")
    store.begin_run(run)
    store.begin_run(replace(run, run_id="r0", started=now - 1000.0))
    store.end_run("r0", "ok", now - 910.0)
    state = await ask("state")
    first, second = state["clusters"]
    assert first["usd"] == pytest.approx(1.0, rel=0.01) and second["usd"] is None
    assert (first["name"], first["state"], first["running"]) == ("train", "up", 1)
    assert first["where"] == "2 x aws us-east-1 g5.xlarge spot" and first["spot"] is True
    assert first["lease_end"] == machine["lease_end"] and first["idle_left"] == row.idle
    assert first["note"] is None and first["orphan"] is False
    assert state["rate"] == {"usd_h": 2.0, "unknown": 1}
    assert state["today"]["unknown"] == 1
    going, ended = state["runs"]
    assert (going["run_id"], going["cell_id"], going["stoppable"]) == ("r1", "c-7", True)
    assert going["usd"] == pytest.approx(0.5, rel=0.02)
    assert (ended["status"], ended["stage"], ended["stoppable"]) == ("ok", "done", False)
    assert ended["usd"] == pytest.approx(0.05)
    again = await ask("runs", "r0")
    assert again == ended


async def test_unknown_costs_are_not_zero(ask: Any, store: Store) -> None:
    put(store, cluster("odd", price=None))
    state = await ask("state")
    assert state["rate"] == {"usd_h": None, "unknown": 1}
    assert state["today"]["usd"] is None


async def test_an_idle_cluster_counts_down_and_is_kept_as_long_as_it_was_asked(
    ask: Any, store: Store
) -> None:
    row = put(store, cluster("train", 500.0, idle=600.0))
    store.record_heartbeat(row.id, time.time())  # a notebook is connected, and that is no use
    (shown,) = (await ask("state"))["clusters"]
    assert shown["idle_left"] == pytest.approx(100.0, abs=5)
    started = row.created + 50.0
    store.begin_run(replace(RUN, cluster="train", started=started))
    store.end_run(RUN.run_id, "ok", row.created + 100.0)
    (shown,) = (await ask("state"))["clusters"]
    assert shown["idle_left"] == pytest.approx(200.0, abs=5)
    store.keep_cluster_until(store.cluster("train").id, time.time() + 3600.0)
    (shown,) = (await ask("state"))["clusters"]
    assert shown["idle_left"] == pytest.approx(3600.0, abs=5)


async def test_used_cluster_says_what_keeps_it_up(
    ask: Any, service: SkyService, store: Store
) -> None:
    row = put(store, cluster("train", 5000.0, idle=600.0))
    (shown,) = (await ask("state"))["clusters"]
    assert (shown["idle_left"], shown["users"]) == (None, []), "it was used, we do not know how"
    service.idle_reports["train", row.created] = IdleReport(
        600.0, time.time() - 1, ("2 calls of a.ipynb",)
    )
    (shown,) = (await ask("state"))["clusters"]
    assert shown["users"] == ["2 calls of a.ipynb"] and shown["idle_left"] > 590
    service.idle_reports["train", row.created] = IdleReport(
        600.0, time.time() - 100, ("2 calls of a.ipynb",)
    )
    (shown,) = (await ask("state"))["clusters"]
    assert (shown["idle_left"], shown["users"]) == (None, []), "that was long ago"
    service.idle_reports["train", row.created] = IdleReport(600.0, time.time() - 100)
    (shown,) = (await ask("state"))["clusters"]
    assert shown["idle_left"] == pytest.approx(500.0, abs=5)


async def test_ended_cluster_is_shown_for_a_while_with_its_reason(ask: Any, store: Store) -> None:
    now = time.time()
    for name, state, ago, note in (
        ("lost", "lost", 7200.0, "the cloud no longer knows it"),
        ("ended", "down", 60.0, "idle"),
        ("old", "down", 7200.0, ""),
        ("older", "lost", 90_000.0, ""),
        ("again", "lost", 100.0, "preempted"),
    ):
        put(store, cluster(name, 100_000.0))
        store.end_cluster(store.cluster(name).id, state, now - ago, note)
    put(store, cluster("again", 50.0))
    shown = {c["name"]: (c["state"], c["note"]) for c in (await ask("state"))["clusters"]}
    assert shown == {
        "lost": ("lost", "the cloud no longer knows it"),
        "ended": ("down", "idle"),
        "again": ("up", None),
    }


async def test_a_cluster_whose_launch_was_killed_says_so(ask: Any, store: Store) -> None:
    mine, dead = processes.identity(), {"pid": 2**22 + 1, "born": 1.0}
    for name, launcher in (("mine", mine), ("dead", dead)):
        store.save_cluster(cluster(name, 10.0, state="starting", connection={"launcher": launcher}))
    shown = {c["name"]: c for c in (await ask("state"))["clusters"]}
    assert shown["mine"]["state"] == "starting" and shown["mine"]["note"] is None
    assert "killed" in shown["dead"]["note"] and shown["dead"]["idle_left"] is None


async def test_a_run_that_waits_costs_nothing_and_names_no_cluster(ask: Any, store: Store) -> None:
    store.begin_run(replace(RUN, status="waiting", stage="placing", nodes=0, cluster=""))
    (run,) = (await ask("state"))["runs"]
    assert (run["stage"], run["status"], run["usd"]) == ("placing", "waiting", 0.0)
    assert run["cluster"] is None and run["stoppable"]
    store.request_stop("r1", "from there")
    (run,) = (await ask("state"))["runs"]
    assert not run["stoppable"] and run["stage"] == "interrupting"


async def test_runs_are_those_that_run_and_the_latest_hundred(ask: Any, store: Store) -> None:
    now = time.time()
    for number in range(130):
        row = replace(RUN, run_id=f"r{number}", started=now - 1000 + number)
        store.begin_run(row)
        if number != 3:
            store.end_run(row.run_id, "ok", now)
    runs = [run["run_id"] for run in (await ask("state"))["runs"]]
    assert len(runs) == 101 and runs[:2] == ["r3", "r129"] and "r30" in runs and "r29" not in runs


@pytest.mark.parametrize("usd", [0.5, 5.0, None])
async def test_a_budget_is_compared_with_the_day(ask: Any, store: Store, usd: float | None) -> None:
    begun = max(60.0, time.time() - midnight(time.time()))
    put(store, cluster("train", begun, price=3600.0 / begun))  # a dollar since midnight
    budget.write_budget(store, usd, "%config")
    today = (await ask("state"))["today"]
    assert today["usd"] == pytest.approx(1.0, rel=0.1)
    assert (today["over"], today["budget"]) == (usd == 0.5, usd)


# -- the same sums as the ledger's ---------------------------------------------------------------


@pytest.mark.parametrize("cloud", BUILT_IN)
def test_billing_in_sql_is_billing(cloud: str) -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (cloud TEXT, s REAL)")
    lasted = [0.0, -3.0, 0.2, 1.0, 59.0, 60.0, 61.5, 599.9, 600.0, 3600.0, 86399.25]
    db.executemany("INSERT INTO t VALUES (?, ?)", [(cloud, seconds) for seconds in lasted])
    found = [
        row[0] for row in db.execute(f"SELECT {billed_seconds_sql('cloud', 's', BUILT_IN)} FROM t")
    ]
    assert found == pytest.approx([billed_seconds(cloud, seconds) for seconds in lasted])


def test_sums_are_those_of_the_ledger(store: Store) -> None:
    """A random history: price changes, unknown prices, spends, several clusters of one name."""
    rng, now = random.Random(7), time.time()
    begun = now - 3 * 86400
    clouds = ("aws", "lambda", "verda", "azure")
    for number in range(40):
        at = begun + number * 5000
        row = cluster(f"c{number % 30}", cloud=clouds[number % 4], price=rng.random())
        row = replace(row, created=at)
        store.save_cluster(row)
        for _ in range(rng.randrange(1, 6)):
            store.begin_interval(row.id, rng.choice([None, 1.0, 2.5]) if number > 20 else 1.0, at)
            at += rng.random() * 4000
        if number % 5 == 0:
            store.add_other_cost(row.id, "egress", None if number == 15 else 0.25, at)
        if number < 30:
            store.end_cluster(row.id, "down", at)
        run = replace(RUN, run_id=f"r{number}", cluster=row.name, started=at - 2000, price=9.0)
        store.begin_run(run)
        if number % 3:
            store.end_run(run.run_id, "ok", at - 100)
    state, ledger = PanelState(store), Ledger(store)
    shown = state.to_dict(Snapshot(), {})
    assert len(shown["clusters"]) >= 10
    for one in shown["clusters"]:
        assert one["usd"] == pytest.approx(ledger.cluster_usd(one["name"], shown["at"]))
    for one in shown["runs"]:
        run = store.run(one["run_id"])
        assert run and one["usd"] == pytest.approx(ledger.run_usd(run, shown["at"]))
    today = ledger.summary("cloud", midnight(shown["at"]), shown["at"])
    if all(line.usd is not None for line in today):
        assert shown["today"]["usd"] == pytest.approx(sum_usd(line.usd for line in today))
    known = store.intervals()
    day = midnight(shown["at"])
    lines = [line for _, line in ledger._bills(shown["at"], day)]
    assert shown["today"]["usd"] == pytest.approx(sum(line.usd or 0.0 for line in lines))
    assert shown["today"]["unknown"] == sum(line.usd is None for line in lines)
    assert known and state.to_dict(Snapshot(), {})["runs"][-1] == shown["runs"][-1], (
        "kept, and the same"
    )


def test_midnight_is_that_of_this_place() -> None:
    now = datetime(2026, 11, 22, 15, 30).timestamp()
    assert datetime.fromtimestamp(midnight(now)) == datetime(2026, 11, 22)


# -- what has not changed, and what has ----------------------------------------------------------


async def test_the_same_state_is_not_sent_twice(ask: Any, jp_fetch: Any, store: Store) -> None:
    store.begin_run(RUN)
    answer = await jp_fetch("jupyter-sky", "state")
    etag = answer.headers["ETag"]
    assert json.loads(answer.body)["cursor"] == etag.strip('"')
    store.record_run_heartbeat("r1", time.time(), 5)  # a heartbeat is no news
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch("jupyter-sky", "state", headers={"If-None-Match": etag})
    assert caught.value.code == 304
    store.end_run("r1", "ok", time.time())
    again = await jp_fetch("jupyter-sky", "state", headers={"If-None-Match": etag})
    assert again.headers["ETag"] != etag
    assert json.loads(again.body)["runs"][0]["status"] == "ok"


async def test_changes_are_pushed_while_a_page_is_open(
    ask: Any, service: SkyService, store: Store, jp_serverapp: Any
) -> None:
    heard: list[dict[str, Any]] = []

    async def listen(logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        heard.append(data)

    jp_serverapp.event_logger.add_listener(schema_id=SCHEMA["$id"], listener=listen)
    await ask("state")
    await asyncio.sleep(1.2)
    assert heard == []
    store.begin_run(replace(RUN, owner=MINE))
    begun = time.monotonic()
    while not heard:
        assert time.monotonic() - begun < WAIT
        await asyncio.sleep(0.05)
    assert heard[0]["cursor"] == (await ask("state"))["cursor"]


# -- what can be wrong ---------------------------------------------------------------------------


async def test_a_store_of_a_newer_version_is_told_and_left_alone(ask: Any, data: Path) -> None:
    data.mkdir()
    db = sqlite3.connect(data / "sky.db")
    db.execute("PRAGMA user_version = 99")
    db.close()
    for path in (("state",), ("runs", "r1"), ("clusters", "a", "metrics")):
        with pytest.raises(Refused) as caught:
            await ask(*path)
        assert caught.value.status == 503 and caught.value.kind == "SkyStoreError"
        assert "newer jupyter_sky" in caught.value.said["message"]
        assert "pip install -U" in caught.value.said["hint"]
    (data / "sky.db").unlink()
    assert (await ask("state"))["clusters"] == [], "no restart is needed once it is mended"


async def test_a_run_that_is_not_known(ask: Any) -> None:
    for path in (("runs", "r9"), ("runs", "r9", "outputs"), ("runs", "r9", "log")):
        with pytest.raises(Refused) as caught:
            await ask(*path)
        assert caught.value.status == 404 and "r9" in caught.value.said["message"]
    with pytest.raises(Refused) as caught:
        await ask("runs", "r9", "stop", body={})
    assert caught.value.status == 404
