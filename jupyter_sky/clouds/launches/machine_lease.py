"""Machine lease: a script of root's that ends a rented machine by itself, also after a restart.

It is started at each boot, by systemd or, on a machine without, by cloud-init's scripts for each
boot, and started again if it is killed. A machine ends

- at the end of its lease. How much of it is left is reckoned by the clock since boot, so no change
  of the time of day ends a machine early or keeps it longer. Once a minute the end is written to
  disk in the time of day, with the time at which that was written: a restart takes what is left
  from there. Where the time of day is wrong at such a moment the machine may end early, which costs
  nothing, as no cluster outlives a restart; it never lives longer than ``lease`` seconds since
  that boot. The clock of the notebook takes no part: it may be wrong by hours;
- ``heartbeat_timeout`` seconds after its last renewal: see `machines.engines.node.keepalive`;
- ``heartbeat_timeout`` seconds after a restart, if a cluster had begun on it;
- half an hour after a boot, if none had ever begun;
- when ``/run/jupyter-sky/end`` is made, as its cluster has ended.

A machine that is to be stopped and started again is told so by ``/run/jupyter-sky/stopping``: then
the end of its cluster is not its own, and after the start it has half an hour for the next one.
What is left of its lease goes on while it is off.

The same script installs the host key that replaces the first one: see `cloud_init`. It lets only
root reach the metadata service, and starts what passes the cloud's notices on to all others: see
`clouds.launches.notice_relay`. Where there is no root, all of its files are below the folder in
``JUPYTER_SKY_ROOT``.
"""

from __future__ import annotations

import math
import shlex
from functools import cache
from pathlib import Path
from typing import Any

from jupyter_sky.clouds.launches.machine_setup import POWER_OFF, MachineSetup

BOOT_SECONDS = 1800
"""A machine on which no cluster has begun ends after so long."""
FOLDER = "/run/jupyter-sky"
"""Folder in which the cluster renews the lease."""
SCRIPT = "/usr/local/sbin/jupyter-sky-lease"
RELAY = "/usr/local/sbin/jupyter-sky-notices"
UNIT = "/etc/systemd/system/jupyter-sky-lease.service"
BOOT_SCRIPT = "/var/lib/cloud/scripts/per-boot/jupyter-sky-lease"

_UNIT_TEXT = f"""[Unit]
Description=Ends this machine at the end of its lease
StartLimitIntervalSec=0

[Service]
ExecStart={SCRIPT}
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""
_BOOT_SCRIPT_TEXT = f"""#!/bin/sh
# Starts what ends this machine, at each boot, where systemd has not done so.
root=${{JUPYTER_SKY_ROOT-}}
[ -z "$root" ] && systemctl enable --now jupyter-sky-lease.service && exit
boot="$root"/run/jupyter-sky-boot
mkdir -p "$boot" && mkdir "$boot/started" 2>/dev/null || exit
setsid sh -c 'while :; do "$0"; sleep 1; done' "$root"{SCRIPT} </dev/null >/dev/null 2>&1 &
"""


@cache
def _text(name: str) -> str:
    """Return the text of a program beside this module."""
    return Path(__file__).with_name(name).read_text()


def lease_files(setup: MachineSetup) -> list[dict[str, Any]]:
    """Return the files of a machine's lease, for cloud-init's ``write_files``."""
    user, power_off = setup.user, setup.power_off
    values = {
        "@USER@": shlex.quote(user),
        "@HOME@": shlex.quote("/root" if user == "root" else f"/home/{user}"),
        "@LEASE@": str(math.ceil(setup.lease)),
        "@HEARTBEAT_TIMEOUT@": str(math.ceil(setup.heartbeat_timeout)),
        "@BOOT@": str(BOOT_SECONDS),
        "@RELAY@": RELAY,
        "@ENDING@": setup.ending,
        "@POWER_OFF@": power_off,
        "@POWER_OFF_NOW@": "poweroff -f" if power_off == POWER_OFF else power_off,
    }
    text = _text("lease.sh")
    for name, value in values.items():
        text = text.replace(name, value)
    return [
        {"path": SCRIPT, "permissions": "0755", "content": text},
        {"path": RELAY, "permissions": "0755", "content": _text("notice_relay.py")},
        {"path": UNIT, "permissions": "0644", "content": _UNIT_TEXT},
        {"path": BOOT_SCRIPT, "permissions": "0755", "content": _BOOT_SCRIPT_TEXT},
    ]
