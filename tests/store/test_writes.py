"""Writes of the store: queued while its file cannot be written, durable, concurrent, quick."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.store.database import Database
from jupyter_sky.base.store.store import Store
from tests.store.rows import CLUSTER, RUN, locked


def test_writes_wait_while_another_process_writes(
    short_lock_timeout: None, store: Store, tmp_path: Path
) -> None:
    mine = Store.open(tmp_path / "data")
    with locked(tmp_path / "data" / "sky.db"):
        mine.begin_run(RUN)
        began = time.monotonic()
        for n in range(5):
            mine.record_run_heartbeat("r1", 1001.0 + n, n)
        # Only the first write waits for the whole timeout of 0.3 s.
        assert time.monotonic() - began < 1.5
        assert len(mine.notices) == 1 and "records wait" in mine.notices[0]
        assert mine.runs() == []  # readers go on with what was committed
    mine.end_run("r1", "ok", 1020.0)
    stored = store.run("r1")
    assert stored and (stored.status, stored.ended, stored.shown) == ("ok", 1020.0, 4)
    assert len(mine.notices) == 1
    mine.close()


def test_queued_writes_are_not_lost_at_closing(short_lock_timeout: None, tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    store.save_cluster(CLUSTER)
    with locked(tmp_path / "sky.db"):
        store.begin_run(RUN)
    store.close()
    assert Store.open(tmp_path).run("r1") == RUN


def test_locked_file_raises_on_reading_and_opening(
    short_lock_timeout: None, tmp_path: Path
) -> None:
    Store.open(tmp_path).close()
    with locked(tmp_path / "sky.db", readers_too=True):
        with pytest.raises(SkyStoreError, match="stayed locked") as caught:
            Store.open(tmp_path)
        assert caught.value.hint and "another process" in caught.value.hint
    store = Store.open(tmp_path)
    assert store.clusters() == []


def test_file_locked_after_opening_raises_on_reading(
    short_lock_timeout: None, tmp_path: Path
) -> None:
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
    short_lock_timeout: None, store: Store, tmp_path: Path
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
    short_lock_timeout: None, store: Store, tmp_path: Path
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


def test_contradictory_queued_write_is_reported_and_skipped(
    short_lock_timeout: None, store: Store, tmp_path: Path
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


def _note(db: Database, text: str) -> None:
    db.write(("INSERT INTO note VALUES (?)", (text,)), durable=text == "durable")


def test_what_a_transaction_writes_is_stored_together_or_not_at_all(tmp_path: Path) -> None:
    db = Database.open(tmp_path / "notes.db", ["CREATE TABLE note (text TEXT UNIQUE)"])

    def write(*texts: str) -> int:
        for text in texts:
            _note(db, text)
        return len(db.read("SELECT * FROM note"))

    assert db.transact(lambda _db: write("plain", "durable")) == 2, "it reads what it has written"
    with pytest.raises(sqlite3.IntegrityError):
        db.transact(lambda _db: write("other", "plain"))
    with pytest.raises(ZeroDivisionError):
        db.transact(lambda _db: write("another") / 0)
    assert write("last") == 3, "later writes are their own"
    db.close()
    again = Database.open(tmp_path / "notes.db", ["CREATE TABLE note (text TEXT UNIQUE)"])
    assert {row["text"] for row in again.read("SELECT * FROM note")} == {"plain", "durable", "last"}
    again.close()
