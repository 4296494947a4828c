"""What tells one process from every other that is or ever was: numbers are used again."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def identity(pid: int | None = None) -> dict[str, Any]:
    """Return the identity of a live process, this one unless given, as plain data.

    Examples
    --------
    >>> is_alive(identity())
    True
    """
    pid = os.getpid() if pid is None else pid
    return {"pid": pid, "born": born(pid) or 0.0, "host": os.uname().nodename}


def born(pid: int) -> float | None:
    """Return when a live process was born, by a clock that nobody can set; None for others."""
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] == "Z" else float(fields[19])
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def is_alive(known: Mapping[str, Any]) -> bool:
    """Whether a process lives; one of another machine counts as alive: only that can tell."""
    if not known:
        return False
    if known.get("host", os.uname().nodename) != os.uname().nodename:
        return True
    at = born(known["pid"])
    return at is not None and abs(at - known["born"]) < 1.0


def lived(pid: int, at: float) -> bool:
    """Whether the process of a number is the one that had it at a time, in unix seconds.

    Examples
    --------
    >>> lived(os.getpid(), 4e9)
    True
    """
    import psutil

    try:
        process = psutil.Process(pid)
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.create_time() < at + 1.0
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # another user's: it cannot be looked at, and it is there
        return True
