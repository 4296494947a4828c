"""CPUs of a machine's own: a control group that bounds it and all that it starts."""

from __future__ import annotations

import contextlib
import os
import uuid
from functools import cache
from pathlib import Path

PERIOD_US = 20_000


class Cpus:
    """A bound for what is started in it.

    Parameters
    ----------
    number
        CPUs, such as 0.4.
    """

    def __init__(self, number: float) -> None:
        self.folder = _root() / f"jupyter_sky-{uuid.uuid4().hex}"
        self.folder.mkdir()
        try:
            self._bound(int(number * PERIOD_US))
        except OSError:
            self.close()
            raise

    def _bound(self, quota: int) -> None:
        if (self.folder / "cpu.max").exists():
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))

    def command(self, words: list[str]) -> list[str]:
        """Return the command that starts another one within."""
        enter = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
        return ["sh", "-c", enter, str(self.folder), *words]

    def close(self) -> None:
        """Remove it, when nothing runs in it any more."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


@cache
def bounded() -> bool:
    """Whether machines here can have CPUs of their own."""
    try:
        Cpus(1.0).close()
    except OSError:
        return False
    return True


def _root() -> Path:
    """Return where groups are made, whichever version of them this machine has."""
    old, new = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
    if (old / "cpu.cfs_quota_us").exists():
        return old
    if not os.access(new / "cgroup.subtree_control", os.W_OK):
        raise OSError("no control groups of ours can be made here")
    (new / "cgroup.subtree_control").write_text("+cpu")
    return new
