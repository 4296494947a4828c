"""Initial configuration of machines without cloud-init: the same as one POSIX shell script.

Containers, pods and batch jobs have no cloud-init, and some clouds take a start-up script only.
"""

from __future__ import annotations

import base64
import gzip
import shlex
from functools import cache
from pathlib import Path

from jupyter_sky.clouds.launches import machine_lease
from jupyter_sky.clouds.launches.machine_setup import MachineSetup

DEFAULT_IMAGE = "docker.io/library/ubuntu:24.04"
"""Image of containers and pods where none is named."""
READY_LINE = "jupyter-sky-ready"
"""Printed by the script when the machine can be reached."""
SSHD_PROGRAM = "usr/local/sbin/jupyter-sky-sshd"
"""Serves one connection on standard input and output; below ``/`` or, without root, `USER_ROOT`."""
USER_ROOT = ".cache/jupyter_sky/machine"
"""Folder, below the user's home, of all files where the script is not run by root."""
SETUP_VARIABLE = "JUPYTER_SKY_SETUP"
"""Environment variable of a container with its packed script."""
SETUP_COMMAND = f'echo "${SETUP_VARIABLE}" | base64 -d | gzip -d >/tmp/sky && exec sh /tmp/sky stay'
"""Command of a container that unpacks its script and runs it as the first process."""
_END = "JUPYTER_SKY_END"


@cache
def _template() -> str:
    return Path(__file__).with_name("machine_setup.sh").read_text()


def render_script(setup: MachineSetup) -> str:
    """Write the script; it can be run again, at each boot for instance."""
    files = machine_lease.lease_files(setup)
    values = {
        "@USER@": shlex.quote(setup.user),
        "@PUBLIC_KEY@": shlex.quote(setup.public_key),
        "@HOST_PRIVATE@": setup.host_private.strip(),
        "@HOST_PUBLIC@": shlex.quote(setup.host_public),
        "@BOOT_SCRIPT@": machine_lease.BOOT_SCRIPT,
        "@LEASE_FILES@": "\n".join(
            _write_file(file["path"], file["content"], file["permissions"]) for file in files
        ),
    }
    text = _template()
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def _write_file(path: str, content: str, permissions: str) -> str:
    """Return shell commands that write a file below ``$root``."""
    folder = path.rpartition("/")[0]
    return (
        f'mkdir -p "$root{folder}" && cat >"$root{path}" <<\'{_END}\'\n{content.rstrip()}\n{_END}\n'
        f'chmod {permissions} "$root{path}"'
    )


def pack_script(script: str) -> str:
    """Return a script in a third of its size, for the environment of a container.

    Examples
    --------
    >>> gzip.decompress(base64.b64decode(pack_script("true"))).decode()
    'true'
    """
    return base64.b64encode(gzip.compress(script.encode(), mtime=0)).decode()
