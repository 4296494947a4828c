"""Runs of this process that have not ended, as queues and sessions see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jupyter_sky.execution.cells.request import CellPosition
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


class LiveRun(Protocol):
    """Run of this process that has not ended."""

    id: str
    name: str | None
    origin: CellPosition
    started: float
    cluster: ClusterHandle | None
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """Name of the run in messages."""
        ...

    def result(self, timeout: float | None = None) -> Any:
        """Wait for its end; see `PendingResult.result`."""

    def detach(self) -> None:
        """End here; on its cluster the cell goes on."""
