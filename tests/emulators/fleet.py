"""Machines that a cloud's emulator rents out: real ones to whoever reaches them by SSH.

Each starts as a cloud's machine does: from a document for cloud-init, with an address of its own, a
firewall, a console and a metadata service. Two ways to have one, behind one interface:

- isolated (root on Linux): namespaces of its own for processes, mounts, network and name; its files
  are a layer in memory over this machine's programs; port 22 of a private and a public address;
- beside us (anybody): processes of the present user behind an sshd on an address of the loopback
  network, in a folder of their own; no firewall.

Machines end with the process that made them, however that ends.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .host import Host, Rule
from .hosts import SSHD, free_port
from .network_switch import Switch

__all__ = ["Fleet", "Host", "Rule", "isolation_works", "scratch"]

FLEETS = 250
NUMBERS = range(10, 250)
"""Of machines in one fleet, at the same time."""
MEMORY_BYTES = 2 << 30
_PROBE = """
ip rule add pref 9 iif lo ipproto tcp dport 1-2 lookup local && mount -t tmpfs probe /mnt &&
mkdir /mnt/upper /mnt/work /mnt/root &&
mount -t overlay probe -o lowerdir=/usr,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root &&
mount -t proc probe /mnt/work && mount -t sysfs probe /mnt/upper
"""


@cache
def isolation_works() -> bool:
    """Say whether machines can be isolated here: by root, with a kernel that has what it takes."""
    words = "unshare --mount --net --pid --fork sh -ec".split()
    tools = all(map(shutil.which, ("unshare", "ip", "nsenter")))
    return (
        sys.platform == "linux"
        and os.geteuid() == 0
        and tools
        and subprocess.run([*words, _PROBE], capture_output=True).returncode == 0
    )


class Fleet:
    """Machines of one test or one emulator; several fleets do not meet.

    Parameters
    ----------
    isolated
        Which kind: None takes the best there is, True insists, False takes the one for anybody.
    minute
        Seconds that a minute of ``shutdown -P +N`` takes on machines launched from now on.
    cpus
        What each machine has of its own (see `cpus.bounded`); 0 for all there are, with the others.

    Attributes
    ----------
    isolated : bool
    user : str
        The only user that its machines know, where they are beside us; else empty.
    port : int
        Where all its machines listen for SSH.
    network : str
        The private network of all its machines (CIDR), for rules between nodes.
    gateway : str
        The address of this machine as its machines reach it: an emulator that listens there can
        be reached by them (Azure machines that delete their own group).

    Examples
    --------
    >>> with Fleet() as fleet:
    ...     host = fleet.launch("node-0", user_data, ingress=[("0.0.0.0/0", 22)])
    ...     host.ready(10)
    True
    """

    def __init__(
        self, *, isolated: bool | None = None, minute: float = 60.0, cpus: float = 0.0
    ) -> None:
        self.isolated = isolation_works() if isolated is None else isolated
        self.minute, self.cpus = minute, cpus
        self.user = "" if self.isolated else getpass.getuser()
        alone = self.isolated or _may_listen("127.0.0.1", 22)
        self.port = 22 if alone else free_port("127.0.0.1")
        self._number, self._lock = _own_number()
        self._hosts: dict[int, Host] = {}
        self._next = iter(NUMBERS)
        self._changing, self._closed = threading.Lock(), False
        self._switch: Switch | None = None
        if self.isolated:
            self.network = f"10.213.{self._number}.0/24"
            self.gateway = f"198.18.{self._number}.1"
            self._switch = Switch(f"sky{self._number}", self.gateway)
        else:
            self.network, self.gateway = "127.0.0.0/8", "127.0.0.1"
            _sweep(self._number)

    def launch(
        self,
        name: str,
        user_data: str = "",
        *,
        ingress: Sequence[Rule] = (),
        spot: bool = False,
        metadata: Mapping[str, Any] | None = None,
        on_end: Callable[[str], None] | None = None,
        public_key: str = "",
        user: str = "",
        names: Mapping[str, str] | None = None,
        authority: str = "",
    ) -> Host:
        """Start a machine; returns at once, while it boots.

        Parameters
        ----------
        name
            Its host name.
        user_data
            As cloud-init takes it, decoded: JSON after ``#cloud-config``, or a script (``#!``).
        ingress
            Who may reach it; nobody else can, if it is isolated. See `Host.admit`.
        spot
            Whether its metadata service calls it a spot machine.
        metadata
            What its metadata service tells: ``cloud`` (``aws``, ``gcp`` or ``azure``: which
            service is there), ``id``, ``type``, ``region``, ``zone``, ``image``, ``account``
            (project, subscription), ``group`` (Azure), ``tags`` (dict), ``attributes`` (GCP's own
            metadata, a dict), ``identity_token`` (Azure and GCP: the token of the machine's own
            identity; without it the machine has none). Addresses are filled in.
        on_end
            Called once, from a thread of its own, when the machine ends without `Host.kill` and
            `close`: with ``shutdown`` (it powered itself off), ``preempted`` (after a notice)
            or ``crashed`` (it could not boot, say; see its console).
        public_key, user
            Whom the cloud itself lets in (an AWS key pair, GCP's ``ssh-keys``, Azure's osProfile),
            besides whom `user_data` names. The user alone is who ``default`` means there.
        names
            Further host names that it resolves, such as ``management.azure.com`` to `gateway`.
        authority
            A certificate authority (PEM) that it trusts besides its own.
        """
        with self._changing:
            if self._closed:
                raise RuntimeError("the fleet is closed")
            number = self._free()
            private = address = f"127.{self._number}.77.{number}"
            folder, port = "", 22
            if self.isolated:
                private = f"10.213.{self._number}.{number}"
                address = f"198.18.{self._number}.{number}"
            else:
                folder = tempfile.mkdtemp(prefix=f"sky-fleet{self._number}-", dir=scratch())
                port = self.port
            known = dict(metadata or {})
            spec = {
                "address": address,
                "authority": authority,
                "cache": _uv_cache(),
                "cpus": self.cpus,
                "folder": folder,
                "ingress": [list(rule) for rule in ingress],
                "isolated": self.isolated,
                "metadata": known | {"address": address, "private": private, "spot": spot},
                "minute": self.minute,
                "name": name,
                "names": dict(names or {}),
                "port": port,
                "prefix": os.path.realpath(sys.base_prefix),
                "private": private,
                "public_key": public_key.strip(),
                "python": _python(),
                "sshd": SSHD,
                "user": self.user or user or "ubuntu",
                "user_data": user_data,
            }
            spec["metadata"].setdefault("name", name)
            host = self._hosts[number] = Host(spec, self._switch, number, on_end)
        return host

    def _free(self) -> int:
        """Return a number that no machine has, one that was used long ago if there is any."""
        for _ in NUMBERS:
            number = next(self._next, None)
            if number is None:
                self._next = iter(NUMBERS)
                number = next(self._next)
            if number not in self._hosts or not self._hosts[number].running:
                return number
        raise RuntimeError(f"a fleet has {len(NUMBERS)} machines at most")

    def hosts(self) -> list[Host]:
        """List the machines that have not ended."""
        with self._changing:
            return [host for host in self._hosts.values() if host.running]

    def close(self) -> None:
        """End all machines and leave nothing of them; calls no `on_end`."""
        with self._changing:
            self._closed = True
        hosts = self.hosts()
        for host in hosts:
            host.kill(wait=False)
        for host in hosts:
            host.kill()
        if self._switch:
            self._switch.close()
        self._lock.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _own_number() -> tuple[int, socket.socket]:
    """Return a number that no other fleet on this machine has; it is ours until the lock closes."""
    for step in range(FLEETS):
        number = 1 + (os.getpid() + step) % FLEETS
        if lock := _lock(number):
            return number, lock
    raise RuntimeError(f"there are {FLEETS} fleets on this machine")


def _lock(number: int) -> socket.socket | None:
    """Take a number; the kernel gives it back with our end, and knows it per network, as links."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0jupyter_sky-fleet-{number}")
    except OSError:
        lock.close()
        return None
    return lock


def _sweep(own: int) -> None:
    """Remove folders of fleets whose owners, and machines, were killed."""
    for left in scratch().glob("sky-fleet*-*"):
        number = int(left.name.removeprefix("sky-fleet").partition("-")[0])
        lock = None if number == own else _lock(number)
        if number == own or lock:
            shutil.rmtree(left, ignore_errors=True)
        if lock:
            lock.close()


def scratch() -> Path:
    """Return where files of machines beside us are: in memory, if that has room for engines.

    On a disk, it takes seconds to remove an environment of Python.
    """
    memory = Path("/dev/shm")
    usable = os.access(memory, os.W_OK) and not os.statvfs(memory).f_flag & os.ST_NOEXEC
    roomy = usable and shutil.disk_usage(memory).free > MEMORY_BYTES
    return memory if roomy else Path(tempfile.gettempdir())


def _may_listen(address: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((address, port))
        except OSError:
            return False
    return True


def _uv_cache() -> str:
    """Return where uv keeps packages on this machine."""
    if given := os.environ.get("UV_CACHE_DIR"):
        return os.path.realpath(given)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return os.path.realpath(Path(base) / "uv")


def _python() -> str:
    """Return the Python that this one is built on, outside of any environment."""
    name = "python{}.{}".format(*sys.version_info)
    return str(Path(os.path.realpath(sys.base_prefix)) / "bin" / name)
