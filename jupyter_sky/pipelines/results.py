"""Results of the tasks of a run: their values lie with the kept results, by their digests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from ..executor.stored_values import StoredValue
from ..store.database import Database
from .identity import TaskKey
from .kept_results import KeptResults, TaskResult

_MIGRATIONS = (
    """
    CREATE TABLE entry (
        task TEXT NOT NULL, kind TEXT NOT NULL, data TEXT NOT NULL, PRIMARY KEY (task, kind)
    ) WITHOUT ROWID;
    CREATE TABLE sent (task TEXT PRIMARY KEY, attempt INTEGER NOT NULL, cell TEXT NOT NULL);
    CREATE INDEX sent_cell ON sent (cell);
    """,
)


class _Pending(threading.local):
    """Entries of a thread that are going to be stored together."""

    entries: dict[tuple[str, str], str] | None = None


class RunResults:
    """Results of one run, in a SQLite file.

    Parameters
    ----------
    folder
        Made at the first result, readable by its owner alone.
    kept
        Where values are stored.
    """

    def __init__(self, folder: Path, kept: KeptResults) -> None:
        self._path, self._kept = folder / "results.db", kept
        self._pending = _Pending()

    @cached_property
    def _db(self) -> Database:
        return Database.open(self._path, _MIGRATIONS)

    @property
    def _is_empty(self) -> bool:
        return "_db" not in self.__dict__ and not self._path.exists()

    def find(self, task: str) -> TaskResult | None:
        """Return the result of a task; None before it has ended well."""
        data = self._read(task, "result")
        return None if data is None else TaskResult.from_json(data)

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

    def adopt(self, task: str, result: TaskResult) -> None:
        """Take a result whose values are kept: of an earlier run, or stored before."""
        self._write(task, "result", result.to_json())

    def load(self, task: str, name: str = "") -> Any:
        """Return a value of a task that has ended well.

        Raises
        ------
        FileNotFoundError
            It is not kept any more.
        KeyError
            The task has none of that name.
        """
        import cloudpickle

        result = self.find(task)
        if result is None:
            raise FileNotFoundError(task)
        if name in result.handles:
            return StoredValue.from_json(result.handles[name])
        return cloudpickle.loads(self._kept.read_file(result.values[name]))

    def save_key(self, task: str, key: TaskKey | None) -> None:
        """Note the key of a task before it runs; None where it has none."""
        self._write(task, "key", None if key is None else key.to_json())

    def key(self, task: str) -> TaskKey | None:
        """Return the key of a task; None where it has none."""
        data = self._read(task, "key")
        return None if data is None else TaskKey.from_json(data)

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
        if self._is_empty:
            return set()
        rows = self._db.read("SELECT data FROM entry WHERE kind = 'result'")
        results = [TaskResult.from_json(json.loads(row["data"])) for row in rows]
        return {each for result in results for each in (*result.values.values(), result.outputs)}

    # -- attempts that are sent with others ----------------------------------------------------

    def note_sent(self, cell: str, attempts: Mapping[str, int]) -> None:
        """Note the cell in which attempts are about to be sent, by task."""
        statement = "INSERT OR REPLACE INTO sent VALUES (?, ?, ?)"
        rows = [(statement, (task, attempt, cell)) for task, attempt in attempts.items()]
        self._db.write(*rows, durable=True)

    def cell_of(self, task: str, attempt: int) -> str:
        """Return the name of the cell in which an attempt was sent with others; empty if alone."""
        if self._is_empty:
            return ""
        query = "SELECT cell FROM sent WHERE task = ? AND attempt = ?"
        rows = self._db.read(query, (task, attempt))
        return rows[0]["cell"] if rows else ""

    def attempts_in(self, cell: str) -> dict[str, int]:
        """Return the attempts that were sent in a cell, in their order there."""
        rows = self._db.read(
            "SELECT task, attempt FROM sent WHERE cell = ? ORDER BY rowid", (cell,)
        )
        return {row["task"]: row["attempt"] for row in rows}

    # -- the file ------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """Store what this thread writes in the block at its end, in one transaction."""
        assert self._pending.entries is None
        self._pending.entries = {}
        try:
            yield
            self._store(self._pending.entries)
        finally:
            self._pending.entries = None

    def _read(self, task: str, kind: str) -> Any:
        pending = self._pending.entries or {}
        if (task, kind) in pending:
            return json.loads(pending[task, kind])
        if self._is_empty:
            return None
        query = "SELECT data FROM entry WHERE task = ? AND kind = ?"
        rows = self._db.read(query, (task, kind))
        return json.loads(rows[0]["data"]) if rows else None

    def _write(self, task: str, kind: str, data: Any) -> None:
        entry = {(task, kind): json.dumps(data)}
        if self._pending.entries is None:
            self._store(entry)
        else:
            self._pending.entries |= entry

    def _store(self, entries: Mapping[tuple[str, str], str]) -> None:
        """Write entries; a power cut cannot take them back."""
        statement = "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)"
        if entries:
            rows = [(statement, (*names, data)) for names, data in entries.items()]
            self._db.write(*rows, durable=True)
