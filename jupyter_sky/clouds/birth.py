"""What machines of a cloud are born with: our key, their own, and what ends them by themselves.

The document is for cloud-init, which Ubuntu's images of all clouds have. The host key is made here
and pinned before the machine exists, so nobody can stand in between, not even at first contact.

A machine ends by itself: see `jupyter_sky.clouds.machine_lease`.
"""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

from ..config import Sky
from ..resources import parse_duration
from ..ssh import Address
from . import machine_lease
from .base import TAGS, Birth, Launch

DISK_GIB = 50.0
"""Boot disk where none is asked for: a Deep Learning image alone is about 40."""


def birth(order: Launch, folder: Path, ending: str, now: float) -> Birth:
    """Make keys for an order's machines in a folder, pin theirs, and write the document.

    Parameters
    ----------
    folder
        Of the order; ``id`` there lets us in, ``known_hosts`` says which key they show.
    ending
        Shell commands by which a machine ends itself, run before it is powered off.
    now
        Unix seconds.
    """
    settings = Sky.load()
    ours, theirs = _key(folder / "id"), _key(folder / "host")
    disk = max(DISK_GIB, order.resources.disk.value if order.resources.disk else 0.0)
    document = user_data(
        settings.login,
        ours,
        (folder / "host").read_text(),
        theirs,
        lease=order.lease,
        silence=parse_duration(settings.silence, "Sky.silence"),
        ending=ending,
    )
    (folder / "host").unlink()  # it is theirs
    ends = now + order.lease
    values = (order.owner, order.cluster, order.token, order.notebook, str(math.ceil(ends)))
    return Birth(
        user=settings.login,
        public_key=ours,
        user_data=document,
        disk=disk,
        lease_end=ends,
        tags=dict(zip(TAGS, values, strict=True)),
        ssh_from=tuple(part.strip() for part in settings.ssh_from.split(",") if part.strip()),
    )


def lease_seconds() -> float:
    """Return how long machines live at most, as the settings say."""
    return parse_duration(Sky.load().lease, "Sky.lease")


def user_data(
    user: str,
    public: str,
    host_private: str,
    host_public: str,
    *,
    lease: float,
    silence: float,
    ending: str = "",
) -> str:
    """Write the document for cloud-init; JSON is YAML too.

    Parameters
    ----------
    public
        Our key.
    host_private, host_public
        The machine's own keys.
    lease
        Seconds that the machine lives at most.
    silence
        Seconds after which it ends when nobody renews it.
    ending
        Shell commands by which it ends itself, run before it is powered off.
    """
    # a second timer; where a machine must do more than power off it would only be in the way
    timer = [] if ending else [["shutdown", "-P", f"+{math.ceil(lease / 60)}"]]
    document = {
        "ssh_deletekeys": True,
        "ssh_pwauth": False,  # port 22 may be open to all
        "ssh_keys": {"ed25519_private": host_private, "ed25519_public": host_public},
        "disable_root": user != "root",
        "users": [
            {
                "name": user,
                "shell": "/bin/bash",
                "lock_passwd": True,
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "ssh_authorized_keys": [public],
            }
        ],
        "write_files": machine_lease.files(user, lease=lease, silence=silence, ending=ending),
        "runcmd": [*timer, ["sh", machine_lease.EACH_BOOT]],
    }
    return "#cloud-config\n" + json.dumps(document, indent=1)


def address(folder: Path, host: str) -> Address:
    """Return where a machine is reached, with the key that it must show."""
    settings = Sky.load()
    path = folder / "known_hosts"
    found = Address(settings.login, host, settings.ssh_port, str(folder / "id"), str(path))
    public = " ".join((folder / "host.pub").read_text().split()[:2])
    line = f"{found.known_as} {public}\n"
    if not path.exists() or line not in path.read_text():
        with path.open("a") as file:
            file.write(line)
    return found


def _key(path: Path) -> str:
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
