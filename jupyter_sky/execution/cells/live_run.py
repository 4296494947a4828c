"""Run of this process that has not ended, as queues and sessions see it."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.concurrency import result_within
from jupyter_sky.base.store.rows import run_label
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.request import CellPosition
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


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
