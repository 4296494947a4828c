"""What machines of a cloud are born with: our key, their own, and what ends them by themselves.

The document is for cloud-init, which Ubuntu's images of all clouds have. The host key is made here
and pinned before the machine exists, so nobody can stand in between, not even at first contact.

A machine ends by itself in three ways, none of which needs this machine: at the end of its lease
(``shutdown -P +N`` at birth, and the cloud's own limit where it has one); when its cluster ends;
and when nobody renews it any more: the head, or a nurse on other nodes, writes the time into
``/run/jupyter-sky/renewed`` again and again, and a small script that belongs to root looks at it.
"""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config import Sky
from ..resources import parse_duration
from ..ssh import Address
from .base import TAGS, Birth, Launch

DISK_GIB = 50.0
"""Boot disk where none is asked for: a Deep Learning image alone is about 40."""
BOOT_SECONDS = 1800
"""A machine on which no cluster has begun ends after so long."""
ENDING_MINUTES = 3
LEASE = "/run/jupyter-sky"
SCRIPT = "/usr/local/sbin/jupyter-sky-lease"

_LEASE = """#!/bin/sh
# Ends this machine when its lease is not renewed: see jupyter_sky/clouds/birth.py.
# Times are seconds since boot: a clock that is set meanwhile changes nothing.
lease=%(lease)s
now() { cut -d. -f1 /proc/uptime; }
born=$(now)
mkdir -p "$lease" && chown %(user)s "$lease"
while sleep 2; do
  [ $(($(now) - born)) -gt %(lease_seconds)d ] && break
  renewed=$(cat "$lease/renewed" 2>/dev/null)
  if [ -n "$renewed" ]; then
    [ $(($(now) - renewed)) -gt %(silent)d ] && break
  elif [ $(($(now) - born)) -gt %(boot)d ]; then
    break
  fi
  [ -e "$lease/end" ] && break
done
log=/dev/null
(: >/dev/console) 2>/dev/null && log=/dev/console
{ :
%(ending)s
} >"$log" 2>&1
shutdown -P now
"""
_START = (
    "if [ -d /run/systemd/system ]; then "
    f"systemd-run --unit jupyter-sky-lease -p Restart=always {SCRIPT}; "
    f"else setsid {SCRIPT} </dev/null >/dev/null 2>&1 & fi"
)


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
    values: Mapping[str, Any] = {
        "lease": LEASE,
        "user": user,
        "silent": silence,
        "boot": BOOT_SECONDS,
        "lease_seconds": math.ceil(lease),
        "ending": ending,
    }
    document = {
        "ssh_deletekeys": True,
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
        "write_files": [{"path": SCRIPT, "permissions": "0755", "content": _LEASE % values}],
        "runcmd": [
            # where a machine must do more than power off, the script has a little time for that
            ["shutdown", "-P", f"+{math.ceil(lease / 60) + (ENDING_MINUTES if ending else 0)}"],
            ["sh", "-c", _START],
        ],
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
