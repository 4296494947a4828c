"""Queue of jobs: bags and their jobs in one file that survives every process.

A bag has one controller at a time. Each that takes it over gets the next epoch, and what is written
under an older one is refused. A job is one row; all changes of a moment are one transaction, so
that thousands of short jobs end in a second. A result that is stored is never replaced.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyRunTaken, SkyUsageError, suggest
from jupyter_sky.base.store.database import Database
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.bags.queue.application import (
    BagCounts,
    BagSettings,
    End,
    JobChange,
    JobState,
    OpenJob,
)
from jupyter_sky.workflows.bags.queue.exploration import AppTimes
from jupyter_sky.workflows.bags.queue.parameters import Parameters

CANCEL, RELOAD = "cancel", "reload"
"""Wishes of users: stop all, and look at jobs that were added or are to be tried again."""


@dataclass(frozen=True, slots=True)
class RecordedBag:
    """Bag as it is stored.

    Attributes
    ----------
    name
        Unique among the bags of a user.
    settings
        What was asked of it.
    app
        Pickled application.
    made, begun, ended
        Unix times; None for what has not happened.
    reason, detail
        Why it has ended, and more of it in a sentence; empty while it has not.
    usd
        Cost of its machines up to now.
    warning
        What is to be known of its deadline; empty while it can be kept.
    """

    name: str
    settings: BagSettings
    app: bytes
    made: float
    begun: float | None
    ended: float | None
    reason: End | None
    detail: str
    usd: float
    warning: str = ""


class JobQueue:
    """Bags of a user, in a SQLite file.

    Parameters
    ----------
    path
        Of the file.

    Examples
    --------
    >>> queue = JobQueue(Path("jobs.db"))  # doctest: +SKIP
    >>> queue.counts("ions").succeeded  # doctest: +SKIP
    120
    """

    def __init__(self, path: Path) -> None:
        self._db = Database.open(path, MIGRATIONS)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # -- bags ----------------------------------------------------------------------------------

    def add(
        self,
        name: str,
        settings: BagSettings,
        app: bytes,
        jobs: Sequence[Parameters],
        now: float,
    ) -> None:
        """Store a new bag with its jobs.

        Raises
        ------
        SkyUsageError
            There is one of that name.
        SkyStoreError
            The file cannot be written.
        """
        rows = [(name, number, json.dumps(job)) for number, job in enumerate(jobs)]

        def insert(db: sqlite3.Connection) -> None:
            db.execute(
                "INSERT INTO bag (name, settings, app, made) VALUES (?, ?, ?, ?)",
                (name, json.dumps(asdict(settings)), app, now),
            )
            db.executemany(INSERT_JOB, rows)

        try:
            self._db.transact(insert)
        except sqlite3.IntegrityError:
            raise SkyUsageError(
                _("there is a bag called {name}").format(name=name),
                hint=_("choose another name, or go on with it: sky.bag({name!r})").format(
                    name=name
                ),
            ) from None

    def names(self) -> list[str]:
        """Return the names of all bags, the newest last."""
        return [row["name"] for row in self._db.read("SELECT name FROM bag ORDER BY made, rowid")]

    def read(self, name: str) -> RecordedBag:
        """Return a bag.

        Raises
        ------
        SkyUsageError
            There is none of that name.
        """
        rows = self._db.read("SELECT * FROM bag WHERE name = ?", (name,))
        if not rows:
            raise SkyUsageError(
                _("there is no bag called {name}").format(name=name),
                hint=suggest(name, self.names()),
            )
        row = rows[0]
        return RecordedBag(
            name,
            BagSettings(**json.loads(row["settings"])),
            row["app"],
            row["made"],
            row["begun"],
            row["ended"],
            End(row["reason"]) if row["reason"] else None,
            row["detail"],
            row["usd"],
            row["warning"],
        )

    def counts(self, name: str) -> BagCounts:
        """Return the number of jobs in each state."""
        rows = self._db.read(
            "SELECT state, count(*) AS count FROM job WHERE bag = ? GROUP BY state", (name,)
        )
        return BagCounts(**{row["state"]: row["count"] for row in rows})

    def losses(self, name: str) -> int:
        """Return the number of attempts that were lost with their machines."""
        sql = "SELECT coalesce(sum(losses), 0) AS losses FROM job WHERE bag = ?"
        return self._db.read(sql, (name,))[0]["losses"]

    def worked_seconds(self, name: str) -> float:
        """Return the run time of the jobs that have succeeded, of all their attempts (s)."""
        sql = "SELECT total(seconds) AS s FROM job WHERE bag = ? AND state = 'succeeded'"
        return self._db.read(sql, (name,))[0]["s"]

    def clusters(self, name: str) -> list[str]:
        """Return the names of the clusters that a bag has had."""
        return [
            row["name"] for row in self._db.read("SELECT name FROM cluster WHERE bag = ?", (name,))
        ]

    def events(self, name: str) -> list[tuple[float, str]]:
        """Return what has happened to its machines: unix time, a sentence."""
        rows = self._db.read("SELECT at, text FROM event WHERE bag = ? ORDER BY id", (name,))
        return [(row["at"], row["text"]) for row in rows]

    # -- jobs ----------------------------------------------------------------------------------

    def rows(self, name: str, where: str = "", values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        """Return the rows of jobs, by their numbers.

        Parameters
        ----------
        where
            Further condition in SQL, with its `values`.
        """
        more = f" AND {where}" if where else ""
        sql = f"SELECT * FROM job WHERE bag = ?{more}"
        order = "" if "ORDER BY" in where else " ORDER BY number"
        return self._db.read(sql + order, (name, *values))

    def value(self, name: str, number: int) -> bytes | None:
        """Return the pickled result of a job; None where there is none."""
        found = self._db.read(
            "SELECT value FROM result WHERE bag = ? AND number = ?", (name, number)
        )
        return found[0]["value"] if found else None

    def values(self, name: str) -> Iterator[tuple[int, bytes]]:
        """Yield the pickled results of the jobs that have succeeded, by their numbers."""
        rows = self._db.read(
            "SELECT number, value FROM result WHERE bag = ? AND value IS NOT NULL ORDER BY number",
            (name,),
        )
        return ((row["number"], row["value"]) for row in rows)

    def output(self, name: str, number: int) -> str:
        """Return what a job's last attempt has printed.

        Raises
        ------
        SkyUsageError
            There is no such job.
        """
        if not self._db.read("SELECT 1 FROM job WHERE bag = ? AND number = ?", (name, number)):
            raise SkyUsageError(
                _("bag {name} has no job {number}").format(name=name, number=number),
                hint=_("its jobs have the numbers 0 to {last}").format(
                    last=self.counts(name).total - 1
                ),
            )
        found = self._db.read(
            "SELECT output FROM result WHERE bag = ? AND number = ?", (name, number)
        )
        return found[0]["output"] if found else ""

    # -- wishes --------------------------------------------------------------------------------

    def cancel(self, name: str, now: float) -> None:
        """Ask the controller of a bag to stop its jobs."""
        self._db.write(
            ("INSERT INTO wish (bag, kind, at) VALUES (?, ?, ?)", (name, CANCEL, now)),
            durable=True,
        )

    def retry(self, name: str, states: Iterable[JobState], now: float) -> int:
        """Queue jobs of some states again; return how many there are."""
        wanted = [state.value for state in states]
        marks = ", ".join("?" * len(wanted))

        def update(db: sqlite3.Connection) -> int:
            changed = db.execute(
                "UPDATE job SET state = 'queued', failures = 0, deaths = 0, reason = '' "
                f"WHERE bag = ? AND state IN ({marks})",
                (name, *wanted),
            ).rowcount
            return _reopen(db, name, now, changed)

        return self._db.transact(update)

    def extend(self, name: str, jobs: Sequence[Parameters], now: float) -> int:
        """Add jobs to a bag; return their number."""

        def insert(db: sqlite3.Connection) -> int:
            first = db.execute("SELECT count(*) FROM job WHERE bag = ?", (name,)).fetchone()[0]
            rows = [(name, number, json.dumps(job)) for number, job in enumerate(jobs, first)]
            db.executemany(INSERT_JOB, rows)
            return _reopen(db, name, now, len(rows))

        return self._db.transact(insert)

    def change_settings(self, name: str, settings: BagSettings) -> None:
        """Replace what was asked of a bag, such as its budget."""
        self._db.write(
            ("UPDATE bag SET settings = ? WHERE name = ?", (json.dumps(asdict(settings)), name)),
            durable=True,
        )

    def read_times(self, app: str) -> AppTimes:
        """Return the run times that bags of an app have measured, by types of machines."""
        rows = self._db.read("SELECT times FROM app_times WHERE app = ?", (app,))
        return AppTimes.from_dict(json.loads(rows[0]["times"])) if rows else AppTimes()

    def keep_times(self, app: str, times: AppTimes) -> None:
        """Keep run times for the next bag of an app."""
        text = json.dumps(times.as_dict())
        self._db.write(("INSERT OR REPLACE INTO app_times VALUES (?, ?)", (app, text)))

    # -- of the controller ---------------------------------------------------------------------

    def owner(self, name: str) -> Mapping[str, Any]:
        """Return the process that carries a bag out, or was the last to; empty before any."""
        rows = self._db.read("SELECT owner FROM bag WHERE name = ?", (name,))
        return json.loads(rows[0]["owner"]) if rows and rows[0]["owner"] else {}

    def take_over(self, name: str, owner: Mapping[str, Any], now: float) -> int:
        """Return the next epoch of a bag; from now on all older ones are refused.

        Jobs that ran are queued again: their results would come to the process that has begun them.

        Parameters
        ----------
        owner
            The process that takes it, as `identity` records it.
        """

        def update(db: sqlite3.Connection) -> int:
            db.execute(
                "UPDATE job SET state = 'queued' WHERE bag = ? AND state = 'running'", (name,)
            )
            return db.execute(
                "UPDATE bag SET epoch = epoch + 1, owner = ?, begun = coalesce(begun, ?), "
                "ended = NULL, reason = '', detail = '' WHERE name = ? RETURNING epoch",
                (json.dumps(dict(owner)), now, name),
            ).fetchone()[0]

        return self._db.transact(update)

    def open_jobs(self, name: str) -> list[OpenJob]:
        """Return the jobs that are queued."""
        return [
            OpenJob(
                row["number"],
                json.loads(row["parameters"]),
                row["attempts"],
                row["failures"],
                row["deaths"],
                row["losses"],
            )
            for row in self.rows(name, "state = 'queued'")
        ]

    def has_wishes(self, name: str) -> bool:
        """Return whether a user has asked for something that the controller does not know yet."""
        return bool(self._db.read("SELECT 1 FROM wish WHERE bag = ? LIMIT 1", (name,)))

    def record(
        self,
        name: str,
        epoch: int,
        changes: Sequence[JobChange],
        now: float,
        usd: float = 0.0,
        clusters: Sequence[str] = (),
        events: Sequence[str] = (),
        warning: str = "",
    ) -> set[str]:
        """Store changes in one transaction that is on the disk when this returns.

        Parameters
        ----------
        usd
            Cost of the machines up to now.
        clusters
            Names of the clusters that are up.
        events
            What has happened to the machines.
        warning
            What is to be known of the deadline.

        Returns
        -------
        set of str
            Wishes of users that have come since.

        Raises
        ------
        SkyRunTaken
            Another controller has taken the bag over.
        SkyStoreError
            The file cannot be written; nothing was stored.
        """

        def write(db: sqlite3.Connection) -> set[str]:
            _check_epoch(db, name, epoch)
            db.executemany(UPDATE_JOB, [job_row(name, change, now) for change in changes])
            db.executemany(INSERT_RESULT, list(result_rows(name, changes)))
            db.execute("UPDATE bag SET usd = ?, warning = ? WHERE name = ?", (usd, warning, name))
            db.executemany(
                "INSERT OR IGNORE INTO cluster VALUES (?, ?)", [(name, each) for each in clusters]
            )
            db.executemany(
                "INSERT INTO event (bag, at, text) VALUES (?, ?, ?)",
                [(name, now, text) for text in events],
            )
            return _take_wishes(db, name)

        return self._db.transact(write)

    def end(
        self, name: str, epoch: int, reason: End, detail: str, rest: JobState, now: float
    ) -> set[str]:
        """Store the end of a bag and the state of the jobs that have not run.

        Returns
        -------
        set of str
            Wishes that have come since; then it has not ended.
        """

        def write(db: sqlite3.Connection) -> set[str]:
            _check_epoch(db, name, epoch)
            if wishes := _take_wishes(db, name):
                return wishes
            db.execute(
                "UPDATE job SET state = ? WHERE bag = ? AND state IN ('queued', 'running')",
                (rest.value, name),
            )
            db.execute(
                "UPDATE bag SET ended = ?, reason = ?, detail = ? WHERE name = ?",
                (now, reason.value, detail, name),
            )
            return set()

        return self._db.transact(write)


def _check_epoch(db: sqlite3.Connection, name: str, epoch: int) -> None:
    row = db.execute("SELECT epoch, owner FROM bag WHERE name = ?", (name,)).fetchone()
    if row["epoch"] != epoch:
        owner = json.loads(row["owner"] or "{}")
        raise SkyRunTaken(
            _("process {pid} on {host} has taken the bag {name} over").format(
                pid=owner.get("pid"), host=owner.get("host"), name=name
            )
        )


def _take_wishes(db: sqlite3.Connection, name: str) -> set[str]:
    return {
        row["kind"] for row in db.execute("DELETE FROM wish WHERE bag = ? RETURNING kind", (name,))
    }


def _reopen(db: sqlite3.Connection, name: str, now: float, changed: int) -> int:
    """Let a bag go on whose queue has got jobs, and tell its controller."""
    if changed:
        db.execute("INSERT INTO wish (bag, kind, at) VALUES (?, ?, ?)", (name, RELOAD, now))
        db.execute("UPDATE bag SET ended = NULL, reason = '', detail = '' WHERE name = ?", (name,))
    return changed


# -- Tables of the queue of jobs, and the rows of changes -----------------------------------------

MIGRATIONS = (
    """
    CREATE TABLE bag (
        name TEXT PRIMARY KEY, settings TEXT NOT NULL, app BLOB NOT NULL, made REAL NOT NULL,
        begun REAL, ended REAL, reason TEXT NOT NULL DEFAULT '', detail TEXT NOT NULL DEFAULT '',
        epoch INTEGER NOT NULL DEFAULT 0, owner TEXT NOT NULL DEFAULT '',
        usd REAL NOT NULL DEFAULT 0
    );
    CREATE TABLE job (
        bag TEXT NOT NULL REFERENCES bag (name), number INTEGER NOT NULL,
        parameters TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
        failures INTEGER NOT NULL DEFAULT 0, deaths INTEGER NOT NULL DEFAULT 0,
        losses INTEGER NOT NULL DEFAULT 0, begun REAL, ended REAL,
        seconds REAL NOT NULL DEFAULT 0, usd REAL NOT NULL DEFAULT 0,
        machine TEXT NOT NULL DEFAULT '', reason TEXT NOT NULL DEFAULT '',
        summary TEXT NOT NULL DEFAULT '', PRIMARY KEY (bag, number)
    ) WITHOUT ROWID;
    CREATE TABLE result (
        bag TEXT NOT NULL, number INTEGER NOT NULL, value BLOB, output TEXT NOT NULL,
        UNIQUE (bag, number)
    );
    CREATE TABLE wish (
        id INTEGER PRIMARY KEY, bag TEXT NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL
    );
    CREATE TABLE event (
        id INTEGER PRIMARY KEY, bag TEXT NOT NULL, at REAL NOT NULL, text TEXT NOT NULL
    );
    CREATE TABLE cluster (
        bag TEXT NOT NULL, name TEXT NOT NULL, PRIMARY KEY (bag, name)
    ) WITHOUT ROWID;
    """,
    """
    ALTER TABLE bag ADD COLUMN warning TEXT NOT NULL DEFAULT '';
    CREATE TABLE app_times (app TEXT PRIMARY KEY, times TEXT NOT NULL) WITHOUT ROWID;
    """,
)
INSERT_JOB = "INSERT INTO job (bag, number, parameters, state) VALUES (?, ?, ?, 'queued')"
UPDATE_JOB = """
    UPDATE job SET state = :state, attempts = :attempts, failures = :failures, deaths = :deaths,
        losses = :losses, begun = coalesce(:begun, begun), ended = :ended,
        seconds = seconds + :seconds, usd = usd + :usd,
        machine = CASE :machine WHEN '' THEN machine ELSE :machine END, reason = :reason,
        summary = :summary
    WHERE bag = :bag AND number = :number AND state IN ('queued', 'running')
    """
INSERT_RESULT = """
    INSERT INTO result (bag, number, value, output) VALUES (?, ?, ?, ?)
    ON CONFLICT (bag, number) DO UPDATE SET value = excluded.value, output = excluded.output
        WHERE value IS NULL
    """


def job_row(name: str, change: JobChange, now: float) -> dict[str, Any]:
    """Return the values of `UPDATE_JOB`."""
    outcome, job = change.outcome, change.job
    return {
        "bag": name,
        "number": job.number,
        "state": change.state.value,
        "attempts": job.attempts,
        "failures": job.failures,
        "deaths": job.deaths,
        "losses": job.losses,
        "begun": now if change.state is JobState.RUNNING else None,
        "ended": now if change.state.is_final else None,
        "seconds": outcome.seconds if outcome else 0.0,
        "usd": change.usd,
        "machine": change.machine,
        "reason": change.reason,
        "summary": outcome.summary if outcome else "",
    }


def result_rows(
    name: str, changes: Sequence[JobChange]
) -> Iterator[tuple[str, int, bytes | None, str]]:
    """Yield the values of `INSERT_RESULT` of the attempts that have ended."""
    for change in changes:
        if change.outcome is not None:
            yield name, change.job.number, change.outcome.value, change.outcome.output
