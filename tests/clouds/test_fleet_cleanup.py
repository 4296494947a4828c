"""Fleets leave nothing behind, for root and for others; clusters of ours run on them."""

from __future__ import annotations

import contextlib
import io
import os
import queue
import subprocess
import sys
import tarfile
import tempfile
from functools import partial
from pathlib import Path

import psutil
import pytest

from jupyter_sky.base.remote import ssh
from jupyter_sky.clouds.launches import cloud_init, ssh_slot
from jupyter_sky.clouds.launches.ssh_slot import Slot
from jupyter_sky.machines.provisioner import bootstrap
from tests.clouds.launched_machine import (
    OPEN,
    PYTHON,
    WAIT,
    Keys,
    LaunchedMachine,
    needs_isolation,
    until,
)
from tests.emulators.fleet import Fleet, scratch
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import warm_cache

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not USABLE, reason="no sshd")]


# -- nothing is left --------------------------------------------------------------------------

_OWNER = """
import sys, time
from tests.emulators.fleet import Fleet
fleet = Fleet(isolated=sys.argv[1] == "True")
hosts = [fleet.launch(f"n{i}", "", ingress=[("0.0.0.0/0", 22)]) for i in range(2)]
assert all(host.ready(20) for host in hosts)
print(*[host.address for host in hosts], flush=True)
time.sleep(600)
"""


def _left(addresses: list[str]) -> list[str]:
    """List what exists of the fleets that these addresses belong to."""
    number = addresses[0].split(".")[2 if addresses[0].startswith("198.18.") else 1]
    links = os.listdir("/sys/class/net")
    folders = [path.name for path in scratch().glob(f"sky-fleet{number}-*")]
    return [name for name in links if name == f"sky{number}"] + folders


def _machines(parent: psutil.Process) -> list[psutil.Process]:
    return [child for child in parent.children(recursive=True) if child.is_running()]


def _mounts() -> list[str]:
    """Return what is mounted, without the datasets that tests beside this one mount."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if " fuse " not in line]


def test_a_closed_fleet_leaves_nothing(fleet: Fleet) -> None:
    before = _mounts()
    hosts = [fleet.launch(f"n{i}", "", ingress=OPEN) for i in range(3)]
    assert all(host.ready(WAIT) for host in hosts)
    ended: list[str] = []
    hosts[0]._on_end = ended.append
    addresses = [host.address for host in hosts]
    assert len(set(addresses)) == 3
    assert _left(addresses)
    processes = [each for host in hosts for each in host.processes()]
    assert len(processes) >= 3
    fleet.close()
    assert not any(process.is_running() for process in processes)
    assert _left(addresses) == []
    assert _mounts() == before
    assert ended == []


@pytest.mark.parametrize("kind", [pytest.param(True, marks=needs_isolation), False])
def test_a_killed_owner_leaves_nothing(kind: bool) -> None:
    root = Path(__file__).parents[2]
    owners = [
        subprocess.Popen(
            [sys.executable, "-c", _OWNER, str(kind)],
            stdout=subprocess.PIPE,
            cwd=root,
            env=os.environ | {"PYTHONPATH": str(root)},
            text=True,
        )
        for _ in range(2)
    ]
    try:
        addresses = [owner.stdout.readline().split() for owner in owners if owner.stdout]
        assert len({*addresses[0], *addresses[1]}) == 4  # fleets of two processes do not meet
        for owner, mine in zip(owners, addresses, strict=True):
            processes = _machines(psutil.Process(owner.pid))
            assert len(processes) >= 4 and _left(mine)
            owner.kill()
            until(partial(_none_left, mine, processes))
    finally:
        for owner in owners:
            owner.kill()
            owner.communicate()


def _none_left(addresses: list[str], processes: list[psutil.Process]) -> bool:
    return not _left(addresses) and not any(map(_lives, processes))


def _lives(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


_ANYBODY = """
mkdir -p box/tests && cd box && tar -xf - && touch tests/__init__.py
export PYTHONPATH=$PWD
exec %s - <<'END'
from tests.emulators.fleet import Fleet, isolation_works
assert not isolation_works()
with Fleet() as fleet:
    commands = ["id -un >/var/lib/who", "shutdown -P +1"]
    import json, queue
    ends = queue.Queue()
    fleet.minute = 0.5
    host = fleet.launch("n", "#cloud-config\\n" + json.dumps({"runcmd": commands}), on_end=ends.put)
    assert host.ready(20), host.console()
    assert host.booted(20), host.console()
    print((host.folder / "var/lib/who").read_text().strip(), host.port, ends.get(timeout=20))
    assert not host.folder.exists()
END
"""


@needs_isolation
def test_machines_beside_us_are_for_anybody(isolated: Fleet, keys: Keys) -> None:
    machine = LaunchedMachine(isolated, keys)
    assert machine.host.ready(WAIT)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.add(Path(__file__).parents[1] / "emulators", "tests/emulators")
        tar.add(Path(psutil.__file__).parent, "psutil")
    answer = ssh.run(machine.address, _ANYBODY % PYTHON, data=buffer.getvalue())
    assert answer.code == 0, answer.err
    who, port, end = answer.text.split()
    assert (who, end) == (machine.user, "shutdown")
    assert int(port) > 1023


def test_folders_of_those_that_were_killed_are_swept() -> None:
    left = Path(tempfile.mkdtemp(prefix="sky-fleet1-", dir=scratch()))
    with Fleet(isolated=False) as one:
        host = one.launch("n", "")
        assert host.folder
        with Fleet(isolated=False):
            assert not left.exists()
            assert host.folder.exists()


# -- our own clusters on them -----------------------------------------------------------------


@pytest.mark.slow
def test_engines_can_be_had_on_it(fleet: Fleet, keys: Keys) -> None:
    warm_cache()
    machine = LaunchedMachine(fleet, keys)
    assert machine.host.ready(WAIT)
    node = ssh_slot.acquire_slot(Slot(0, "token", machine.host.name, machine.address), {})
    said: list[str] = []
    bootstrap.prepare([node], said.append)
    python = node.engine_python
    told = machine.sh(
        f"{python} -c 'import sys, jupyter_sky.machines.engines.controller.controller, ipyparallel;"
        "print(*sys.version_info[:2], jupyter_sky.__file__)'"
    ).split()
    assert told[:2] == [str(part) for part in sys.version_info[:2]]
    assert told[2].startswith(node.base)
    assert "Python and packages" in said
    compiled = machine.sh(
        f"cd /tmp; {python} -B -c 'import os, sys, jupyter_sky.machines.engines.node.kernel as _, "
        "ipyparallel.engine.app as _; print([name for name, module in sys.modules.items() if "
        '"site-packages" in (getattr(module, "__file__", None) or "") and module.__file__.endswith('
        '".py") and not os.path.exists(module.__cached__)])\''
    )
    assert compiled.strip() == "[]", "each of these takes the time to be compiled there"
    uv = f"ls {node.base}/uv 2>/dev/null; true"
    assert machine.sh(uv) == "", "engines do without"
    bootstrap.ensure_uv(node)
    assert machine.sh(uv).split() == [f"{node.base}/uv"]
    ssh_slot.release_slots([node])


@pytest.mark.slow
def test_it_ends_when_its_lease_is_ended(fleet: Fleet, keys: Keys) -> None:
    user, ends = fleet.user or "ada", queue.Queue[str]()
    text = cloud_init.render_user_data(keys.setup(user, heartbeat_timeout=300.0))
    host = fleet.launch("n", text, ingress=OPEN, on_end=ends.put)
    assert host.booted(WAIT), host.console()
    address = keys.address(host, user)
    script = 'cd "${JUPYTER_SKY_KEEPALIVE:-/run/jupyter-sky}" && cut -d. -f1 /proc/uptime >renewed'
    until(lambda: ssh.run(address, script).code == 0)
    assert ssh.run(address, script + " && touch end").code == 0
    assert ends.get(timeout=WAIT) == "shutdown"
