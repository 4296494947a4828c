"""Journal of open uploads and published objects, so that a transfer goes on after a crash.

The store knows which parts it has; only the names of uploads, and which content they hold, must be
remembered here. Processes of one user share the file.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..remote.processes import identity, is_alive
from ..store.database import Database
from ..translation import _
from .errors import SkyTransferRunning

MIGRATIONS = (
    """
    CREATE TABLE uploads (
        target TEXT PRIMARY KEY, content TEXT NOT NULL, upload_id TEXT NOT NULL,
        part_size INTEGER NOT NULL, owner TEXT NOT NULL, beat REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE published (
        target TEXT PRIMARY KEY, content TEXT NOT NULL, version TEXT NOT NULL,
        at REAL NOT NULL) WITHOUT ROWID
    """,
)
HEARTBEAT = 10.0
"""Seconds between two signs of life of a transfer."""

_KEEP_SECONDS = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """An upload that was begun.

    Attributes
    ----------
    target : str
        Address of the object.
    content : str
        Name and version of the source.
    upload_id : str
        Name of the upload in its store.
    part_size : int
        Bytes of its parts.
    """

    target: str
    content: str
    upload_id: str
    part_size: int


class Journal:
    """Journal in a file.

    Examples
    --------
    >>> journal = Journal.open(data_dir())  # doctest: +SKIP
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._me = identity()
        self._owner = json.dumps(self._me, sort_keys=True)

    @classmethod
    def open(cls, folder: Path) -> Journal:
        """Open or create ``transfers.db`` in a folder."""
        return cls(Database.open(folder / "transfers.db", MIGRATIONS))

    def take(self, target: str) -> JournalEntry | None:
        """Take over the upload of a target that an earlier process left; None without one.

        Raises
        ------
        SkyTransferRunning
            Another process is at work on it.
        """

        def work(db: sqlite3.Connection) -> JournalEntry | None:
            row = db.execute("SELECT * FROM uploads WHERE target = ?", (target,)).fetchone()
            if row is None:
                return None
            owner = json.loads(row["owner"])
            if row["owner"] != self._owner and is_alive(owner, row["beat"]):
                raise SkyTransferRunning(
                    _("process {owner} is writing {target}").format(
                        owner=owner.get("pid"), target=target
                    ),
                    hint=_("wait for it, or end that process"),
                )
            sql = "UPDATE uploads SET owner = ?, beat = ? WHERE target = ?"
            db.execute(sql, (self._owner, time.time(), target))
            return JournalEntry(target, row["content"], row["upload_id"], row["part_size"])

        return self._database.transact(work)

    def begin(self, entry: JournalEntry) -> None:
        """Note an upload before its first part is sent."""
        values = (entry.target, entry.content, entry.upload_id, entry.part_size)
        sql = "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?)"
        self._database.write((sql, (*values, self._owner, time.time())), durable=True)

    def forget(self, target: str) -> None:
        """Remove an upload that was completed or aborted."""
        self._database.write(("DELETE FROM uploads WHERE target = ?", (target,)))

    def renew(self) -> None:
        """Show that this process is at work."""
        sql = "UPDATE uploads SET beat = ? WHERE owner = ?"
        self._database.write((sql, (time.time(), self._owner)), latest="transfers")

    def publish(self, objects: Iterable[tuple[str, str, str]]) -> None:
        """Note targets that are written, each with its content and its version."""
        sql = "INSERT OR REPLACE INTO published VALUES (?, ?, ?, ?)"
        now = time.time()
        self._database.write(*[(sql, (*row, now)) for row in objects])

    def published(self, prefix: str) -> dict[str, tuple[str, str]]:
        """Return content and version of the targets below a prefix, by target."""
        sql = "SELECT * FROM published WHERE target >= ? AND target < ?"
        rows = self._database.read(sql, (prefix, prefix + "\U0010ffff"))
        return {row["target"]: (row["content"], row["version"]) for row in rows}

    def clear(self, prefix: str) -> None:
        """Remove the targets of a transfer that has ended, and those of long ago."""
        sql = "DELETE FROM published WHERE (target >= ? AND target < ?) OR at < ?"
        before = time.time() - _KEEP_SECONDS
        self._database.write((sql, (prefix, prefix + "\U0010ffff", before)))

    def close(self) -> None:
        """Close the file."""
        self._database.close()
