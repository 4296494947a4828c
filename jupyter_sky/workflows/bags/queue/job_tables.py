"""Tables of the queue of jobs, and the rows of changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jupyter_sky.workflows.bags.queue.values import JobChange, JobState

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
