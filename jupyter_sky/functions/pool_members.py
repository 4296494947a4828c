"""Clusters and nodes of a pool: how they join, leave, are drained, and are replaced when lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import SkyClusterLost, SkyEngineLost, SkyError, SkyNodeLost
from .nodes import PoolNode

if TYPE_CHECKING:
    from ..executor.cluster import ClusterHandle
    from .dispatch import Dispatcher
    from .specs import Worker


class PoolMembers:
    """Members of a pool.

    Parameters
    ----------
    dispatcher
        Dispatcher of the pool, which sends calls to the nodes.
    use
        Returns the current use of the pool, for its clusters not to end.
    is_active
        Returns whether the pool accepts calls.
    on_lost
        Called with a cluster that is lost, and the error.

    Attributes
    ----------
    clusters : list of ClusterHandle
        Clusters of the nodes; the first one's controller serves the pool.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        worker: Worker,
        use: Callable[[], str],
        is_active: Callable[[], bool],
        on_lost: Callable[[ClusterHandle, SkyError], None],
    ) -> None:
        self.clusters: list[ClusterHandle] = []
        self._dispatcher, self._worker, self._use = dispatcher, worker, use
        self._is_active, self._on_lost = is_active, on_lost
        self._healing = threading.Lock()

    def join(
        self, cluster: ClusterHandle, prepare: Callable[[Sequence[int]], None] | None = None
    ) -> list[int]:
        """Add the nodes of a cluster; return their ranks in the pool.

        With `prepare`, which makes them ready, calls go there only after it.
        """
        with self._dispatcher.lock:
            first = max(self._dispatcher.nodes, default=-1) + 1
            ranks = [first + place for place in range(cluster.row.nodes)]
            engines = cluster.connection.client.engines_by_rank
            slots, executor = self._worker.concurrency, self._worker.executor_kind
            for place, rank in enumerate(ranks):
                self._dispatcher.nodes[rank] = PoolNode(
                    rank,
                    cluster.connection,
                    place,
                    slots,
                    executor,
                    engines[place],
                    joining=bool(prepare),
                )
            self.clusters.append(cluster)
            cluster.connection.pools.append(self._use)
        if prepare is not None:
            try:
                prepare(ranks)
            except BaseException:
                self.leave(cluster)
                raise
            with self._dispatcher.lock:
                for rank in ranks:
                    self._dispatcher.nodes[rank].joining = False
            self._dispatcher.dispatch()
        return ranks

    def leave(self, cluster: ClusterHandle) -> None:
        """Remove the nodes of a cluster; calls that run there are moved."""
        with self._dispatcher.lock:
            if cluster in self.clusters:
                self.clusters.remove(cluster)
            self.forget_use(cluster)
            self._dispatcher.remove_cluster(cluster.connection)

    def forget_use(self, cluster: ClusterHandle) -> None:
        """Let a cluster end whatever this pool does."""
        if self._use in cluster.connection.pools:
            cluster.connection.pools.remove(self._use)

    def drain(self, cluster: ClusterHandle) -> None:
        """Send no more calls to the nodes of a cluster; those that run there go on."""
        with self._dispatcher.lock:
            for node in self.nodes_of(cluster):
                node.joining = True

    def nodes_of(self, cluster: ClusterHandle) -> list[PoolNode]:
        """Return the nodes that a cluster has in the pool."""
        nodes = self._dispatcher.nodes.values()
        return [node for node in nodes if node.connection is cluster.connection]

    def is_busy(self, cluster: ClusterHandle) -> bool:
        """Return whether nodes of a cluster run calls."""
        with self._dispatcher.lock:
            return any(node.batches or node.pinned for node in self.nodes_of(cluster))

    def record_use(self) -> None:
        """Record on all clusters that calls use them."""
        for cluster in list(self.clusters):
            cluster.connection.record_use("a call")

    def replace_engine(self, node: PoolNode) -> None:
        """Wait, in a thread, until a node whose engine has died has another."""
        threading.Thread(
            target=self._await_engine, args=(node,), name=f"sky-heal-{node.rank}", daemon=True
        ).start()

    def _await_engine(self, node: PoolNode) -> None:
        cluster = next((c for c in self.clusters if c.connection is node.connection), None)
        if cluster is None or not self._is_active():
            return
        try:
            while self._is_active():
                with self._healing, contextlib.suppress(SkyEngineLost):  # slow, not gone
                    try:
                        cluster.await_engines([node.cluster_rank])
                        break
                    except SkyNodeLost as lost:
                        if lost.is_abandoned:
                            self._dispatcher.remove_node(node)
                            return
            if cluster.connection.is_lost:
                raise SkyClusterLost(cluster.connection.lost_reason)
        except SkyError as error:
            self._on_lost(cluster, error)
            return
        with self._dispatcher.lock:
            node.sent_context = None
            node.engine = node.connection.client.engines_by_rank.get(node.cluster_rank, "")
        self._dispatcher.dispatch()
