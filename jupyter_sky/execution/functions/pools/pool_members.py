"""Clusters and nodes of a pool: how they join, leave, are drained, and are replaced when lost."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyCancelled, SkyEngineLost, SkyError, SkyNodeLost
from jupyter_sky.execution.clusters.machine_notices import Notices, leaving_ranks
from jupyter_sky.execution.functions.calls.nodes import PoolNode

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.calls.dispatch import Dispatcher
    from jupyter_sky.execution.functions.calls.tasks import CallTask
    from jupyter_sky.execution.functions.images.specs import Worker


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
        self.changes = 0
        """Number of times that nodes have taken the ranks of others."""
        self.on_notices: Callable[[ClusterHandle, Notices], None] = lambda cluster, notices: None
        """Called when notices of the cloud about machines of a cluster have changed."""
        self.on_silence: Callable[[ClusterHandle, Sequence[int]], None] = lambda *silent: None
        """Called with the nodes of a cluster that have not been heard of for a while."""
        self.on_node_lost: Callable[[ClusterHandle, PoolNode, str], None] | None = None
        """Called with a node that is lost while its cluster goes on, and the reason."""
        self.on_renewed: Callable[[], None] = lambda: None
        """Called when a node has another engine."""
        self.on_joined: Callable[[ClusterHandle], None] = lambda cluster: None
        """Called with a cluster whose nodes have joined."""

    def join(
        self,
        cluster: ClusterHandle,
        prepare: Callable[[Sequence[int]], None] | None = None,
        replaced: Sequence[PoolNode] = (),
    ) -> list[int]:
        """Add the nodes of a cluster; return their ranks in the pool.

        With `prepare`, which makes them ready, calls go there only after it. They take the ranks
        of the nodes that they replace.
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
            cluster.connection.use.pools.append(self._use)
            cluster.connection.on_lost.append(self._dispatcher.dispatch)  # it may be idle
        cluster.notices.listeners.append(lambda notices: self._set_aside(cluster, notices))
        cluster.connection.client.on_silence = lambda ranks: self.on_silence(cluster, ranks)
        if prepare is not None:
            try:
                prepare(ranks)
            except BaseException:
                self.leave(cluster)
                raise
            with self._dispatcher.lock:
                fresh = [self._dispatcher.nodes[rank] for rank in ranks]
                for node in fresh:
                    node.joining = False
                for old, node in zip(replaced, fresh, strict=False):
                    self._take_rank(old, node)
                ranks = [node.rank for node in fresh]
            self._dispatcher.dispatch()
        self.on_joined(cluster)
        self._set_aside(cluster, cluster.notices.current)
        return ranks

    def _take_rank(self, old: PoolNode, node: PoolNode) -> None:
        """Let a node take the rank of another, and the calls that wait for that rank."""
        nodes = self._dispatcher.nodes
        nodes[old.rank], nodes[node.rank] = node, old
        old.rank, node.rank = node.rank, old.rank
        old.replaced = old.joining = old.leaving = True
        node.pinned.extend(old.pinned)
        old.pinned.clear()
        self.changes += 1

    def _set_aside(self, cluster: ClusterHandle, notices: Notices) -> None:
        """Send no more calls to nodes that are taken away, and some again to those that stay."""
        going = leaving_ranks(notices)
        with self._dispatcher.lock:
            for node in self.nodes_of(cluster):
                node.leaving = node.replaced or node.cluster_rank in going
        self.on_notices(cluster, notices)
        self._dispatcher.dispatch()

    def expect_replacement(self, is_replaceable: Callable[[BaseException], bool]) -> None:
        """Keep calls of a cluster that is lost by such an error: its machines are replaced."""
        self._dispatcher.is_replaceable = is_replaceable

    def remove(self, node: PoolNode) -> None:
        """Remove one node; fail the calls that wait for it."""
        self._dispatcher.remove_node(node)

    def leave(self, cluster: ClusterHandle) -> None:
        """Remove the nodes of a cluster; calls that run there are moved."""
        with self._dispatcher.lock:
            if cluster in self.clusters:
                self.clusters.remove(cluster)
            self.forget_use(cluster)
            self._dispatcher.remove_cluster(cluster.connection)

    def forget_use(self, cluster: ClusterHandle) -> None:
        """Let a cluster end whatever this pool does."""
        connection = cluster.connection
        with contextlib.suppress(ValueError):  # done before
            connection.use.pools.remove(self._use)
            connection.on_lost.remove(self._dispatcher.dispatch)

    def drain(self, cluster: ClusterHandle) -> None:
        """Send no more calls to the nodes of a cluster; those that run there go on."""
        with self._dispatcher.lock:
            for node in self.nodes_of(cluster):
                node.joining = True

    def nodes_of(self, cluster: ClusterHandle) -> list[PoolNode]:
        """Return the nodes that a cluster has in the pool."""
        nodes = self._dispatcher.nodes.values()
        return [node for node in nodes if node.connection is cluster.connection]

    def calls_of(self, cluster: ClusterHandle) -> list[CallTask]:
        """Return the calls that nodes of a cluster have, or that wait for one of them."""
        with self._dispatcher.lock:
            nodes = self.nodes_of(cluster)
            sent = [t for n in nodes for b in n.batches.values() for t in b.all_tasks()]
            return sent + [task for node in nodes for task in node.pinned]

    def is_busy(self, cluster: ClusterHandle) -> bool:
        """Return whether nodes of a cluster run calls."""
        with self._dispatcher.lock:
            return any(node.batches or node.pinned for node in self.nodes_of(cluster))

    def record_use(self) -> None:
        """Record on all clusters that calls use them."""
        for cluster in list(self.clusters):
            cluster.connection.use.record("a call")

    def replace_engine(self, node: PoolNode) -> None:
        """Wait, in a thread, until a node whose engine has died has another."""
        threading.Thread(
            target=self._await_engine, args=(node,), name=f"sky-heal-{node.rank}", daemon=True
        ).start()

    def _await_engine(self, node: PoolNode) -> None:
        cluster = next((c for c in self.clusters if c.connection is node.connection), None)
        if cluster is None or node.replaced or not self._is_active():
            return
        try:
            while self._is_active():
                with self._healing, contextlib.suppress(SkyEngineLost):  # slow, not gone
                    try:
                        cluster.await_engines([node.cluster_rank], self._is_active)
                        break
                    except SkyNodeLost as lost:
                        if self.on_node_lost is not None:
                            self.on_node_lost(cluster, node, lost.message)
                            return
                        if lost.is_abandoned:
                            self._dispatcher.remove_node(node)
                            return
            if cluster.connection.is_lost:
                raise cluster.connection.lost_error()
        except SkyCancelled:  # the pool has been closed
            return
        except SkyError as error:
            self._on_lost(cluster, error)
            return
        with self._dispatcher.lock:
            node.sent_context = None
            node.engine = node.connection.client.engines_by_rank.get(node.cluster_rank, "")
        self._dispatcher.dispatch()
        self.on_renewed()
