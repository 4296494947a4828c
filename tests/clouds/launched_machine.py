"""A machine of a fleet with our keys, and what tests say to it."""

from __future__ import annotations

import json
import queue
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.remote import ssh
from jupyter_sky.clouds.launches import machine_lease
from jupyter_sky.clouds.launches.machine_setup import MachineSetup
from tests.emulators.fleet import Fleet, Host, isolation_works
from tests.emulators.hosts import keygen

OPEN = [("0.0.0.0/0", 22)]
PYTHON = "python{}.{}".format(*sys.version_info)
WAIT = 60.0
needs_isolation = pytest.mark.skipif(not isolation_works(), reason="needs root and namespaces")


class Keys:
    """A user's key and a machine's, made before the machine."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.user, self.host = folder, folder / "id", folder / "host"
        keygen(self.user)
        keygen(self.host)

    def public(self, path: Path) -> str:
        return path.with_suffix(".pub").read_text().strip()

    def setup(self, user: str, heartbeat_timeout: float, **more: Any) -> MachineSetup:
        """Values of a machine with both, which lives an hour where nothing else is said."""
        return MachineSetup(
            user=user,
            public_key=self.public(self.user),
            host_private=self.host.read_text(),
            host_public=self.public(self.host),
            heartbeat_timeout=heartbeat_timeout,
            **{"lease": 3600.0} | more,
        )

    def document(self, user: str, **more: Any) -> str:
        """User data with both."""
        keys = {"ed25519_private": self.host.read_text(), "ed25519_public": self.public(self.host)}
        person = {
            "name": user,
            "shell": "/bin/bash",
            "sudo": "ALL=(ALL) NOPASSWD:ALL",
            "ssh_authorized_keys": [self.public(self.user)],
        }
        return "#cloud-config\n" + json.dumps({"ssh_keys": keys, "users": [person], **more})

    def address(self, host: Host, user: str, key: Path | None = None) -> ssh.Address:
        """Return its address, with the key that it must show, by default the one it was given."""
        known = Path(tempfile.mkstemp(dir=self.folder)[1])
        address = ssh.Address(user, host.address, host.port, str(self.user), str(known))
        known.write_text(f"{address.known_as} {self.public(key or self.host)}\n")
        return address


class LaunchedMachine:
    """A machine with our keys, and what we say to it."""

    def __init__(self, fleet: Fleet, keys: Keys, name: str = "node-0", **how: Any) -> None:
        self.user = fleet.user or "ada"
        self.ends: queue.Queue[str] = queue.Queue()
        document = keys.document(self.user, **how.pop("document", {}))
        how = {"ingress": OPEN, "on_end": self.ends.put} | how
        self.host = fleet.launch(name, document, **how)
        self.address = keys.address(self.host, self.user)

    def sh(self, script: str, *words: str, code: int = 0) -> str:
        """Run a script on it; return what it prints."""
        assert self.host.ready(WAIT), self.host.console()
        answer = ssh.run(self.address, script, *words, timeout=WAIT)
        assert answer.code == code, (answer, self.host.console())
        return answer.text.strip()

    def fetch(self, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
        """Ask its metadata service, from inside."""
        script = f'{PYTHON} -c "$1" "${{JUPYTER_SKY_METADATA:-http://169.254.169.254}}$2" "$3" "$4"'
        return tuple(json.loads(self.sh(script, FETCH, path, method, json.dumps(headers))))


def until(holds: Callable[[], bool]) -> None:
    """Wait for something to hold."""
    deadline = time.monotonic() + WAIT
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


FETCH = """
import json, sys, urllib.error, urllib.request
url, method, headers = sys.argv[1:]
headers = {name.replace("_", "-"): value for name, value in json.loads(headers).items()}
request = urllib.request.Request(url, headers=headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.read().decode()]))
"""


def lease_files(
    user: str, lease: float = 3600.0, heartbeat_timeout: float = 3.0, ending: str = ""
) -> list[dict[str, Any]]:
    """Files of the lease of a machine without keys."""
    setup = MachineSetup(user, "", "", "", lease, heartbeat_timeout, ending)
    return machine_lease.lease_files(setup)
