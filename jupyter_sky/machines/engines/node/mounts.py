"""Datasets that are mounted for cells of this engine, and paths that lead to them."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.datasets.machine_data import check_link, check_paths, replace_link
from jupyter_sky.machines.storage.datasets.mounts import Mount, missing_for_mounts
from jupyter_sky.machines.storage.stores.dataset import Dataset
from jupyter_sky.machines.storage.stores.errors import SkyStorageError

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
