"""Lock of a file that one process of this user has at a time, as long as it lives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_process(path: Path) -> Iterator[bool]:
    """Yield whether no other process has the lock; it is this one's then until the end.

    Where the system has no such locks, nobody else has it.

    Parameters
    ----------
    path
        File of the lock, in a folder that is there.

    Examples
    --------
    >>> with only_process(folder / "watch.lock") as is_only:  # doctest: +SKIP
    ...     is_only
    True
    """
    try:
        import fcntl
    except ImportError:
        yield True
        return
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_only = True
    except OSError:
        is_only = False
    try:
        yield is_only
    finally:
        os.close(handle)
