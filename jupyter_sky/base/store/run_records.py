"""Runs of cells in the store."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

from jupyter_sky.base.store.database import Database
from jupyter_sky.base.store.rows import RunRow
from jupyter_sky.base.store.statements import (
    BEGIN_RUN,
    GUEST_CONDITION,
    RUN_COLUMNS,
    STAGES,
    UPDATE_RUN,
)

MAX_CODE_CHARACTERS = 2000
"""Most of a cell's code that is kept."""


class RunRecords:
    """Part of the store with the runs of cells.

    Parameters
    ----------
    db
        The database that holds them.
    """

    def __init__(self, db: Database) -> None:
        self._db = db

    def begin_run(self, row: RunRow) -> None:
        """Record that a run began."""
        self._db.write((BEGIN_RUN, _run_values(row)))

    def update_run(self, row: RunRow) -> None:
        """Record the progress and the place of a run."""
        self._db.write((UPDATE_RUN, _run_values(row)))

    def request_stop(self, run_id: str, who: str) -> None:
        """Request the end of a run from the process that watches it; `who` is shown to its user."""
        sql = "UPDATE runs SET stop = ?, stops = stops + 1 WHERE run_id = ? AND ended IS NULL"
        self._db.write((sql, (who, run_id)))

    def stop_requests(self, run_id: str) -> tuple[str, int]:
        """Return the latest requester of a run's stop, or nothing, and the number of requests."""
        rows = self._db.read("SELECT stop, stops FROM runs WHERE run_id = ?", (run_id,))
        return next(((row["stop"], row["stops"]) for row in rows), ("", 0))

    def warn_run(self, run_id: str, warning: str) -> None:
        """Record why a run that was asked to stop goes on."""
        sql = "UPDATE runs SET warning = ? WHERE run_id = ? AND ended IS NULL"
        self._db.write((sql, (warning, run_id)))

    def insert_ended_run(self, row: RunRow) -> None:
        """Record a run that is over already, with the next heartbeat at the latest.

        It is too short a run for its cell to wait for a disk.
        """
        self._db.write_later((BEGIN_RUN, _run_values(row)))

    def record_run_heartbeat(self, run_id: str, at: float, shown: int) -> None:
        """Record that a run was seen going on, with `shown` messages in the notebook so far."""
        sql = "UPDATE runs SET last_beat = MAX(last_beat, ?), shown = ? WHERE run_id = ?"
        self._db.write((sql, (at, shown, run_id)), latest=f"heartbeat {run_id}")

    def end_run(self, run_id: str, status: str, at: float) -> None:
        """Record the status and time of a run's end, unless it has ended; a lost run may return."""
        sql = (
            "UPDATE runs SET status = ?, stage = ?, ended = ?, last_beat = ? "
            "WHERE run_id = ? AND (ended IS NULL OR status = 'lost')"
        )
        self._db.write((sql, (status, STAGES.get(status, status), at, at, run_id)))

    def close_run_at_heartbeat(self, run_id: str, status: str = "lost") -> None:
        """End at its last heartbeat a run that a killed kernel left open."""
        sql = (
            "UPDATE runs SET status = ?, stage = ?, ended = last_beat "
            "WHERE run_id = ? AND ended IS NULL"
        )
        self._db.write((sql, (status, STAGES.get(status, status), run_id)))

    def run(self, run_id: str) -> RunRow | None:
        """Return the run of this id."""
        rows = self._db.read(f"SELECT {RUN_COLUMNS} FROM runs WHERE run_id = ?", (run_id,))
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
        """Return runs of a notebook, a cluster or a status, the latest first.

        ``limit=None`` gives all; `guests_only` those on clusters that another notebook created;
        `unsent` also those that have reached no node (yet). Those that ended before `since` are
        left out.
        """
        wanted = {"notebook": notebook, "cluster": cluster, "status": status}
        wanted = {column: value for column, value in wanted.items() if value is not None}
        tests = [f"{column} = ?" for column in wanted]
        tests += [GUEST_CONDITION] * guests_only + ["nodes > 0"] * (not unsent)
        where = " AND ".join([*tests, "ifnull(ended, 9e99) >= ?"])
        columns = f"SELECT {RUN_COLUMNS} FROM runs"
        sql = f"{columns} WHERE {where} ORDER BY started DESC, rowid DESC LIMIT ?"
        rows = self._db.read(sql, (*wanted.values(), since, -1 if limit is None else limit))
        return [RunRow(**dict(row)) for row in rows]

    def latest_runs(self, limit: int) -> list[RunRow]:
        """Return running runs, then the latest others, the latest first."""
        columns = f"SELECT {RUN_COLUMNS} FROM runs"
        going = self._db.read(f"{columns} WHERE ended IS NULL ORDER BY started DESC")
        latest = self._db.read(f"{columns} ORDER BY started DESC LIMIT ?", (limit,))
        rows = {row["run_id"]: RunRow(**dict(row)) for row in (*going, *latest)}
        return list(rows.values())


def _run_values(row: RunRow) -> dict[str, Any]:
    return {f.name: getattr(row, f.name) for f in fields(row)} | {
        "code": row.code[:MAX_CODE_CHARACTERS]
    }
