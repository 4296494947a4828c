"""Initial configuration of machines (cloud-init): SSH keys, host key, and the lease that ends them.

The document is for cloud-init, which Ubuntu's images of all clouds have. The host key is made here
and pinned before the machine exists, so nobody can stand in between, not even at first contact.
Whoever may read the machine's user data can read that key too: the first command on the machine
brings another one, which is the only one that is pinned as soon as the machine shows it.

A machine ends by itself: see `jupyter_sky.clouds.launches.machine_lease`.
"""

from __future__ import annotations

import json
import math
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jupyter_sky.base.errors import SkyUnreachable
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.requests.resources import parse_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.clouds.launches import machine_lease, machine_script
from jupyter_sky.clouds.launches.machine_setup import POWER_OFF, MachineSetup
from jupyter_sky.clouds.provider.values import TAGS, LaunchRequest, MachineConfig

DISK_GIB = 50.0
"""Boot disk where none is asked for: a Deep Learning image alone is about 40."""


_FALLBACK_TIMER = "systemd-run --on-active={seconds}s shutdown -P now || shutdown -P +{minutes}"
"""By systemd's clock since boot; ``shutdown`` itself would go by the time of day."""
NEXT_HOST_KEY = "next_host"
"""File with the host key that follows the first one."""
KEY_ROTATION_SECONDS = 120.0
"""Time for a machine to show it, in seconds."""
_known_hosts_lock = threading.Lock()


def create_machine_config(
    request: LaunchRequest,
    folder: Path,
    ending: str,
    now: float,
    power_off: str = POWER_OFF,
) -> MachineConfig:
    """Make keys for a request's machines in a folder, pin theirs, and write what they start with.

    Parameters
    ----------
    folder
        Of the request; ``id`` there lets us in, ``known_hosts`` says which key they show.
    ending
        Shell commands by which a machine ends itself, run before it is powered off.
    now
        Unix seconds.
    power_off
        Shell command that powers them off.
    """
    settings = Sky.load()
    ours, theirs = _make_key_pair(folder / "id"), _make_key_pair(folder / "host")
    _make_key_pair(folder / NEXT_HOST_KEY)
    disk = max(DISK_GIB, request.resources.disk.value if request.resources.disk else 0.0)
    setup = MachineSetup(
        user=settings.login,
        public_key=ours,
        host_private=(folder / "host").read_text(),
        host_public=theirs,
        lease=request.lease,
        heartbeat_timeout=parse_duration(settings.heartbeat_timeout, "Sky.heartbeat_timeout"),
        ending=ending,
        power_off=power_off,
    )
    (folder / "host").unlink()  # it is theirs
    ends = now + request.lease
    values = (request.owner, request.cluster, request.token, request.notebook, str(math.ceil(ends)))
    return MachineConfig(
        user=settings.login,
        public_key=ours,
        user_data=render_user_data(setup),
        script=machine_script.render_script(setup),
        disk=disk,
        lease_end=ends,
        tags=dict(zip(TAGS, values, strict=True)),
        ssh_from=tuple(part.strip() for part in settings.ssh_from.split(",") if part.strip()),
    )


def lease_duration() -> float:
    """Return how long machines live at most, as the settings say."""
    return parse_duration(Sky.load().lease, "Sky.lease")


def render_user_data(setup: MachineSetup) -> str:
    """Write the document for cloud-init; JSON is YAML too."""
    seconds, minutes = math.ceil(setup.lease), math.ceil(setup.lease / 60)
    timer = _FALLBACK_TIMER.format(seconds=seconds, minutes=minutes)
    document = {
        "ssh_deletekeys": True,
        "ssh_pwauth": False,  # port 22 may be open to all
        "ssh_keys": {"ed25519_private": setup.host_private, "ed25519_public": setup.host_public},
        "disable_root": setup.user != "root",
        "users": [
            {
                "name": setup.user,
                "shell": "/bin/bash",
                "lock_passwd": True,
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "ssh_authorized_keys": [setup.public_key],
            }
        ],
        "write_files": machine_lease.lease_files(setup),
        # where a machine must do more than power off, the second timer would only be in the way
        "runcmd": [*([] if setup.ending else [timer]), ["sh", machine_lease.BOOT_SCRIPT]],
    }
    return "#cloud-config\n" + json.dumps(document, indent=1)


def pinned_address(
    folder: Path, host: str, user: str = "", port: int = 0, through: Sequence[str] = ()
) -> Address:
    """Return where a machine is reached, with the key that it must show.

    Parameters
    ----------
    folder
        Of the launch, with its keys.
    host
        Address of the machine.
    user, port
        As the cloud says; those of the settings where it says nothing.
    through
        Command that connects to it, where it has no address of its own.
    """
    settings = Sky.load()
    path = folder / "known_hosts"
    keys = (str(folder / "id"), str(path))
    found = Address(
        user or settings.login, host, port or settings.ssh_port, *keys, through=tuple(through)
    )
    lines = [_known_hosts_line(found, folder / name) for name in ("host", NEXT_HOST_KEY)]
    with _known_hosts_lock:
        known = path.read_text() if path.exists() else ""
        if not any(line in known for line in lines if line):
            path.write_text(known + "".join(lines))
    return found


def move_pinned_keys(folder: Path, moved: Mapping[str, str]) -> None:
    """Expect the keys of machines at other addresses, and no longer at the old ones.

    Parameters
    ----------
    folder
        Of the launch, with its keys.
    moved
        New addresses by the old ones: all at once, as one machine may have got that of another.
    """
    path, port = folder / "known_hosts", Sky.load().ssh_port
    names = {
        Address("", old, port, "", "").known_as: Address("", new, port, "", "").known_as
        for old, new in moved.items()
        if old != new
    }
    if not names:
        return
    with _known_hosts_lock:
        parts = [line.partition(" ") for line in path.read_text().splitlines(keepends=True)]
        lines = [f"{names.get(name, name)}{space}{rest}" for name, space, rest in parts]
        path.write_text("".join(lines))


def _known_hosts_line(address: Address, key: Path) -> str:
    """Return the line of a file of known hosts for a key; empty if there is none."""
    public = key.with_name(f"{key.name}.pub")
    if not public.exists():
        return ""
    return f"{address.known_as} {' '.join(public.read_text().split()[:2])}\n"


def read_next_host_key(folder: Path) -> str:
    """Return the private host key that a request's machines are to be given, while it is here."""
    path = folder / NEXT_HOST_KEY
    return path.read_text() if path.exists() else ""


def await_host_key_rotation(
    folder: Path, addresses: Sequence[Address], ended: Callable[[], bool] = lambda: False
) -> bool:
    """Wait until machines show their next host key; forget the first one of each that does.

    Parameters
    ----------
    ended
        Whether nobody has use for the machines any more.

    Returns
    -------
    bool
        Whether all have done so within `KEY_ROTATION_SECONDS`.
    """
    only = folder / "known_hosts.next"
    only.write_text(
        "".join(_known_hosts_line(address, folder / NEXT_HOST_KEY) for address in addresses)
    )
    left, last = list(addresses), time.monotonic() + KEY_ROTATION_SECONDS
    while left and time.monotonic() < last and not ended():
        for address in list(left):
            with suppress(SkyUnreachable):
                # a connection of its own: one that is open was made with the first key
                ssh.run(replace(address, known_hosts=str(only)), ":", timeout=20)
                _unpin_first_key(folder, address)
                left.remove(address)
        if left:
            time.sleep(1.0)
    (folder / NEXT_HOST_KEY).unlink(missing_ok=True)  # it is theirs
    return not left


def _unpin_first_key(folder: Path, address: Address) -> None:
    path, first = folder / "known_hosts", _known_hosts_line(address, folder / "host")
    with _known_hosts_lock:
        partial = path.with_name("known_hosts.partial")
        partial.write_text(path.read_text().replace(first, ""))
        partial.replace(path)


def _make_key_pair(path: Path) -> str:
    """Make a pair of keys, private in `path`; return the public one."""
    public = path.with_suffix(".pub")
    if not public.exists():
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "jupyter-sky", "-f", str(path)],
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
        )
    return public.read_text().strip()
