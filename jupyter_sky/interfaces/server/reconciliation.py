"""Reconciliation of the store with clouds and clusters, in the background."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.clusters.stopped_records import reconcile_stopped
from jupyter_sky.interfaces.server.snapshot import describe_orphan
from jupyter_sky.machines.engines.wire.controller_requests import (
    Interrupt,
    ReadJournal,
    ReadMetrics,
)

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import ClusterRow, RunRow
    from jupyter_sky.clouds import Machine
    from jupyter_sky.execution.sessions.session import Session
    from jupyter_sky.interfaces.server.connections import ConnectionPool

JOURNAL_END = 2**53
"""Entry number behind the end of any journal, to read the state of a run alone."""


def reconcile(session: Session, connections: ConnectionPool) -> dict[str, Any]:
    """Compare the store with what clouds and clusters say; return the changes of the `Snapshot`.

    A cluster that has ended unseen is closed in the store, with the reason. What no cluster has is
    only shown: to end it is for its owner to say.
    """
    notices: list[str] = []
    orphans: dict[str, list[Machine]] = {}
    try:
        up = session.clusters.records.reconcile()
        reconcile_stopped(session.clusters.records)
        _interrupt_waiting_runs(session, connections, up)
        orphans = orphaned_machines(session)
    except SkyError as error:
        notices.append(_("a cloud cannot be asked now: {message}").format(message=error.message))
    return {
        "orphans": tuple(describe_orphan(name, machines) for name, machines in orphans.items()),
        "notices": tuple(notices),
    }


def orphaned_machines(session: Session) -> dict[str, list[Machine]]:
    """Return machines that no cluster has, under names that no cluster bears."""
    found = session.clusters.records.find_orphans()
    needed, tokens = (
        session.clusters.records.live_identities()
    )  # a cluster may have come up meanwhile
    names = {row.name for row in session.store.clusters()}
    return {
        f"{name} (orphaned)" if name in names else name: left
        for name, machines in found.items()
        if (left := [m for m in machines if m.id not in needed and m.token not in tokens])
    }


def _interrupt_waiting_runs(
    session: Session, connections: ConnectionPool, up: list[ClusterRow]
) -> None:
    """Interrupt runs once more that were to stop: they may have been waiting for their engine."""
    rows = {row.name: row for row in up}
    for run in session.store.runs(status="running", limit=None):
        row = rows.get(run.cluster)
        if row is None or not run.stop or run.is_monitored():
            continue
        if runs_here(row.cloud) or connections.is_open(row):
            with suppress(SkyError):
                ranks = list(range(row.nodes))
                connections.ask(row, Interrupt(run.run_id, ranks))


def check_unwatched_runs(session: Session, connections: ConnectionPool) -> dict[str, Any]:
    """Look at the runs whose kernel is gone; return the changes of the `Snapshot`.

    To ask costs a connection: a cluster elsewhere is asked only where there is one already.
    """
    session.clusters.records.close_unsent_runs()
    running = session.store.runs(status="running", limit=None)
    unwatched = [run for run in running if not run.is_monitored()]
    up = {row.name: row for row in session.store.clusters()} if unwatched else {}
    ends: dict[str, tuple[str, float]] = {}
    for run in unwatched:
        row = up.get(run.cluster)
        if row is None or (not runs_here(row.cloud) and not connections.is_open(row)):
            continue
        end = _find_end(connections, row, run)  # the next kernel closes it in the store
        if end is not None:
            ends[run.run_id] = end
    return {"ends": ends, "unwatched": frozenset(run.run_id for run in unwatched)}


def _find_end(
    connections: ConnectionPool, row: ClusterRow, run: RunRow
) -> tuple[str, float] | None:
    try:
        told = connections.ask(row, ReadJournal(run.run_id, JOURNAL_END))
        # one that waits for its engine is not known to the controller before its turn comes
        is_waiting = told.status == "unknown" and connections.ask(row, ReadMetrics()).running
    except SkyError:  # the next reconciliation finds out whether the cluster is lost
        return None
    if told.status == "running" or is_waiting:
        return None
    return told.status.replace("unknown", "lost"), told.ended or run.last_beat
