"""Journal of runs: graphs, events and wishes in one file that survives every process.

A run has one controller at a time. Each that takes it over gets the next epoch, and what is written
under an older one is refused, so that a controller that slept cannot go on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyRunTaken, SkyUsageError, suggest
from jupyter_sky.base.store.database import Database
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.run.state import REPEATED, Event, Kind

_MIGRATIONS = (
    """
    CREATE TABLE run (
        name TEXT PRIMARY KEY, graph TEXT NOT NULL, settings TEXT NOT NULL, made REAL NOT NULL,
        epoch INTEGER NOT NULL DEFAULT 0, owner TEXT NOT NULL DEFAULT ''
    );
    CREATE TABLE event (
        run TEXT NOT NULL REFERENCES run (name), number INTEGER NOT NULL, kind TEXT NOT NULL,
        subject TEXT NOT NULL, at REAL NOT NULL, epoch INTEGER NOT NULL, data TEXT NOT NULL,
        PRIMARY KEY (run, number)
    ) WITHOUT ROWID;
    CREATE TABLE wish (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL REFERENCES run (name), kind TEXT NOT NULL,
        at REAL NOT NULL
    );
    """,
    # what is read with each event before the graph: behind it SQLite reads all pages of that
    """
    CREATE TABLE small_first (
        name TEXT PRIMARY KEY, made REAL NOT NULL, epoch INTEGER NOT NULL DEFAULT 0,
        owner TEXT NOT NULL DEFAULT '', settings TEXT NOT NULL, graph TEXT NOT NULL
    );
    INSERT INTO small_first
        SELECT name, made, epoch, owner, settings, graph FROM run ORDER BY rowid;
    DROP TABLE run;
    ALTER TABLE small_first RENAME TO run;
    """,
)
WISHES = (Kind.CANCEL, Kind.PAUSE, Kind.RESUME)


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Run as it was stored.

    Attributes
    ----------
    name
        Unique among the runs of a user.
    graph
        What it carries out.
    settings
        More of it for whoever carries out its actions; values of JSON.
    made
        Unix time.
    """

    name: str
    graph: RunGraph
    settings: Mapping[str, Any]
    made: float


class RunJournal:
    """Graphs and events of all runs of a user, in a SQLite file.

    Parameters
    ----------
    path
        Of the file.

    Examples
    --------
    >>> journal = RunJournal(Path("runs.db"))  # doctest: +SKIP
    >>> journal.add("nightly", RunGraph([RunTask("train")]), {}, now=0.0)  # doctest: +SKIP
    """

    def __init__(self, path: Path) -> None:
        self._db = Database.open(path, _MIGRATIONS)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, name: str, graph: RunGraph, settings: Mapping[str, Any], now: float) -> None:
        """Store a new run.

        Raises
        ------
        SkyUsageError
            There is one of that name.
        SkyStoreError
            The file cannot be written.
        """
        row = (name, json.dumps(graph.to_json()), json.dumps(dict(settings)), now)
        try:
            self._db.write(
                ("INSERT INTO run (name, graph, settings, made) VALUES (?, ?, ?, ?)", row),
                durable=True,
            )
        except sqlite3.IntegrityError:
            raise SkyUsageError(
                _("there is a run called {name}").format(name=name),
                hint=_("choose another name, or resume that one"),
            ) from None

    def names(self) -> list[str]:
        """Return the names of all runs, the newest last."""
        return [row["name"] for row in self._db.read("SELECT name FROM run ORDER BY made, rowid")]

    def newest(self, key: str, value: str) -> str | None:
        """Return the name of the newest run with a setting; None without one."""
        statement = (
            "SELECT name FROM run WHERE json_extract(settings, ?) = ? "
            "ORDER BY made DESC, rowid DESC LIMIT 1"
        )
        rows = self._db.read(statement, (f"$.{key}", value))
        return rows[0]["name"] if rows else None

    def read(self, name: str) -> RecordedRun:
        """Return a run.

        Raises
        ------
        SkyUsageError
            There is none of that name.
        """
        rows = self._db.read("SELECT * FROM run WHERE name = ?", (name,))
        if not rows:
            raise SkyUsageError(
                _("there is no run called {name}").format(name=name),
                hint=suggest(name, self.names()),
            )
        row = rows[0]
        graph = RunGraph.from_json(json.loads(row["graph"]))
        return RecordedRun(name, graph, json.loads(row["settings"]), row["made"])

    def note(self, name: str, key: str, value: Any) -> None:
        """Add to the settings of a run what is found out later; values of JSON."""
        statement = "UPDATE run SET settings = json_set(settings, ?, json(?)) WHERE name = ?"
        self._db.write((statement, (f"$.{key}", json.dumps(value), name)))

    def noted(self, name: str, key: str) -> Any:
        """Return a setting of a run as it is now; None without one."""
        statement = "SELECT json_quote(json_extract(settings, ?)) AS found FROM run WHERE name = ?"
        rows = self._db.read(statement, (f"$.{key}", name))
        return json.loads(rows[0]["found"]) if rows else None

    def events(self, name: str, after: int = 0) -> list[Event]:
        """Return the events of a run in their order, those with higher numbers than `after`."""
        rows = self._db.read(
            "SELECT kind, subject, at, data FROM event WHERE run = ? AND number > ? "
            "ORDER BY number",
            (name, after),
        )
        return [
            Event(Kind(row["kind"]), row["subject"], row["at"], json.loads(row["data"]))
            for row in rows
        ]

    def take_over(self, name: str, owner: Mapping[str, Any]) -> int:
        """Return the next epoch of a run; from now on all older ones are refused.

        Parameters
        ----------
        owner
            The process that takes it, as `identity` records it.
        """
        return self._db.transact(
            lambda db: db.execute(
                "UPDATE run SET epoch = epoch + 1, owner = ? WHERE name = ? RETURNING epoch",
                (json.dumps(dict(owner)), name),
            ).fetchone()[0]
        )

    def owner(self, name: str) -> Mapping[str, Any]:
        """Return the process that carries a run out, or was the last to; empty before any."""
        rows = self._db.read("SELECT owner FROM run WHERE name = ?", (name,))
        return _read_owner(rows[0]["owner"]) if rows else {}

    def append(self, name: str, epoch: int, events: Sequence[Event]) -> list[Event]:
        """Store events in one transaction.

        It is on the disk when this returns, unless all are of kinds that are `REPEATED`.

        Returns
        -------
        list of Event
            Wishes of users that have come since; they are stored behind the given events.

        Raises
        ------
        SkyRunTaken
            Another controller has taken the run over.
        SkyStoreError
            The file cannot be written; nothing was stored.
        """
        is_durable = any(event.kind not in REPEATED for event in events)
        return self._db.transact(lambda db: _append(db, name, epoch, events), is_durable)

    def wish(self, name: str, kind: Kind, now: float) -> None:
        """Ask the controller of a run, whichever process it is, to cancel, pause or resume it."""
        self._db.write(
            ("INSERT INTO wish (run, kind, at) VALUES (?, ?, ?)", (name, kind.value, now)),
            durable=True,
        )

    def has_wishes(self, name: str) -> bool:
        """Whether a user has asked for something that is not stored as an event yet."""
        return bool(self._db.read("SELECT 1 FROM wish WHERE run = ? LIMIT 1", (name,)))


def _read_owner(text: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _append(db: sqlite3.Connection, name: str, epoch: int, events: Sequence[Event]) -> list[Event]:
    row = db.execute("SELECT epoch, owner FROM run WHERE name = ?", (name,)).fetchone()
    if row["epoch"] != epoch:
        owner = _read_owner(row["owner"])
        raise SkyRunTaken(
            _("process {pid} on {host} has taken the run {name} over").format(
                pid=owner.get("pid"), host=owner.get("host"), name=name
            )
        )
    wished = db.execute(
        "DELETE FROM wish WHERE run = ? RETURNING kind, at, number", (name,)
    ).fetchall()
    wishes = [
        Event(Kind(wish["kind"]), "", wish["at"])
        for wish in sorted(wished, key=lambda wish: wish["number"])
    ]
    last = db.execute("SELECT max(number) FROM event WHERE run = ?", (name,)).fetchone()[0] or 0
    db.executemany(
        "INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (name, number, e.kind.value, e.subject, e.at, epoch, json.dumps(dict(e.data)))
            for number, e in enumerate((*events, *wishes), last + 1)
        ],
    )
    return wishes
