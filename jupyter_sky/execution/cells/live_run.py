"""Run of this process that has not ended, as queues and sessions see it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Collection, Generator, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.concurrency import result_within
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.store.rows import run_label
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.client.waits import wait_callback
from jupyter_sky.machines.engines.controller.activity import notebook_name
from jupyter_sky.machines.engines.wire.controller_requests import (
    Hello,
    Interrupt,
    Kill,
    ListEngines,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.request import CellPosition
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.machines.engines.client.connection import ClusterConnection


class LiveRun:
    """Identity of a run, and its result: the value of its last expression, or its error."""

    def __init__(self, id: str, name: str | None, origin: CellPosition, started: float) -> None:
        self.id, self.name, self.origin, self.started = id, name, origin, started
        self.cluster: ClusterHandle | None = None
        self.ranks: tuple[int, ...] = ()
        self._future: Future[Any] = Future()

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        return run_label(self.name, self.origin.number)

    @property
    def status(self) -> str:
        """State of the run."""
        return "done" if self.done() else "running"

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the value of the last expression, or raise its error.

        Parameters
        ----------
        timeout
            Seconds to wait.

        Raises
        ------
        SkyTimeout
            It has not ended by then; it goes on.
        """
        return result_within(
            self._future,
            timeout,
            lambda: _("{label} is still {status} after {timeout:g} s").format(
                label=self.label, status=self.status, timeout=timeout
            ),
        )

    def done(self) -> bool:
        """Return whether the run has ended, with or without success."""
        return self._future.done()

    def detach(self) -> None:
        """End here; on its cluster the cell goes on."""

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.wrap_future(self._future).__await__()


# -- Queues of engines: the cell that has to end before another begins ----------------------------

ANSWER_SECONDS = 1.0
"""Longest wait for an answer that is only for the status line."""

UNKNOWN_SECONDS = 2.0
"""Time after which a cell that no engine has begun is lost, when nothing else runs."""


class QueueWatch:
    """Watch of the cell ahead of one, until that one begins.

    Parameters
    ----------
    run
        The run that may have to wait.
    live
        Runs of this process by id.
    """

    def __init__(self, run: LiveRun, live: Mapping[str, LiveRun]) -> None:
        self._run, self._live, self._has_begun = run, live, False

    def describe_ahead(self) -> str:
        """Return the cell that its cell waits for, in words; empty if it waits for none."""
        run = self._run
        if run.cluster is None or self._has_begun:
            return ""
        for other in list(self._live.values()):
            is_earlier = other.cluster is run.cluster and other.started < run.started
            if is_earlier and set(other.ranks) & set(run.ranks):
                return _("behind {cell}").format(cell=other.label)
        running = find_running(run.cluster, run.ranks)
        self._has_begun = run.id in running
        if self._has_begun or not running:
            return ""
        ahead = describe_run(run.cluster, min(running))
        return _("behind {cell}").format(cell=ahead)


class UnbegunRun:
    """Run that its cluster does not know: queued, or lost.

    A cluster learns of a cell when an engine begins it. Nothing begins while another cell runs.
    """

    def __init__(self) -> None:
        self._idle_since = time.monotonic()

    def is_lost(self, connection: ClusterConnection) -> bool:
        """Return whether its cluster has had time to begin it, and has not."""
        if connection.ask_controller(Hello()).running:
            self._idle_since = time.monotonic()
        return time.monotonic() - self._idle_since > UNKNOWN_SECONDS


def find_running(cluster: ClusterHandle, ranks: Collection[int]) -> set[str]:
    """Return the ids of the runs that engines execute; none where the cluster does not answer."""
    waiting = wait_callback.set(None)  # this may be asked from such a callback
    try:
        with contextlib.suppress(SkyError):
            answer = cluster.connection.ask_controller(
                ListEngines(), ANSWER_SECONDS, wait_reconnect=False
            )
            engines = answer.engines
            return {one["running"] for one in engines if one["running"] and one["rank"] in ranks}
    finally:
        wait_callback.reset(waiting)
    return set()


def stop_run(cluster: ClusterHandle, run_id: str, by_force: bool) -> None:
    """Interrupt a run of another notebook or an earlier one, or kill its engines."""
    ranks = range(cluster.row.nodes)
    if by_force:
        request = Kill(run_id, [*ranks], _("it was interrupted twice"))
        cluster.connection.ask_controller(request)
    else:
        cluster.connection.ask_controller(Interrupt(run_id, [*ranks]))


def describe_run(cluster: ClusterHandle, run_id: str) -> str:
    """Return the name of a run on a cluster, with its notebook if that is another one."""
    row = cluster.store.run(run_id)
    if row is None:  # a cell of another user's store, or one that has just begun
        return _("another cell")
    if row.notebook == cluster.notebook:
        return row.label
    return _("{cell} of {notebook}").format(cell=row.label, notebook=notebook_name(row.notebook))


def describe_wait(cluster: ClusterHandle, ranks: Collection[int]) -> str:
    """Return a sentence for a question that engines answer after their cell; empty if idle."""
    running = find_running(cluster, ranks)
    if not running:
        return ""
    return _("waits for {cell}, which runs on {cluster}").format(
        cell=describe_run(cluster, min(running)), cluster=cluster.row.name
    )
