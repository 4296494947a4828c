"""The store on real files: what is kept, and what happens when the file is not as it should be."""

from __future__ import annotations

import json
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.errors import SkyStoreError
from jupyter_sky.remote import processes
from jupyter_sky.store import database
from jupyter_sky.store import store as store_module
from jupyter_sky.store.store import ClusterId, ClusterRow, RunRow, Store

MINE = json.dumps(processes.identity())
GONE = json.dumps(processes.identity() | {"pid": 2**22 + 1})
CLUSTER = ClusterRow(
    name="train",
    state="up",
    cloud="aws",
    region="us-east-1",
    instance_type="g5.xlarge",
    spot=True,
    price=1.0,
    nodes=1,
    resources="--gpus A10G:1 --spot",
    offer={"vcpus": 4},
    machines=[{"id": "i-1"}],
    connection={"file": "c.json"},
    notebook="a.ipynb",
    created=1000.0,
    idle=600.0,
    price_source="catalog",
    price_date="2026-01-01",
)
RUN = RunRow(
    run_id="r1",
    notebook="a.ipynb",
    session="s1",
    cell=7,
    name=None,
    cluster="train",
    code="x = 1",
    price=1.0,
    nodes=1,
    started=1000.0,
    ended=None,
    last_beat=1000.0,
    status="running",
    shown=0,
)

# Holds the file locked until a line arrives on its standard input.
_LOCKER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(sys.argv[2])
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
db.close()
"""


@contextmanager
def locked(path: Path, readers_too: bool = False) -> Iterator[None]:
    pragma = f"PRAGMA locking_mode = {'EXCLUSIVE' if readers_too else 'NORMAL'}"
    command = [sys.executable, "-c", _LOCKER, str(path), pragma]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout
    try:
        assert process.stdout.readline() == "locked\n"
        yield
    finally:
        process.communicate("\n", timeout=20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "data")
    store.save_cluster(CLUSTER)
    yield store
    store.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_TIMEOUT", 0.3)


def test_rows_come_back_as_they_went_in(store: Store) -> None:
    store.begin_run(RUN)
    assert store.cluster("train") == CLUSTER
    assert store.run("r1") == RUN
    assert store.cluster("other") is None and store.run("r2") is None
    assert store.notices == []


def test_file_is_private_and_in_wal_mode(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    store = Store.open(directory)
    store.save_cluster(CLUSTER)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert set(modes) == {"sky.db", "sky.db-wal", "sky.db-shm"}
    assert set(modes.values()) == {0o600}
    store.close()


_READER = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
print(db.execute("SELECT count(*) FROM runs").fetchone()[0])
db.close()
"""


def test_two_stores_of_a_process_keep_their_journal_from_others(
    store: Store, tmp_path: Path
) -> None:
    """Opening the second must not drop the locks of the first.

    Without them, another process that reads and closes the file takes itself for the last user and
    removes the journal that the first store goes on writing to.
    """

    def runs() -> int:
        command = [sys.executable, "-c", _READER, str(tmp_path / "data" / "sky.db")]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    second = Store.open(tmp_path / "data")
    assert runs() == 0
    store.begin_run(RUN)
    assert runs() == 1
    second.begin_run(replace(RUN, run_id="r2"))
    assert runs() == 2 and len(store.runs()) == 2
    second.close()


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
        run = replace(RUN, run_id=f"r{n}", started=1000.0 + n, code="y" * 500)
        store.begin_run(replace(run, notebook="b.ipynb" if n == 4 else "a.ipynb"))
    store.end_run("r1", "error", 1010.0)
    assert [run.run_id for run in store.runs()] == ["r4", "r3", "r2", "r1", "r0"]
    assert [run.run_id for run in store.runs("a.ipynb", limit=2)] == ["r3", "r2"]
    assert [run.run_id for run in store.runs("a.ipynb", "train", "error")] == ["r1"]
    assert store.runs(cluster="other") == []
    assert [run.run_id for run in store.runs(guests_only=True, limit=None)] == ["r4"]
    (latest, *_) = store.runs("a.ipynb")
    assert latest.run_id == "r3" and latest.code == "y" * 200


def test_unsent_runs_are_listed_only_on_request(store: Store) -> None:
    waiting = replace(RUN, status="waiting", cluster="", nodes=0, stage="placing", cell_id="c-1")
    store.begin_run(waiting)
    assert store.runs() == store.runs(status="waiting") == []
    assert store.runs(guests_only=True, limit=None) == []
    assert store.runs(unsent=True) == [waiting]
    sent = replace(waiting, status="running", cluster="train", nodes=1, started=1020.0, stage="run")
    store.update_run(sent)
    assert store.runs() == [sent]


def test_a_run_is_told_who_wants_it_to_stop(store: Store, tmp_path: Path) -> None:
    store.begin_run(RUN)
    other = Store.open(tmp_path / "data")
    assert store.stop_requester("r1") == "" and store.stop_requester("nobody") == ""
    other.request_stop("r1", "from there")
    assert store.stop_requester("r1") == "from there"
    store.update_run(replace(RUN, stage="interrupting"))
    assert store.stop_requester("r1") == "from there", "what is asked is not overwritten"
    store.end_run("r1", "ok", 1010.0)
    ended = store.run("r1")
    assert ended and ended.stage == "done"
    other.request_stop("r1", "too late")
    assert store.stop_requester("r1") == "from there"


def test_settings_are_shared_by_processes(store: Store, tmp_path: Path) -> None:
    other = Store.open(tmp_path / "data")
    assert store.setting("budget") is None
    other.set_setting("budget", "10")
    assert store.setting("budget") == "10"
    other.set_setting("budget", "12.5")
    assert store.setting("budget") == "12.5"
    store.set_setting("budget", None)
    assert other.setting("budget") is None


def test_changes_of_any_process_are_seen_and_looking_is_none(store: Store, tmp_path: Path) -> None:
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
        patch.setattr(store_module, "MIGRATIONS", store_module.MIGRATIONS[:3])
        with pytest.raises(SkyStoreError, match=r"newer jupyter_sky \(schema 5\)"):
            Store.open(tmp_path)


def test_run_of_a_killed_kernel_ends_at_its_last_beat(store: Store) -> None:
    store.begin_run(RUN)
    store.record_run_heartbeat("r1", 1033.0, shown=12)
    store.close_run_at_heartbeat("r1")
    lost = store.run("r1")
    assert lost and (lost.status, lost.ended, lost.shown) == ("lost", 1033.0, 12)
    store.close_run_at_heartbeat("r1", "cancelled")  # has ended already
    assert store.run("r1") == lost


@pytest.mark.parametrize("damage", ["garbage", "page"])
def test_corrupt_file_is_kept_and_a_new_one_started(tmp_path: Path, damage: str) -> None:
    store = Store.open(tmp_path)
    store.save_cluster(CLUSTER)
    store.close()
    path = tmp_path / "sky.db"
    good = path.read_bytes()
    broken = b"not a database" * 500 if damage == "garbage" else good[:4096] + b"\xff" * 4096
    path.write_bytes(broken + good[len(broken) :])

    store = Store.open(tmp_path)
    (kept,) = tmp_path.glob("sky.db.broken-*")
    assert kept.read_bytes().startswith(broken)
    assert len(store.notices) == 1 and str(kept) in store.notices[0]
    assert store.clusters(live_only=False) == []
    store.save_cluster(CLUSTER)
    store.close()
    assert Store.open(tmp_path).cluster("train") == CLUSTER


def test_two_broken_files_in_one_second_are_both_kept(tmp_path: Path) -> None:
    for content in (b"first" * 999, b"second" * 999):
        (tmp_path / "sky.db").write_bytes(content)
        Store.open(tmp_path).close()
    kept = {path.read_bytes() for path in tmp_path.glob("sky.db.broken-*")}
    assert kept == {b"first" * 999, b"second" * 999}


def test_newer_store_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "sky.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE future (x)")
    db.execute("PRAGMA user_version = 99")
    db.close()
    before = path.read_bytes()
    with pytest.raises(SkyStoreError, match=r"newer jupyter_sky \(schema 99\)") as caught:
        Store.open(tmp_path)
    assert caught.value.hint and "upgrade" in caught.value.hint
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["sky.db"]


def test_directory_that_cannot_be_made_gives_a_store_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store.open(tmp_path / "file" / "data")
    assert len(store.notices) == 1 and "costs of this session are not recorded" in store.notices[0]
    store.save_cluster(CLUSTER)
    store.begin_run(RUN)
    assert store.cluster("train") == CLUSTER and store.run("r1") == RUN


@contextmanager
def unprivileged() -> Iterator[None]:
    """Nobody's rights while it lasts, because chmod does not stop root."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(me)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="needs POSIX users")
def test_read_only_file_is_read_but_not_recorded_in() -> None:
    # Not in tmp_path: nobody else may enter its parents.
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        store = Store.open(directory)
        store.save_cluster(CLUSTER)
        store.close()
        before = (directory / "sky.db").read_bytes()
        (directory / "sky.db").chmod(0o444)
        directory.chmod(0o555)
        with unprivileged():
            store = Store.open(directory)
            store.begin_run(RUN)
        assert "costs of this session are not recorded" in store.notices[0]
        assert store.cluster("train") == CLUSTER
        assert store.run("r1") == RUN
        assert (directory / "sky.db").read_bytes() == before
        directory.chmod(0o755)


def test_writes_wait_while_another_process_writes(
    impatient: None, store: Store, tmp_path: Path
) -> None:
    mine = Store.open(tmp_path / "data")
    with locked(tmp_path / "data" / "sky.db"):
        mine.begin_run(RUN)
        began = time.monotonic()
        for n in range(5):
            mine.record_run_heartbeat("r1", 1001.0 + n, n)
        # Only the first write waits for the whole timeout.
        assert time.monotonic() - began < 1.0
        assert len(mine.notices) == 1 and "records wait" in mine.notices[0]
        assert mine.runs() == []  # readers go on with what was committed
    mine.end_run("r1", "ok", 1020.0)
    stored = store.run("r1")
    assert stored and (stored.status, stored.ended, stored.shown) == ("ok", 1020.0, 4)
    assert len(mine.notices) == 1
    mine.close()


def test_queued_writes_are_not_lost_at_closing(impatient: None, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save_cluster(CLUSTER)
    with locked(tmp_path / "sky.db"):
        store.begin_run(RUN)
    store.close()
    assert Store.open(tmp_path).run("r1") == RUN


def test_locked_file_raises_on_reading_and_opening(impatient: None, tmp_path: Path) -> None:
    Store.open(tmp_path).close()
    with locked(tmp_path / "sky.db", readers_too=True):
        with pytest.raises(SkyStoreError, match="stayed locked") as caught:
            Store.open(tmp_path)
        assert caught.value.hint and "another process" in caught.value.hint
    store = Store.open(tmp_path)
    assert store.clusters() == []


def test_file_locked_after_opening_raises_on_reading(impatient: None, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    # Outside WAL mode an exclusive transaction keeps readers out as well.
    store._db._db.execute("PRAGMA journal_mode = DELETE")
    with locked(tmp_path / "sky.db"):
        with pytest.raises(SkyStoreError, match="stayed locked"):
            store.clusters()
        store.save_cluster(CLUSTER)
    assert store.cluster("train") == CLUSTER


def test_writes_wait_for_room_on_the_disk(store: Store) -> None:
    connection = store._db._db
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    for n in range(200):
        store.begin_run(replace(RUN, run_id=f"r{n}", code="y" * 200))
    assert any("full" in notice for notice in store.notices)
    assert len(store.notices) == 1
    connection.execute("PRAGMA max_page_count = 100000")
    assert len(store.runs(limit=None)) == 200


def test_durable_write_is_refused_while_another_process_writes(
    impatient: None, store: Store, tmp_path: Path
) -> None:
    """Two notebooks that launch one name must not both go on to pay for it."""
    mine = Store.open(tmp_path / "data")
    new = replace(CLUSTER, name="dear", state="starting")
    path = tmp_path / "data" / "sky.db"
    with locked(path), pytest.raises(SkyStoreError, match="not started unrecorded"):
        mine.save_cluster(new, durable=True)
    assert mine.starting_clusters() == [], "what was refused is not written later"
    mine.save_cluster(new, durable=True)
    with pytest.raises(SkyStoreError, match="dear is up already"):
        store.save_cluster(replace(new, created=1001.0), durable=True)
    mine.close()


def test_durable_write_is_refused_on_a_full_disk(store: Store) -> None:
    connection = store._db._db
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    big = replace(CLUSTER, name="dear", state="starting", resources="x" * 100_000)
    with pytest.raises(SkyStoreError, match="full"):
        store.save_cluster(big, durable=True)
    assert store.starting_clusters() == []


def test_durable_write_is_refused_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store.open(tmp_path / "file" / "data")
    with pytest.raises(SkyStoreError, match="in memory only") as caught:
        store.save_cluster(CLUSTER, durable=True)
    assert caught.value.hint and "SKY_DATA_DIR" in caught.value.hint


def test_queue_keeps_the_latest_sign_of_life_only(
    impatient: None, store: Store, tmp_path: Path
) -> None:
    mine = Store.open(tmp_path / "data")
    mine.begin_run(RUN)
    mine.begin_interval(CLUSTER.id, 1.0, 1000.0)
    with locked(tmp_path / "data" / "sky.db"):
        for n in range(20):
            mine.record_heartbeat(CLUSTER.id, 1001.0 + n)
            mine.record_run_heartbeat("r1", 1001.0 + n, n)
        assert len(mine._db._pending) == 2
    assert mine.intervals()[0].last_beat == 1020.0
    run = mine.run("r1")
    assert run and run.shown == 19
    mine.close()


def test_two_processes_that_find_a_corrupt_file_share_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sky.db").write_bytes(b"not a database at all" * 100)
    both, first = threading.Barrier(2), threading.Event()
    replace_corrupt = database._replace_corrupt

    def slowly(*args: Any) -> Any:
        both.wait()  # both have seen that it is corrupt
        if threading.current_thread().name == "second":
            first.wait()
        return replace_corrupt(*args)

    monkeypatch.setattr(database, "_replace_corrupt", slowly)
    opened: dict[str, Store] = {}

    def go() -> None:
        opened[threading.current_thread().name] = Store.open(tmp_path)
        first.set()

    threads = [threading.Thread(target=go, name=name) for name in ("first", "second")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    opened["first"].set_setting("budget_usd_day", "20")
    assert opened["second"].setting("budget_usd_day") == "20"
    assert len(list(tmp_path.glob("sky.db.broken-*"))) == 1
    for store in opened.values():
        store.close()


def test_file_that_was_replaced_is_followed(store: Store, tmp_path: Path) -> None:
    for path in (tmp_path / "data").glob("sky.db*"):
        path.unlink()
    other = Store.open(tmp_path / "data")
    other.set_setting("budget", "10")
    assert store.setting("budget") == "10"
    assert any("was replaced" in notice for notice in store.notices)
    other.close()


@pytest.mark.parametrize(
    ("mounts", "network"),
    [
        ([("/", "ext4"), ("/home", "nfs4")], True),
        ([("/", "ext4"), ("/home", "fuse.sshfs")], True),
        ([("/", "nfs4"), ("/home", "xfs")], False),
        ([("/", "ext4"), ("/homework", "nfs")], False),
    ],
)
def test_no_shared_memory_on_network_disks(
    mounts: list[tuple[str, str]], network: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from types import SimpleNamespace

    import psutil

    parts = [SimpleNamespace(mountpoint=point, fstype=kind) for point, kind in mounts]
    monkeypatch.setattr(psutil, "disk_partitions", lambda all: parts)
    assert database.is_on_network(Path("/home/ada/sky/sky.db")) is network
    monkeypatch.setattr(database, "is_on_network", lambda path: network)
    store = Store.open(tmp_path)
    mode = store._db._db.execute("PRAGMA journal_mode").fetchone()[0]
    assert mode == ("delete" if network else "wal")
    store.save_cluster(CLUSTER, durable=True)
    store.close()


def test_late_capacity_contradiction_is_reported_without_block(
    impatient: None, store: Store, tmp_path: Path
) -> None:
    store.begin_run(RUN)
    mine = Store.open(tmp_path / "data")
    with locked(tmp_path / "data" / "sky.db"):
        mine.begin_run(RUN)  # the same id again, seen only once the lock is gone
        mine.begin_run(replace(RUN, run_id="r2"))
    assert {run.run_id for run in mine.runs()} == {"r1", "r2"}
    assert any("could not be kept" in notice for notice in mine.notices)
    mine.close()


def _write_many(directory: str, notebook: str, count: int) -> None:
    store = Store.open(Path(directory))
    for n in range(count):
        run = replace(RUN, run_id=f"{notebook}-{n}", notebook=notebook, started=1000.0 + n)
        store.begin_run(run)
        store.end_run(run.run_id, "ok", 1001.0 + n)
    store.close()


def _in_processes(target: Callable[..., None], arguments: list[tuple[str, str, int]]) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=target, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_two_processes_make_and_fill_one_store(tmp_path: Path) -> None:
    _in_processes(_write_many, [(str(tmp_path), notebook, 300) for notebook in ("a", "b")])
    store = Store.open(tmp_path)
    ended = store.runs(status="ok", limit=None)
    assert len(ended) == 600
    assert {run.notebook for run in ended} == {"a", "b"}
    assert all(run.ended == run.started + 1 for run in ended)


def test_threads_share_one_store(store: Store) -> None:
    def work(thread: int) -> None:
        for n in range(50):
            store.begin_run(replace(RUN, run_id=f"{thread}-{n}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.runs(limit=None)) == 200


def test_recording_a_run_takes_less_than_a_millisecond(store: Store) -> None:
    seconds = []
    for n in range(200):
        began = time.perf_counter()
        store.begin_run(replace(RUN, run_id=f"r{n}"))
        store.end_run(f"r{n}", "ok", 1001.0)
        seconds.append(time.perf_counter() - began)
    assert sorted(seconds)[100] < 1e-3
