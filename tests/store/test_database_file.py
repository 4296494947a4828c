"""File of the store: its modes, damage to it, and places where it cannot be written."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.store import database
from jupyter_sky.base.store import database as database_file
from jupyter_sky.base.store.store import Store
from tests.store.rows import CLUSTER, RUN


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


def test_two_processes_that_find_a_corrupt_file_share_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sky.db").write_bytes(b"not a database at all" * 100)
    both, first = threading.Barrier(2), threading.Event()
    replace_corrupt = database.replace_corrupt_file

    def slowly(*args: Any) -> Any:
        both.wait()  # both have seen that it is corrupt
        if threading.current_thread().name == "second":
            first.wait()
        return replace_corrupt(*args)

    monkeypatch.setattr(database, "replace_corrupt_file", slowly)
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
    assert database_file.is_on_network(Path("/home/ada/sky/sky.db")) is network
    monkeypatch.setattr(database_file, "is_on_network", lambda path: network)
    store = Store.open(tmp_path)
    mode = store._db._db.execute("PRAGMA journal_mode").fetchone()[0]
    assert mode == ("delete" if network else "wal")
    store.save_cluster(CLUSTER, durable=True)
    store.close()
