"""Pools: clusters that calls are sent to."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ..engines.wire.values import Parcel
from ..errors import SkyClusterLost, SkyEngineLost, SkyError, SkyNodeLost, SkyUsageError
from ..translation import _, ngettext
from . import active_pools
from .blob_transfer import BlobTransfer
from .call_methods import CallMethods, Wanted
from .call_queue import Waiting
from .dispatch import Dispatcher
from .gathered_calls import GatheredCalls, PlainCalls, find_plain_calls
from .local_modules import LocalModules
from .memory_files import machine_identity
from .nodes import PoolNode
from .output import OutputSink
from .payload import Blobs, split
from .specs import Nodes, NodeSpec, Worker
from .tasks import CallPickler, CallTask, PackedCall, RemoteFuture, StopReason, paused_collection
from .topology import shared_state_endpoint, topology

if TYPE_CHECKING:
    from ..engines.client.connection import ClusterConnection
    from ..executor.cluster import ClusterHandle
    from .lazy_calls import PendingFunction
    from .progress import Counts

T = TypeVar("T")


class NodeScaler(Protocol):
    """Part of a pool that changes the number of its nodes."""

    def resize(self, nodes: Nodes) -> None:
        """Add or remove nodes until there are as many as asked for."""
        ...


class Pool(CallMethods):
    """Pool of nodes that calls are sent to.

    What ``sky.up`` and ``with sky.Compute(...) as compute`` give. Cells run on it, too:
    ``%%sky -c NAME``.

    Parameters
    ----------
    cluster
        The cluster.
    worker
        Number of concurrent calls of a node, and their executor.
    end
        Function that ends the cluster; without it, the cluster stays up.

    Attributes
    ----------
    facts : dict
        Facts from plug-ins for the nodes, sent with every later call.

    Examples
    --------
    >>> with sky.Compute(nodes=2) as pool:  # doctest: +SKIP
    ...     results = train(0.1) @ pool
    """

    def __init__(
        self,
        cluster: ClusterHandle,
        worker: Worker | None = None,
        end: Callable[[ClusterHandle], None] | None = None,
    ) -> None:
        active_pools.refuse_untrusted()
        self.cluster, self.worker = cluster, worker or Worker()
        self.id = f"{cluster.row.name}-{uuid.uuid4().hex[:6]}"
        self.facts: dict[str, Any] = {}
        self.uses: list[Callable[[], str]] = []
        """Functions that name a use of its nodes beside calls, such as tasks of Dask, if any."""
        self.provided_modules: frozenset[str] = frozenset()
        """Modules of this machine that its image includes: they are not sent with calls."""
        self.closed = ""
        self._ended = False
        self.scaler: NodeScaler | None = None
        """Changes the number of nodes."""
        self.shows_progress = True
        """Whether the progress of calls is shown."""
        self.limit: float | None = None
        """Time limit of calls that have none of their own, in seconds."""
        self.max_nodes = 0
        """Number of nodes up to which it grows by itself."""
        self._clusters: list[ClusterHandle] = []
        self._end = end
        self._stack = ExitStack()
        self._contexts: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._equipment = _no_equipment
        self._healing = threading.Lock()
        self._dispatcher = Dispatcher(self._describe, self._on_loss)
        self._dispatcher.on_use = self._note_use
        self._dispatcher.uses = self._other_uses
        self._blobs = BlobTransfer(self._dispatcher.nodes, self._dispatcher.requeue)
        self._dispatcher.fetch_blob = self._blobs.fetch_missing
        self.join(cluster)
        # now: the thread that would answer must not have to wait for it
        shared_state_endpoint(cluster)
        active_pools.register(self)

    # -- nodes ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of its cluster."""
        return self.cluster.row.name

    @property
    def row(self) -> Any:
        """Record of its cluster."""
        return self.cluster.row

    @property
    def connection(self) -> Any:
        """Connection to its cluster."""
        return self.cluster.connection

    @property
    def ranks(self) -> list[int]:
        """Ranks of the nodes that take calls."""
        with self._dispatcher.lock:
            return sorted(n.rank for n in self._dispatcher.nodes.values() if not n.joining)

    @property
    def clusters(self) -> list[ClusterHandle]:
        """Clusters of its nodes; the first one's controller serves the pool."""
        return list(self._clusters)

    @property
    def locations(self) -> dict[int, tuple[ClusterConnection, int]]:
        """Connection and rank in its cluster, by rank in the pool."""
        with self._dispatcher.lock:
            return {n.rank: (n.connection, n.cluster_rank) for n in self._dispatcher.nodes.values()}

    @property
    def concurrency(self) -> int:
        """Number of slots on all nodes."""
        return len(self.ranks) * self.worker.concurrency

    @property
    def stream_slots(self) -> int:
        """Calls of a streamed gather to send at least: for every slot, also those to come."""
        return max(len(self.ranks), self.max_nodes, 1) * self.worker.concurrency

    @property
    def cancel_grace(self) -> float:
        """Seconds that a call may take to stop once another call of its group has failed."""
        return self._dispatcher.timeouts.cancel_grace

    @cancel_grace.setter
    def cancel_grace(self, seconds: float) -> None:
        self._dispatcher.timeouts.cancel_grace = seconds

    @property
    def is_active(self) -> bool:
        """Whether it accepts calls."""
        return not self.closed

    def join(
        self, cluster: ClusterHandle, prepare: Callable[[Pool, Sequence[int]], None] | None = None
    ) -> list[int]:
        """Add the nodes of a cluster; return their ranks in the pool.

        With `prepare`, which makes them ready, calls go there only after it.
        """
        with self._dispatcher.lock:
            first = max(self._dispatcher.nodes, default=-1) + 1
            ranks = [first + place for place in range(cluster.row.nodes)]
            engines = cluster.connection.client.engines_by_rank
            slots, executor = self.worker.concurrency, self.worker.executor_kind
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
            self._clusters.append(cluster)
            cluster.connection.pools.append(self.use)
        if prepare is not None:
            try:
                prepare(self, ranks)
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
            if cluster in self._clusters:
                self._clusters.remove(cluster)
            if self.use in cluster.connection.pools:
                cluster.connection.pools.remove(self.use)
            self._dispatcher.remove_cluster(cluster.connection)

    def drain(self, cluster: ClusterHandle) -> None:
        """Send no more calls to the nodes of a cluster; those that run there go on."""
        with self._dispatcher.lock:
            for node in self._nodes_of(cluster):
                node.joining = True

    def _nodes_of(self, cluster: ClusterHandle) -> list[PoolNode]:
        """Return the nodes that a cluster has in the pool."""
        nodes = self._dispatcher.nodes.values()
        return [node for node in nodes if node.connection is cluster.connection]

    def resize(self, nodes: NodeSpec) -> None:
        """Change the number of nodes, and wait for those with which work can begin.

        Nodes that are too many leave once they have no calls, together with those that they have
        joined with; the first cluster stays.

        Parameters
        ----------
        nodes
            A number, ``(least, most)``, or `Nodes`.

        Raises
        ------
        SkyUsageError
            It is less than the pool has begun with.
        SkyError
            More nodes cannot be had; the pool goes on with what it has.

        Examples
        --------
        >>> pool.resize(4)  # doctest: +SKIP
        """
        if self.closed or self.scaler is None:
            raise SkyUsageError(
                _("pool {name} {closed}").format(
                    name=self.name, closed=self.closed or _("is not from sky.Compute")
                )
            )
        wanted = Nodes.of(nodes)
        self.scaler.resize(wanted)
        self.max_nodes = wanted.limit

    def current_nodes(self) -> int:
        """Return the number of nodes that take calls."""
        return len(self.ranks)

    def busy(self, cluster: ClusterHandle) -> bool:
        """Return whether nodes of a cluster run calls."""
        with self._dispatcher.lock:
            return any(node.batches or node.pinned for node in self._nodes_of(cluster))

    def use(self) -> str:
        """Return the current use of its nodes; empty when idle.

        One node's work keeps them all: the clusters of a pool do not end one by one.
        """
        calls = self._dispatcher.call_count()
        named = (
            ngettext("{calls} call", "{calls} calls", calls).format(calls=calls) if calls else ""
        )
        return ", ".join(filter(None, (named, self._other_uses())))

    def _other_uses(self) -> str:
        return ", ".join(use for each in self.uses if (use := each()))

    def _note_use(self) -> None:
        for cluster in list(self._clusters):
            cluster.connection.record_use("a call")

    def check_nodes(self) -> None:
        """Detect lost nodes, before a call does."""
        self._dispatcher.dispatch()

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a node."""
        return self._dispatcher.waiting_count()

    def local_modules(self) -> LocalModules:
        """Return the modules of this machine that calls may need now."""
        return LocalModules(self.provided_modules)

    def equip(self, setups: Sequence[Any], around: Sequence[Any]) -> None:
        """Set the setups of every process, and the wrappers of every call."""
        pair = ([setup for setup in setups if setup is not None], list(around))
        self._equipment = split(Parcel.of(pair, _("what plug-ins send")), None)

    def _describe(self, node: PoolNode) -> dict[str, Any]:
        version = (self.ranks, dict(self.facts), self._equipment, self.cancel_grace)
        sent_version, context = self._contexts.get(node.rank, (None, {}))
        if sent_version != version:
            context = {
                "pool": self.id,
                "executor": self.worker.executor_kind,
                "concurrency": self.worker.concurrency,
                "setups": self._equipment,
                "reader": (machine_identity(), os.getpid()),
                "cancel_grace": self.cancel_grace,
                "topology": topology(self, node.rank),
            }
            self._contexts[node.rank] = version, context
        return context

    def _on_loss(self, node: PoolNode) -> None:
        """Replace a node whose engine has died."""
        threading.Thread(
            target=self._heal, args=(node,), name=f"sky-heal-{node.rank}", daemon=True
        ).start()

    def _heal(self, node: PoolNode) -> None:
        cluster = next((c for c in self._clusters if c.connection is node.connection), None)
        if cluster is None or self.closed:
            return
        try:
            while not self.closed:
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
            self._drop(cluster, error)
            return
        with self._dispatcher.lock:
            node.sent_context = None
            node.engine = node.connection.client.engines_by_rank.get(node.cluster_rank, "")
        self._dispatcher.dispatch()

    def _drop(self, cluster: ClusterHandle, error: SkyError) -> None:
        """Drop a lost cluster, if others remain."""
        if cluster is self.cluster:
            self.closed = _("is gone ({message})").format(message=error.message)
            active_pools.unregister(self)
            self._dispatcher.close(f"pool {self.name} is gone: {error.message}")
            lost = list(self._clusters)
        else:
            self.leave(cluster)
            lost = [cluster]
        if self._end is None:
            return
        for each in lost:
            with contextlib.suppress(SkyError):
                self._end(each)

    # -- calls ---------------------------------------------------------------------------------

    def resolve_pool(self) -> Pool:
        """Return this pool."""
        return self

    def _send(
        self,
        wanted: Wanted,
        futures: list[RemoteFuture[Any]] | None = None,
        pickler: CallPickler | None = None,
        group: object = None,
    ) -> list[RemoteFuture[Any]]:
        """Pickle calls and hand them to the dispatcher; put their futures into `futures`."""
        self._check_open()
        pickler, collected = pickler or CallPickler(self.local_modules()), self._blobs.collect()
        tasks: list[CallTask] = []
        packed: dict[int, PackedCall] = {}
        blobs: Blobs = {}
        sink = self._sink()
        broadcast = uuid.uuid4().hex if len(wanted) > 1 and wanted[0][1] is not None else ""
        with paused_collection():
            for call, rank in wanted:
                if id(call) not in packed:
                    packed[id(call)] = pickler.pack(call, collected)
                    blobs |= packed[id(call)].blobs
                task = self._task(call, packed[id(call)], RemoteFuture(), sink)
                task.rank, task.broadcast, task.group = rank, broadcast, group
                tasks.append(task)
        self._blobs.upload(blobs)
        futures = [] if futures is None else futures
        futures += [task.future for task in tasks]
        self._dispatcher.submit(tasks)
        return futures

    def _send_gathered(self, gathered: GatheredCalls) -> None:
        """Pickle the calls of a gather and hand them to the dispatcher."""
        self._check_open()
        pickler, collected = CallPickler(self.local_modules()), self._blobs.collect()
        calls, blobs = gathered.calls, Blobs()
        packed: dict[int, PackedCall] = {}
        entries: list[Waiting] = []
        with paused_collection():
            for numbers in find_plain_calls(calls, pickler.is_plain):
                call = calls[numbers[0]]
                if len(numbers) > 1:
                    function, shared = pickler.plain_function(call.function)
                    timeout = self._time_limit(call)
                    entries.append(PlainCalls(gathered, function, shared, numbers, timeout))
                    continue
                if id(call) not in packed:
                    packed[id(call)] = pickler.pack(call, collected)
                    blobs |= packed[id(call)].blobs
                future = gathered.future(numbers[0])
                task = self._task(call, packed[id(call)], future, gathered.sink)
                task.group = gathered
                entries.append(task)
        self._blobs.upload(blobs)
        self._dispatcher.submit(entries)

    def _check_open(self) -> None:
        if self.closed:
            raise SkyUsageError(
                _("pool {name} {closed}: calls cannot be sent to it any more").format(
                    name=self.name, closed=self.closed
                ),
                hint=_("bring one up: sky.up(...), or with sky.Compute(...) as compute"),
            )

    def _sink(self) -> OutputSink:
        return OutputSink(many=len(self._dispatcher.nodes) > 1)

    def _time_limit(self, call: PendingFunction[Any]) -> float | None:
        return call.timeout if call.timeout is not None else self.limit

    def _task(
        self,
        call: PendingFunction[Any],
        packed: PackedCall,
        future: RemoteFuture[Any],
        sink: OutputSink,
    ) -> CallTask:
        for stream_sender in packed.stream_senders:
            stream_sender.expected += 1
        return CallTask(call, packed, future, sink, timeout=self._time_limit(call))

    def _stop_gathered(self, gathered: GatheredCalls, why: StopReason) -> None:
        self._dispatcher.stop_gathered(gathered, why)

    def _progress(
        self, total: int, group: object, counts: Counts | None = None
    ) -> contextlib.AbstractContextManager[Callable[[Sequence[Future[Any]]], None]]:
        """Show the progress of the calls of a gather while they are waited for."""
        from .progress import show_progress

        return show_progress(total if self.shows_progress else 0, self._dispatcher, group, counts)

    # -- end ---------------------------------------------------------------------------------------

    def defer(self, function: Callable[[], Any]) -> None:
        """Register a function to call at the end, before the machines end."""
        self._stack.callback(function)

    def enter(self, manager: contextlib.AbstractContextManager[T]) -> T:
        """Enter a context that is left at the end, before the machines end."""
        return self._stack.enter_context(manager)

    def down(self) -> None:
        """End the pool, and its machines."""
        if self._ended:
            return
        self._ended, self.closed = True, self.closed or _("was ended")
        active_pools.unregister(self)
        try:
            self._stack.close()
        finally:
            self._dispatcher.close(f"pool {self.name} was ended")
            for cluster in self._clusters:
                if self.use in cluster.connection.pools:
                    cluster.connection.pools.remove(self.use)
            for cluster in reversed(self._clusters):
                self._release_cluster(cluster)

    def disown(self) -> None:
        """Take no calls and end nothing: called in a forked process, whose parent has the pool."""
        self._ended, self.closed = True, _("belongs to the process that this one was forked from")
        self._stack.pop_all()

    def _release_cluster(self, cluster: ClusterHandle) -> None:
        if self._end is not None:
            self._end(cluster)
            return
        if not cluster.connection.is_lost:
            for node in self._nodes_of(cluster):
                self._dispatcher.send_command(node, node.engine, ("close", self.id))

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *__: object) -> None:
        self.down()

    def __repr__(self) -> str:
        state = self.closed or _("{ranks_count} nodes").format(ranks_count=len(self.ranks))
        return f"<pool {self.name}: {state}>"

    @property
    def dask(self) -> Any:
        """A ``distributed.Client`` on the nodes of this pool."""
        from .plugins import dask

        return dask.client(self)


_no_equipment = split(Parcel.of(([], []), "nothing"), None)
