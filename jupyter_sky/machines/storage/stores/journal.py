"""Journal of open uploads and published objects, so that a transfer goes on after a crash.

The store knows which parts it has; only the names of uploads, and which content they hold, must be
remembered here. Processes of one user share the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jupyter_sky.base.remote.processes import identity, is_alive
from jupyter_sky.base.store.database import Database
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyTransferRunning

MIGRATIONS = (
    """
    CREATE TABLE uploads (
        target TEXT PRIMARY KEY, content TEXT NOT NULL, upload_id TEXT NOT NULL,
        part_size INTEGER NOT NULL, owner TEXT NOT NULL, beat REAL NOT NULL) WITHOUT ROWID;
    CREATE TABLE published (
        target TEXT PRIMARY KEY, content TEXT NOT NULL, version TEXT NOT NULL,
        at REAL NOT NULL) WITHOUT ROWID
    """,
    """
    ALTER TABLE uploads ADD COLUMN store TEXT NOT NULL DEFAULT '';
    ALTER TABLE uploads ADD COLUMN key TEXT NOT NULL DEFAULT '';
    CREATE TABLE transfers (
        id TEXT PRIMARY KEY, store TEXT NOT NULL, prefix TEXT NOT NULL, owner TEXT NOT NULL,
        beat REAL NOT NULL) WITHOUT ROWID
    """,
    # buckets of ours and prefixes of runs, noted before they are made
    """
    CREATE TABLE scratch (
        uri TEXT PRIMARY KEY, kind TEXT NOT NULL, place TEXT NOT NULL, owner TEXT NOT NULL,
        at REAL NOT NULL) WITHOUT ROWID
    """,
)
HEARTBEAT = 10.0
"""Seconds between two signs of life of a transfer."""

JOURNAL_NAME = "transfers.db"
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
        Name of the upload in its store; empty until the store has told it.
    part_size : int
        Bytes of its parts.
    store, key : str
        Address of the store, and the key there.
    noted : float
        Unix time of the last sign of life of its process.
    owner : str
        That process.
    """

    target: str
    content: str
    upload_id: str
    part_size: int
    store: str = ""
    key: str = ""
    noted: float = 0.0
    owner: str = ""


@dataclass(frozen=True, slots=True)
class AbandonedTransfer:
    """A transfer whose process has ended before it, or that stopped with an error.

    Attributes
    ----------
    id : str
        Its name in the journal.
    store, prefix : str
        Address of the store that it wrote to, and the beginning of its keys.
    owner : str
        Token of the process, which its temporary files bear.
    """

    id: str
    store: str
    prefix: str
    owner: str


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
        return cls(Database.open(folder / JOURNAL_NAME, MIGRATIONS))

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
            return _entry(row)

        return self._database.transact(work)

    def begin(self, entry: JournalEntry) -> None:
        """Note an upload: before the store is asked for it, and when the store has told its name.

        A process that is killed between the two leaves an upload that only its key tells.
        """
        values = (entry.target, entry.content, entry.upload_id, entry.part_size)
        sql = "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        rest = (self._owner, time.time(), entry.store, entry.key)
        self._database.write((sql, (*values, *rest)), durable=True)

    def forget(self, target: str) -> None:
        """Remove an upload that was completed or aborted."""
        self._database.write(("DELETE FROM uploads WHERE target = ?", (target,)))

    def set_aside(self, entry: JournalEntry) -> None:
        """Keep the note of an upload without a name, when its object is written anew.

        The request of a killed process may be on its way yet: whatever it begins is looked for
        when leftovers are removed.
        """
        insert = "INSERT OR REPLACE INTO uploads VALUES (?, ?, '', ?, ?, ?, ?, ?)"
        name, rest = f"{entry.target} {entry.noted}", (entry.noted, entry.store, entry.key)
        self._database.write(
            (insert, (name, entry.content, entry.part_size, entry.owner, *rest)),
            ("DELETE FROM uploads WHERE target = ?", (entry.target,)),
        )

    def renew(self) -> None:
        """Show that this process is at work."""
        values = (time.time(), self._owner)
        for table in ("uploads", "transfers"):
            sql = f"UPDATE {table} SET beat = ? WHERE owner = ? AND beat > 0"
            self._database.write((sql, values), latest=table)

    # -- transfers as a whole

    def start(self, store: str, prefix: str) -> str:
        """Note that a transfer to a place begins, and return its name."""
        name, sql = secrets.token_hex(8), "INSERT INTO transfers VALUES (?, ?, ?, ?, ?)"
        values = (name, store, prefix, self._owner, time.time())
        self._database.write((sql, values), durable=True)
        return name

    def finish(self, name: str) -> None:
        """Remove a transfer that has left nothing behind."""
        self._database.write(("DELETE FROM transfers WHERE id = ?", (name,)))

    def abandon(self, name: str) -> None:
        """Note that a transfer has stopped before its end; what it leaves may be taken over."""
        sql = "UPDATE transfers SET beat = 0 WHERE id = ?"
        self._database.write((sql, (name,)))

    def abandoned_transfers(self) -> list[AbandonedTransfer]:
        """Return the transfers of processes that carry on none."""
        running, rows = self._running()
        return [
            AbandonedTransfer(row["id"], row["store"], row["prefix"], owner_token(row["owner"]))
            for row in rows
            if row["owner"] not in running
        ]

    def abandoned_uploads(self) -> list[JournalEntry]:
        """Return the uploads of processes that carry on no transfer, also those to be resumed.

        One without a name, which is found by its key, has to wait while another process writes it.
        """
        running, __ = self._running()
        abandoned, written = list[JournalEntry](), set[tuple[str, str]]()
        for row in self._database.read("SELECT * FROM uploads"):
            is_own = row["owner"] == self._owner
            if row["owner"] not in running and (is_own or not _is_alive(row)):
                abandoned.append(_entry(row))
            else:
                written.add((row["store"], row["key"]))
        return [
            each for each in abandoned if each.upload_id or (each.store, each.key) not in written
        ]

    def _running(self) -> tuple[set[str], list[sqlite3.Row]]:
        """Return the processes that carry on transfers, and all transfers."""
        rows = self._database.read("SELECT * FROM transfers")
        return {row["owner"] for row in rows if row["beat"] > 0 and _is_alive(row)}, rows

    def resumable_ids(self) -> set[str]:
        """Return the names of all uploads that are noted."""
        return {row["upload_id"] for row in self._database.read("SELECT upload_id FROM uploads")}

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


def owner_token(owner: str) -> str:
    """Return a short name of a process, from its identity as the journal holds it."""
    return hashlib.blake2b(owner.encode(), digest_size=4).hexdigest()


def own_token() -> str:
    """Return the token of this process."""
    return _token_of(os.getpid())


@lru_cache(maxsize=1)
def _token_of(pid: int) -> str:
    return owner_token(json.dumps(identity(pid), sort_keys=True))


def _entry(row: sqlite3.Row) -> JournalEntry:
    names = ("target", "content", "upload_id", "part_size", "store", "key", "beat", "owner")
    return JournalEntry(*(row[name] for name in names))


def _is_alive(row: sqlite3.Row) -> bool:
    return is_alive(json.loads(row["owner"]), row["beat"])
