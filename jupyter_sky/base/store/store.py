"""SQLite store of clusters, their bills, and the runs on them.

Times are unix seconds, prices USD/h of a whole cluster, ``None`` an unknown price. A store never
stops a cell for the sake of a record: when the disk refuses, ``notices`` has a sentence about it.
"""

from __future__ import annotations

import json
import math
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyNameTaken, SkyStoreError
from jupyter_sky.base.store.database import Database
from jupyter_sky.base.store.rows import (
    TRANSFERS,
    ClusterId,
    ClusterRow,
    IntervalRow,
    RunRow,
    SpendRow,
)
from jupyter_sky.base.store.run_records import RunRecords
from jupyter_sky.base.store.statements import (
    BEGUN_CONDITION,
    CLOSE,
    CLUSTER_COLUMNS,
    CLUSTER_CONDITION,
    CORRECT,
    END,
    END_RUNS,
    ID,
    IS_LAST,
    IS_LIVE,
    LIVE_ID,
    OPEN,
    PUT_CLUSTER,
    SURCHARGE_SHARE,
)
from jupyter_sky.base.translation import _

__all__ = ["ClusterId", "ClusterRow", "IntervalRow", "RunRow", "SpendRow", "Store"]

_JSON = {"offer", "machines", "connection"}


class Store(RunRecords):
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
        super().__init__(db)
        self.database = db
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

    def save_cluster(self, row: ClusterRow, *, durable: bool = False) -> bool:
        """Insert a cluster, or update it while it is live; return whether that took effect.

        Parameters
        ----------
        durable
            Return only once the row is on the disk: what it announces will cost something.

        Raises
        ------
        SkyNameTaken
            When another cluster of this name is up or starting.
        SkyStoreError
            When a durable row cannot be written now.
        """
        return self._put(row, [], durable)

    def record_launch(self, row: ClusterRow, at: float) -> bool:
        """Update a cluster whose machines have come up and open its bill, in one transaction.

        Returns
        -------
        bool
            False when it is live no more: another process has taken it for abandoned.
        """
        values = self._cluster_key(row.id, interval=secrets.randbits(62), price=row.price, at=at)
        missing = f" AND NOT EXISTS (SELECT 1 FROM intervals WHERE cluster_id = {LIVE_ID})"
        return self._put(row, [(OPEN + missing, values)])

    def _put(self, row: ClusterRow, more: list[Any], durable: bool = False) -> bool:
        try:
            counts = self._db.write((PUT_CLUSTER, _cluster_values(row)), *more, durable=durable)
        except sqlite3.IntegrityError as error:
            raise _name_taken_error(row.name) from error
        return counts is None or counts[0] > 0

    def insert_launch(self, row: ClusterRow, check: Callable[[], None]) -> None:
        """Insert a cluster if `check` agrees; no other process writes between the two.

        Parameters
        ----------
        check
            Reads this store, and raises to refuse.

        Raises
        ------
        SkyNameTaken
            When another cluster of this name is up or starting.
        SkyStoreError
            When it cannot be written now.
        """

        def work(db: sqlite3.Connection) -> None:
            check()
            db.execute(PUT_CLUSTER, _cluster_values(row))

        try:
            self._db.transact(work)
        except sqlite3.IntegrityError as error:
            raise _name_taken_error(row.name) from error

    def renew_launch(self, cluster: ClusterId, at: float) -> bool:
        """Record that the process that launches a cluster lives; return whether it still starts."""
        sql = (
            "UPDATE clusters SET renewed = MAX(renewed, :at) "
            "WHERE name = :name AND created = :created AND state = 'starting'"
        )
        counts = self._db.write((sql, self._cluster_key(cluster, at=at)), latest=f"renew {cluster}")
        return counts is None or counts[-1] > 0

    def cluster(self, name: str) -> ClusterRow | None:
        """Return the latest cluster of this name, whatever its state."""
        rows = self._clusters("WHERE name = :name", {"name": name})
        return rows[-1] if rows else None

    def find_cluster(self, cluster: ClusterId) -> ClusterRow | None:
        """Return one cluster, whatever its state; None if it is unknown."""
        rows = self._clusters(
            "WHERE name = :name AND created = :created", self._cluster_key(cluster)
        )
        return rows[0] if rows else None

    def clusters(self, live_only: bool = True) -> list[ClusterRow]:
        """Return the clusters that are up, or all that ever were, oldest first."""
        return self._clusters("WHERE state = 'up'" if live_only else "")

    def starting_clusters(self) -> list[ClusterRow]:
        """Return the clusters whose launch has not ended, also by a process that was killed."""
        return self._clusters("WHERE state = 'starting'")

    def stopped_clusters(self) -> list[ClusterRow]:
        """Return the clusters that were stopped, and whose disks are kept."""
        return self._clusters("WHERE state = 'stopped'")

    def live_clusters(self) -> list[ClusterRow]:
        """Return the clusters that are up, starting or stopped, at one point in time."""
        return self._clusters(f"WHERE {IS_LIVE}")

    def _clusters(self, where: str, values: dict[str, Any] | None = None) -> list[ClusterRow]:
        sql = f"SELECT {CLUSTER_COLUMNS} FROM clusters {where} ORDER BY created"
        return [_cluster(row) for row in self._db.read(sql, values or {})]

    def delete_cluster(self, cluster: ClusterId) -> bool:
        """Delete a cluster of which no machine ever came up; return whether it was there."""
        sql = (
            "DELETE FROM clusters WHERE name = :name AND created = :created AND state = 'starting' "
            "AND NOT EXISTS (SELECT 1 FROM intervals WHERE cluster_id = clusters.id)"
        )
        return self._changed((sql, self._cluster_key(cluster)))

    def end_cluster(
        self,
        cluster: ClusterId,
        state: str,
        at: float,
        note: str = "",
        *,
        bounded: bool = False,
        session: str = "",
    ) -> bool:
        """End a live cluster, its bill and the runs on it, in one transaction.

        Only the first call for a cluster takes effect, of whichever process.

        Parameters
        ----------
        state
            ``down`` when it was requested, else ``lost``.
        at
            Time of its end, unix seconds.
        note
            Reason, for the user.
        bounded
            Its end was not observed: `at` is the latest possible time.
        session
            Session whose runs are left open: it ends them itself.

        Returns
        -------
        bool
            Whether it was live before.
        """
        values = self._cluster_key(
            cluster, state=state, at=at, note=note, session=session, bounded=bounded
        )
        counts = self._db.write((CLOSE, values), (END_RUNS, values), (END, values))
        return counts is None or counts[-1] > 0

    def move_end_earlier(self, cluster: ClusterId, at: float) -> None:
        """Move the end of a closed bill to an earlier time, once it is known."""
        values = self._cluster_key(cluster, at=at)
        sql = (
            "UPDATE clusters SET ended = :at WHERE name = :name AND created = :created "
            f"AND NOT {IS_LIVE} AND ended > :at"
        )
        self._db.write((CORRECT, values), (sql, values))

    def set_cluster_note(self, cluster: ClusterId, note: str) -> bool:
        """Record the reason why a live cluster is about to end; empty to remove it."""
        sql = f"UPDATE clusters SET note = :note WHERE id = {LIVE_ID}"
        return self._changed((sql, self._cluster_key(cluster, note=note)))

    def keep_cluster_until(self, cluster: ClusterId, until: float) -> bool:
        """Record the time until which a cluster does not end for idleness."""
        sql = f"UPDATE clusters SET kept = :until WHERE id = {LIVE_ID}"
        return self._changed((sql, self._cluster_key(cluster, until=until)))

    @staticmethod
    def _cluster_key(cluster: ClusterId, **values: Any) -> dict[str, Any]:
        return {"name": cluster.name, "created": cluster.created, **values}

    def _changed(self, statement: tuple[str, dict[str, Any]]) -> bool:
        counts = self._db.write(statement)
        return counts is None or counts[0] > 0

    # -- intervals ------------------------------------------------------------------------------

    def begin_interval(self, cluster: ClusterId, price: float | None, at: float) -> int:
        """Bill a live cluster at `price` USD/h from `at` on; an interval still open ends there.

        Raises
        ------
        SkyStoreError
            When there is no such cluster, or it has ended.
        """
        # The id is drawn here because the insertion itself may have to wait in the queue.
        interval = secrets.randbits(62)
        values = self._cluster_key(cluster, interval=interval, price=price, at=at, bounded=False)
        counts = self._db.write((CLOSE, values), (OPEN, values))
        if counts is not None and not counts[-1]:
            raise SkyStoreError(
                _("no cluster named {name} of that time is up or starting").format(
                    name=cluster.name
                )
            )
        return interval

    def add_late_interval(
        self, cluster: ClusterId, price: float | None, started: float, ended: float
    ) -> None:
        """Bill a stretch of an ended cluster beyond its last interval.

        The end is an upper bound: another process closed the account while machines came up.
        """
        last = f"ifnull((SELECT MAX(ended) FROM intervals WHERE cluster_id = {ID}), :started)"
        sql = (
            "INSERT INTO intervals (id, cluster_id, price, started, last_beat, ended, bounded) "
            f"SELECT :interval, id, :price, MAX(:started, {last}), :ended, :ended, 1 FROM clusters "
            f"WHERE id = {ID} AND NOT {IS_LIVE} AND MAX(:started, {last}) < :ended"
        )
        values = {"interval": secrets.randbits(62), "price": price}
        self._db.write((sql, self._cluster_key(cluster, started=started, ended=ended, **values)))

    def record_heartbeat(self, cluster: ClusterId, at: float) -> None:
        """Record that a live cluster was seen alive."""
        sql = (
            "UPDATE intervals SET last_beat = MAX(last_beat, :at) "
            f"WHERE ended IS NULL AND cluster_id = {LIVE_ID}"
        )
        self._db.write((sql, self._cluster_key(cluster, at=at)), latest=f"heartbeat {cluster}")

    def change_price(self, cluster: ClusterId, price: float | None, at: float) -> None:
        """Bill at another price from `at` on; nothing changes when the price is the same."""
        sql = f"SELECT price FROM intervals WHERE ended IS NULL AND cluster_id = {LIVE_ID}"
        if any(row["price"] != price for row in self._db.read(sql, self._cluster_key(cluster))):
            self.begin_interval(cluster, price, at)

    def intervals(
        self,
        cluster: str | None = None,
        notebook: str | None = None,
        since: float = -math.inf,
    ) -> list[IntervalRow]:
        """Return the intervals of a cluster, of the clusters that a notebook created, or of all.

        Those that ended before `since` are left out.
        """
        sql = (
            "SELECT name AS cluster, created AS cluster_created, notebook, cloud, "
            "intervals.price AS price, started, last_beat, intervals.ended AS ended, price_source, "
            f"price_date, bounded, {BEGUN_CONDITION} AS begun, {IS_LAST} AS is_last, "
            f"{SURCHARGE_SHARE} AS surcharge_share "
            "FROM intervals JOIN clusters ON clusters.id = cluster_id "
            f"{CLUSTER_CONDITION} AND ifnull(intervals.ended, 9e99) >= ? ORDER BY started"
        )
        rows = self._db.read(sql, (cluster, notebook, since))
        return [_interval(row) for row in rows]

    # -- spend ----------------------------------------------------------------------------------

    def add_other_cost(self, cluster: ClusterId, what: str, usd: float | None, at: float) -> None:
        """Record an amount that is not by the hour."""
        sql = f"INSERT INTO spend (cluster_id, what, usd, at) SELECT {ID}, :what, :usd, :at"
        self._db.write((sql, self._cluster_key(cluster, what=what, usd=usd, at=at)))

    def record_transfer_cost(
        self, transfer: str, what: str, usd: float | None, *, notebook: str, cloud: str, at: float
    ) -> None:
        """Record what a transfer between stores costs up to now, in place of what it did before.

        Parameters
        ----------
        transfer
            Its name.
        what
            Description, such as its addresses and bytes.
        notebook, cloud
            Who pays, and to whom.
        """
        sql = (
            "INSERT INTO spend (transfer, what, usd, notebook, cloud, at) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (transfer) DO UPDATE SET what = excluded.what, usd = excluded.usd"
        )
        self._db.write((sql, (transfer, what, usd, notebook, cloud, at)))

    def other_costs(
        self,
        cluster: str | None = None,
        notebook: str | None = None,
        since: float = -math.inf,
    ) -> list[SpendRow]:
        """Return the amounts that are not by the hour, selected as for `intervals`."""
        sql = (
            f"SELECT * FROM (SELECT ifnull(name, '{TRANSFERS}') AS cluster, "
            "ifnull(clusters.notebook, spend.notebook) AS notebook, "
            "ifnull(clusters.cloud, spend.cloud) AS cloud, what, usd, at "
            "FROM spend LEFT JOIN clusters ON clusters.id = cluster_id) "
            "WHERE cluster = ifnull(?, cluster) AND notebook = ifnull(?, notebook) AND at >= ? "
            "ORDER BY at"
        )
        return [SpendRow(**dict(row)) for row in self._db.read(sql, (cluster, notebook, since))]

    # -- settings of all processes of a user ----------------------------------------------------

    def setting(self, name: str) -> str | None:
        """Return a setting that any process of this user has stored."""
        rows = self._db.read("SELECT value FROM settings WHERE name = ?", (name,))
        return next((row["value"] for row in rows), None)

    def set_setting(self, name: str, value: str | None) -> None:
        """Set a value for every process of this user; None takes it away."""
        if value is None:
            self._db.write(("DELETE FROM settings WHERE name = ?", (name,)))
        else:
            sql = "INSERT OR REPLACE INTO settings VALUES (?, ?)"
            self._db.write((sql, (name, value)))

    def change_marker(self) -> str:
        """Return a marker that changes with every write of any process."""
        return self._db.change_marker()


def _interval(row: sqlite3.Row) -> IntervalRow:
    values = dict(row)
    values |= {name: bool(values[name]) for name in ("bounded", "is_last")}
    return IntervalRow(**values)


def _name_taken_error(name: str) -> SkyNameTaken:
    hint = "take it down first or choose another name"
    return SkyNameTaken(_("a cluster named {name} is up already").format(name=name), hint=hint)


def _cluster_values(row: ClusterRow) -> dict[str, Any]:
    values = {f.name: getattr(row, f.name) for f in fields(row)}
    return values | {name: json.dumps(values[name]) for name in _JSON}


def _cluster(row: sqlite3.Row) -> ClusterRow:
    values = dict(row)
    values |= {name: json.loads(values[name]) for name in _JSON}
    values["spot"] = bool(values["spot"])
    return ClusterRow(**values)


# -- The schema of the store: one script for each version, applied one after the other ------------
#
# ``PRAGMA user_version`` of a file says how many it has had. A script that has been released is
# never changed: the next version is a script of its own.

MIGRATIONS = (
    """
    CREATE TABLE clusters (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, cloud TEXT NOT NULL,
        region TEXT NOT NULL, instance_type TEXT NOT NULL, spot INTEGER NOT NULL, price REAL,
        nodes INTEGER NOT NULL, resources TEXT NOT NULL, offer TEXT NOT NULL,
        machines TEXT NOT NULL, connection TEXT NOT NULL, notebook TEXT NOT NULL,
        created REAL NOT NULL, idle REAL NOT NULL, price_source TEXT NOT NULL,
        price_date TEXT NOT NULL, ended REAL, UNIQUE (name, created));
    CREATE UNIQUE INDEX clusters_live ON clusters (name) WHERE state = 'up';
    CREATE TABLE intervals (
        id INTEGER PRIMARY KEY, cluster_id INTEGER NOT NULL REFERENCES clusters, price REAL,
        started REAL NOT NULL, last_beat REAL NOT NULL, ended REAL);
    CREATE INDEX intervals_cluster ON intervals (cluster_id);
    CREATE UNIQUE INDEX intervals_open ON intervals (cluster_id) WHERE ended IS NULL;
    CREATE TABLE runs (
        run_id TEXT PRIMARY KEY, notebook TEXT NOT NULL, session TEXT NOT NULL,
        cell INTEGER NOT NULL, name TEXT, cluster TEXT NOT NULL, code TEXT NOT NULL, price REAL,
        nodes INTEGER NOT NULL, started REAL NOT NULL, ended REAL, last_beat REAL NOT NULL,
        status TEXT NOT NULL, shown INTEGER NOT NULL, owner_pid INTEGER NOT NULL);
    CREATE INDEX runs_cell ON runs (notebook, cell);
    CREATE INDEX runs_started ON runs (started);
    CREATE TABLE spend (
        id INTEGER PRIMARY KEY, cluster_id INTEGER NOT NULL REFERENCES clusters,
        what TEXT NOT NULL, usd REAL, at REAL NOT NULL)
    """,
    # what the tracker sees; spot_prices keeps one row for each place and time
    """
    CREATE TABLE observations (
        id INTEGER PRIMARY KEY, kind TEXT NOT NULL, cause TEXT NOT NULL, cloud TEXT NOT NULL,
        region TEXT NOT NULL, zone TEXT NOT NULL, instance_type TEXT NOT NULL,
        spot INTEGER NOT NULL, at REAL NOT NULL, seconds REAL, weight REAL NOT NULL,
        events INTEGER NOT NULL, why TEXT NOT NULL);
    CREATE INDEX observations_at ON observations (at);
    CREATE TABLE spot_prices (
        cloud TEXT NOT NULL, region TEXT NOT NULL, zone TEXT NOT NULL,
        instance_type TEXT NOT NULL, at REAL NOT NULL, usd REAL NOT NULL,
        PRIMARY KEY (cloud, region, instance_type, zone, at)) WITHOUT ROWID;
    CREATE TABLE tracker_state (compacted REAL NOT NULL);
    INSERT INTO tracker_state VALUES (0)
    """,
    # a cluster is written down before its machines are launched, and its name is taken from then on
    """
    DROP INDEX clusters_live;
    CREATE UNIQUE INDEX clusters_live ON clusters (name) WHERE state IN ('starting', 'up')
    """,
    # what the panel shows: of a run which cell it is, how far it has come, who wants it to stop, of
    # a cluster why it ended and until when it is kept; settings that processes of a user share
    """
    ALTER TABLE runs ADD COLUMN cell_id TEXT;
    ALTER TABLE runs ADD COLUMN stage TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN stop TEXT NOT NULL DEFAULT '';
    ALTER TABLE runs ADD COLUMN allowed REAL;
    UPDATE runs SET stage = CASE status WHEN 'ok' THEN 'done' WHEN 'error' THEN 'failed'
        ELSE status END;
    ALTER TABLE clusters ADD COLUMN note TEXT NOT NULL DEFAULT '';
    ALTER TABLE clusters ADD COLUMN kept REAL NOT NULL DEFAULT 0;
    CREATE INDEX runs_open ON runs (started) WHERE ended IS NULL;
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
    """,
    # who launches a cluster, and who watches a run, is told across machines and boots: by the
    # identity of a process and its last sign of life; an end that nobody saw is an upper bound
    """
    ALTER TABLE clusters ADD COLUMN renewed REAL NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN owner TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE intervals ADD COLUMN bounded INTEGER NOT NULL DEFAULT 0;
    UPDATE intervals SET ended = last_beat WHERE ended IS NULL AND cluster_id IN
        (SELECT id FROM clusters WHERE state NOT IN ('starting', 'up'))
    """,
    # start and end of a cluster are looked up for each of its intervals
    """
    DROP INDEX intervals_cluster;
    CREATE INDEX intervals_cluster ON intervals (cluster_id, started)
    """,
    # values and files of a run that its notebook was to have, and that have not been brought
    """
    ALTER TABLE runs ADD COLUMN outputs TEXT NOT NULL DEFAULT ''
    """,
    # how long a run has waited until it was sent, how often it was asked to stop, and why it does
    # not
    """
    ALTER TABLE runs ADD COLUMN waited REAL NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN stops INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE runs ADD COLUMN warning TEXT NOT NULL DEFAULT ''
    """,
    # transfers between stores cost something without a cluster: each has one row, by its name
    """
    ALTER TABLE spend RENAME TO earlier_spend;
    CREATE TABLE spend (
        id INTEGER PRIMARY KEY, cluster_id INTEGER REFERENCES clusters, what TEXT NOT NULL,
        usd REAL, at REAL NOT NULL, transfer TEXT UNIQUE, notebook TEXT, cloud TEXT);
    INSERT INTO spend (id, cluster_id, what, usd, at)
        SELECT id, cluster_id, what, usd, at FROM earlier_spend;
    DROP TABLE earlier_spend
    """,
    # how fast transfers between stores and machines were, by which later ones are estimated
    """
    CREATE TABLE transfer_rates (
        id INTEGER PRIMARY KEY, source TEXT NOT NULL, target TEXT NOT NULL,
        part_size INTEGER NOT NULL, machines INTEGER NOT NULL, nbytes INTEGER NOT NULL,
        seconds REAL NOT NULL, at REAL NOT NULL)
    """,
    # a cluster that is stopped has machines, whose disks cost, and keeps its name
    """
    DROP INDEX clusters_live;
    CREATE UNIQUE INDEX clusters_live ON clusters (name)
        WHERE state IN ('starting', 'up', 'stopped')
    """,
    # by which runs of the same code are known, however long it is; '' of earlier ones
    """
    ALTER TABLE runs ADD COLUMN code_digest TEXT NOT NULL DEFAULT ''
    """,
    # changes with each write of spot prices, so that no reader has to look at all of them; it
    # begins anywhere, as another file may take the place of this one
    """
    ALTER TABLE tracker_state ADD COLUMN prices INTEGER NOT NULL DEFAULT 0;
    UPDATE tracker_state SET prices = random() / 2
    """,
)
