"""Content-addressed cache of datasets on a machine, shared by its engines.

Below the root of a cache::

    name                  random name of the cache
    objects/AA/IDENTITY   content of one version of one object, read-only
    trees/ID/             a dataset: hard links to objects, by the names of their keys
    leases/ID             locked by each process that uses the tree
    locks/IDENTITY        locked by the process that downloads the object
    locks/fill            locked, shared, by each process that downloads

All locks are those of ``flock``: they end with the process that holds them, whatever ends it. An
object appears under its name when its content is complete and on the disk, a tree when all of its
links are made; what a killed process leaves are temporary files, which the next eviction removes.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.dataset import (
    CachedObject,
    Dataset,
    is_intact,
    is_same_file,
    remove_tree,
    seal,
    used_at,
)
from jupyter_sky.machines.storage.stores.errors import SkyDiskFull

DISK_SHARE = 0.8
"""Share of a disk above which unused datasets are evicted before another one is downloaded."""
GROUP_OBJECTS = 128
"""Number of objects that one process locks and downloads at a time."""
CHECKED_FILES = 10_000
"""Most files of a tree that are compared with what was cached each time it is used."""
STALE_SECONDS = 3600.0
"""Age at which temporary files that no process locks are removed."""
Download = Callable[[Sequence[tuple[CachedObject, Path]]], None]
"""Function that writes the contents of objects to the given paths, or raises."""


class Lease:
    """Use of a cached dataset: it is not evicted until the lease is closed or its process ends.

    Attributes
    ----------
    path : Path
        Folder of the dataset.
    id : str
        Hash of the dataset.
    downloaded : int
        Bytes that were downloaded for this lease.
    """

    def __init__(self, path: Path, tree: str, descriptor: int, downloaded: int) -> None:
        self.path, self.id, self.downloaded = path, tree, downloaded
        self._descriptor = descriptor

    def close(self) -> None:
        """End the use."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *__: object) -> None:
        self.close()


class DatasetCache:
    """Cache of datasets in a folder of this machine.

    Parameters
    ----------
    root
        Folder of the cache; objects and trees must lie on one file system.
    disk_share
        Share of the file system that may be in use after a download.
    disk_usage
        Function that measures the file system.

    Examples
    --------
    >>> cache = DatasetCache(Path.home() / ".cache/jupyter_sky/data")  # doctest: +SKIP
    >>> with cache.lease(dataset, download) as lease:  # doctest: +SKIP
    ...     list(lease.path.iterdir())
    """

    def __init__(
        self,
        root: Path,
        disk_share: float = DISK_SHARE,
        disk_usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage,
    ) -> None:
        self.root, self.disk_share, self._disk_usage = root, disk_share, disk_usage

    @property
    def name(self) -> str:
        """Random name, by which engines that share the cache are recognized."""
        path = self.root / "name"
        if not path.exists():
            work = self._folder("objects") / f"partial-{uuid.uuid4().hex}"
            work.write_text(work.name.removeprefix("partial-"))
            with contextlib.suppress(FileExistsError):  # another process was quicker
                os.link(work, path)
            work.unlink()
        return path.read_text()

    # -- use of a dataset ----------------------------------------------------------------------

    def has_tree(self, dataset: Dataset) -> bool:
        """Return whether a dataset is here, complete and as it was cached."""
        tree, objects = self.root / "trees" / dataset.id, dataset.objects
        if not all((tree / folder).is_dir() for folder in ("", *dataset.folders)):
            return False
        if len(objects) > CHECKED_FILES:
            step = len(objects) // CHECKED_FILES + 1
            objects = objects[::step]
        return all(is_intact(tree / each.path, each) for each in objects)

    def holds(self, each: CachedObject) -> bool:
        """Return whether the content of an object is here, complete and as it was cached."""
        return is_intact(self.object_path(each), each)

    def missing(self, objects: Iterable[CachedObject]) -> list[CachedObject]:
        """Return the objects whose content is not here, each identity once."""
        by_identity = {each.identity: each for each in objects}
        return [each for each in by_identity.values() if not self.holds(each)]

    def lease(self, dataset: Dataset, download: Download) -> Lease:
        """Return a dataset as a folder, downloading the contents that are not here.

        Processes that ask for the same object at once wait for one download.

        Raises
        ------
        SkyDiskFull
            The disk has no room, also without the datasets that nobody uses.
        """
        identity = dataset.id
        descriptor = self._lock(f"leases/{identity}", fcntl.LOCK_SH)
        try:
            downloaded = 0
            if not self.has_tree(dataset):
                self.make_room(sum(each.size for each in self.missing(dataset.objects)))
                downloaded = self._build_tree(dataset, download)
            os.utime(self.root / "leases" / identity)
        except BaseException:
            os.close(descriptor)
            raise
        return Lease(self.root / "trees" / identity, identity, descriptor, downloaded)

    def _build_tree(self, dataset: Dataset, download: Download) -> int:
        """Download a dataset and make its folder; return the number of bytes downloaded."""
        filling, total = self._lock("locks/fill", fcntl.LOCK_SH), 0
        try:
            while True:
                total += self._fill(dataset.objects, download)
                # an object of an unused dataset may have been evicted with it since it was seen
                with contextlib.suppress(FileNotFoundError):
                    self._link_tree(dataset)
                    return total
        finally:
            os.close(filling)

    def _fill(self, objects: Sequence[CachedObject], download: Download) -> int:
        """Download the missing objects of a dataset; return the number of bytes."""
        total, busy, missing = 0, list[CachedObject](), self.missing(objects)
        for start in range(0, len(missing), GROUP_OBJECTS):
            group = missing[start : start + GROUP_OBJECTS]
            with contextlib.ExitStack() as held:
                own = [each for each in group if self._hold(held, each, fcntl.LOCK_NB)]
                busy += [each for each in group if each not in own]
                total += self._download(own, download)
        for each in busy:  # another process downloads it, or has failed
            with contextlib.ExitStack() as held:
                self._hold(held, each, 0)
                total += self._download([each], download)
        return total

    def _download(self, group: Sequence[CachedObject], download: Download) -> int:
        """Download objects whose locks this process holds, unless another has published them."""
        wanted = self.missing(group)
        if not wanted:
            return 0
        with tempfile.TemporaryDirectory(prefix="partial-", dir=self._folder("objects")) as folder:
            pairs = [(each, Path(folder) / each.identity) for each in wanted]
            download(pairs)
            for each, partial in pairs:
                seal(partial, each)
                path = self.object_path(each)
                path.parent.mkdir(mode=0o700, exist_ok=True)
                partial.replace(path)
        return sum(each.size for each in wanted)

    def _link_tree(self, dataset: Dataset) -> None:
        """Make the folder of a dataset, replacing one that somebody has changed."""
        trees = self._folder("trees")
        work = Path(tempfile.mkdtemp(prefix="partial-", dir=trees))
        work.chmod(0o755)
        try:
            for folder in dataset.folders:
                (work / folder).mkdir(parents=True, exist_ok=True)
            for each in dataset.objects:
                path = work / each.path
                path.parent.mkdir(parents=True, exist_ok=True)
                os.link(self.object_path(each), path)
        except BaseException:
            remove_tree(work)
            raise
        target = trees / dataset.id
        while True:
            try:
                work.rename(target)
                return
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
            if self.has_tree(dataset):  # another process was quicker
                remove_tree(work)
                return
            self._discard_tree(target)

    # -- room -----------------------------------------------------------------------------------

    def make_room(self, need: int) -> list[str]:
        """Evict the datasets that were used least recently, until a download fits.

        Parameters
        ----------
        need
            Bytes that are to be downloaded.

        Returns
        -------
        list of str
            Ids of the evicted datasets.

        Raises
        ------
        SkyDiskFull
            The rest of the disk has no room even without all unused datasets.
        """
        self.remove_stale()
        evicted: list[str] = []
        for tree in self._trees_by_use():
            if self._excess(need) <= 0:
                return evicted
            if self._evict(tree):
                evicted.append(tree.name)
        _total, used, free = self._disk_usage(self._folder("objects"))
        if need > free:  # the share is a wish, the disk a limit
            raise SkyDiskFull(
                _(
                    "the dataset needs {need:.1f} GB, and the disk of the machine has "
                    "{free:.1f} GB free"
                ).format(need=need / 1e9, free=free / 1e9),
                hint=_("ask for a larger one: --disk {need}").format(need=_disk_gib(need + used)),
            )
        return evicted

    def unused(self) -> tuple[int, int]:
        """Return the number of datasets that no process uses, and the bytes that they hold."""
        count, inodes = 0, dict[int, int]()
        for tree in self._trees_by_use():
            try:
                descriptor = self._lock(f"leases/{tree.name}", fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            os.close(descriptor)
            count += 1
            states = (path.stat() for path in tree.rglob("*") if path.is_file())
            inodes |= {state.st_ino: state.st_size for state in states}
        return count, sum(inodes.values())

    def evict_unused(self) -> int:
        """Evict all datasets that no process uses; return the bytes freed."""
        *__, before = self._disk_usage(self._folder("objects"))
        self.remove_stale(age=0.0)
        for tree in self._trees_by_use():
            self._evict(tree)
        *__, after = self._disk_usage(self._folder("objects"))
        return max(0, after - before)

    def _excess(self, need: int) -> float:
        """Return the bytes above the share of the disk once `need` bytes have come."""
        total, used, _free = self._disk_usage(self._folder("objects"))
        return used + need - self.disk_share * total

    def _trees_by_use(self) -> list[Path]:
        """Return the cached datasets, that of the oldest use first."""
        trees = [each for each in self._folder("trees").iterdir() if "-" not in each.name]
        return sorted(trees, key=lambda tree: used_at(self.root / "leases" / tree.name))

    def _evict(self, tree: Path) -> bool:
        """Remove a dataset unless a process uses it."""
        try:
            descriptor = self._lock(f"leases/{tree.name}", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        try:
            inodes = {path.stat().st_ino for path in tree.rglob("*") if path.is_file()}
            self._discard_tree(tree)
            self._remove_unlinked(lambda status: status.st_ino in inodes)
            (self.root / "leases" / tree.name).unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        return True

    def _discard_tree(self, tree: Path) -> None:
        """Remove a tree: first from its name, at once, then from the disk."""
        trash = Path(tempfile.mkdtemp(prefix="partial-", dir=tree.parent))
        with contextlib.suppress(FileNotFoundError):
            tree.rename(trash)
        remove_tree(trash)

    def _remove_unlinked(self, is_removed: Callable[[os.stat_result], bool]) -> None:
        """Remove objects that no dataset has a link to."""
        for path in self._folder("objects").glob("??/*"):
            status = path.stat()
            if status.st_nlink == 1 and is_removed(status):
                path.unlink(missing_ok=True)

    def remove_stale(self, age: float = STALE_SECONDS) -> None:
        """Remove the temporary files, locks and objects that killed processes have left.

        Parameters
        ----------
        age
            Seconds for which nothing has used them.
        """
        try:
            filling = self._lock("locks/fill", fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # what another process is making has no links yet
        limit = time.time() - age
        try:
            self._remove_unlinked(lambda status: status.st_ctime < limit)
            for path in [*self.root.glob("objects/partial-*"), *self.root.glob("trees/partial-*")]:
                if used_at(path) < limit:
                    remove_tree(path)
            for path in self._folder("locks").iterdir():
                if path.name != "fill" and used_at(path) < limit:
                    path.unlink(missing_ok=True)
        finally:
            os.close(filling)

    # -- files ------------------------------------------------------------------------------------

    def _folder(self, name: str) -> Path:
        folder = self.root / name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def object_path(self, each: CachedObject) -> Path:
        """Return the path of an object's content, whether it is here or not."""
        return self.root / "objects" / each.identity[:2] / each.identity

    def _hold(self, held: contextlib.ExitStack, each: CachedObject, flags: int) -> bool:
        """Lock an object until `held` ends; return False where another process has it."""
        try:
            descriptor = self._lock(f"locks/{each.identity}", fcntl.LOCK_EX | flags)
        except BlockingIOError:
            return False
        held.callback(os.close, descriptor)
        return True

    def _lock(self, name: str, flags: int) -> int:
        """Open and lock a file; return its descriptor, which holds the lock."""
        path = self._folder(os.path.dirname(name)) / os.path.basename(name)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, flags)
                if is_same_file(descriptor, path):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # it was removed while this process waited


def _disk_gib(nbytes: int) -> int:
    """Return the size of a disk (GiB) that holds so many bytes in its share for datasets."""
    return int(nbytes / DISK_SHARE / 2**30) + 1
