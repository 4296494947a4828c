"""File of a database: opened, migrated, set aside when corrupt, read when it cannot be written."""

from __future__ import annotations

import os
import secrets
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.store import sqlite_errors
from jupyter_sky.base.store.sqlite_errors import BUSY_CODES, CORRUPT_CODES, primary_code
from jupyter_sky.base.translation import _

_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "cifs",
    "smb",
    "lustre",
    "gpfs",
    "afs",
    "ceph",
    "beegfs",
    "9p",
    "fuse.",
    "glusterfs",
)
"""File systems, by the beginnings of their names, on which processes cannot share memory: SQLite's
WAL needs that (sqlite.org/wal.html: "all processes using a database must be on the same host")."""


def open_file(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    """Open the file; SQLite does not wait by itself while a journal changes to WAL."""
    deadline = time.monotonic() + sqlite_errors.LOCK_TIMEOUT_SECONDS
    while True:
        try:
            return _open(path, migrations)
        except sqlite3.Error as error:
            if primary_code(error) not in BUSY_CODES or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _open(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _create(path)
    db = _connect(str(path))
    try:
        _refuse_newer(db, path, migrations)
        result = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if result != "ok":
            broken = sqlite3.DatabaseError(result)
            broken.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise broken
        os.chmod(path, 0o600)
        mode = "DELETE" if is_on_network(path) else "WAL"
        db.execute(f"PRAGMA journal_mode = {mode}")
        db.execute("PRAGMA synchronous = NORMAL")
        _migrate(db, migrations)
    except BaseException:
        db.close()
        raise
    return db


def _create(path: Path) -> None:
    """Make the file, private from its first moment; one that is there is not touched.

    POSIX drops all of a process's locks on a file when it closes any handle of it. Without its
    locks a connection of ours would lose its journal to the next process that closes the file.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass


def _connect(path: str, uri: bool = False) -> sqlite3.Connection:
    return sqlite3.connect(
        path,
        timeout=sqlite_errors.LOCK_TIMEOUT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        uri=uri,
    )


def _version(db: sqlite3.Connection) -> int:
    return db.execute("PRAGMA user_version").fetchone()[0]


def _refuse_newer(db: sqlite3.Connection, path: Path, migrations: Sequence[str]) -> None:
    if _version(db) > len(migrations):
        raise SkyStoreError(
            _("{path} was written by a newer jupyter_sky (schema {db})").format(
                path=path, db=_version(db)
            ),
            hint=_("upgrade with: pip install -U jupyter_sky"),
        )


def _migrate(db: sqlite3.Connection, migrations: Sequence[str]) -> None:
    if _version(db) == len(migrations):
        return
    with db:
        db.execute("BEGIN IMMEDIATE")
        # The version is read inside the transaction: another process may have been first.
        for script in migrations[_version(db) :]:
            for sql in script.split(";"):
                db.execute(sql)
        db.execute(f"PRAGMA user_version = {len(migrations)}")


def is_on_network(path: Path) -> bool:
    """Whether a file is on a disk that other machines may share."""
    import psutil

    try:
        resolved = path.resolve()
        mounts = psutil.disk_partitions(all=True)
    except (OSError, RuntimeError):
        return False
    holding = [mount for mount in mounts if resolved.is_relative_to(mount.mountpoint)]
    nearest = max(holding, key=lambda mount: len(mount.mountpoint), default=None)
    return nearest is not None and nearest.fstype.lower().startswith(_NETWORK_FILE_SYSTEMS)


def file_id(path: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which differ once another takes its place."""
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_dev, info.st_ino


def replace_corrupt_file(
    path: Path, migrations: Sequence[str]
) -> tuple[sqlite3.Connection, Path | None]:
    """Set a corrupt file aside and open a new one, unless another process was first.

    Returns
    -------
    tuple
        The connection, and where the corrupt file went; None where another process moved it.
    """
    import fcntl

    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:  # with the lock: it may be another file by now
            return open_file(path, migrations), None
        except sqlite3.DatabaseError as error:
            if primary_code(error) not in CORRUPT_CODES:
                raise
        kept = _set_aside(path)
        return open_file(path, migrations), kept
    finally:
        os.close(lock)


def _set_aside(path: Path) -> Path:
    """Rename a broken file with its journal, and say where it went."""
    stem = f"{path.name}.broken-{time.strftime('%Y%m%d-%H%M%S')}"
    kept = path.with_name(stem)
    while kept.exists():
        kept = path.with_name(f"{stem}-{secrets.token_hex(2)}")
    for suffix in ("-wal", "-shm", ""):
        if (part := Path(f"{path}{suffix}")).exists():
            part.rename(f"{kept}{suffix}")
    return kept


def open_in_memory(path: Path, migrations: Sequence[str]) -> sqlite3.Connection:
    """Return a database in memory with the readable contents of the unwritable file."""
    memory = _connect(":memory:")
    try:
        # A directory that cannot be written has no place for a WAL index, hence immutable.
        disk = _connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            disk.backup(memory)
        finally:
            disk.close()
        _refuse_newer(memory, path, migrations)
    except sqlite3.Error:
        memory.close()
        memory = _connect(":memory:")
    _migrate(memory, migrations)
    return memory
