"""Datasets as machines cache them: objects in one version each, as files of one folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _


@dataclass(frozen=True, slots=True)
class CachedObject:
    """One object of a dataset.

    Attributes
    ----------
    path
        Relative path of its file in the dataset's tree, checked by
        `jupyter_sky.machines.storage.stores.uri`.
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


# -- Files of a cache of datasets: sealed when they are complete, recognized once changed ---------

_YEAR_2000, _TWENTY_YEARS = 946_684_800, 631_152_000


def is_same_file(descriptor: int, path: Path) -> bool:
    """Return whether an open file still has a name: it may have been removed."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def stamp(identity: str) -> int:
    """Return the modification time of an object's file, in seconds.

    It follows from the version: a file that was written to is recognized, and bytecode of modules
    in a dataset is not taken for that of another version.
    """
    return _YEAR_2000 + int(identity[:12], 16) % _TWENTY_YEARS


def seal(path: Path, each: CachedObject) -> None:
    """Bring a downloaded file to the disk, read-only.

    Raises
    ------
    SkyError
        It has not the size of its object.
    """
    size = path.stat().st_size
    if size != each.size:
        raise SkyError(
            _("{path} came with {size:,} bytes, and has {size2:,} in its store").format(
                path=each.path, size=size, size2=each.size
            ),
            hint=_("the cell can be run again: nothing of it was kept"),
        )
    seconds = stamp(each.identity)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.chmod(0o444)
    os.utime(path, (seconds, seconds))


def is_intact(path: Path, each: CachedObject) -> bool:
    """Return whether a cached file is there and has not been written to."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_size == each.size and status.st_mtime == stamp(each.identity)


def used_at(path: Path) -> float:
    """Return the time of the last use of a file (Unix time); 0 for none."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, as far as this process may."""
    shutil.rmtree(path, ignore_errors=True)
