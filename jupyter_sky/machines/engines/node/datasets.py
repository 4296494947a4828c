"""Datasets and uploads of cells on an engine: requests of the notebook, by their ``step``."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import uuid
import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.file_cache import cache_folder
from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.machines.engines.wire.agent_link import listen_address
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


class EngineDatasets:
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
        self._workers: dict[str, tuple[MessageWorker, deque[dict[str, Any]]]] = {}

    def handle(
        self, content: dict[str, Any], received: Sequence[Any], buffers: list
    ) -> dict[str, Any]:
        """Carry out one step of the notebook; append buffers of the reply to `buffers`."""
        if content["step"] == "read":
            buffers.append(read_file_part(decode_request(content["request"])))
            return {}
        return getattr(self, f"_step_{content['step']}")(content, received) or {}

    # -- data to this machine --------------------------------------------------------------------

    def _step_begin(self, content: dict[str, Any], received: Sequence[Any]) -> dict[str, Any]:
        dataset = _read_dataset(received)
        link = self.root / content["path"]
        task = Arrival(self.cache, dataset, link, content["single"], self.mounts.folder)
        self._tasks[content["id"]] = task
        task.start()
        return {"cache": self.cache.name}

    def _step_requests(self, content: dict[str, Any], __: Sequence[Any]) -> None:
        plans = {
            identity: plan_from_json(values) for identity, values in content["requests"].items()
        }
        self._arrival(content).add_plans(plans)

    def _step_piece(self, content: dict[str, Any], received: Sequence[Any]) -> None:
        place = content["identity"], content["start"], content["size"]
        self._arrival(content).add_piece(*place, received)

    def _step_state(self, content: dict[str, Any], __: Sequence[Any]) -> dict[str, Any]:
        """Return how far a task is; forget it with its end."""
        task = self._tasks[content["id"]]
        state = task.state()
        if task.has_ended:
            state |= task.state()  # the end may have come after the first look
            del self._tasks[content["id"]]
            if isinstance(task, Arrival) and task.lease is not None:
                self._keep(task)
                state["path"] = str(task.link)
        return state

    def _keep(self, task: Arrival) -> None:
        """Keep the lease of a dataset until its path leads to another one, or the engine ends."""
        before = self._arrived.pop(task.link, None)
        self._arrived[task.link] = task
        if before is not None and before.lease is not None:
            before.lease.close()

    def _step_cancel(self, content: dict[str, Any], __: Sequence[Any]) -> None:
        if task := self._tasks.pop(content["id"], None):
            task.cancel()

    def _arrival(self, content: dict[str, Any]) -> Arrival:
        task = self._tasks[content["id"]]
        assert isinstance(task, Arrival)
        return task

    def _step_serve(self, content: dict[str, Any], received: Sequence[Any]) -> dict[str, Any]:
        """Serve the objects of a dataset to the other machines of the cluster."""
        info = instance_info()
        address = info.peers[info.node].private_ip
        objects = _read_dataset(received).objects
        server = PeerServer(self.cache, objects, listen_address(address), address)
        self._peer_servers[content["id"]] = server
        return {"origin": server.origin, "key": server.key}

    def _step_held(self, content: dict[str, Any], __: Sequence[Any]) -> dict[str, Any]:
        """Return the objects, of some, that this machine serves now."""
        return {"held": self._peer_servers[content["id"]].held(content["identities"])}

    def _step_end_serve(self, content: dict[str, Any], __: Sequence[Any]) -> None:
        if server := self._peer_servers.pop(content["id"], None):
            server.close()

    def _step_mount(self, content: dict[str, Any], received: Sequence[Any]) -> dict[str, Any]:
        """Mount a dataset of a store."""
        path, single = content["path"], content["single"]
        return {"id": self.mounts.begin(_read_dataset(received), path, single)}

    def _step_link(self, content: dict[str, Any], __: Sequence[Any]) -> None:
        """Let a path lead to a folder of this machine."""
        self.mounts.link(content["path"], Path(content["target"]))

    # -- files from this machine -----------------------------------------------------------------

    def _step_remember(self, content: dict[str, Any], __: Sequence[Any]) -> None:
        """Remember the files at a path, before the cell runs."""
        path = content["path"]
        self._before[path] = file_facts(self.root, path)

    def _step_changed(self, content: dict[str, Any], __: Sequence[Any]) -> dict[str, Any]:
        """List the files at a path that are new or have changed since they were remembered."""
        path = content["path"]
        before, now = self._before.pop(path, {}), file_facts(self.root, path)
        changed = [[name, *facts] for name, facts in now.items() if before.get(name) != facts]
        target = self.root / path
        is_file = target.is_file()
        return {
            "files": changed,
            "count": len(now),
            "is_file": is_file,
            "root": str(target.parent if is_file else target),
            "machine": f"{socket.gethostname()} {self.root.stat().st_ino}",
        }

    def _step_exchange(self, content: dict[str, Any], _: Sequence[Any]) -> dict[str, Any]:
        """Take messages for a worker of this machine; return those that it has sent."""
        name = content["id"]
        if name not in self._workers:
            outgoing: deque[dict[str, Any]] = deque()
            self._workers[name] = MessageWorker(outgoing.append), outgoing
        worker, outgoing = self._workers[name]
        for message in content["messages"]:
            worker.receive(message)
        return {"messages": [outgoing.popleft() for _ in range(len(outgoing))]}

    def _step_end_exchange(self, content: dict[str, Any], _: Sequence[Any]) -> None:
        if entry := self._workers.pop(content["id"], None):
            entry[0].close()

    def _step_disk(self, *__: object) -> dict[str, Any]:
        """Return the bytes of the disk of the cache."""
        self.cache.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        usage = shutil.disk_usage(self.cache.root)
        return {"total": usage.total, "free": usage.free}


def _read_dataset(received: Sequence[Any]) -> Dataset:
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

    async def answer(self, content: dict[str, Any]) -> dict[str, Any]:
        """Take requests that the notebook has signed; return what a mount wants next.

        It waits while the mount wants nothing: in the thread of the control channel, which answers
        while a cell runs.
        """
        mount = self._mounts.get(content["id"])
        if mount is None:
            return {"ended": True}
        windows: Sequence[Sequence[Any]] = content["windows"]
        if windows or content.get("refused"):
            mount.add_requests(windows, content.get("refused", ""))
        changed, loop = asyncio.Event(), asyncio.get_running_loop()
        mount.on_change = lambda: loop.call_soon_threadsafe(changed.set)
        if mount.is_idle():
            try:
                await asyncio.wait_for(changed.wait(), POLL_SECONDS)
            except TimeoutError:
                pass
        return mount.state()
