"""Transfer of large argument pieces to nodes: mapped on the same machine, else each sent once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from ipyparallel.error import EngineError

from jupyter_sky.base.errors import SkyClusterLost, SkyTransferError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.serialization.memory_files import MemoryFile
from jupyter_sky.execution.serialization.payload import ArgumentBlobs, Blobs, digest

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.nodes import PoolNode
    from jupyter_sky.execution.functions.calls.tasks import CallTask
    from jupyter_sky.machines.engines.client.connection import ClusterConnection

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
        answers = connection.client.broadcast(engines, "sky_blob", {"asked": [name]}, None)
        replies = _wait_all(connection, answers)
        # nodes that are on one machine share a blob cache: one of them takes it for all
        takers = {r["blob_cache"]: engine for engine, r in replies.items() if not r["here"]}
        engines = set(takers.values())
        in_flight: deque[dict[str, Future]] = deque()
        for start in range(0, data.nbytes if engines else 0, PART_BYTES):
            part = data[start : start + PART_BYTES]
            content = {"name": name, "start": start, "size": data.nbytes}
            in_flight.append(connection.client.broadcast(engines, "sky_blob", content, [part]))
            if len(in_flight) >= WINDOW_PARTS:
                _wait_all(connection, in_flight.popleft())
        while in_flight:
            _wait_all(connection, in_flight.popleft())
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
    connection: ClusterConnection, futures: dict[str, Future]
) -> dict[str, dict[str, Any]]:
    """Wait for the replies of engines, except those that have died."""
    replies: dict[str, dict[str, Any]] = {}
    for engine, future in futures.items():
        reply = _wait_reply(connection, engine, future)
        if isinstance(reply, dict):
            replies[engine] = connection.reply_content(reply)
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
