"""Nodes of a pool, in the notebook."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jupyter_sky.base.errors import SkyError
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.calls.sent_batch import SentBatch
    from jupyter_sky.execution.functions.calls.tasks import CallTask
    from jupyter_sky.execution.functions.images.specs import Nodes
    from jupyter_sky.machines.engines.client.connection import ClusterConnection


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
    leaving: bool = False
    """Whether its machine is about to be taken away: it ends its calls and gets no others."""
    replaced: bool = False
    """Whether another node has taken its place and its rank."""
    recalls_saved: bool = False
    """Whether its calls go on elsewhere from their next save."""
    sent_context: Any = None

    @property
    def free_slots(self) -> int:
        """Number of free slots."""
        if not self.engine or self.reserved or self.leaving or not self.is_alive:
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


class NodeScaler(Protocol):
    """Part of a pool that changes the number of its nodes.

    Attributes
    ----------
    last_error : SkyError or None
        Error of the last request for nodes, if that has failed.
    """

    last_error: SkyError | None

    def resize(self, nodes: Nodes) -> None:
        """Add or remove nodes until there are as many as asked for."""
        ...

    def replace(self, old: ClusterHandle, new: ClusterHandle) -> None:
        """Take a cluster for another, whose nodes it has replaced."""
        ...

    def exchange(self, clusters: Sequence[ClusterHandle]) -> None:
        """Let clusters end once they have no calls; others take their place."""
        ...


def next_node(nodes: Mapping[int, PoolNode], last: int, is_quick: bool) -> PoolNode | None:
    """Return the free node with the least load; ties go round.

    Parameters
    ----------
    nodes
        Nodes by rank.
    last
        Rank of the node that the last calls were sent to.
    is_quick
        Whether the calls may wait behind quick ones.
    """
    ready = [node for node in nodes.values() if not node.joining and not node.leaving]
    free = [node for node in ready if node.free_slots > 0]
    if not free and is_quick:
        free = [node for node in ready if node.takes_ahead]
    if not free:
        return None
    count = max(nodes) + 1
    return min(free, key=lambda n: (len(n.batches), (n.rank - last - 1) % count))


def idle_node(nodes: Mapping[int, PoolNode]) -> PoolNode | None:
    """Return a node that runs no calls."""
    idle = (n for n in nodes.values() if n.free_slots == n.slots and not n.joining)
    return next(idle, None)
