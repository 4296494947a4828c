"""Interactive logins on this machine: terminals opened by an SSH server."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.machines.engines.node.keepalive import keepalive_folder

LOGIN_VARIABLE = "JUPYTER_SKY_LOGIN"
"""Set to a cluster's folder in every shell that ``%sky ssh`` opens."""
LOGIN_POLL_SECONDS = 5.0
_TERMINALS = Path("/dev/pts")
_PTS_MAJORS = range(136, 144)  # of Unix98 pseudo terminals, see the kernel's devices.txt


@dataclass(frozen=True, slots=True)
class Login:
    """Interactive shell opened through SSH.

    Attributes
    ----------
    idle
        Seconds since something was typed or printed there; 0 while a command runs in it.
    command
        The command that runs in the foreground; empty at the prompt.
    """

    user: str
    terminal: str
    idle: float
    command: str

    def __str__(self) -> str:
        return f"login of {self.user}" + (f" ({self.command})" if self.command else "")


class LoginMonitor:
    """Periodic check for logins that use one cluster.

    Parameters
    ----------
    directory
        The cluster's folder. On a machine of one's own only logins that are for this cluster
        count; on a rented machine, which is there for the cluster alone, all do.
    enabled
        Whether users log in to this machine because of a cluster.
    """

    def __init__(self, directory: Path, enabled: bool) -> None:
        self.enabled = enabled
        self.current: list[Login] = []
        self._directory, self._looked = str(directory), 0.0

    def poll(self, now: float) -> list[Login]:
        """Return the current logins; an empty list if no check is due."""
        if not self.enabled or now - self._looked < LOGIN_POLL_SECONDS:
            return []
        self._looked = now
        self.current = find_logins("" if keepalive_folder().is_dir() else self._directory)
        return self.current


def find_logins(directory: str = "") -> list[Login]:
    """Return the interactive logins on this machine.

    The table of processes is read, and not utmp: an SSH server that is not root writes none.

    Parameters
    ----------
    directory
        Only logins that ``%sky ssh`` opened for the cluster of this folder; all unless given.
    """
    if not any(entry.isdigit() for entry in _read_names(_TERMINALS)):
        return []
    logins = (_login(int(name), directory) for name in _read_names(Path("/proc")) if name.isdigit())
    return [login for login in logins if login is not None]


def _read_names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _login(pid: int, directory: str) -> Login | None:
    """Return the login of a shell process, or None for other processes."""
    process = Path("/proc") / str(pid)
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        parent, group, session, device, foreground = map(int, fields[1:6])
        if session != pid or os.major(device) not in _PTS_MAJORS or not _is_sshd(parent):
            return None
        if directory and not _is_for(process, directory):
            return None
        number = os.minor(device) + 256 * (os.major(device) - _PTS_MAJORS[0])
        command = _command(foreground) if foreground not in (group, -1) else ""
        info = (_TERMINALS / str(number)).stat()
        idle = 0.0 if command else max(0.0, time.time() - max(info.st_atime, info.st_mtime))
        return Login(_user(process.stat().st_uid), f"pts/{number}", idle, command)
    except (OSError, ValueError):  # it has ended meanwhile, or belongs to another user
        return None


def _is_sshd(pid: int) -> bool:
    # sshd-session since OpenSSH 9.8
    return Path(f"/proc/{pid}/comm").read_text().startswith("sshd")


def _is_for(process: Path, directory: str) -> bool:
    mark = os.fsencode(f"{LOGIN_VARIABLE}={directory}")
    return mark in (process / "environ").read_bytes().split(b"\0")


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _user(uid: int) -> str:
    import pwd  # not everywhere

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
