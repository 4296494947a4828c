"""Deadlines of clusters that no notebook is connected to: until when the day's money lasts.

A notebook that is connected sends it with every heartbeat. Where none is, any live budget monitor
sends it, so that a budget that was raised lets what runs go on, and one that was lowered ends it.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from jupyter_sky.base.store.store import ClusterId, ClusterRow, Store
from jupyter_sky.knowledge.ledger.budget import BudgetStatus, depletion_time

_log = logging.getLogger(__name__)

UNHEARD_SECONDS = 10.0
"""Age of a cluster's last heartbeat after which other processes send it the deadline."""
MIN_CHANGE_SECONDS = 5.0
"""Least change of a deadline that is sent again."""


class DeadlineRenewal:
    """Deadlines that one process has sent to clusters that it is not connected to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: dict[ClusterId, float | None] = {}
        self._telling: set[ClusterId] = set()

    def renew(self, verdict: BudgetStatus) -> None:
        """Send a deadline that has changed to each cluster that costs money without a notebook."""
        until = depletion_time(verdict)
        if until is None and not any(self._told.values()):
            return  # there never was a deadline, as far as is known here
        going_on = self._store.intervals(since=verdict.at)
        heard = {one.cluster_id: one.last_beat for one in going_on}
        for row in self._store.clusters():
            silent = verdict.at - heard.get(row.id, 0.0) > UNHEARD_SECONDS
            if not row.price or not silent or row.id in self._telling:
                continue
            if row.id in self._told and _is_unchanged(self._told[row.id], until):
                continue
            self._telling.add(row.id)
            threading.Thread(
                target=self._send_deadline,
                args=(row, until),
                name=f"sky-deadline-{row.name}",
                daemon=True,
            ).start()

    def _send_deadline(self, row: ClusterRow, until: float | None) -> None:
        try:
            left = None if until is None else max(0.0, until - time.time())
            _send_once(row, left)
            self._told[row.id] = until
        except Exception:  # what is not reached keeps its old deadline; tried again soon
            _log.info("%s was not told its deadline", row.name, exc_info=True)
        finally:
            self._telling.discard(row.id)


def _is_unchanged(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is new
    return abs(old - new) < MIN_CHANGE_SECONDS


def _send_once(row: ClusterRow, left: float | None) -> None:
    """Send a deadline to the controller of a cluster over a connection for this alone."""
    from jupyter_sky.machines.engines.client.observer import Observer
    from jupyter_sky.machines.engines.wire import connection_file
    from jupyter_sky.machines.provisioner.ssh_launch import open_tunnel

    path = Path(row.connection["file"])
    tunnel = open_tunnel(path)
    try:
        observer = Observer(
            row.name, tunnel.connection if tunnel else connection_file.read(path, row.name)
        )
        try:
            observer.ask("deadline", left=left)
        finally:
            observer.close()
    finally:
        if tunnel:
            tunnel.close()
