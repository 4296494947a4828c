"""Nodes of a pool, in the notebook."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..engines.client.connection import ClusterConnection
    from .sent_batch import SentBatch
    from .tasks import CallTask


AHEAD_SECONDS = 0.08
"""Age of a batch after which no other waits behind it: one of its calls is not quick after all."""


@dataclass(slots=True, eq=False)
class PoolNode:
    """Node that takes calls.

    Attributes
    ----------
    rank : int
        Rank in the pool; `cluster_rank` is its rank in the cluster of `connection`.
    engine : str
        Identity of its engine process; empty while there is none.
    """

    rank: int
    connection: ClusterConnection
    cluster_rank: int
    slots: int
    executor: str
    engine: str = ""
    batches: dict[str, SentBatch] = field(default_factory=dict)
    pinned: deque[CallTask] = field(default_factory=deque)
    reserved: bool = False
    joining: bool = False
    """Whether it is being prepared: only calls for this very node go there."""
    sent_context: Any = None

    @property
    def free_slots(self) -> int:
        """Number of free slots."""
        if not self.engine or self.reserved or not self.is_alive:
            return 0
        return self.slots - len(self.batches)

    @property
    def takes_ahead(self) -> bool:
        """Whether quick calls may wait there: it is about to end the quick calls that it has."""
        if not self.engine or self.reserved or not self.is_alive or len(self.batches) != self.slots:
            return False
        since = time.monotonic() - AHEAD_SECONDS
        return all(batch.count > 1 and batch.sent > since for batch in self.batches.values())

    @property
    def is_alive(self) -> bool:
        """Whether its engine is connected, as far as is known."""
        return (
            not self.connection.is_lost
            and self.connection.client.engines_by_rank.get(self.cluster_rank) == self.engine
        )
