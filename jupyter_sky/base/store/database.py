"""SQLite database whose writes wait in memory when the file cannot be written.

Several kernels and the command line share one file. Losing a record is bad, stopping a user's cell
for the sake of a record is worse: what cannot be written now is queued in memory. A record without
which money could be lost is written durably or refused.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.translation import _

_RETRY_SECONDS = 0.05  # that one statement waits while writes are queued already
_MAX_NOTICES = 100

Statement = tuple[str, tuple[Any, ...] | dict[str, Any]]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    """Statements of one transaction that wait to be written."""

    statements: tuple[Statement, ...]
    latest: str = ""
    """Of several jobs of one such name only the last one matters."""


class Database:
    """One connection, guarded by a lock, to a file in WAL mode.

    Attributes
    ----------
    notices : list of str
        Sentences for the user about what went wrong at opening or writing.
    durable : bool
        Whether the data are in a file; otherwise they end with this process.

    Examples
    --------
    >>> db = Database.open(Path("notes.db"), ["CREATE TABLE note (text)"])  # doctest: +SKIP
    >>> db.write(("INSERT INTO note VALUES (?)", ("warm",)))  # doctest: +SKIP
    >>> [row["text"] for row in db.read("SELECT * FROM note")]  # doctest: +SKIP
    ['warm']
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        notices: Sequence[str] = (),
        durable: bool = True,
        path: Path | None = None,
        migrations: Sequence[str] = (),
    ) -> None:
        self.notices, self.durable = list(notices), durable
        self._path, self._migrations = path, migrations
        self._use(connection)
        self._lock = threading.RLock()
        self._pending: list[_PendingWrite] = []
        self._warned = False

    def _use(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._db.row_factory = sqlite3.Row
        self._file = file_id(self._path) if self._path and self.durable else None

    @classmethod
    def open(cls, path: Path, migrations: Sequence[str]) -> Database:
        """Open or create the file; ``PRAGMA user_version`` counts the `migrations` applied.

        A corrupt file is renamed and a new one started; where nothing can be written the data live
        in memory. Both are told in ``notices``.

        Raises
        ------
        SkyStoreError
            When another process holds the file locked, or a newer version wrote it.
        """
        notices: list[str] = []
        durable = True
        try:
            try:
                connection = open_file(path, migrations)
            except sqlite3.DatabaseError as error:
                if primary_code(error) not in CORRUPT_CODES:
                    raise
                connection, kept = replace_corrupt_file(path, migrations)
                if kept is not None:
                    notices.append(
                        f"{path} was corrupt: it is kept as {kept} and a new one is used."
                    )
        except (OSError, sqlite3.Error) as error:
            if isinstance(error, sqlite3.Error) and primary_code(error) not in UNWRITABLE_CODES:
                raise store_error(error, str(path)) from error
            connection, durable = open_in_memory(path, migrations), False
            notices.append(f"{path} cannot be written: costs of this session are not recorded.")
        return cls(connection, notices, durable, path, migrations)

    def close(self) -> None:
        """Try the queued writes once more and close the file."""
        with self._lock:
            self._flush()
            self._db.close()

    def read(self, sql: str, values: tuple[Any, ...] | dict[str, Any] = ()) -> list[sqlite3.Row]:
        """Return the rows of a query, after the queued writes if these are possible again.

        Raises
        ------
        SkyStoreError
            When the file cannot be read, for one because it stays locked.
        """
        with self._lock:
            self._flush()
            self._reopen_replaced()
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise store_error(error) from error

    def change_marker(self) -> str:
        """Return a marker that changes with every write of any process.

        It compares within the life of this object only, and costs no look at the data.
        """
        with self._lock:
            try:
                others = self._db.execute("PRAGMA data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise store_error(error) from error
            return f"{others}.{self._db.total_changes}"

    def write(
        self, *statements: Statement, durable: bool = False, latest: str = ""
    ) -> list[int] | None:
        """Execute statements in one transaction, now or as soon as the file can be written.

        Parameters
        ----------
        durable
            Return only once the statements are on the disk.
        latest
            A name: of several queued writes of one name only the last one is kept.

        Returns
        -------
        list of int or None
            Rows that each statement changed; None when they wait in the queue.

        Raises
        ------
        SkyStoreError
            A durable write is not possible now; it is not queued either.
        sqlite3.IntegrityError
            When the statements contradict what is stored.
        """
        if durable:
            return self.transact(lambda db: _execute(db, statements))
        with self._lock:
            job = _PendingWrite(statements, latest)
            if latest:
                self._pending = [old for old in self._pending if old.latest != latest]
            self._pending.append(job)
            return self._flush(job)

    def write_later(self, *statements: Statement) -> None:
        """Execute statements together with whatever is read or written next."""
        with self._lock:
            self._pending.append(_PendingWrite(statements))

    def transact(self, work: Callable[[sqlite3.Connection], _T], durable: bool = True) -> _T:
        """Run `work` in one transaction that is on the disk when this returns.

        Without `durable` a power cut may take it back, with all that was written after it; the end
        of this process does not. The next durable write brings it to the disk, too.

        No other process reads or writes between its statements. What is queued is written before.
        What `work` itself reads and writes with this object is part of the transaction.

        Raises
        ------
        SkyStoreError
            It is not possible now, or the data are in memory only; nothing was done.
        sqlite3.IntegrityError
            When the statements contradict what is stored.
        """
        with self._lock:
            if not self.durable:
                raise unrecorded_error("it is in memory only")
            self._flush()
            if self._pending:
                raise unrecorded_error("earlier records wait too")
            if self._db.in_transaction:  # of a `work` that has called this
                return work(self._db)
            try:
                # a power cut may take back what was committed without this
                if durable:
                    self._db.execute("PRAGMA synchronous = FULL")
                try:
                    with self._transaction():
                        result = work(self._db)
                        if self._pending:
                            raise unrecorded_error("a record could not be written")
                        return result
                finally:
                    self._db.execute("PRAGMA synchronous = NORMAL")
            except sqlite3.IntegrityError:
                raise
            except sqlite3.Error as error:
                raise unrecorded_error(str(error)) from error

    def _flush(self, current: _PendingWrite | None = None) -> list[int] | None:
        """Write what is queued, in order, up to where the disk or another process refuses."""
        if not self._pending:
            return None
        counts: list[int] | None = None
        retrying = self._pending[0] is not current
        self._reopen_replaced()
        if retrying:  # a store that stays locked must not slow every heartbeat down
            self._db.execute(_busy_timeout(_RETRY_SECONDS))
        try:
            while self._pending:
                job = self._pending[0]
                try:
                    with self._transaction():
                        changed = _execute(self._db, job.statements)
                except sqlite3.Error as error:
                    if primary_code(error) in BUSY_CODES | UNWRITABLE_CODES:
                        self._warn(error)
                        return None
                    del self._pending[0]
                    self._refuse(error, job is current)
                else:
                    del self._pending[0]
                    counts = changed if job is current else counts
        finally:
            if retrying:
                self._db.execute(_busy_timeout(LOCK_TIMEOUT_SECONDS))
        return counts

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._db.in_transaction:
            yield
            return
        with self._db:  # commits, or rolls back on an error
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def _reopen_replaced(self) -> None:
        """Open the file anew when another process has put a new one in its place."""
        if self._file is None or self._path is None or self._db.in_transaction:
            return
        if file_id(self._path) == self._file:
            return
        try:
            fresh = open_file(self._path, self._migrations)
        except (OSError, sqlite3.Error):
            return  # the old file is all there is
        self._db.close()
        self._use(fresh)
        self._add_notice(f"{self._path} was replaced: the new file is used.")

    def _warn(self, error: sqlite3.Error) -> None:
        if not self._warned:
            self._warned = True
            self._add_notice(f"The store cannot be written now ({error}): its records wait.")

    def _refuse(self, error: sqlite3.Error, mine: bool) -> None:
        """Raise the error of a write; one that an earlier call has queued only gets a notice."""
        if not mine:
            self._add_notice(f"A record could not be kept: {error}.")
            return
        raise error if isinstance(error, sqlite3.IntegrityError) else store_error(error)

    def _add_notice(self, notice: str) -> None:
        if len(self.notices) < _MAX_NOTICES:
            self.notices.append(notice)


def _busy_timeout(seconds: float) -> str:
    return f"PRAGMA busy_timeout = {int(seconds * 1000)}"


def _execute(db: sqlite3.Connection, statements: Sequence[Statement]) -> list[int]:
    return [db.execute(sql, values).rowcount for sql, values in statements]


# -- File of a database: opened, migrated, set aside when corrupt, read when it cannot be ---------

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
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
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
        timeout=LOCK_TIMEOUT_SECONDS,
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


# -- Errors of SQLite: their codes, and the errors that users are shown in their place ------------

LOCK_TIMEOUT_SECONDS = 3.0
"""Time that one statement waits for another process."""
CORRUPT_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
UNWRITABLE_CODES = {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
}


def primary_code(error: sqlite3.Error) -> int:
    """Return the primary result code, which is the low byte of an extended one."""
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def unrecorded_error(why: str) -> SkyStoreError:
    """Return the error of a durable write that is not possible now."""
    return SkyStoreError(
        _(
            "the store cannot be written now ({why}); what costs money is not started unrecorded"
        ).format(why=why),
        hint=_(
            "make room on its disk, close what holds it, or set another folder: SKY_DATA_DIR=..."
        ),
    )


def store_error(error: sqlite3.Error, where: str = "the store") -> SkyStoreError:
    """Return the error that users are shown in place of one of SQLite's."""
    if primary_code(error) in BUSY_CODES:
        hint = "another process holds it: close that one or try again"
        return SkyStoreError(
            _("{where} stayed locked for {lock_timeout_seconds:.0f} s").format(
                where=where, lock_timeout_seconds=LOCK_TIMEOUT_SECONDS
            ),
            hint=hint,
        )
    if primary_code(error) in CORRUPT_CODES:
        hint = "restart the kernel: the broken file is kept and a new one started"
        return SkyStoreError(
            _("{where} is corrupt: {error}").format(where=where, error=error), hint=hint
        )
    return SkyStoreError(f"{where}: {error}")
