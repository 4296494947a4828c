"""One SQLite file that remembers clusters, what they were billed, and the runs on them.

Times are unix seconds, prices USD/h of a whole cluster, ``None`` a price that nobody knows. A store
never stops a cell for the sake of a record: where the disk refuses, it says so in ``notices``.
"""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from .database import Database
from .errors import SkyStoreError
from .schema import MIGRATIONS

_JSON = {"offer", "machines", "connection"}

_LATEST = "(SELECT id FROM clusters WHERE name = ? ORDER BY created DESC LIMIT 1)"
_OF = "WHERE name = ifnull(?, name) AND notebook = ifnull(?, notebook)"
_GUEST = (
    "NOT EXISTS (SELECT 1 FROM clusters "
    "WHERE clusters.name = runs.cluster AND clusters.notebook = runs.notebook)"
)
_OPEN = f"ended IS NULL AND cluster_id = {_LATEST}"
_CLOSE = f"UPDATE intervals SET ended = MAX(started, ?) WHERE {_OPEN}"
_CLOSE_KNOWN = (
    "UPDATE intervals SET ended = MAX(started, ?) WHERE id = (SELECT id FROM intervals "
    f"WHERE cluster_id = {_LATEST} ORDER BY started DESC LIMIT 1) AND ifnull(ended, 9e99) > ?"
)
_OPEN_NEW = f"INSERT INTO intervals VALUES (?, {_LATEST}, ?, ?, ?, NULL)"


@dataclass(frozen=True, slots=True)
class ClusterRow:
    """A cluster: what was asked for, what came up, how to reach it (paths and ids, no secrets)."""

    name: str
    state: str  # 'starting', 'up', 'down' or 'lost'
    cloud: str
    region: str
    instance_type: str
    spot: bool
    price: float | None  # USD/h of all nodes
    nodes: int
    resources: str  # as on the command line
    offer: dict[str, Any]
    machines: list[dict[str, Any]]
    connection: dict[str, Any]
    notebook: str
    created: float
    idle: float  # seconds
    price_source: str
    price_date: str
    note: str = ""  # why it ended
    kept: float = 0.0  # it does not end for idleness before this time


@dataclass(frozen=True, slots=True)
class IntervalRow:
    """A stretch of a cluster's life at one price, with what the ledger groups by."""

    cluster: str
    cluster_created: float
    notebook: str
    cloud: str
    price: float | None
    started: float
    last_beat: float
    ended: float | None
    price_source: str
    price_date: str


@dataclass(frozen=True, slots=True)
class SpendRow:
    """An amount that is not by the hour, such as the egress of a transfer."""

    cluster: str
    notebook: str
    cloud: str
    what: str
    usd: float | None
    at: float


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of a cell on a cluster."""

    run_id: str
    notebook: str
    session: str
    cell: int  # execution count
    name: str | None
    cluster: str
    code: str  # the first 200 characters
    price: float | None  # USD/h of the whole cluster when the run began
    nodes: int  # that have it; 0 as long as it has reached none, and costs nothing
    started: float  # when it was sent to them; before, when its cell began
    ended: float | None
    last_beat: float
    status: str  # 'waiting', 'running', 'ok', 'error', 'interrupted', 'lost' or 'cancelled'
    shown: int  # messages already shown in the notebook
    owner_pid: int
    cell_id: str | None = None  # JupyterLab's own name of the cell
    stage: str = "running"  # as in the status line
    stop: str = ""  # who wants it to stop, such as 'in the browser'
    allowed: float | None = None  # seconds that it may take, by --timeout and --max-cost


_CLUSTER_COLUMNS = ", ".join(f.name for f in fields(ClusterRow))
_PUT_CLUSTER = (
    f"INSERT INTO clusters ({_CLUSTER_COLUMNS}) "
    f"VALUES ({', '.join(':' + f.name for f in fields(ClusterRow))}) "
    "ON CONFLICT (name, created) DO UPDATE SET "
    + ", ".join(f"{f.name} = excluded.{f.name}" for f in fields(ClusterRow) if f.name != "kept")
)
_BEGIN_RUN = f"INSERT INTO runs VALUES ({', '.join(':' + f.name for f in fields(RunRow))})"
_CHANGED = "cluster price nodes started ended status stage allowed".split()
_UPDATE_RUN = (
    f"UPDATE runs SET {', '.join(f'{name} = :{name}' for name in _CHANGED)}, "
    "last_beat = MAX(last_beat, :last_beat) WHERE run_id = :run_id"
)
_STAGES = {"ok": "done", "error": "failed"}  # of runs that have ended; others are called the same


class Store:
    """The store of one user, safe to share between threads and between processes.

    A write that another process holds up, or that the disk refuses, is queued in memory and tried
    again at the next call, so recording never breaks the work that is recorded.

    Attributes
    ----------
    notices : list of str
        Sentences for the user about what went wrong at opening or writing.
    durable : bool
        Whether it is in a file that others can read later.
    database : Database
        The file itself, for the tracker, which keeps its observations in it too.

    Examples
    --------
    >>> store = Store.open(Path(jupyter_data_dir()) / "jupyter_sky")  # doctest: +SKIP
    >>> [cluster.name for cluster in store.clusters()]  # doctest: +SKIP
    ['train-3f2a']
    """

    def __init__(self, db: Database) -> None:
        self._db = self.database = db
        self.notices, self.durable = db.notices, db.durable

    @classmethod
    def open(cls, data_dir: Path) -> Store:
        """Open or create ``sky.db`` in `data_dir`.

        A corrupt file is kept under another name and a new one is started; where nothing can be
        written the store lives in memory. Both are told in ``notices``.

        Raises
        ------
        SkyStoreError
            When another process holds the file locked, or a newer version wrote it.
        """
        return cls(Database.open(Path(data_dir) / "sky.db", MIGRATIONS))

    def close(self) -> None:
        """Try the queued writes once more and close the file."""
        self._db.close()

    # -- clusters -------------------------------------------------------------------------------

    def put_cluster(self, row: ClusterRow) -> None:
        """Insert a cluster, or update the one of the same name and time of creation.

        Raises
        ------
        SkyStoreError
            When another cluster of this name is up or starting.
        """
        values = {f.name: getattr(row, f.name) for f in fields(row)}
        values |= {name: json.dumps(values[name]) for name in _JSON}
        # What an earlier cluster of this name left open must not go on costing.
        tidy = (
            "UPDATE intervals SET ended = last_beat WHERE ended IS NULL AND cluster_id IN (SELECT "
            "id FROM clusters WHERE name = ? AND created < ? AND state NOT IN ('starting', 'up'))"
        )
        try:
            self._db.write((_PUT_CLUSTER, values), (tidy, (row.name, row.created)))
        except sqlite3.IntegrityError as error:
            hint = "take it down first or choose another name"
            raise SkyStoreError(f"a cluster named {row.name} is up already", hint=hint) from error

    def cluster(self, name: str) -> ClusterRow | None:
        """The latest cluster of this name, whatever its state."""
        sql = f"SELECT {_CLUSTER_COLUMNS} FROM clusters WHERE id = {_LATEST}"
        return next((_cluster(row) for row in self._db.read(sql, (name,))), None)

    def clusters(self, live_only: bool = True) -> list[ClusterRow]:
        """The clusters that are up, or all that ever were, oldest first."""
        return self._clusters("WHERE state = 'up'" if live_only else "")

    def starting(self) -> list[ClusterRow]:
        """The clusters that somebody is launching, or was when it was killed."""
        return self._clusters("WHERE state = 'starting'")

    def _clusters(self, where: str) -> list[ClusterRow]:
        sql = f"SELECT {_CLUSTER_COLUMNS} FROM clusters {where} ORDER BY created"
        return [_cluster(row) for row in self._db.read(sql)]

    def drop_cluster(self, name: str, created: float) -> None:
        """Forget a cluster of which no machine ever came up."""
        self._db.write(("DELETE FROM clusters WHERE name = ? AND created = ?", (name, created)))

    def set_cluster_state(self, name: str, state: str, at: float, note: str = "") -> None:
        """Set the state of the latest cluster of this name; ``'down'`` ends its billing at `at`."""
        ended = None if state in ("starting", "up") else at
        update = f"UPDATE clusters SET state = ?, ended = ?, note = ? WHERE id = {_LATEST}"
        close = [(_CLOSE, (at, name))] if state == "down" else []
        self._db.write((update, (state, ended, note, name)), *close)

    def keep_cluster(self, name: str, until: float) -> None:
        """Note until when a cluster does not end for idleness."""
        self._db.write((f"UPDATE clusters SET kept = ? WHERE id = {_LATEST}", (until, name)))

    # -- intervals ------------------------------------------------------------------------------

    def open_interval(self, cluster: str, price: float | None, at: float) -> int:
        """Bill `cluster` at `price` USD/h from `at` on; an interval still open ends there.

        Raises
        ------
        SkyStoreError
            When no cluster of this name was put.
        """
        # The id is drawn here because the insertion itself may have to wait in the queue.
        interval = secrets.randbits(62)
        opening = (_OPEN_NEW, (interval, cluster, price, at, at))
        try:
            self._db.write((_CLOSE, (at, cluster)), opening)
        except sqlite3.IntegrityError as error:
            raise SkyStoreError(f"no cluster named {cluster} is in the store") from error
        return interval

    def beat(self, cluster: str, at: float) -> None:
        """Record that the cluster was seen alive."""
        sql = f"UPDATE intervals SET last_beat = MAX(last_beat, ?) WHERE {_OPEN}"
        self._db.write((sql, (at, cluster)))

    def change_price(self, cluster: str, price: float | None, at: float) -> None:
        """Bill at another price from `at` on; nothing changes when the price is the same."""
        sql = f"SELECT price FROM intervals WHERE {_OPEN}"
        if any(row["price"] != price for row in self._db.read(sql, (cluster,))):
            self.open_interval(cluster, price, at)

    def close_interval(self, cluster: str, at: float) -> None:
        """End the billing of a cluster."""
        self._db.write((_CLOSE, (at, cluster)))

    def close_dead(self, cluster: str, ended: float | None) -> None:
        """End the billing of a cluster that died unseen.

        It ends at `ended` when that is known, even if it was closed later before; otherwise at its
        last heartbeat.
        """
        if ended is None:
            self._db.write((f"UPDATE intervals SET ended = last_beat WHERE {_OPEN}", (cluster,)))
        else:
            self._db.write((_CLOSE_KNOWN, (ended, cluster, ended)))

    def intervals(
        self,
        cluster: str | None = None,
        notebook: str | None = None,
        since: float = -math.inf,
    ) -> list[IntervalRow]:
        """The intervals of a cluster, of the clusters that a notebook created, or of all.

        Those that ended before `since` are left out.
        """
        sql = (
            "SELECT name AS cluster, created AS cluster_created, notebook, cloud, "
            "intervals.price AS price, started, last_beat, intervals.ended AS ended, price_source, "
            "price_date FROM intervals JOIN clusters ON clusters.id = cluster_id "
            f"{_OF} AND ifnull(intervals.ended, 9e99) >= ? ORDER BY started"
        )
        return [IntervalRow(*row) for row in self._db.read(sql, (cluster, notebook, since))]

    # -- spend ----------------------------------------------------------------------------------

    def add_spend(self, cluster: str, what: str, usd: float | None, at: float) -> None:
        """Record an amount that is not by the hour."""
        sql = f"INSERT INTO spend (cluster_id, what, usd, at) VALUES ({_LATEST}, ?, ?, ?)"
        self._db.write((sql, (cluster, what, usd, at)))

    def spend(
        self,
        cluster: str | None = None,
        notebook: str | None = None,
        since: float = -math.inf,
    ) -> list[SpendRow]:
        """The amounts that are not by the hour, chosen as for `intervals`."""
        sql = (
            "SELECT name AS cluster, notebook, cloud, what, usd, at FROM spend "
            f"JOIN clusters ON clusters.id = cluster_id {_OF} AND at >= ? ORDER BY at"
        )
        return [SpendRow(**dict(row)) for row in self._db.read(sql, (cluster, notebook, since))]

    # -- runs -----------------------------------------------------------------------------------

    def begin_run(self, row: RunRow) -> None:
        """Record that a run began."""
        self._db.write((_BEGIN_RUN, _run_values(row)))

    def update_run(self, row: RunRow) -> None:
        """Record how far a run has come, and where."""
        self._db.write((_UPDATE_RUN, _run_values(row)))

    def stop_run(self, run_id: str, who: str) -> None:
        """Ask whoever watches a run to stop it; `who` is told to its user."""
        sql = "UPDATE runs SET stop = ? WHERE run_id = ? AND ended IS NULL"
        self._db.write((sql, (who, run_id)))

    def stop_of(self, run_id: str) -> str:
        """Who wants a run to stop; empty while nobody does."""
        rows = self._db.read("SELECT stop FROM runs WHERE run_id = ?", (run_id,))
        return next((row["stop"] for row in rows), "")

    def add_run(self, row: RunRow) -> None:
        """Record a run that is over already, with the next heartbeat at the latest.

        It is too short a run for its cell to wait for a disk.
        """
        self._db.defer((_BEGIN_RUN, _run_values(row)))

    def beat_run(self, run_id: str, at: float, shown: int) -> None:
        """Record that a run was seen going on, with `shown` messages in the notebook so far."""
        sql = "UPDATE runs SET last_beat = MAX(last_beat, ?), shown = ? WHERE run_id = ?"
        self._db.write((sql, (at, shown, run_id)))

    def end_run(self, run_id: str, status: str, at: float) -> None:
        """Record how and when a run ended."""
        sql = "UPDATE runs SET status = ?, stage = ?, ended = ?, last_beat = ? WHERE run_id = ?"
        self._db.write((sql, (status, _STAGES.get(status, status), at, at, run_id)))

    def close_run_at_beat(self, run_id: str, status: str = "lost") -> None:
        """End at its last heartbeat a run that a killed kernel left open."""
        sql = (
            "UPDATE runs SET status = ?, stage = ?, ended = last_beat "
            "WHERE run_id = ? AND ended IS NULL"
        )
        self._db.write((sql, (status, _STAGES.get(status, status), run_id)))

    def run(self, run_id: str) -> RunRow | None:
        """The run of this id."""
        rows = self._db.read("SELECT * FROM runs WHERE run_id = ?", (run_id,))
        return next((RunRow(**dict(row)) for row in rows), None)

    def runs(
        self,
        notebook: str | None = None,
        cluster: str | None = None,
        status: str | None = None,
        limit: int | None = 100,
        *,
        guests_only: bool = False,
        unsent: bool = False,
        since: float = -math.inf,
    ) -> list[RunRow]:
        """The latest runs first, of a notebook, a cluster, a status.

        ``limit=None`` gives all; `guests_only` those on clusters that another notebook created;
        `unsent` also those that have reached no node (yet). Those that ended before `since` are
        left out.
        """
        wanted = {"notebook": notebook, "cluster": cluster, "status": status}
        wanted = {column: value for column, value in wanted.items() if value is not None}
        tests = [f"{column} = ?" for column in wanted]
        tests += [_GUEST] * guests_only + ["nodes > 0"] * (not unsent)
        where = " AND ".join([*tests, "ifnull(ended, 9e99) >= ?"])
        sql = f"SELECT * FROM runs WHERE {where} ORDER BY started DESC, rowid DESC LIMIT ?"
        rows = self._db.read(sql, (*wanted.values(), since, -1 if limit is None else limit))
        return [RunRow(**dict(row)) for row in rows]

    # -- what all processes of a user share -----------------------------------------------------

    def setting(self, name: str) -> str | None:
        """A value that some process of this user has set."""
        rows = self._db.read("SELECT value FROM settings WHERE name = ?", (name,))
        return next((row["value"] for row in rows), None)

    def set_setting(self, name: str, value: str | None) -> None:
        """Set a value for every process of this user; None takes it away."""
        if value is None:
            self._db.write(("DELETE FROM settings WHERE name = ?", (name,)))
        else:
            sql = "INSERT OR REPLACE INTO settings VALUES (?, ?)"
            self._db.write((sql, (name, value)))

    def changes(self) -> str:
        """A word that is another one as soon as any process has written something."""
        return self._db.changes()


def _run_values(row: RunRow) -> dict[str, Any]:
    return {f.name: getattr(row, f.name) for f in fields(row)} | {"code": row.code[:200]}


def _cluster(row: sqlite3.Row) -> ClusterRow:
    values = dict(row)
    values |= {name: json.loads(values[name]) for name in _JSON}
    values["spot"] = bool(values["spot"])
    return ClusterRow(**values)
