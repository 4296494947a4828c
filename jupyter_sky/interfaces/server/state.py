"""State of the panel, from the store: a few queries, whatever the length of the ledger.

Amounts are USD, None where a price is unknown; times are unix seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from jupyter_sky._version import __version__
from jupyter_sky.base.clouds.cloud_facts import LONGEST_BILLING_UNIT
from jupyter_sky.base.remote.processes import is_alive
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.store.database import Database
from jupyter_sky.base.store.store import IntervalRow, RunRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.server.snapshot import (
    USE_VALID_SECONDS,
    IdleReport,
    IdleReports,
    Snapshot,
    midnight,
)
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.billing import billed_seconds_sql
from jupyter_sky.knowledge.ledger.lines import run_usd

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow


RUNS = 100
SHOW_LOST_SECONDS = 86400.0
SHOW_ENDED_SECONDS = 600.0
"""Times for which a cluster is shown after its end: a lost one, and one that a user ended."""
_SHOWN = """
    SELECT id, name, state, cloud, region, instance_type, spot, price, nodes, resources, offer,
        machines, connection, notebook, created, idle, price_source, price_date, note, kept,
        renewed,
        (SELECT max(ifnull(ended, last_beat)) FROM runs
            WHERE runs.cluster = clusters.name AND runs.started >= clusters.created) AS last_run
    FROM clusters WHERE state IN ('starting', 'up', 'stopped') OR (
        ended > CASE state WHEN 'lost' THEN :lost ELSE :down END
        AND NOT EXISTS (SELECT 1 FROM clusters AS later
            WHERE later.name = clusters.name AND later.created > clusters.created))
    ORDER BY created
"""
# As `ledger.lines.billed_until`: steps and minimum of billing count from start to end of a cluster;
# what is billed after its last interval is a line of its own.
_LINES = """
    WITH spans AS (SELECT intervals.id AS id, cluster_id, cloud, intervals.price AS price, started,
        max(started, ifnull(intervals.ended, :now)) AS ended
        FROM intervals JOIN clusters ON clusters.id = cluster_id {where}),
    last AS (SELECT id, cluster_id, cloud, price, max(started), ended,
        (SELECT min(started) FROM intervals WHERE cluster_id = spans.cluster_id) AS begun
        FROM spans GROUP BY cluster_id),
    lines AS (SELECT id, cluster_id, price, started, ended FROM spans UNION ALL
        SELECT id, cluster_id, price, ended, max(ended, begun + {billed}) FROM last)
"""
_OF_CLUSTERS = """
    SELECT cluster_id, total(price * (ended - started)) / 3600 AS usd,
        count(DISTINCT CASE WHEN price IS NULL AND ended > started THEN id END) AS unknown
        FROM lines GROUP BY cluster_id
    UNION ALL
    SELECT cluster_id, total(usd), sum(usd IS NULL) FROM spend
    WHERE cluster_id IN ({ids}) GROUP BY cluster_id
"""
_RECENT = f"WHERE intervals.ended IS NULL OR intervals.ended > :since - {LONGEST_BILLING_UNIT}"
_SINCE = """
    SELECT total(price * (ended - max(started, :since))) / 3600 AS usd,
        count(DISTINCT CASE WHEN price IS NULL THEN id END) AS unknown
        FROM lines WHERE ended > max(started, :since)
    UNION ALL
    SELECT total(usd), ifnull(sum(usd IS NULL), 0) FROM spend WHERE at >= :since
"""
_RATE = "SELECT total(price) AS usd, sum(price IS NULL) AS unknown, count(*) AS open FROM intervals"
_OVERLAPPING = """
    SELECT runs.run_id AS run_id, cloud, intervals.price AS price, intervals.started AS started,
        intervals.last_beat AS last_beat, intervals.ended AS ended
    FROM runs JOIN clusters ON clusters.name = runs.cluster
        JOIN intervals ON cluster_id = clusters.id
    WHERE runs.run_id IN ({marks}) AND intervals.started < ifnull(runs.ended, 9e99)
        AND ifnull(intervals.ended, 9e99) > runs.started
"""
_SIGNATURE = (
    "SELECT id, state, price, nodes, note, kept, idle FROM clusters "
    "WHERE state IN ('starting', 'up', 'stopped')",
    "SELECT count(*), max(ended) FROM clusters",
    "SELECT run_id, stage, status, stop, nodes, warning FROM runs WHERE ended IS NULL",
    f"SELECT run_id, status FROM runs ORDER BY started DESC LIMIT {RUNS}",
    "SELECT count(*), count(ended) FROM intervals",
    "SELECT count(*), total(usd) FROM spend",
    "SELECT name, value FROM settings",
)


def signature(db: Database) -> tuple[Any, ...]:
    """Return a value that changes with the shown state; heartbeats do not change it."""
    return tuple(tuple(tuple(row) for row in db.read(sql)) for sql in _SIGNATURE)


class PanelState:
    """State of one store, for the panel.

    The cost of a run that has ended is computed once and kept.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._store, self._db = store, store.database
        self._usd: dict[str, float | None] = {}

    def to_dict(self, snapshot: Snapshot, idle_reports: IdleReports) -> dict[str, Any]:
        """Return everything that the panel shows; see the server's REST interface."""
        now = time.time()
        runs = self._runs(now, snapshot)
        clusters = self._clusters(now, snapshot, idle_reports, runs)
        (rate,) = self._db.read(f"{_RATE} WHERE ended IS NULL")
        return {
            "version": __version__,
            "at": now,
            "notices": [*self.store.notices, *snapshot.notices],
            "rate": {
                "usd_h": _sum_known(rate["usd"], rate["unknown"] or 0, rate["open"]),
                "unknown": rate["unknown"] or 0,
            },
            "today": self._today(now),
            "clusters": [*clusters, *snapshot.orphans],
            "runs": runs,
        }

    # -- clusters --------------------------------------------------------------------------

    def _clusters(
        self,
        now: float,
        snapshot: Snapshot,
        idle_reports: IdleReports,
        runs: Sequence[dict[str, Any]],
    ) -> list[dict[str, Any]]:
        since = {"lost": now - SHOW_LOST_SECONDS, "down": now - SHOW_ENDED_SECONDS}
        rows = self._db.read(_SHOWN, since)
        spent = self._spent([row["id"] for row in rows], now)
        stopped = self._stopped() if any(row["state"] == "stopped" for row in rows) else {}
        running: dict[str, int] = {}
        for run in runs:
            if run["ended"] is None and run["status"] == "running":
                running[run["cluster"]] = running.get(run["cluster"], 0) + 1
        return [
            _cluster(
                dict(row),
                now,
                snapshot,
                idle_reports,
                running.get(row["name"], 0),
                spent[row["id"]],
                stopped.get((row["name"], row["created"])),
            )
            for row in rows
        ]

    def _stopped(self) -> dict[tuple[str, float], dict[str, Any]]:
        """Return the costs of stopped clusters, by name and creation time."""
        rows = self._store.stopped_clusters()
        return {(row.name, row.created): describe_stopped(row) for row in rows}

    def _spent(self, ids: Collection[int], now: float) -> dict[int, float | None]:
        sums = dict.fromkeys(ids, (0.0, 0))
        listed = ",".join(map(str, ids))
        lines = self._lines(f"WHERE cluster_id IN ({listed})")
        sql = lines + _OF_CLUSTERS.format(ids=listed)
        for row in self._db.read(sql, {"now": now}):
            usd, unknown = sums[row["cluster_id"]]
            sums[row["cluster_id"]] = (usd + row["usd"], unknown + row["unknown"])
        return {key: None if unknown else usd for key, (usd, unknown) in sums.items()}

    def _lines(self, where: str) -> str:
        """Return the head of a query: intervals as they are billed, as the table ``lines``."""
        clouds = [row["cloud"] for row in self._db.read("SELECT DISTINCT cloud FROM clusters")]
        billed = billed_seconds_sql("cloud", "(ended - begun)", clouds)
        return _LINES.format(billed=billed, where=where)

    def _today(self, now: float) -> dict[str, Any]:
        parts = self._db.read(self._lines(_RECENT) + _SINCE, {"now": now, "since": midnight(now)})
        usd, unknown = sum(row["usd"] for row in parts), sum(row["unknown"] for row in parts)
        limit = budget.read_budget(self.store).usd
        return {
            "usd": _sum_known(usd, unknown, unknown + (usd > 0)),
            "unknown": unknown,
            "budget": limit,
            "over": limit is not None and usd >= limit,
        }

    # -- runs ------------------------------------------------------------------------------

    def _runs(self, now: float, snapshot: Snapshot) -> list[dict[str, Any]]:
        return self._described(self._store.latest_runs(RUNS), now, snapshot)

    def run(self, row: RunRow, snapshot: Snapshot) -> dict[str, Any]:
        """Return the state of one run."""
        return self._described([row], time.time(), snapshot)[0]

    def _described(
        self, rows: Sequence[RunRow], now: float, snapshot: Snapshot
    ) -> list[dict[str, Any]]:
        asked = [row.run_id for row in rows if row.run_id not in self._usd and row.nodes]
        pieces = self._pieces(asked)
        found = []
        for row in rows:
            usd = self._usd.get(row.run_id)
            if not row.nodes:
                usd = 0.0
            elif row.run_id not in self._usd:
                usd = run_usd(row, now, pieces.get(row.run_id, ()))
                if row.ended is not None:
                    self._usd[row.run_id] = usd
            found.append(_run(row, usd, snapshot))
        if len(self._usd) > 50 * RUNS:
            self._usd.clear()
        return found

    def _pieces(self, ids: Sequence[str]) -> dict[str, list[IntervalRow]]:
        """Return the intervals that runs fall into."""
        found: dict[str, list[IntervalRow]] = {}
        if ids:
            sql = _OVERLAPPING.format(marks=",".join("?" * len(ids)))
            for row in self._db.read(sql, tuple(ids)):
                values = {**dict(row), "cluster": "", "cluster_created": 0.0, "notebook": ""}
                run = values.pop("run_id")
                piece = IntervalRow(**values, price_source="", price_date="")
                found.setdefault(run, []).append(piece)
        return found


def _cluster(
    row: dict[str, Any],
    now: float,
    snapshot: Snapshot,
    idle_reports: IdleReports,
    running: int,
    usd: float | None,
    stopped: dict[str, Any] | None,
) -> dict[str, Any]:
    name = row["name"]
    state, note = _state_and_note(row, now, snapshot, stopped is not None)
    if name in snapshot.starts:
        stopped = None
    said = idle_reports.get((name, row["created"]))
    users = said.users if said and now - said.at < USE_VALID_SECONDS else ()
    origin = describe_origin(row["price_source"], row["price_date"])
    taken = "name state cloud region instance_type nodes price price_source price_date notebook"
    return {
        **{key: row[key] for key in taken.split()},
        **{key: row[key] for key in ("created", "idle", "resources")},
        "price_origin": origin.short,
        "price_detail": origin.tooltip,
        "state": state,
        "price": stopped["usd_h"] if stopped and not stopped["under_way"] else row["price"],
        "stopped": stopped,
        "where": _place_text(row["offer"], row["nodes"]),
        "spot": bool(row["spot"]),
        "idle_left": _idle_left(row, now, said, running) if state == "up" else None,
        "users": list(users),
        "lease_end": lease_end(row["machines"]),
        "running": running,
        "usd": usd,
        "note": note or None,
        "orphan": False,
    }


def _state_and_note(
    row: dict[str, Any], now: float, snapshot: Snapshot, is_stopped: bool
) -> tuple[str, str]:
    name, state, note = row["name"], row["state"], row["note"]
    if is_stopped and name in snapshot.starts:
        state, note = "starting", snapshot.starts[name]
    elif is_stopped:
        note = snapshot.failed_starts.get(name) or note
    if state in ("up", "stopped") and name in snapshot.ending:
        state = "ending"
    launcher = json.loads(row["connection"]) if row["state"] == "starting" else {}
    if launcher and not is_alive(launcher.get("launcher", {}), row["renewed"], now):
        note = _(
            "its notebook was killed while it launched it; end it to be sure that nothing is up"
        )
    return state, note


def _idle_left(
    row: dict[str, Any], now: float, said: IdleReport | None, running: int
) -> float | None:
    """Return the seconds until an unused cluster ends; None when that is not known.

    Its head knows best; cells may have run since it was asked. A cluster that is still up after
    all of that was used in another way.
    """
    last = now if running else max(row["last_run"] or 0.0, row["created"])
    left = max(last + row["idle"] - now, row["kept"] - now)
    if said and (told := said.seconds_left(now)):
        left = max(left, told)
    return left if left > 0 else None


@lru_cache(maxsize=4096)
def _place_text(offer: str, nodes: int) -> str:
    return Offer(**json.loads(offer)).place_of(nodes)


@lru_cache(maxsize=4096)
def lease_end(machines: str) -> float | None:
    """Return when the first of some machines, as JSON, ends at the latest."""
    ends = [machine.get("lease_end") for machine in json.loads(machines)]
    return min((end for end in ends if end is not None), default=None)


def _run(row: RunRow, usd: float | None, snapshot: Snapshot) -> dict[str, Any]:
    taken = "run_id notebook cell cell_id name code stage status started ended price nodes waited"
    found = {key: getattr(row, key) for key in taken.split()}
    if row.ended is None and row.run_id in snapshot.ends:
        found["status"], found["ended"] = snapshot.ends[row.run_id]
        found["stage"] = found["status"]
    warning = row.warning if found["ended"] is None else ""
    stoppable = found["ended"] is None and (not row.stop or bool(warning))
    if row.stop and found["ended"] is None:
        found["stage"] = "interrupting"
    unwatched = row.ended is None and not row.is_monitored()
    shown = {"cluster": row.cluster or None, "usd": usd, "unwatched": unwatched}
    return {**found, **shown, "stoppable": stoppable, "warning": warning}


def _sum_known(usd: float, unknown: int, parts: int) -> float | None:
    """Return a sum; None where it has parts and all are unknown."""
    return None if unknown and unknown == parts else usd


def describe_stopped(row: ClusterRow) -> dict[str, Any]:
    """Describe a stopped cluster: its cost, and since when it is stopped.

    ``under_way`` says in words how far its stop has come; it is empty once its machines are off.
    """
    from jupyter_sky.clouds.launches.machine_records import launch_records
    from jupyter_sky.execution.clusters.stopped_records import describe_stop, stop_cost
    from jupyter_sky.knowledge.ledger.billing import MONTH_HOURS

    cost = stop_cost(row)
    return {
        "since": launch_records().read(row.connection["token"]).get("stopped") or None,
        "usd_h": cost.price,
        "usd_month": cost.price * MONTH_HOURS,
        "disk_gib": cost.disk_gib,
        "under_way": describe_stop(row),
    }
