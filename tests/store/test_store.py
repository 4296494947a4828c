"""Rows of the store: clusters, the intervals of their bills, runs, settings."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.store import store as store_module
from jupyter_sky.base.store.store import ClusterId, Store
from tests.store.rows import CLUSTER, RUN


def test_rows_come_back_as_they_went_in(store: Store) -> None:
    store.begin_run(RUN)
    assert store.cluster("train") == CLUSTER
    assert store.run("r1") == RUN
    assert store.cluster("other") is None and store.run("r2") is None
    assert store.notices == []


def test_second_store_sees_what_the_first_wrote(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "data")
    store.begin_run(RUN)
    assert other.run("r1") == RUN
    other.end_run("r1", "ok", 1010.0)
    other.close()
    ended = store.run("r1")
    assert ended and (ended.status, ended.ended) == ("ok", 1010.0)


def test_one_live_cluster_for_each_name(store: Store) -> None:
    store.save_cluster(replace(CLUSTER, nodes=2))
    assert [row.nodes for row in store.clusters()] == [2]
    with pytest.raises(SkyStoreError, match="train is up already"):
        store.save_cluster(replace(CLUSTER, created=2000.0))

    store.end_cluster(CLUSTER.id, "down", 1500.0)
    assert store.clusters() == []
    store.save_cluster(replace(CLUSTER, created=2000.0, nodes=3))
    assert [row.nodes for row in store.clusters()] == [3]
    assert [(row.state, row.nodes) for row in store.clusters(live_only=False)] == [
        ("down", 2),
        ("up", 3),
    ]
    latest = store.cluster("train")
    assert latest and latest.created == 2000.0


def test_price_change_closes_one_interval_and_opens_another(store: Store) -> None:
    store.begin_interval(CLUSTER.id, 1.0, 1000.0)
    store.change_price(CLUSTER.id, 1.0, 1050.0)
    store.change_price(CLUSTER.id, 2.0, 1100.0)
    store.end_cluster(CLUSTER.id, "down", 1300.0)
    store.change_price(CLUSTER.id, 5.0, 1400.0)  # nothing is open: nothing to change
    spans = [(row.price, row.started, row.ended) for row in store.intervals("train")]
    assert spans == [(1.0, 1000.0, 1100.0), (2.0, 1100.0, 1300.0)]


def test_reopening_never_bills_twice(store: Store) -> None:
    first = store.begin_interval(CLUSTER.id, 1.0, 1000.0)
    second = store.begin_interval(CLUSTER.id, 1.0, 1200.0)
    assert first != second
    spans = [(row.started, row.ended) for row in store.intervals()]
    assert spans == [(1000.0, 1200.0), (1200.0, None)]


def test_launch_is_recorded_once(store: Store) -> None:
    up = replace(CLUSTER, machines=[{"id": "i-9"}])
    assert store.record_launch(up, 1000.0) and store.record_launch(up, 1200.0)
    assert [(row.started, row.ended) for row in store.intervals()] == [(1000.0, None)]
    assert store.clusters()[0].machines == [{"id": "i-9"}]
    store.end_cluster(CLUSTER.id, "down", 1300.0)
    assert not store.record_launch(up, 1400.0), "it has ended"
    assert [row.ended for row in store.intervals()] == [1300.0]


def test_first_of_two_ends_counts(store: Store) -> None:
    store.begin_interval(CLUSTER.id, 1.0, 1000.0)
    store.begin_run(RUN)
    assert store.end_cluster(CLUSTER.id, "lost", 1500.0, "preempted")
    assert not store.end_cluster(CLUSTER.id, "down", 9000.0, "it was ended")
    row = store.cluster("train")
    assert row and (row.state, row.note) == ("lost", "preempted")
    assert [(row.ended, row.bounded) for row in store.intervals()] == [(1500.0, False)]
    run = store.run("r1")
    assert run and (run.status, run.ended) == ("lost", 1000.0)
    assert not store.save_cluster(CLUSTER), "what has ended is not up again"
    row = store.cluster("train")
    assert row and row.state == "lost"
    store.record_heartbeat(CLUSTER.id, 9500.0)
    assert store.intervals()[0].last_beat == 1000.0


def test_end_of_a_cluster_leaves_the_next_of_its_name_alone(store: Store) -> None:
    """Another process may see late that the cluster before has ended: SSH to it takes 25 s."""
    store.begin_interval(CLUSTER.id, 1.0, 1000.0)
    store.end_cluster(CLUSTER.id, "down", 1500.0)
    new = replace(CLUSTER, created=2000.0, price=98.32)
    store.save_cluster(new)
    store.begin_interval(new.id, 98.32, 2000.0)
    store.begin_run(replace(RUN, started=2100.0))

    assert not store.end_cluster(CLUSTER.id, "lost", 2200.0, "the cloud no longer knows it")
    store.move_end_earlier(CLUSTER.id, 1400.0)
    store.record_heartbeat(CLUSTER.id, 2300.0)
    store.keep_cluster_until(CLUSTER.id, 9000.0)
    assert [row.name for row in store.clusters()] == ["train"]
    spans = [(row.cluster_created, row.ended, row.last_beat) for row in store.intervals()]
    assert spans == [(1000.0, 1400.0, 1000.0), (2000.0, None, 2000.0)]
    run, row = store.run("r1"), store.cluster("train")
    assert run and run.status == "running" and row and row.kept == 0.0


def test_runs_of_the_session_that_ends_a_cluster_are_left_to_it(store: Store) -> None:
    store.begin_run(RUN)
    store.end_cluster(CLUSTER.id, "down", 1500.0, session="s1")
    run = store.run("r1")
    assert run and run.status == "running"


def test_an_end_is_only_ever_made_earlier(store: Store) -> None:
    store.begin_interval(CLUSTER.id, 1.0, 1000.0)
    store.end_cluster(CLUSTER.id, "lost", 5000.0, bounded=True)
    assert [(row.ended, row.bounded) for row in store.intervals()] == [(5000.0, True)]
    store.move_end_earlier(CLUSTER.id, 9000.0)
    assert [row.ended for row in store.intervals()] == [5000.0]
    store.move_end_earlier(CLUSTER.id, 1600.0)
    assert [(row.ended, row.bounded) for row in store.intervals()] == [(1600.0, False)]


def test_interval_of_an_unknown_cluster_is_refused(store: Store) -> None:
    with pytest.raises(SkyStoreError, match="no cluster named nobody"):
        store.begin_interval(ClusterId("nobody", 1.0), 1.0, 1000.0)
    assert store.intervals() == []


def test_only_a_cluster_without_a_bill_can_be_dropped(store: Store) -> None:
    starting = replace(CLUSTER, name="late", state="starting")
    store.save_cluster(starting)
    assert store.delete_cluster(starting.id) and store.cluster("late") is None
    store.save_cluster(starting)
    store.record_launch(starting, 1000.0)
    assert not store.delete_cluster(starting.id) and store.cluster("late")


def test_runs_are_found_latest_first(store: Store) -> None:
    for n in range(5):
        run = replace(RUN, run_id=f"r{n}", started=1000.0 + n, code="y" * 5000)
        store.begin_run(replace(run, notebook="b.ipynb" if n == 4 else "a.ipynb"))
    store.end_run("r1", "error", 1010.0)
    assert [run.run_id for run in store.runs()] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run.run_id for run in store.runs("a.ipynb", limit=2)] == ["r3", "r2"]
    assert [run.run_id for run in store.runs("a.ipynb", "train", "error")] == ["r1"]
    assert store.runs(cluster="other") == []
    assert [run.run_id for run in store.runs(guests_only=True, limit=None)] == ["r4"]
    (latest, *_) = store.runs("a.ipynb")
    assert latest.run_id == "r3" and latest.code == "y" * 2000


def test_unsent_runs_are_listed_only_on_request(store: Store) -> None:
    waiting = replace(RUN, status="waiting", cluster="", nodes=0, stage="placing", cell_id="c-1")
    store.begin_run(waiting)
    assert store.runs() == store.runs(status="waiting") == []
    assert store.runs(guests_only=True, limit=None) == []
    assert store.runs(unsent=True) == [waiting]
    sent = replace(waiting, status="running", cluster="train", nodes=1, started=1020.0, stage="run")
    store.update_run(sent)
    assert store.runs() == [sent]


def test_stop_request_keeps_its_first_requester(store: Store, tmp_path: Path) -> None:
    store.begin_run(RUN)
    other = Store.open(tmp_path / "data")
    assert store.stop_requests("r1") == store.stop_requests("nobody") == ("", 0)
    other.request_stop("r1", "from there")
    assert store.stop_requests("r1") == ("from there", 1)
    store.update_run(replace(RUN, stage="interrupting"))
    assert store.stop_requests("r1") == ("from there", 1), "what is asked is not overwritten"
    store.end_run("r1", "ok", 1010.0)
    ended = store.run("r1")
    assert ended and ended.stage == "done"
    other.request_stop("r1", "too late")
    assert store.stop_requests("r1") == ("from there", 1)


def test_settings_are_shared_by_processes(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "data")
    assert store.setting("budget") is None
    other.set_setting("budget", "10")
    assert store.setting("budget") == "10"
    other.set_setting("budget", "12.5")
    assert store.setting("budget") == "12.5"
    store.set_setting("budget", None)
    assert other.setting("budget") is None


def test_change_marker_changes_with_writes_only(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "data")
    seen = [store.change_marker()]
    store.runs()
    other.runs()
    assert store.change_marker() == seen[0]
    other.begin_run(RUN)
    seen.append(store.change_marker())
    store.record_run_heartbeat("r1", 1001.0, 0)
    seen.append(store.change_marker())
    assert len(set(seen)) == 3 and store.change_marker() == seen[-1]


def test_runs_of_the_third_schema_have_the_stage_of_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(store_module, "MIGRATIONS", store_module.MIGRATIONS[:3])
        Store.open(tmp_path).close()
    db = sqlite3.connect(tmp_path / "sky.db")
    row = ("a.ipynb", "s1", 7, None, "train", "x = 1", 1.0, 1, 1000.0, 1001.0, 1001.0)
    for status in ("ok", "error", "cancelled", "running"):
        ended = None if status == "running" else 1001.0
        values = (f"r-{status}", *row[:-2], ended, 1001.0, status, 3, 1)
        db.execute(f"INSERT INTO runs VALUES ({', '.join('?' * len(values))})", values)
    db.commit()
    db.close()
    store = Store.open(tmp_path)
    assert {run.status: run.stage for run in store.runs()} == {
        "ok": "done",
        "error": "failed",
        "cancelled": "cancelled",
        "running": "running",
    }
    found = store.run("r-ok")
    assert found and (found.shown, found.cell_id, found.stop) == (3, None, "")
    with monkeypatch.context() as patch:
        newest = len(store_module.MIGRATIONS)
        patch.setattr(store_module, "MIGRATIONS", store_module.MIGRATIONS[:3])
        with pytest.raises(SkyStoreError, match=rf"newer jupyter_sky \(schema {newest}\)"):
            Store.open(tmp_path)


def test_run_of_a_killed_kernel_ends_at_its_last_beat(store: Store) -> None:
    store.begin_run(RUN)
    store.record_run_heartbeat("r1", 1033.0, shown=12)
    store.close_run_at_heartbeat("r1")
    lost = store.run("r1")
    assert lost and (lost.status, lost.ended, lost.shown) == ("lost", 1033.0, 12)
    store.close_run_at_heartbeat("r1", "cancelled")  # has ended already
    assert store.run("r1") == lost
