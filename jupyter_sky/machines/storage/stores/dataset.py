"""Datasets as machines cache them: objects in one version each, as files of one folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One object of a dataset.

    Attributes
    ----------
    path
        Relative path of its file in the dataset's tree, checked by
        `jupyter_sky.machines.storage.stores.tree_names`.
    identity
        Hexadecimal hash of store, key and version: see `object_identity`.
    size
        Bytes.
    """

    path: str
    identity: str
    size: int


def object_identity(store: str, key: str, version: str, size: int) -> str:
    """Return the hash by which the content of one version of one object is cached.

    Examples
    --------
    >>> object_identity("s3://a", "k", "v1", 3) == object_identity("s3://a", "k", "v2", 3)
    False
    """
    text = "\0".join([store, key, version, str(size)])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Dataset:
    """Objects that are one folder on a machine.

    Attributes
    ----------
    objects
        Objects with their paths.
    folders
        Relative paths of folders that are there also when nothing is in them.
    """

    objects: tuple[CachedObject, ...]
    folders: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Hash of the paths and versions of its objects."""
        state = hashlib.blake2b(digest_size=16)
        for each in sorted(self.objects, key=lambda each: each.path):
            state.update(f"{each.path}\0{each.identity}\0".encode())
        for folder in sorted(self.folders):
            state.update(f"{folder}\0\0".encode())
        return state.hexdigest()

    @property
    def nbytes(self) -> int:
        """Size of all its objects."""
        return sum(each.size for each in self.objects)
