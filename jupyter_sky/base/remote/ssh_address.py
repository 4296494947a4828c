"""Addresses of machines for OpenSSH's client, and the options that it is called with."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

CONNECT_SECONDS = 10
COMMAND_SECONDS = 40
"""Time for the first answer through a command, which has to load its client on a busy machine."""
CONTROL_PERSIST_SECONDS = 20
"""Time for which a connection stays open for the next command."""
FAST_CIPHERS = "^aes128-gcm@openssh.com,aes256-gcm@openssh.com"
"""Tried before the client's own: with a processor's own AES they take a fifth of the time."""

_UNSAFE_CHARACTERS = re.compile(r"[\s\0-\x1f\x7f'`\"$;&<>|(){}]|\\$")
"""OpenSSH since 9.6 refuses such names too: ProxyCommand and Match hand them to a shell."""
_UNSAFE_PATH_CHARACTERS = re.compile(r'[\0-\x1f\x7f"]')
_CONTROL_CHARACTERS = re.compile(r"[\0-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Address:
    """SSH address of a machine: user, host, port and keys.

    Attributes
    ----------
    known_hosts : str
        File with its pinned key.
    pinned : bool
        Whether its key must be in that file already; else it is written there at first contact.
    through : tuple of str
        Command whose input and output are the connection (ssh's ``ProxyCommand``), such as
        ``("podman", "exec", "-i", "node-0", "/usr/sbin/sshd", "-i")``. The host is then a name
        under which its key is known, and the port has no meaning.

    Examples
    --------
    >>> Address("ada", "box.example.org", 2222).name
    'ada@box.example.org:2222'
    """

    user: str
    host: str
    port: int = 22
    key: str = ""
    known_hosts: str = ""
    pinned: bool = True
    through: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "through", tuple(self.through))  # JSON has lists
        for what, text in (("user", self.user), ("host", self.host)):
            if not isinstance(text, str) or text.startswith("-") or _UNSAFE_CHARACTERS.search(text):
                raise SkyUsageError(
                    _(
                        "{what} {text!r:.80} of a machine is refused: ssh could take it for an "
                        "option or a command"
                    ).format(what=what, text=text),
                    hint=_("write user@host or user@host:port"),
                )
        if isinstance(self.port, bool) or not isinstance(self.port, int) or self.port >> 16:
            raise SkyUsageError(
                _("port {port!r:.40} of {host} is not a port").format(
                    port=self.port, host=self.host
                )
            )
        for path in (self.key, self.known_hosts):
            if not isinstance(path, str) or _UNSAFE_PATH_CHARACTERS.search(path):
                raise SkyUsageError(
                    _("{path!r:.80} is not the path of a file for ssh").format(path=path)
                )
        if any(not isinstance(w, str) or _CONTROL_CHARACTERS.search(w) for w in self.through):
            raise SkyUsageError(
                _("{through!r:.80} is not a command that reaches {host}").format(
                    through=self.through, host=self.host
                )
            )

    @property
    def name(self) -> str:
        """Address as written by the user."""
        user = f"{self.user}@" if self.user else ""
        return f"{user}{self.host}" + (f":{self.port}" if self._has_port else "")

    @property
    def known_as(self) -> str:
        """Name in a known_hosts file."""
        return f"[{self.host}]:{self.port}" if self._has_port else self.host

    @property
    def _has_port(self) -> bool:
        return self.port != 22 and not self.through

    @property
    def proxy_options(self) -> dict[str, str]:
        """Options of ssh by which a machine is reached through a command; empty without one."""
        if not self.through:
            return {}
        command = shlex.join(self.through).replace("%", "%%")  # ssh expands %h and the like
        return {"ProxyCommand": command, "HostKeyAlias": self.host}

    def command(self, shared: bool = False) -> list[str]:
        """Return the ``ssh`` command line up to and with the machine's name.

        Parameters
        ----------
        shared
            Take a connection that is open already, and leave it open for the next command.
        """
        options = {
            "BatchMode": "yes",
            "ConnectTimeout": str(COMMAND_SECONDS if self.through else CONNECT_SECONDS),
            "LogLevel": "ERROR",
            "ServerAliveInterval": "5",
            "ServerAliveCountMax": "3",
            "StrictHostKeyChecking": "yes" if self.pinned else "accept-new",
            "UpdateHostKeys": "no",
            "ControlPath": "none",
            "Ciphers": FAST_CIPHERS,
            **self.proxy_options,
        }
        if self.known_hosts:
            options["UserKnownHostsFile"] = f'"{self.known_hosts}"'
        if self.key:
            options["IdentitiesOnly"] = "yes"
        if shared and os.name != "nt":
            path = runtime_dir() / f"c-{self._digest()}"
            options |= {
                "ControlMaster": "auto",
                "ControlPath": str(path),
                "ControlPersist": str(CONTROL_PERSIST_SECONDS),
            }
        words = [f"-o{name}={value}" for name, value in options.items()]
        key = ["-i", self.key] if self.key else []
        target = f"{self.user}@{self.host}" if self.user else self.host
        return ["ssh", "-T", "-a", "-x", *words, *key, "-p", str(self.port), target]

    def _digest(self) -> str:
        return hashlib.blake2b(repr(self).encode(), digest_size=6).hexdigest()


def runtime_dir() -> Path:
    """Return a private folder for sockets, whose paths must be short."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and len(given) < 40 and os.access(given, os.W_OK):
        path = Path(given) / "jupyter_sky"
    else:
        user = os.getuid() if hasattr(os, "getuid") else "user"
        path = Path(tempfile.gettempdir()) / f"jupyter_sky-{user}"
    path.mkdir(mode=0o700, exist_ok=True)
    status = path.lstat()
    if hasattr(os, "getuid") and (
        status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077
    ):
        return Path(tempfile.mkdtemp(prefix="sky-"))  # another user has taken the name
    return path
