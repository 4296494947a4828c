"""Results that are kept across runs: what each key has given, and the bytes of the values.

Values lie in files that are named by the digest of their content and never changed, small ones in
the table of these files; another table says which of them a key has given. A result that is damaged
or gone is found out before it is used. Files that nothing has used for longest are removed first.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from jupyter_sky.base.remote.processes import is_alive
from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.store.database import Database, Statement
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.stored_values import StoredValue
from jupyter_sky.workflows.pipelines.model.identity import TaskKey, digest_of, product_version
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import UNDER_WAY, RunState, fold

MOST_BYTES = 10 * 2**30
"""Size of all kept files above which those are removed that were not used for longest."""
KEEP_SECONDS = 14 * 24 * 3600.0
"""Time after its last use for which a result is kept."""
YOUNG_SECONDS = 3600.0
"""Time for which a file is kept in any case: another process may be about to use it."""
SMALL_BYTES = 2**12
"""Size up to which the content of a file lies in the table; it is small, as opening checks all."""
_MIGRATIONS = (
    """
    CREATE TABLE result (
        key TEXT PRIMARY KEY, stored TEXT NOT NULL, used REAL NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE latest (
        origin TEXT NOT NULL, task TEXT NOT NULL, parts TEXT NOT NULL, used REAL NOT NULL,
        PRIMARY KEY (origin, task)
    ) WITHOUT ROWID;
    CREATE TABLE file (digest TEXT PRIMARY KEY, bytes INTEGER NOT NULL, used REAL NOT NULL);
    """,
    """
    ALTER TABLE file ADD COLUMN data BLOB;
    CREATE TABLE entry (
        run TEXT NOT NULL, task TEXT NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL,
        PRIMARY KEY (run, task, kind)
    ) WITHOUT ROWID;
    CREATE TABLE sent (
        run TEXT NOT NULL, task TEXT NOT NULL, attempt INTEGER NOT NULL, cell TEXT NOT NULL,
        PRIMARY KEY (run, task)
    ) WITHOUT ROWID;
    CREATE INDEX sent_cell ON sent (run, cell);
    """,
    """
    CREATE TABLE claim (
        key TEXT PRIMARY KEY, run TEXT NOT NULL, task TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Values and outputs that a task has given.

    Attributes
    ----------
    values
        Digest of the file of each value, by name; that of a function has an empty name.
    handles
        Values in stores, by name, as `StoredValue.to_json` gives them.
    products
        Version of each address and path that it has written for its user.
    outputs
        Digest of the file of what it has shown; empty where it is not kept.
    hours, usd
        Time and money that it took.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    handles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    products: Mapping[str, str] = field(default_factory=dict)
    outputs: str = ""
    hours: float = 0.0
    usd: float = 0.0

    def digest(self, name: str) -> str:
        """Return what identifies one of the values.

        Examples
        --------
        >>> TaskResult({"x": "77aa"}).digest("x")
        '77aa'
        """
        if name in self.handles:
            handle = self.handles[name]
            return handle.get("digest") or f"{handle['uri']} {handle['version']}"
        return self.values[name]

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal result."""
        return {each: getattr(self, each) for each in _RESULT_PARTS}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskResult:
        """Return the result of what `to_json` gave."""
        return cls(**data)


_RESULT_PARTS = tuple(each.name for each in fields(TaskResult))


class KeptResults:
    """Results of the tasks of all runs of a user.

    Attributes
    ----------
    database
        Of their tables, which `RunResults` shares.

    Parameters
    ----------
    folder
        Made at the first result, readable by its owner alone.

    Examples
    --------
    >>> kept = KeptResults(Path("kept-results"))  # doctest: +SKIP
    >>> kept.find(key)  # doctest: +SKIP
    TaskResult(values={'model': '5e3f...'})
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.database = Database.open(folder / "results.db", _MIGRATIONS)

    def close(self) -> None:
        """Close the table."""
        self.database.close()

    # -- files ---------------------------------------------------------------------------------

    def write_files(self, contents: Sequence[bytes]) -> list[str]:
        """Keep files so that a power cut cannot take them back, and return their digests."""
        rows: dict[str, Statement] = {}
        digests = [digest_of(data) for data in contents]
        for digest, data in zip(digests, contents, strict=True):
            is_small = len(data) <= SMALL_BYTES
            if not is_small:
                path = self._path(digest)
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_atomically(path, data)  # also where a file is there: it may be damaged
            row = (digest, len(data), time.time(), data if is_small else None)
            rows[digest] = ("INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?)", row)
        if rows:
            self.database.write(*rows.values(), durable=True)
        return digests

    def read_file(self, digest: str) -> bytes:
        """Return kept bytes.

        Raises
        ------
        FileNotFoundError
            They were removed.
        """
        rows = self.database.read("SELECT data FROM file WHERE digest = ?", (digest,))
        if rows and rows[0]["data"] is not None:
            return rows[0]["data"]
        return self._path(digest).read_bytes()

    def file_size(self, digest: str) -> int:
        """Return the number of kept bytes; 0 where they were removed."""
        path = self._path(digest)
        return path.stat().st_size if path.exists() else 0

    def _path(self, digest: str) -> Path:
        return self._folder / "files" / digest[:2] / digest

    # -- results -------------------------------------------------------------------------------

    def keep(self, results: Mapping[str, tuple[TaskKey, TaskResult]], origin: str) -> None:
        """Keep the results of keys; earlier ones of the same keys are replaced.

        Parameters
        ----------
        results
            By task.
        origin
            Notebook or graph of the tasks: `latest` is asked of both.
        """
        rows: list[Statement] = []
        for task, (key, result) in results.items():
            row = (key.digest, json.dumps(result.to_json()), time.time())
            rows.append(("INSERT OR REPLACE INTO result VALUES (?, ?, ?)", row))
            rows.append(_latest(key, origin, task))
        if rows:
            self.database.write(*rows)

    def add(self, key: TaskKey, result: TaskResult) -> None:
        """Take a result of another machine, unless there is one of this key."""
        row = (key.digest, json.dumps(result.to_json()), time.time())
        self.database.write(("INSERT OR IGNORE INTO result VALUES (?, ?, ?)", row))

    def find(self, key: TaskKey) -> TaskResult | None:
        """Return the result that is kept of a key; None without one."""
        rows = self.database.read("SELECT stored FROM result WHERE key = ?", (key.digest,))
        return TaskResult.from_json(json.loads(rows[0]["stored"])) if rows else None

    def latest(self, origin: str, task: str) -> TaskKey | None:
        """Return the key of the last result that a task gave or took; None without one."""
        rows = self.database.read(
            "SELECT parts FROM latest WHERE origin = ? AND task = ?", (origin, task)
        )
        return TaskKey.from_json(json.loads(rows[0]["parts"])) if rows else None

    def note_use(self, key: TaskKey, result: TaskResult, origin: str, task: str) -> None:
        """Note that a task takes a result: what was not used for longest is removed first."""
        now = time.time()
        digests = [*result.values.values(), result.outputs]
        self.database.write(
            _latest(key, origin, task),
            ("UPDATE result SET used = ? WHERE key = ?", (now, key.digest)),
            *(("UPDATE file SET used = ? WHERE digest = ?", (now, each)) for each in digests),
        )

    def find_damage(self, result: TaskResult) -> str:
        """Return why a kept result cannot be used; empty where all of it is there."""
        for digest in filter(None, [*result.values.values(), result.outputs]):
            try:
                is_whole = self._content_digest(digest) == digest
            except FileNotFoundError:
                return _("its kept result was removed")
            except OSError as error:
                return _("its kept result cannot be read: {error}").format(error=error)
            if not is_whole:
                return _("its kept result is damaged")
        for name, data in result.handles.items():
            if not StoredValue.from_json(data).is_there():
                return _("{name} is no more in {uri}").format(name=name, uri=data["uri"])
        for address, version in result.products.items():
            if product_version(address) != version:
                return _("{address} is not as it left it").format(address=address)
        return ""

    def _content_digest(self, name: str) -> str:
        """Return the digest of what a file holds now."""
        rows = self.database.read("SELECT data FROM file WHERE digest = ?", (name,))
        if rows and rows[0]["data"] is not None:
            return digest_of(rows[0]["data"])
        with self._path(name).open("rb") as file:
            return hashlib.file_digest(file, _hash).hexdigest()

    # -- removal -------------------------------------------------------------------------------

    def sweep(self, needed: Callable[[], set[str]], now: float, most: int = MOST_BYTES) -> int:
        """Remove files that were not used for long, or for longest where there are too many.

        Parameters
        ----------
        needed
            Returns the digests of the files of runs that have not ended, which stay; called only
            where something is to be removed.
        now
            Unix time.
        most
            Bytes of all files that may stay.

        Returns
        -------
        int
            Number of files removed.
        """
        files = self.database.read("SELECT digest, bytes, used FROM file ORDER BY used")
        total, removed = sum(row["bytes"] for row in files), list[str]()
        for row in files:
            age = now - row["used"]
            if age < YOUNG_SECONDS or (age < KEEP_SECONDS and total <= most):
                break
            removed.append(row["digest"])
            total -= row["bytes"]
        stay = needed() if removed else set()
        removed = [digest for digest in removed if digest not in stay]
        for digest in removed:
            with suppress(OSError):
                self._path(digest).unlink(missing_ok=True)
        self.database.write(
            ("DELETE FROM result WHERE used < ?", (now - KEEP_SECONDS,)),
            ("DELETE FROM latest WHERE used < ?", (now - KEEP_SECONDS,)),
            *(("DELETE FROM file WHERE digest = ?", (digest,)) for digest in removed),
        )
        return len(removed)


def _latest(key: TaskKey, origin: str, task: str) -> Statement:
    row = (origin, task, json.dumps(key.to_json()), time.time())
    return "INSERT OR REPLACE INTO latest VALUES (?, ?, ?, ?)", row


def _hash() -> Any:
    return hashlib.blake2b(digest_size=16)


# -- Results of the tasks of a run: tables beside those of the kept results, which have the -------

_T = TypeVar("_T")
_INSERT = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?, ?)"


@dataclass(slots=True)
class _Transaction:
    """What a thread has found and is about to write, before it is stored.

    Attributes
    ----------
    found
        Result of each task that was asked for; None where there is none.
    rows
        Entries that are written together.
    """

    found: dict[str, TaskResult | None] = field(default_factory=dict)
    rows: list[tuple[str, str, str, str]] = field(default_factory=list)


class RunResults:
    """Results of one run, in the database of the kept ones.

    Parameters
    ----------
    run
        Its name.
    kept
        Where values are stored.
    """

    def __init__(self, run: str, kept: KeptResults) -> None:
        self._run, self._kept, self._db = run, kept, kept.database
        self._found: dict[str, TaskResult] = {}
        self._threads = threading.local()
        self._cells: dict[tuple[str, int], str] = {}
        self._keys: dict[str, TaskKey | None] = {}

    def find(self, task: str) -> TaskResult | None:
        """Return the result of a task; None before it has ended well."""
        if task in self._found:
            return self._found[task]
        transaction = self._transaction
        if transaction is not None and task in transaction.found:
            return transaction.found[task]
        data = self._read(task, "result")
        result = None if data is None else TaskResult.from_json(data)
        if transaction is not None:
            transaction.found[task] = result
        elif result is not None:
            self._found[task] = result
        return result

    def save(self, task: str, values: Mapping[str, Any], **facts: Any) -> TaskResult:
        """Keep the values of a task.

        Parameters
        ----------
        values
            By name; that of a function has an empty name.
        **facts
            Other attributes of the result.

        Raises
        ------
        Exception
            As pickle raises it.
        """
        import cloudpickle

        handles = {n: v.to_json() for n, v in values.items() if isinstance(v, StoredValue)}
        names = [name for name in values if name not in handles]
        digests = self._kept.write_files([cloudpickle.dumps(values[name]) for name in names])
        result = TaskResult(dict(zip(names, digests, strict=True)), handles, **facts)
        self.adopt(task, result)
        return result

    def size(self, result: TaskResult) -> int:
        """Return the bytes of the values of a result, also of those in stores."""
        stored = sum(data.get("nbytes", 0) for data in result.handles.values())
        return stored + sum(self._kept.file_size(digest) for digest in result.values.values())

    def adopt(self, task: str, result: TaskResult) -> None:
        """Take a result whose values are kept: of an earlier run, or stored before."""
        self._found.pop(task, None)
        self._write(task, "result", result.to_json(), durable=True)
        transaction = self._transaction
        found = self._found if transaction is None else transaction.found
        found[task] = result

    def load(self, task: str, name: str = "") -> Any:
        """Return a value of a task that has ended well.

        Raises
        ------
        FileNotFoundError
            It is not kept any more.
        KeyError
            The task has none of that name.
        """
        result = self.find(task)
        if result is not None and name in result.handles:
            return StoredValue.from_json(result.handles[name])
        return open_pickle(self.read(task, name))

    def read(self, task: str, name: str = "") -> bytes:
        """Return the pickled bytes of a value; raise as `load` does."""
        result = self.find(task)
        if result is None:
            raise FileNotFoundError(task)
        if name in result.handles:
            import cloudpickle

            return cloudpickle.dumps(StoredValue.from_json(result.handles[name]).fetch())
        return self._kept.read_file(result.values[name])

    def save_key(self, task: str, key: TaskKey | None) -> None:
        """Note the key of a task before it runs; None where it has none."""
        self._keys[task] = key
        self._write(task, "key", None if key is None else key.to_json())

    def key(self, task: str) -> TaskKey | None:
        """Return the key of a task; None where it has none."""
        if task not in self._keys:
            data = self._read(task, "key")
            self._keys[task] = None if data is None else TaskKey.from_json(data)
        return self._keys[task]

    def save_outputs(self, task: str, outputs: Sequence[dict[str, Any]]) -> None:
        """Keep the outputs of the last attempt of a task, as notebooks have them."""
        self._write(task, "outputs", outputs)

    def outputs(self, task: str) -> list[dict[str, Any]] | None:
        """Return the outputs of the last attempt of a task that has ended; None before."""
        result = self.find(task)
        if result is not None and result.outputs:
            with suppress(FileNotFoundError):  # removed since
                return json.loads(self._kept.read_file(result.outputs))
        return self._read(task, "outputs")

    def used_files(self) -> set[str]:
        """Return the digests of the files that the results name."""
        query = "SELECT data FROM entry WHERE run = ? AND kind = 'result'"
        rows = self._db.read(query, (self._run,))
        results = [TaskResult.from_json(json.loads(row["data"])) for row in rows]
        return {each for result in results for each in (*result.values.values(), result.outputs)}

    # -- attempts that are sent with others ----------------------------------------------------

    def note_sent(self, cell: str, attempts: Mapping[str, int]) -> None:
        """Note the cell in which attempts are about to be sent, by task."""
        statement = "INSERT OR REPLACE INTO sent VALUES (?, ?, ?, ?)"
        rows = [(statement, (self._run, *attempt, cell)) for attempt in attempts.items()]
        self._db.write(*rows, durable=True)
        self._cells |= {attempt: cell for attempt in attempts.items()}

    def cell_of(self, task: str, attempt: int) -> str:
        """Return the name of the cell in which an attempt was sent with others; empty if alone."""
        if (task, attempt) not in self._cells:
            query = "SELECT cell FROM sent WHERE run = ? AND task = ? AND attempt = ?"
            rows = self._db.read(query, (self._run, task, attempt))
            if not rows:
                return ""
            self._cells[task, attempt] = rows[0]["cell"]
        return self._cells[task, attempt]

    def tasks_in(self, cell: str) -> list[str]:
        """Return the tasks whose last attempts were sent in a cell."""
        query = "SELECT task FROM sent WHERE run = ? AND cell = ?"
        return [row["task"] for row in self._db.read(query, (self._run, cell))]

    # -- the tables ----------------------------------------------------------------------------

    def together(self, work: Callable[[], _T], durable: bool = True) -> _T:
        """Call `work`, and store what it writes in one transaction.

        Without `durable` the disk is not waited for, until `sync` or the next write that is.
        """
        transaction = _Transaction()

        def write(db: sqlite3.Connection) -> _T:
            value = work()
            db.executemany(_INSERT, transaction.rows)
            return value

        self._threads.transaction = transaction
        try:
            value = self._db.transact(write, durable)
        except BaseException:
            self._cells.clear()  # what was noted may not be stored
            raise
        finally:
            self._threads.transaction = None
        self._found |= {
            task: result for task, result in transaction.found.items() if result is not None
        }
        return value

    @property
    def _transaction(self) -> _Transaction | None:
        """Transaction of this thread; what others do waits until it is over."""
        return getattr(self._threads, "transaction", None)

    def sync(self) -> None:
        """Bring to the disk all that was written without waiting for it."""
        self._write("", "synced", None, durable=True)

    def _read(self, task: str, kind: str) -> Any:
        query = "SELECT data FROM entry WHERE run = ? AND task = ? AND kind = ?"
        transaction = self._transaction
        if transaction is not None and transaction.rows:
            self._db.write(*((_INSERT, row) for row in transaction.rows), durable=True)
            transaction.rows.clear()
        rows = self._db.read(query, (self._run, task, kind))
        return json.loads(rows[0]["data"]) if rows else None

    def _write(self, task: str, kind: str, data: Any, durable: bool = False) -> None:
        """Write an entry; where it is durable, a power cut cannot take it back."""
        row = (self._run, task, kind, json.dumps(data))
        transaction = self._transaction
        if transaction is None:
            self._db.write((_INSERT, row), durable=durable)
        else:
            transaction.rows.append(row)


# -- Claims of runs on results: of two at once one makes a result, the other waits for it ---------


class Claims:
    """Results that runs are about to make, or make now.

    A claim holds as long as a process carries its run out and its task has not ended; that of a
    paused run only while the task runs.

    Parameters
    ----------
    kept
        Results of all runs, whose database has the claims.
    journal
        Of all runs.
    run
        Which makes claims.
    """

    def __init__(self, kept: KeptResults, journal: RunJournal, run: str) -> None:
        self._db, self._journal, self._run = kept.database, journal, run

    def claim(self, key: TaskKey, task: str) -> str:
        """Claim a result; return the name of the run that makes it already, empty without one."""
        return self._db.transact(lambda _db: self._claim(key, task), durable=False)

    def _claim(self, key: TaskKey, task: str) -> str:
        rows = self._db.read("SELECT run, task FROM claim WHERE key = ?", (key.digest,))
        if rows and rows[0]["run"] != self._run and self._holds(rows[0]["run"], rows[0]["task"]):
            return rows[0]["run"]
        row = (key.digest, self._run, task)
        self._db.write(("INSERT OR REPLACE INTO claim VALUES (?, ?, ?)", row))
        return ""

    def _holds(self, run: str, task: str) -> bool:
        if run not in self._journal.names():
            return False
        events = self._journal.events(run)
        if not is_alive(self._journal.owner(run), events[-1].at if events else 0.0):
            return False
        state = fold(RunState.begin(self._journal.read(run).graph), events)
        found = state.tasks.get(task)
        if found is None or found.phase.is_final:
            return False
        return found.phase in UNDER_WAY or not (state.paused or state.cancelled)

    def release(self) -> None:
        """Give up all claims of the run."""
        self._db.write(("DELETE FROM claim WHERE run = ?", (self._run,)))
