"""Files of a cache of datasets: sealed when they are complete, recognized once changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.dataset import CachedObject

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
