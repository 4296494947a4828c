"""Replay of cells that went on while no kernel listened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.store import RunRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.earlier_run import describe_outputs
from jupyter_sky.execution.cells.live_run import UnbegunRun, stop_run
from jupyter_sky.execution.cells.relay import InertDisplay, Relay, is_untrusted
from jupyter_sky.execution.cells.run_monitor import ANSWER_SECONDS, describe_loss
from jupyter_sky.execution.clusters.cluster import ClusterHandle
from jupyter_sky.execution.clusters.cluster_records import ClusterRecords
from jupyter_sky.execution.display import Display
from jupyter_sky.machines.engines.wire.controller_requests import JournalReply, ReadJournal

if TYPE_CHECKING:
    from jupyter_sky.machines.engines.client.connection import ClusterConnection

ALL_SHOWN = 10**9
"""Number of shown messages, more than any run has, of a run that a page shows by itself."""


def replay_unfinished(
    cluster: ClusterHandle,
    records: ClusterRecords,
    display: Display,
    config: Sky,
    wait: Callable[[str], None],
) -> Iterator[str]:
    """Replay the outputs of this notebook's cells on a cluster; yield a note for each.

    Parameters
    ----------
    wait
        Called with the name of a cell, again and again while that cell goes on; may raise to end
        the replay.
    """
    for row in records.find_unfinished(cluster.row.name):
        yield _replay_run(cluster, row, records.store, display, config, wait)


def _has_ended(status: str, unbegun: UnbegunRun, connection: ClusterConnection) -> bool:
    if status == "unknown":
        return unbegun.is_lost(connection)
    return status != "running"


def _replay_run(
    cluster: ClusterHandle,
    row: RunRow,
    store: Store,
    display: Display,
    config: Sky,
    wait: Callable[[str], None],
) -> str:
    """Show the rest of a run, following it while it goes on; return a note on its end.

    An interrupt is for the run that is followed, as it was for the cell that started it: the first
    interrupts it, one that follows the warning restarts its engines.
    """
    cap, ranks = int(config.max_output_mb * 1e6), range(cluster.row.nodes)
    if not config.trust or is_untrusted(store, row.run_id):
        display = InertDisplay(display, row.run_id)
    relay = Relay(display, ranks, cap, f"%sky logs {row.name or row.cell}")
    start, stopped_at, warning = row.shown, 0.0, ""
    unbegun, answer = UnbegunRun(), JournalReply([], start, "running", None)
    while True:
        try:
            answer = cluster.connection.ask_controller(ReadJournal(row.run_id, start))
            relay.replay(answer.entries)
            if answer.entries:
                start = answer.next
                store.record_run_heartbeat(row.run_id, time.time(), start)
            elif _has_ended(answer.status, unbegun, cluster.connection):
                break
            else:
                wait(row.label)
                time.sleep(0.1)
            if stopped_at and not warning and time.monotonic() - stopped_at > ANSWER_SECONDS:
                warning = describe_loss(ranks)
                display.send("stream", {"name": "stderr", "text": f"{warning}\n"})
        except KeyboardInterrupt:
            if answer.status == "unknown":
                raise  # there is nothing to interrupt: it stays in the queue
            if warning or not stopped_at:
                stop_run(cluster, row.run_id, by_force=bool(warning))
            stopped_at = stopped_at or time.monotonic()
    relay.finish()
    _record_end(store, row, answer)
    if stopped_at:
        raise KeyboardInterrupt
    return _describe_end(row, answer.status, is_elsewhere=start >= ALL_SHOWN)


def _record_end(store: Store, row: RunRow, answer: JournalReply) -> None:
    if answer.status == "unknown":  # it never reached the cluster
        store.close_run_at_heartbeat(row.run_id)
    else:
        ended = answer.ended or time.time()
        store.end_run(row.run_id, answer.status, ended)


def _describe_end(row: RunRow, status: str, is_elsewhere: bool) -> str:
    left = describe_outputs(row) if status == "ok" else ""
    what, how = row.label, status.replace("unknown", "lost")
    how = f"{how}; {left}" if left else how
    if is_elsewhere:
        return f"{what} went on while no kernel listened, shown at its own place; ended: {how}"
    return _(
        "shown again: what {what} printed while no notebook was listening; it ended: {how}"
    ).format(what=what, how=how)
