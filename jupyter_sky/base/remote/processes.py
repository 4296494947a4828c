"""Process identity that survives the reuse of PIDs: boot, PID and start time.

A PID means something only within one boot of one machine and one PID namespace. A home folder that
several machines or containers share holds records of processes that cannot be looked at from here;
they count as alive only as long as their last sign of life is recent.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

FOREIGN_SECONDS = 120.0
"""Time after its last sign of life for which a process of another machine or boot is alive."""

Liveness = Literal["alive", "dead", "foreign"]


def identity(pid: int | None = None) -> dict[str, Any]:
    """Return the identity of a live process, this one unless given, as plain data.

    Examples
    --------
    >>> is_alive(identity())
    True
    """
    pid = os.getpid() if pid is None else pid
    return {
        "pid": pid,
        "born": start_time(pid) or 0.0,
        "boot": boot_id(),
        "host": os.uname().nodename,  # for people: names of hosts change, and containers share them
    }


@cache
def boot_id() -> str:
    """Return the identity of this boot and PID namespace; empty if unknown."""
    if sys.platform == "linux":
        try:
            kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            return f"{kernel}/{os.stat('/proc/self/ns/pid').st_ino}"
        except OSError:
            return ""
    import subprocess

    try:  # macOS
        command = ["sysctl", "-n", "kern.bootsessionuuid"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def start_time(pid: int) -> float | None:
    """Return the start time of a live process by the monotonic clock; None for others."""
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


def liveness(record: Mapping[str, Any]) -> Liveness:
    """Return whether a process lives; ``foreign`` for one that is not visible from here.

    Only a process that is ``alive`` may be sent a signal: the PID of any other is, or may become,
    the PID of an innocent one.
    """
    pid, born = record.get("pid"), record.get("born")
    if not isinstance(pid, int) or not isinstance(born, int | float) or pid <= 0:
        return "dead"
    if record.get("boot", "") != boot_id():
        return "foreign"
    started = start_time(pid)
    return "alive" if started is not None and abs(started - born) < 1.0 else "dead"


def is_alive(process: Mapping[str, Any], seen: float = 0.0, now: float | None = None) -> bool:
    """Return whether a process lives, as far as can be known here.

    Parameters
    ----------
    process
        Record of `identity`.
    seen
        Its last sign of life, unix seconds: it decides for a process of another machine or boot.
    now
        Unix seconds; the present unless given.
    """
    state = liveness(process)
    if state != "foreign":
        return state == "alive"
    return (time.time() if now is None else now) - seen < FOREIGN_SECONDS
