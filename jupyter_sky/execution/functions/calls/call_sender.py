"""Preparation of calls for the dispatcher: pickles, large segments, tasks."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from ipyparallel.error import EngineError

from jupyter_sky.base.errors import SkyClusterLost, SkyTransferError
from jupyter_sky.base.messages import Message, Request
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.call_methods import Wanted
from jupyter_sky.execution.functions.calls.call_pickler import CallPickler
from jupyter_sky.execution.functions.calls.call_queue import Waiting
from jupyter_sky.execution.functions.calls.gathered_calls import (
    GatheredCalls,
    PlainCalls,
    find_plain_calls,
)
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.calls.tasks import (
    Broadcast,
    CallTask,
    PackedCall,
    RemoteFuture,
    paused_collection,
)
from jupyter_sky.execution.functions.node.messages import BlobPart, FindBlobs
from jupyter_sky.execution.serialization.memory_files import MemoryFile
from jupyter_sky.execution.serialization.payload import ArgumentBlobs, Blobs, digest
from jupyter_sky.machines.engines.wire.messages import JupyterMessage

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.dispatch import Dispatcher
    from jupyter_sky.execution.functions.calls.lazy_calls import PendingFunction
    from jupyter_sky.execution.functions.calls.nodes import PoolNode
    from jupyter_sky.machines.engines.client.connection import ClusterConnection


ReplyT = TypeVar("ReplyT", bound=Message)


class CallSender:
    """Sender of the calls of a pool.

    Parameters
    ----------
    dispatcher
        Dispatcher of the pool.
    pickler
        Returns a pickler for calls that are sent now.
    limit
        Returns the time limit of calls that have none of their own (s).
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pickler: Callable[[], CallPickler],
        limit: Callable[[], float | None],
    ) -> None:
        self._dispatcher, self._pickler, self._limit = dispatcher, pickler, limit
        self._blobs = BlobTransfer(dispatcher.nodes, dispatcher.requeue)
        dispatcher.fetch_blob = self._blobs.fetch_missing

    def sink(self) -> OutputSink:
        """Return a receiver of the outputs of calls that are sent together."""
        return OutputSink(many=len(self._dispatcher.nodes) > 1)

    def send(
        self,
        wanted: Wanted,
        futures: list[RemoteFuture[Any]],
        pickler: CallPickler | None = None,
        group: object = None,
    ) -> list[RemoteFuture[Any]]:
        """Pickle calls and hand them to the dispatcher; put their futures into `futures`."""
        packing = CallPacking(pickler or self._pickler(), self._blobs.collect())
        sink, tasks = self.sink(), list[CallTask]()
        with paused_collection():
            for call, rank in wanted:
                task = self._task(call, packing.pack(call), RemoteFuture(), sink)
                task.rank, task.group = rank, group
                tasks.append(task)
        if isinstance(group, Broadcast):
            group.tasks += tasks
        self._blobs.upload(packing.blobs)
        futures += [task.future for task in tasks]
        self._dispatcher.submit(tasks)
        return futures

    def send_gathered(self, gathered: GatheredCalls) -> None:
        """Pickle the calls of a gather and hand them to the dispatcher."""
        pickler = self._pickler()
        packing, entries = CallPacking(pickler, self._blobs.collect()), list[Waiting]()
        with paused_collection():
            for numbers in find_plain_calls(gathered.calls, pickler.is_plain):
                call = gathered.calls[numbers[0]]
                if len(numbers) > 1:
                    function, blobs = pickler.plain_function(call.function)
                    limit = self._time_limit(call)
                    entries.append(PlainCalls(gathered, function, blobs, numbers, limit))
                    continue
                future = gathered.future(numbers[0])
                task = self._task(call, packing.pack(call), future, gathered.sink)
                task.group = gathered
                entries.append(task)
        self._blobs.upload(packing.blobs)
        self._dispatcher.submit(entries)

    def _time_limit(self, call: PendingFunction[Any]) -> float | None:
        return call.timeout if call.timeout is not None else self._limit()

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


class CallPacking:
    """Pickles of calls that are sent together; a call that is sent twice is pickled once.

    Attributes
    ----------
    blobs : dict
        Large segments of all of them.
    """

    def __init__(self, pickler: CallPickler, collected: ArgumentBlobs) -> None:
        self._pickler, self._collected = pickler, collected
        self._packed: dict[int, PackedCall] = {}
        self.blobs: Blobs = {}

    def pack(self, call: PendingFunction[Any]) -> PackedCall:
        """Pickle a call."""
        packed = self._packed.get(id(call))
        if packed is None:
            packed = self._packed[id(call)] = self._pickler.pack(call, self._collected)
            self.blobs |= packed.blobs
        return packed


# -- Transfer of large argument pieces to nodes: mapped on the same machine, else each sent -------

PART_BYTES = 4 * 2**20
WINDOW_PARTS = 4
POLL_SECONDS = 0.2


class BlobTransfer:
    """Uploads blobs to the nodes of a pool that cannot map them.

    A blob goes once to each controller, which hands it on to the machines that lack it. Nodes of
    this machine map memory files.

    Parameters
    ----------
    nodes
        Nodes of the pool by rank; read at each upload.
    requeue
        Called with tasks whose missing blobs have been uploaded.
    """

    def __init__(
        self, nodes: Mapping[int, PoolNode], requeue: Callable[[list[CallTask]], None]
    ) -> None:
        self._nodes, self._requeue = nodes, requeue
        self._uploaded: dict[str, set[str]] = {}
        self._without_files: set[str] = set()
        """Engines that could not map a memory file, such as those in a container."""
        self._files: WeakValueDictionary[str, MemoryFile] = WeakValueDictionary()
        self._lock = threading.Lock()

    def collect(self) -> ArgumentBlobs:
        """Return a place for the large segments of one submission."""
        if any(self._maps_files(node) for node in list(self._nodes.values())):
            return ArgumentBlobs(self._find_file)
        return ArgumentBlobs()

    def _find_file(self, name: str, data: memoryview) -> MemoryFile | None:
        file = self._files.get(name) or MemoryFile.write(data)
        if file is not None:
            self._files[name] = file
        return file

    def _maps_files(self, node: PoolNode) -> bool:
        """Return whether a node is on this machine, as far as is known."""
        engine = node.engine
        return engine in node.connection.client.routes and engine not in self._without_files

    def upload(self, blobs: Blobs, force: bool = False) -> None:
        """Upload blobs to all nodes, and wait until they have arrived."""
        if not blobs:
            return
        with self._lock:
            nodes = [n for n in self._nodes.values() if n.engine]
            by_connection: dict[Any, list[PoolNode]] = {}
            for node in nodes:
                by_connection.setdefault(node.connection, []).append(node)
            for name, source in blobs.items():
                for connection, members in by_connection.items():
                    lacking = [n for n in members if force or not self._has(n, name)]
                    if isinstance(source, MemoryFile):
                        lacking = [n for n in lacking if not self._maps_files(n)]
                    if lacking:
                        self._send(connection, lacking, name, _memory_of(source))

    def _has(self, node: PoolNode, name: str) -> bool:
        return name in self._uploaded.get(node.engine, ())

    def _send(
        self,
        connection: ClusterConnection,
        nodes: Collection[PoolNode],
        name: str,
        data: memoryview,
    ) -> None:
        engines = {node.engine for node in nodes}
        request = FindBlobs([name])
        answers = connection.client.broadcast(engines, "sky_blob", request)
        replies = _wait_all(connection, request, answers)
        # nodes that are on one machine share a blob cache: one of them takes it for all
        takers = {r.blob_cache: engine for engine, r in replies.items() if not r.here}
        engines = set(takers.values())
        in_flight: deque[tuple[BlobPart, dict[str, Future[JupyterMessage]]]] = deque()
        for start in range(0, data.nbytes if engines else 0, PART_BYTES):
            part = data[start : start + PART_BYTES]
            sent = BlobPart(name, start, data.nbytes, buffers=(part,))
            in_flight.append((sent, connection.client.broadcast(engines, "sky_blob", sent)))
            if len(in_flight) >= WINDOW_PARTS:
                _wait_all(connection, *in_flight.popleft())
        while in_flight:
            _wait_all(connection, *in_flight.popleft())
        for node in nodes:
            self._uploaded.setdefault(node.engine, set()).add(name)

    # -- missing blobs -----------------------------------------------------------------------------

    def fetch_missing(self, node: PoolNode, task: CallTask, name: str) -> None:
        """Upload blobs that a node lacks for a task: it joined later, or has evicted them."""

        def upload_missing() -> None:
            source = task.packed.blobs.get(name)
            if isinstance(source, MemoryFile):
                self._without_files.add(node.engine)
            try:
                if source is None or digest(_memory_of(source)) != name:
                    raise SkyTransferError(
                        _(
                            "an argument of {call!r} has changed since it was sent, and a node "
                            "lacks it"
                        ).format(call=task.call),
                        hint=_("send the call again"),
                    )
                self.upload({name: source}, force=True)
            except Exception as error:
                task.future.fail(error)
                return
            self._requeue([task])

        threading.Thread(target=upload_missing, name="sky-blob", daemon=True).start()


def _memory_of(source: memoryview | MemoryFile) -> memoryview:
    return source.memory if isinstance(source, MemoryFile) else source


def _wait_all(
    connection: ClusterConnection,
    request: Request[ReplyT],
    futures: dict[str, Future[JupyterMessage]],
) -> dict[str, ReplyT]:
    """Wait for the replies of engines, except those that have died."""
    replies: dict[str, ReplyT] = {}
    for engine, future in futures.items():
        reply = _wait_reply(connection, engine, future)
        if isinstance(reply, dict):
            replies[engine] = connection.engine_reply(request, reply)
    return replies


def _wait_reply(connection: ClusterConnection, engine: str, future: Future) -> Any:
    while True:
        try:
            return future.result(POLL_SECONDS)
        except FutureTimeout:
            if connection.is_lost:
                raise SkyClusterLost(
                    _("cluster {cluster} is gone").format(cluster=connection.cluster)
                ) from None
            if engine not in connection.client.engines_by_rank.values():
                return EngineError(engine)
            time.sleep(0)
