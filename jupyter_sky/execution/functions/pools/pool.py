"""Pools: clusters that calls are sent to."""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import asdict
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from jupyter_sky.base.errors import (
    SkyCancelled,
    SkyEngineLost,
    SkyError,
    SkyNodeLost,
    SkyUsageError,
)
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.execution.clusters.machine_notices import Notices, leaving_ranks
from jupyter_sky.execution.functions.calls import active_pools
from jupyter_sky.execution.functions.calls.call_logs import format_entries, read_entries
from jupyter_sky.execution.functions.calls.call_methods import CallMethods, Wanted
from jupyter_sky.execution.functions.calls.call_pickler import CallPickler
from jupyter_sky.execution.functions.calls.call_sender import CallSender
from jupyter_sky.execution.functions.calls.data_arguments import DataArguments
from jupyter_sky.execution.functions.calls.dispatch import Dispatcher
from jupyter_sky.execution.functions.calls.gathered_calls import GatheredCalls
from jupyter_sky.execution.functions.calls.nodes import PoolNode
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.calls.tasks import RemoteFuture, StopReason
from jupyter_sky.execution.functions.images.specs import Nodes, NodeSpec, Options, Worker
from jupyter_sky.execution.functions.node.messages import ClosePool
from jupyter_sky.execution.functions.pools.dask_node import (
    running_dask,
    start_scheduler,
    start_worker,
)
from jupyter_sky.execution.functions.shared.shared_client import shared_state_endpoint
from jupyter_sky.execution.serialization.local_modules import LocalModules
from jupyter_sky.execution.serialization.memory_files import machine_identity
from jupyter_sky.execution.serialization.payload import split
from jupyter_sky.machines.engines.node.instance import InstanceInfo, Peer
from jupyter_sky.machines.engines.node.service_orders import page_url
from jupyter_sky.machines.engines.wire.values import Parcel
from jupyter_sky.machines.services.dask_processes import await_removal, make_security

if TYPE_CHECKING:
    from distributed import Client, Security

    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.execution.functions.calls.group_restart import GroupKind
    from jupyter_sky.execution.functions.calls.portable import MakePortable
    from jupyter_sky.execution.functions.calls.progress import Counts
    from jupyter_sky.execution.functions.calls.tasks import CallTask
    from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
    from jupyter_sky.execution.functions.pools.node_launches import NodeLaunches
    from jupyter_sky.machines.engines.client.connection import ClusterConnection


T = TypeVar("T")


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
    members : PoolMembers
        Its clusters and nodes.

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
        self.on_replaced: list[Callable[[], object]] = []
        """Functions to call when others have taken the ranks of lost machines or processes."""
        self.provided_modules: frozenset[str] = frozenset()
        """Modules of this machine that its image includes: they are not sent with calls."""
        self.portable: MakePortable | None = None
        """Makes functions run in the Python of its image, if that is not the engines'."""
        self.closed = ""
        self._loss: type[SkyError] | None = None
        self._ended = self._is_ending = False
        self.scaler: Autoscaler | None = None
        """Changes the number of nodes."""
        self.shows_progress = True
        """Whether the progress of calls is shown."""
        self.limit: float | None = None
        """Time limit of calls that have none of their own, in seconds."""
        self.max_nodes = 0
        """Number of nodes up to which it grows by itself."""
        self._end = end
        self._stack = ExitStack()
        self._contexts: dict[int, tuple[Any, dict[str, Any]]] = {}
        self._equipment = _no_equipment
        self._dispatcher = Dispatcher(self._describe, lambda node: members.replace_engine(node))
        self.members = members = PoolMembers(
            self._dispatcher, self.worker, self.use, lambda: self.is_active, self._on_cluster_lost
        )
        self.replace_cluster: Callable[[ClusterHandle, SkyError], bool] = lambda *__: False
        """Replaces the machines of a lost cluster; returns whether that is possible."""
        members.on_renewed = self._note_renewed
        self._dispatcher.on_use = members.record_use
        self._dispatcher.uses = self.named_uses
        self._sender = CallSender(self._dispatcher, self.pickler, lambda: self.limit)
        members.join(cluster)
        # now: the thread that would answer must not have to wait for it
        shared_state_endpoint(cluster)
        active_pools.register(self)

    # -- nodes ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Name of its cluster."""
        return self.cluster.row.name

    @property
    def row(self) -> ClusterRow:
        """Record of its cluster."""
        return self.cluster.row

    @property
    def connection(self) -> ClusterConnection:
        """Connection to its cluster."""
        return self.cluster.connection

    @property
    def ranks(self) -> list[int]:
        """Ranks of the nodes that take calls."""
        with self._dispatcher.lock:
            nodes = self._dispatcher.nodes.values()
            return sorted(n.rank for n in nodes if not n.joining and not n.replaced)

    @property
    def clusters(self) -> list[ClusterHandle]:
        """Clusters of its nodes; the first one's controller serves the pool."""
        return list(self.members.clusters)

    @property
    def locations(self) -> dict[int, tuple[ClusterConnection, int]]:
        """Connection and rank in its cluster, by rank in the pool."""
        with self._dispatcher.lock:
            nodes = [node for node in self._dispatcher.nodes.values() if not node.replaced]
            return {node.rank: (node.connection, node.cluster_rank) for node in nodes}

    @property
    def engines(self) -> dict[int, str]:
        """Identity of the engine process by rank; empty while there is none."""
        with self._dispatcher.lock:
            nodes = [node for node in self._dispatcher.nodes.values() if not node.replaced]
            return {node.rank: node.engine if node.is_alive else "" for node in nodes}

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

    def use(self) -> str:
        """Return the current use of its nodes; empty when idle.

        One node's work keeps them all: the clusters of a pool do not end one by one.
        """
        calls = self._dispatcher.call_count()
        named = (
            ngettext("{calls} call", "{calls} calls", calls).format(calls=calls) if calls else ""
        )
        return ", ".join(filter(None, (named, self.named_uses())))

    def named_uses(self) -> str:
        """Return the uses of its nodes beside calls, such as tasks of Dask; empty for none."""
        return ", ".join(use for each in self.uses if (use := each()))

    def check_nodes(self) -> None:
        """Detect lost nodes, before a call does."""
        self._dispatcher.dispatch()

    @property
    def waiting(self) -> int:
        """Number of calls that wait for a node."""
        return self._dispatcher.waiting_count()

    def pickler(self) -> CallPickler:
        """Return a pickler for calls that are sent now."""
        return CallPickler(
            self.local_modules(), DataArguments(lambda: self.clusters), self.portable
        )

    def local_modules(self) -> LocalModules:
        """Return the modules of this machine that calls may need now."""
        return LocalModules(self.provided_modules)

    def equip(
        self, setups: Sequence[Any], around: Sequence[Any], group: GroupKind | None = None
    ) -> None:
        """Set the setups of every process, the wrappers of every call, and what they form."""
        self._dispatcher.groups.kind = group
        pair = ([setup for setup in setups if setup is not None], list(around))
        self._equipment = split(Parcel.of(pair, _("what plug-ins send")), None)

    def _describe(self, node: PoolNode) -> dict[str, Any]:
        changes = self.members.changes
        version = (self.ranks, changes, dict(self.facts), self._equipment, self.cancel_grace)
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

    def use_controller(self, cluster: ClusterHandle) -> None:
        """Let the controller of another cluster serve the pool: that of the first is gone."""
        self.cluster = cluster
        self.members.changes += 1

    def note_replacement(self, old: ClusterHandle, new: ClusterHandle) -> None:
        """Let nodes that were added with the load leave with it, on their new machines, too."""
        if self.scaler is not None:
            self.scaler.replace(old, new)
        self._note_renewed()

    def _note_renewed(self) -> None:
        for function in list(self.on_replaced):
            with contextlib.suppress(SkyError):  # what it is for says so when it is used
                function()

    def _on_cluster_lost(self, cluster: ClusterHandle, error: SkyError) -> None:
        if not self.replace_cluster(cluster, error):
            self.drop(cluster, error)

    def drop(self, cluster: ClusterHandle, error: SkyError) -> None:
        """Drop a lost cluster; close the pool if it was that of the controller."""
        if cluster is self.cluster:
            self._loss = type(error)
            self.closed = _("is gone ({message})").format(message=error.message)
            active_pools.unregister(self)
            self._dispatcher.close(f"pool {self.name} is gone: {error.message}")
            lost = self.clusters
        else:
            self.members.leave(cluster)
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
        return self._sender.send(wanted, [] if futures is None else futures, pickler, group)

    def _send_gathered(self, gathered: GatheredCalls) -> None:
        """Pickle the calls of a gather and hand them to the dispatcher."""
        self._check_open()
        self._sender.send_gathered(gathered)

    def _check_open(self) -> None:
        if self.closed and not self._is_ending:
            # whoever finds the loss first, a call or the look at idle nodes, callers see its kind
            raise (self._loss or SkyUsageError)(
                _("pool {name} {closed}: calls cannot be sent to it any more").format(
                    name=self.name, closed=self.closed
                ),
                hint=_("bring one up: sky.up(...), or with sky.Compute(...) as compute"),
            )

    def _sink(self) -> OutputSink:
        return self._sender.sink()

    def _stop_gathered(self, gathered: GatheredCalls, why: StopReason) -> None:
        self._dispatcher.stop_gathered(gathered, why)

    def _progress(
        self, total: int, group: object, counts: Counts | None = None
    ) -> contextlib.AbstractContextManager[Callable[[Sequence[Future[Any]]], None]]:
        """Show the progress of the calls of a gather while they are waited for."""
        from jupyter_sky.execution.functions.calls.progress import show_progress

        shown = total if self.shows_progress else 0
        return show_progress(shown, lambda: self._dispatcher.count_running(group), counts)

    def logs(self) -> str:
        """Return what calls have printed, each line behind the rank of its node.

        The controllers of its clusters record it: it is there when the notebook was away, too.

        Examples
        --------
        >>> print(pool.logs())  # doctest: +SKIP
        [0] epoch 1
        """
        return format_entries(read_entries(self.clusters, self.id))

    # -- end ---------------------------------------------------------------------------------------

    def defer(self, function: Callable[[], object]) -> None:
        """Register a function to call at the end, before the machines end; it may call nodes."""
        self._stack.callback(function)

    def enter(self, manager: contextlib.AbstractContextManager[T]) -> T:
        """Enter a context that is left at the end, as by `defer`."""
        return self._stack.enter_context(manager)

    def down(self) -> None:
        """End the pool, and its machines."""
        if self._ended:
            return
        self._is_ending = not self.closed
        self._ended, self.closed = True, self.closed or _("was ended")
        active_pools.unregister(self)
        try:
            self._stack.close()
        finally:
            self._is_ending = False
            self._dispatcher.close(f"pool {self.name} was ended")
            for cluster in self.clusters:
                self.members.forget_use(cluster)
            for cluster in reversed(self.clusters):
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
            for node in self.members.nodes_of(cluster):
                self._dispatcher.send_command(node, node.engine, ClosePool(self.id))

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
        return client(self)


_no_equipment = split(Parcel.of(([], []), "nothing"), None)


# -- Clusters and nodes of a pool: how they join, leave, are drained, and are replaced when -------


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
        cluster.connection.check_protocol()
        with self._dispatcher.lock:
            first = max(self._dispatcher.nodes, default=-1) + 1
            ranks = [first + place for place in range(cluster.row.nodes)]
            engines = cluster.connection.client.engines_by_rank
            slots, executor = self._worker.concurrency, self._worker.executor_kind
            for place, rank in enumerate(ranks):
                node = PoolNode(rank, cluster.connection, place, slots, executor, engines[place])
                node.joining = bool(prepare)
                self._dispatcher.nodes[rank] = node
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


# -- Dask on the nodes of a pool: a scheduler on the head, a worker on each, a client here --------
#
# They are processes of their own below the engines, so calls and cells go on beside them, and they
# end with the engines. Clients without the certificate of the pool are refused. On a cluster whose
# data engine is Dask, the client is one of that.

START_SECONDS = 90.0
SHUTDOWN_SECONDS = 30.0
_clients: WeakKeyDictionary[Pool, Any] = WeakKeyDictionary()
_workers: WeakKeyDictionary[Any, dict[int, str]] = WeakKeyDictionary()
"""Engines that have a worker, by rank: it ends with its engine, and another takes the rank."""
_schedulers: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""Engine that has the scheduler of each client."""
_starting, _completing = threading.Lock(), threading.Lock()


def client(pool: Pool) -> Client:
    """Return a client of Dask on a pool; the first one starts scheduler and workers.

    Raises
    ------
    SkyError
        Dask is not installed here, or not on a node.

    Examples
    --------
    >>> pool.dask.submit(sum, [1, 2]).result()  # doctest: +SKIP
    3
    """
    with _starting:
        client = _clients.get(pool)
        if client is not None and _schedulers[client] not in pool.engines.values():
            _disconnect(client)
        if client is None or client.status in ("closed", "closing"):
            _check_here()
            client = _clients[pool] = _start(pool)
        else:
            _complete(pool, client)
        return client


def _check_here() -> None:
    from importlib.util import find_spec

    lacking = [name for name in ("distributed", "cryptography") if find_spec(name) is None]
    if lacking:
        raise SkyError(
            _("compute.dask needs {lacking} here").format(lacking=" and ".join(lacking)),
            hint=_('pip install "jupyter_sky[dask]"'),
        )


def _start(pool: Pool) -> Client:
    """Connect to the Dask of the cluster; without one start scheduler and workers before."""
    if endpoint := pool.call_on(pool.ranks[0], running_dask).result():
        made = _connect(pool, endpoint["port"], endpoint["page"], make_security(endpoint))
        pool.defer(lambda: _disconnect(made))
        _schedulers[made] = pool.engines[pool.ranks[0]]
        return made
    return _start_own(pool)


def _start_own(pool: Pool) -> Client:
    """Start the scheduler, then a worker on every node, then connect."""
    from distributed import Security

    security = Security.temporary()
    secrets = {
        "ca": security.tls_ca_file,
        "certificate": security.tls_client_cert,
        "key": security.tls_client_key,
    }
    ranks, token = pool.ranks, token_urlsafe()
    order = {**secrets, "token": token}
    address, port, dashboard = pool.call_on(ranks[0], start_scheduler, order).result()
    pool.facts[_FACT] = (address, secrets)
    _start_workers(pool, ranks)
    made = _connect(pool, port, (dashboard, token, "/status"), security)
    pool.defer(lambda: _close(made, pool))
    pool.on_replaced.append(lambda: _complete(pool, made))
    engines = pool.engines
    _workers[made] = {rank: engines[rank] for rank in ranks}
    _schedulers[made] = engines[ranks[0]]
    made.wait_for_workers(len(ranks), timeout=START_SECONDS)
    return made


def _connect(pool: Pool, port: int, page: Sequence[Any], security: Security) -> Client:
    """Return a client of a scheduler that listens on the head node."""
    from jupyter_sky.execution.functions.pools.dask_client import PoolClient

    tunnel = pool.cluster.tunnel
    near = tunnel.forward(port) if tunnel else port
    page_port, token, path = page
    shown = tunnel.forward(page_port) if tunnel and page_port else page_port
    made = PoolClient(
        f"tls://127.0.0.1:{near}",
        pool.local_modules,
        page_url(shown, token, path) if shown else "",
        security=security,
        set_as_default=False,
    )
    pool.uses.append(lambda: _tasks(made))
    return made


_FACT = "jupyter_sky.dask"


def _complete(pool: Pool, known: Any) -> None:
    """Start workers on nodes that have joined since, or have replaced others."""
    with _completing:
        engines, workers = pool.engines, _workers.get(known)
        if workers is None or _schedulers[known] not in engines.values():
            return  # not of this pool, or gone with its engine: the next client starts another
        new = [rank for rank in pool.ranks if engines[rank] and workers.get(rank) != engines[rank]]
        _start_workers(pool, new)
        workers.update({rank: engines[rank] for rank in new})


def _start_workers(pool: Pool, ranks: list[int]) -> None:
    address, secrets = pool.facts[_FACT]
    futures: list[Future[Any]] = [
        pool.call_on(rank, start_worker, address, secrets) for rank in ranks
    ]
    for future in futures:
        future.result()


def _tasks(known: Any) -> str:
    """Return unfinished Dask tasks, as far as the local client knows."""
    pending = sum(state.status == "pending" for state in list(known.futures.values()))
    if not pending:
        return ""
    text = ngettext("{pending} task of Dask", "{pending} tasks of Dask", pending)
    return text.format(pending=pending)


def _close(known: Any, pool: Pool) -> None:
    """Shut down scheduler and workers, wait until their files are removed; close the client."""

    def shut_down() -> None:
        with contextlib.suppress(Exception):  # the scheduler may be gone already
            known.shutdown()
        with contextlib.suppress(Exception):  # so may be a node
            address, __ = pool.facts[_FACT]  # the end of a cluster kills workers that still remove
            removals = [pool.call_on(rank, await_removal, address) for rank in pool.ranks]
            for removal in removals:
                removal.result()

    if not pool.cluster.connection.is_lost:
        thread = threading.Thread(target=shut_down, name="sky-dask-shutdown", daemon=True)
        thread.start()
        thread.join(SHUTDOWN_SECONDS)
    _disconnect(known)


def _disconnect(known: Any) -> None:
    with contextlib.suppress(Exception):  # its scheduler may be gone
        known.close(timeout=2)


# -- Topology of a pool: the facts that its notebook sends to every node ---------------------------


def topology(pool: Pool, rank: int) -> dict[str, Any]:
    """Return the facts of a pool that are sent to the engine of a rank."""
    ranks, shared = sorted({*pool.ranks, rank}), shared_state_endpoint(pool.cluster)
    offer = pool.cluster.row.offer
    addresses = _addresses(pool, shared.head_addr)
    info = InstanceInfo(
        node=ranks.index(rank),
        total_nodes=len(ranks),
        head_addr=shared.head_addr,
        head_port=shared.head_port,
        job_id=pool.id,
        accelerator=offer.get("gpu") or "",
        accelerators=offer.get("gpu_count") or 0,
        peers=tuple(Peer(node, addresses[peer]) for node, peer in enumerate(ranks)),
        workers_per_node=pool.worker.concurrency,
    )
    is_on_head = addresses[rank] == shared.head_addr
    return {
        "node": info.node,
        "instance": asdict(info),
        "shared_state": {
            "url": shared.local_url if is_on_head else shared.remote_url,
            "key": shared.key,
        },
        "facts": {**pool.facts},
    }


def _addresses(pool: Pool, head: str) -> dict[int, str]:
    """Return the addresses of the nodes of a pool, by rank."""
    from jupyter_sky.clouds.launches.base import is_reached_by_ssh

    private: dict[tuple[ClusterConnection, int], str] = {}
    for cluster in pool.clusters:
        if is_reached_by_ssh(cluster.cloud):
            for node in cluster.cloud.recorded_slots(cluster.machines):
                private[cluster.connection, node.rank] = node.private or node.address.host
    return {rank: private.get(place, head) for rank, place in pool.locations.items()}


# -- Autoscaler: nodes are added and removed with the load -----------------------------------------
#
# Nodes that join are clusters of their own, beside the first; that one, with the controller,
# stays. Each joins when it is up: none waits for another.

TICK_SECONDS = 0.25
RETRY_SECONDS = 30.0
"""Delay of the next request after nodes could not be had."""
JOIN_SECONDS = 30.0
"""Most seconds for which the end of a pool waits for the autoscaler."""


def nodes_to_add(nodes: int, slots: int, waiting: int, most: int) -> int:
    """Return the number of nodes to add for calls that have waited too long.

    Examples
    --------
    >>> nodes_to_add(nodes=2, slots=1, waiting=3, most=8)
    3
    >>> nodes_to_add(2, 1, 30, 8), nodes_to_add(2, 4, 3, 8)
    (6, 1)
    """
    return max(0, min(most - nodes, math.ceil(waiting / slots)))


class Autoscaler:
    """Adjusts the number of nodes of a pool to its load.

    Parameters
    ----------
    prepare
        Makes nodes ready, before calls go there.
    launches
        Nodes that are being launched since before the pool began, if any.
    """

    def __init__(
        self,
        pool: Pool,
        nodes: Nodes,
        launcher: ClusterLauncher,
        options: Options,
        prepare: Callable[[Pool, Sequence[int]], None],
        launches: NodeLaunches | None = None,
    ) -> None:
        self.pool, self.nodes, self._launcher = pool, nodes, launcher
        self.options, self._prepare = options, prepare
        self._launches = launches or _launches_of(launcher)
        self.last_error: SkyError | None = None
        """Error of the last failed request for nodes; None if there was none."""
        self._joined: list[ClusterHandle] = []
        self._draining: list[ClusterHandle] = []
        self._exchanged: list[ClusterHandle] = []
        self._idle_since: dict[str, float] = {}
        self._busy_since: float | None = None
        self._retry_at = 0.0
        self._failed_attempts = 0
        self._stopped, self._lock = threading.Event(), threading.Lock()
        self._serial = 1 if launches is None else nodes.initial
        self._thread = threading.Thread(target=self._run, name="sky-autoscaler", daemon=True)

    def begin(self) -> None:
        """Start a thread that scales the pool until it ends."""
        if self._thread.is_alive():
            return
        self.pool.defer(self._stop)
        self._launcher.check_wanted = self._check
        self._launches.hand_over(self._join, self._record_failure)
        self._thread.start()

    def adopt(self, clusters: Sequence[ClusterHandle]) -> None:
        """Let clusters that have been there from the start leave when there are too many nodes."""
        self._joined += clusters
        self._serial = max(self._serial, 1 + len(clusters))

    def resize(self, nodes: Nodes) -> None:
        """Change the numbers of nodes, and wait for those with which work can begin.

        Nodes that are too many leave once they have no calls.

        Raises
        ------
        SkyError
            More nodes cannot be had; the pool goes on with what it has.
        """
        before, first = self.nodes, self.pool.cluster.row.nodes
        if nodes.initial < first:
            raise SkyUsageError(
                _(
                    "pool {name} has {first} nodes in its first cluster, which has its "
                    "controller and stays: it cannot have {initial}"
                ).format(name=self.pool.name, first=first, initial=nodes.initial),
                hint=_("begin smaller: sky.Compute(nodes=({initial}, {first}))").format(
                    initial=nodes.initial, first=first
                ),
            )
        self.last_error, self._retry_at, self._failed_attempts = None, 0.0, 0
        self.nodes = nodes
        self.begin()
        while len(self.pool.ranks) < nodes.ready:
            if self.pool.closed:
                raise SkyCancelled(
                    _("pool {name} {closed}").format(name=self.pool.name, closed=self.pool.closed)
                )
            if self.last_error is not None:
                self.nodes = before
                raise self.last_error
            time.sleep(TICK_SECONDS / 5)

    def replace(self, old: ClusterHandle, new: ClusterHandle) -> None:
        """Take a cluster for another, whose nodes it has replaced."""
        with self._lock:
            self._joined = [new if cluster is old else cluster for cluster in self._joined]

    def exchange(self, clusters: Sequence[ClusterHandle]) -> None:
        """Let clusters that have joined end once they have no calls; others take their place."""
        self._exchanged += clusters
        self.begin()

    def _stop(self) -> None:
        self._stopped.set()
        self._thread.join(JOIN_SECONDS)
        self._launches.abandon()

    def _check(self) -> None:
        if self._stopped.is_set():
            raise SkyCancelled(_("the pool has ended meanwhile"))

    def _run(self) -> None:
        self._add_nodes(self._missing())
        while not self._stopped.wait(TICK_SECONDS):
            now = time.monotonic()
            self.pool.check_nodes()
            if self.pool.closed:
                return
            self._drain_exchanged()
            self._end_drained()
            if self._missing() > 0:
                if now > self._retry_at:
                    self._add_nodes(self._missing())
            elif len(self.pool.ranks) < self.nodes.initial:
                continue  # they are being launched
            elif len(self.pool.ranks) > self.nodes.limit:
                self._drain()
            elif self.nodes.limit > self.nodes.initial:
                self._scale(now)

    def _missing(self) -> int:
        """Return the number of nodes to launch for the pool to have as many as it begins with."""
        return self.nodes.initial - len(self.pool.ranks) - self._launches.pending

    def _scale(self, now: float) -> None:
        """Add nodes when calls have waited too long, remove nodes that have been idle too long."""
        waiting = self.pool.waiting
        if not waiting:
            self._busy_since = None
            self._shrink(now)
            return
        self._idle_since.clear()
        self._busy_since = self._busy_since or now
        if now - self._busy_since > self.options.scale_up_after and now > self._retry_at:
            self._add_nodes(self._wanted(waiting))
            self._busy_since = None

    def _wanted(self, waiting: int) -> int:
        """Return the number of nodes to launch for calls that wait, beside those on their way."""
        pending, slots = self._launches.pending, self.pool.worker.concurrency
        if pending and self._launcher.resources.max_hourly_cost is not None:
            return 0  # what they will cost is not known yet
        most = self.nodes.limit - pending
        return nodes_to_add(len(self.pool.ranks), slots, waiting - pending * slots, most)

    def _add_nodes(self, count: int) -> None:
        if count < 1:
            return
        count = self._launcher.affordable(count)
        first, self._serial = self._serial + 1, self._serial + count
        self._launches.begin([f"{self.pool.name}-{n}" for n in range(first, first + count)])

    def _join(self, cluster: ClusterHandle) -> None:
        """Let a cluster that has come up join the pool."""
        try:
            self._check()
            self.pool.members.join(cluster, lambda ranks: self._prepare(self.pool, ranks))
        except BaseException as error:
            self._launcher.end(cluster)  # it costs, and is of no use
            if isinstance(error, SkyError) and not isinstance(error, SkyCancelled):
                error.machines_came_up = True
            raise
        with self._lock:
            self._joined.append(cluster)
            self._failed_attempts, self.last_error = 0, None

    def _record_failure(self, error: BaseException) -> None:
        """Delay the next request for nodes, or give up: nodes that came up have cost money."""
        if isinstance(error, SkyCancelled) or self._stopped.is_set():
            return
        if not isinstance(error, SkyError):
            raise error  # of ours: threads show it
        with self._lock:
            self.last_error, self._retry_at = error, time.monotonic() + RETRY_SECONDS
            self._failed_attempts += error.machines_came_up
            from jupyter_sky.machines.provisioner.broker import LOST_STAGE

            if self._failed_attempts < LOST_STAGE:
                return
            self._retry_at = math.inf
            if self._failed_attempts > LOST_STAGE:
                return  # said already
        warnings.warn(
            _(
                "pool {name} stays at {ranks_count} nodes: {lost_stage} times others "
                "came up and were of no use ({message})"
            ).format(
                name=self.pool.name,
                ranks_count=len(self.pool.ranks),
                lost_stage=LOST_STAGE,
                message=error.message.splitlines()[0],
            ),
            stacklevel=2,
        )

    def _drain(self) -> None:
        """Send no more calls to nodes that are too many, the last ones to join first.

        Nodes that have joined together leave together.
        """
        with self._lock:
            for cluster in reversed(list(self._joined)):
                if len(self.pool.ranks) - cluster.row.nodes >= self.nodes.initial:
                    self.pool.members.drain(cluster)
                    self._joined.remove(cluster)
                    self._draining.append(cluster)

    def _drain_exchanged(self) -> None:
        with self._lock:
            wanted, self._exchanged = self._exchanged, []
            for cluster in [each for each in self._joined if each in wanted]:
                self.pool.members.drain(cluster)
                self._joined.remove(cluster)
                self._draining.append(cluster)

    def _end_drained(self) -> None:
        """End clusters that have no calls any more."""
        for cluster in [each for each in self._draining if not self.pool.members.is_busy(each)]:
            self._draining.remove(cluster)
            self.pool.members.leave(cluster)
            self._launcher.end(cluster)

    def _shrink(self, now: float) -> None:
        with self._lock:
            self._joined = [cluster for cluster in self._joined if cluster in self.pool.clusters]
            joined = list(self._joined)
        for cluster in joined:
            count = len(self.pool.ranks)
            name = cluster.row.name
            if count - cluster.row.nodes < self.nodes.initial or self.pool.members.is_busy(cluster):
                self._idle_since.pop(name, None)
                continue
            if now - self._idle_since.setdefault(name, now) > self.options.scale_down_after:
                self.pool.members.leave(cluster)
                with self._lock:
                    self._joined.remove(cluster)
                self._launcher.end(cluster)


def _launches_of(launcher: ClusterLauncher) -> NodeLaunches:
    from jupyter_sky.execution.functions.pools.node_launches import NodeLaunches

    return NodeLaunches(launcher)
