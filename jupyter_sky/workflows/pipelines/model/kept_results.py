"""Results that are kept across runs: what each key has given, and the bytes of the values.

Values lie in files that are named by the digest of their content and never changed, small ones in
the table of these files; another table says which of them a key has given. A result that is damaged
or gone is found out before it is used. Files that nothing has used for longest are removed first.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.store.database import Database, Statement
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.stored_values import StoredValue
from jupyter_sky.workflows.pipelines.model.content import product_version
from jupyter_sky.workflows.pipelines.model.identity import TaskKey, digest_of

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
