"""Results of the tasks of a run: tables beside those of the kept results, which have the values."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from jupyter_sky.execution.files.stored_values import StoredValue
from jupyter_sky.workflows.pipelines.model.identity import TaskKey
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, TaskResult

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
        import cloudpickle

        result = self.find(task)
        if result is not None and name in result.handles:
            return StoredValue.from_json(result.handles[name])
        return cloudpickle.loads(self.read(task, name))

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
