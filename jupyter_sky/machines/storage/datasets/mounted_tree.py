"""Folders and files of a mounted dataset: a snapshot, as it was listed when it was mounted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset


class MountedTree:
    """Entries of a dataset by their paths, which begin with ``/`` as the kernel asks for them.

    Parameters
    ----------
    dataset
        The dataset.

    Examples
    --------
    >>> tree = MountedTree(Dataset((CachedObject("a/b", "1f", 3),), ("empty",)))
    >>> tree.names("/"), tree.names("/a"), tree.find("/a/b").size, tree.find("/c") is None
    (['a', 'empty'], ['b'], 3, True)
    """

    def __init__(self, dataset: Dataset) -> None:
        self._files = {f"/{each.path}": each for each in dataset.objects}
        self._order = [*self._files.values()]
        self._places = {each.path: place for place, each in enumerate(self._order)}
        self._folders: dict[str, dict[str, None]] = {"/": {}}
        for path in self._files:
            self._add_parents(PurePosixPath(path))
        for folder in dataset.folders:
            path = PurePosixPath("/", folder)
            self._folders.setdefault(str(path), {})
            self._add_parents(path)

    def _add_parents(self, path: PurePosixPath) -> None:
        """Let each folder above a path have its part of it."""
        while path != path.parent:
            names = self._folders.setdefault(str(path.parent), {})
            if path.name in names:
                return
            names[path.name] = None
            path = path.parent

    def find(self, path: str) -> CachedObject | None:
        """Return the object of a file."""
        return self._files.get(path)

    def names(self, path: str) -> list[str] | None:
        """Return the names in a folder; None where there is none."""
        names = self._folders.get(path)
        return None if names is None else [*names]

    @property
    def nbytes(self) -> int:
        """Size of all files."""
        return sum(each.size for each in self._order)

    def following(self, found: CachedObject, count: int) -> Iterable[CachedObject]:
        """Return the objects after one in the order of their names, which are likely read next."""
        place = self._places[found.path] + 1
        return self._order[place : place + count]

    def __iter__(self) -> Iterator[CachedObject]:
        return iter(self._order)
