"""Datasets and uploads of cells on an engine: requests of the notebook."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import uuid
import zlib
from collections import deque
from pathlib import Path

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Buffers, Done, Message, Receiver, handles
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.file_cache import cache_folder
from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.machines.engines.wire.agent_link import listen_address
from jupyter_sky.machines.engines.wire.data_requests import (
    AddPiece,
    AddPlans,
    BeginArrival,
    BeginReply,
    Cancel,
    ChangedFiles,
    DataRequest,
    DiskReply,
    EndExchange,
    EndServe,
    Exchange,
    ExchangeReply,
    FindChanged,
    FindHeld,
    HeldReply,
    Link,
    MeasureDisk,
    MountData,
    MountReply,
    MountState,
    ReadPart,
    ReadState,
    Remember,
    Serve,
    ServeMount,
    ServeReply,
    TaskState,
)
from jupyter_sky.machines.engines.wire.engine_requests import PieceReply
from jupyter_sky.machines.storage.datasets.machine_data import (
    Arrival,
    DataTask,
    check_link,
    check_paths,
    file_facts,
    plan_from_json,
    replace_link,
)
from jupyter_sky.machines.storage.datasets.mounts import Mount, missing_for_mounts
from jupyter_sky.machines.storage.stores.cache import DatasetCache
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.file_parts import read_file_part
from jupyter_sky.machines.storage.stores.peers import PeerServer
from jupyter_sky.machines.storage.stores.worker_process import MessageWorker, decode_request


class EngineDatasets(Receiver):
    """Datasets that cells of this engine read, and files that they have written.

    Parameters
    ----------
    root
        Working folder of the engine.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cache = DatasetCache(cache_folder() / "data")
        self.mounts = EngineMounts(root, self.cache.root)
        self._tasks: dict[str, DataTask] = {}
        self._peer_servers: dict[str, PeerServer] = {}
        self._arrived: dict[Path, Arrival] = {}
        self._before: dict[str, dict[str, tuple[int, str]]] = {}
        self._workers: dict[str, tuple[MessageWorker, deque[JsonObject]]] = {}

    def handle_request(self, content: JsonObject, buffers: Buffers = ()) -> Message:
        """Return the reply to one step of the notebook."""
        return self.dispatch(self.decode(content, buffers, op_key=DataRequest.op_key))

    @handles(ReadPart)
    def _read_part(self, request: ReadPart) -> PieceReply:
        return PieceReply((memoryview(read_file_part(decode_request(request.request))),))

    # -- data to this machine --------------------------------------------------------------------

    @handles(BeginArrival)
    def _begin(self, request: BeginArrival) -> BeginReply:
        dataset = _read_dataset(request.buffers)
        link = self.root / request.path
        task = Arrival(self.cache, dataset, link, request.single, self.mounts.folder)
        self._tasks[request.id] = task
        task.start()
        return BeginReply(self.cache.name)

    @handles(AddPlans)
    def _add_plans(self, request: AddPlans) -> Done:
        plans = {identity: plan_from_json(values) for identity, values in request.requests.items()}
        self._arrival(request.id).add_plans(plans)
        return Done()

    @handles(AddPiece)
    def _add_piece(self, request: AddPiece) -> Done:
        self._arrival(request.id).add_piece(
            request.identity, request.start, request.size, request.buffers
        )
        return Done()

    @handles(ReadState)
    def _read_state(self, request: ReadState) -> TaskState:
        """Return how far a task is; forget it with its end."""
        task = self._tasks[request.id]
        state = task.state()
        if task.has_ended:
            state |= task.state()  # the end may have come after the first look
            del self._tasks[request.id]
            if isinstance(task, Arrival) and task.lease is not None:
                self._keep(task)
                state["path"] = str(task.link)
        return TaskState.decode(state)

    def _keep(self, task: Arrival) -> None:
        """Keep the lease of a dataset until its path leads to another one, or the engine ends."""
        before = self._arrived.pop(task.link, None)
        self._arrived[task.link] = task
        if before is not None and before.lease is not None:
            before.lease.close()

    @handles(Cancel)
    def _cancel(self, request: Cancel) -> Done:
        if task := self._tasks.pop(request.id, None):
            task.cancel()
        return Done()

    def _arrival(self, name: str) -> Arrival:
        task = self._tasks[name]
        assert isinstance(task, Arrival)
        return task

    @handles(Serve)
    def _serve(self, request: Serve) -> ServeReply:
        """Serve the objects of a dataset to the other machines of the cluster."""
        info = instance_info()
        address = info.peers[info.node].private_ip
        objects = _read_dataset(request.buffers).objects
        server = PeerServer(self.cache, objects, listen_address(address), address)
        self._peer_servers[request.id] = server
        return ServeReply(server.origin, server.key)

    @handles(FindHeld)
    def _find_held(self, request: FindHeld) -> HeldReply:
        return HeldReply(self._peer_servers[request.id].held(request.identities))

    @handles(EndServe)
    def _end_serve(self, request: EndServe) -> Done:
        if server := self._peer_servers.pop(request.id, None):
            server.close()
        return Done()

    @handles(MountData)
    def _mount(self, request: MountData) -> MountReply:
        """Mount a dataset of a store."""
        dataset = _read_dataset(request.buffers)
        return MountReply(self.mounts.begin(dataset, request.path, request.single))

    @handles(Link)
    def _link(self, request: Link) -> Done:
        """Let a path lead to a folder of this machine."""
        self.mounts.link(request.path, Path(request.target))
        return Done()

    # -- files from this machine -----------------------------------------------------------------

    @handles(Remember)
    def _remember(self, request: Remember) -> Done:
        """Remember the files at a path, before the cell runs."""
        self._before[request.path] = file_facts(self.root, request.path)
        return Done()

    @handles(FindChanged)
    def _find_changed(self, request: FindChanged) -> ChangedFiles:
        """List the files at a path that are new or have changed since they were remembered."""
        path = request.path
        before, now = self._before.pop(path, {}), file_facts(self.root, path)
        changed = [(name, *facts) for name, facts in now.items() if before.get(name) != facts]
        target = self.root / path
        is_file = target.is_file()
        return ChangedFiles(
            files=changed,
            count=len(now),
            is_file=is_file,
            root=str(target.parent if is_file else target),
            machine=f"{socket.gethostname()} {self.root.stat().st_ino}",
        )

    @handles(Exchange)
    def _exchange(self, request: Exchange) -> ExchangeReply:
        """Take messages for a worker of this machine; return those that it has sent."""
        if request.id not in self._workers:
            outgoing: deque[JsonObject] = deque()
            self._workers[request.id] = MessageWorker(outgoing.append), outgoing
        worker, outgoing = self._workers[request.id]
        for message in request.messages:
            worker.receive(message)
        return ExchangeReply([outgoing.popleft() for _ in range(len(outgoing))])

    @handles(EndExchange)
    def _end_exchange(self, request: EndExchange) -> Done:
        if entry := self._workers.pop(request.id, None):
            entry[0].close()
        return Done()

    @handles(MeasureDisk)
    def _measure_disk(self, request: MeasureDisk) -> DiskReply:
        """Return the bytes of the disk of the cache."""
        self.cache.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        usage = shutil.disk_usage(self.cache.root)
        return DiskReply(usage.total, usage.free)


def _read_dataset(received: Buffers) -> Dataset:
    described = json.loads(zlib.decompress(b"".join(received)))
    objects = (CachedObject(*each) for each in described["objects"])
    return Dataset(tuple(objects), tuple(described["folders"]))


def cached_data(tree: str, file: str, uri: str) -> Path:
    """Return the path of data that are in the cache of this machine.

    Raises
    ------
    SkyStorageError
        They are not: the node has joined its pool since they were brought.
    """
    path = cache_folder() / "data" / "trees" / tree / file
    if not path.exists():
        raise SkyStorageError(
            _("{uri} is not on this node, which has joined since").format(uri=uri),
            hint=_("send the call again: the data are brought to all nodes first"),
        )
    return path


# -- Datasets that are mounted for cells of this engine, and paths that lead to them --------------

POLL_SECONDS = 1.0
"""Time until the notebook hears of a mount that needs nothing."""


class EngineMounts:
    """Mounts of one engine by their ids; those of other engines of the machine are shared.

    Parameters
    ----------
    root
        Working folder of the engines.
    cache
        Folder of cached datasets, to which a path may lead before.

    Attributes
    ----------
    folder : Path
        Folder of the mounts, in that of the cluster: what is left there is unmounted at its end.
    """

    def __init__(self, root: Path, cache: Path) -> None:
        self._root, self._cache = root, cache
        self.folder = root.parent / "mounts"
        self._mounts: dict[str, Mount] = {}
        self._links: dict[str, Path] = {}

    def begin(self, dataset: Dataset, path: str, single: bool) -> str:
        """Mount a dataset at a path, unless it is there already.

        Returns
        -------
        str
            Id by which its notebook serves it; empty where another engine has mounted it.

        Raises
        ------
        SkyError
            It cannot be mounted here, or something else is at the path.
        """
        link = self._root / path
        check_paths(dataset)
        check_link(link, self._cache, self.folder)
        self._close_unlinked()
        there = self._mounted_at(link, dataset)
        if there is not None:
            return there
        if missing := missing_for_mounts():
            raise SkyStorageError(
                _("{host} has no {missing}").format(host=socket.gethostname(), missing=missing)
            )
        name = f"{dataset.id}-{uuid.uuid4().hex[:8]}"
        self._mounts[name], self._links[name] = Mount(dataset, self.folder / name), link
        target = self.folder / name
        replace_link(link, target / dataset.objects[0].path if single else target)
        self._close_unlinked()
        return name

    def _target_name(self, link: Path) -> str:
        """Return the name of the mount that a path leads to."""
        if not link.is_symlink() or not link.readlink().is_relative_to(self.folder):
            return ""
        return link.readlink().relative_to(self.folder).parts[0]

    def _close_unlinked(self) -> None:
        """Unmount what no path leads to any more."""
        for name, link in [*self._links.items()]:
            if self._target_name(link) != name:
                del self._links[name]
                self._mounts.pop(name).close()

    def _mounted_at(self, link: Path, dataset: Dataset) -> str | None:
        """Return the id of the mount of a dataset that a path leads to; empty if another's."""
        name = self._target_name(link)
        if not name.startswith(dataset.id):
            return None
        if name in self._mounts:
            return None if self._mounts[name].has_ended else name
        try:
            return "" if (self.folder / name).is_mount() else None
        except OSError:  # its process has been killed
            return None

    def link(self, path: str, target: Path) -> None:
        """Let a path lead to a folder of this machine."""
        link = self._root / path
        if not (link.is_symlink() and link.readlink() == target):
            check_link(link, self._cache, self.folder)
        replace_link(link, target)

    async def answer(self, request: ServeMount) -> MountState:
        """Take requests that the notebook has signed; return what a mount wants next.

        It waits while the mount wants nothing: in the thread of the control channel, which answers
        while a cell runs.
        """
        mount = self._mounts.get(request.id)
        if mount is None:
            return MountState(ended=True)
        if request.windows or request.refused:
            mount.add_requests(request.windows, request.refused)
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        mount.on_change = lambda: loop.call_soon_threadsafe(changed.set)
        if mount.is_idle():
            try:
                await asyncio.wait_for(changed.wait(), POLL_SECONDS)
            except TimeoutError:
                pass
        return MountState.decode(mount.state())
