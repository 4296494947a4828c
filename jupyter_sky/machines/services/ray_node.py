"""Processes of Ray on a node: a raylet with its workers, and on the first node the head's server.

``ray start`` leaves daemons that are in no process group of ours, and ``ray stop`` ends those of
every cluster on the machine by their names. So this process adopts what its descendants abandon,
and ends all that is below it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote.supervisor import (
    PR_SET_CHILD_SUBREAPER,
    descendants,
    kill_all,
    prctl,
    write_private,
)
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.ports import free_port
from jupyter_sky.machines.engines.node.service_orders import EngineOrder, write_state
from jupyter_sky.machines.engines.wire.agent_link import listen_address
from jupyter_sky.machines.services.engine_node import (
    START_SECONDS,
    TICK_SECONDS,
    EngineNode,
    ensure_packages,
    find_python,
    import_path,
)
from jupyter_sky.machines.services.sizes import RaySizes, size_ray

MIN_VERSION = "2.60"
"""Oldest version whose nodes may have folders of their own, and authenticate by a token."""
SHARED_ADDRESSES = ipaddress.ip_network("100.64.0.0/10")
"""Addresses of private networks above others, such as those of Tailscale."""
TOKEN = "token"
READY = b"Ray runtime started"
TRIES = 6


class RayNode(EngineNode):
    """Processes of Ray on this node."""

    title = "Ray"

    def __init__(self, order: EngineOrder) -> None:
        super().__init__(order)
        self._packages = ""
        self._sizes: RaySizes = size_ray(self.cpus, self.memory)
        if order.nodes > 1:
            check_network(order.rank, order.address)

    def install(self) -> None:
        """Find Ray on this machine, or install it."""
        version = self.order.version
        write_state(self.order, "installing", f"Ray {version.removeprefix('==')}".rstrip())
        self._packages = ensure_packages("ray", [f"ray{version or f'>={MIN_VERSION}'}"])

    def start(self) -> Mapping[str, object]:
        """Start Ray on this node, and wait until it has joined the others."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        order = self.order
        version = installed_version(self._packages)
        # left by an earlier process of this node that was killed itself
        kill_all(processes_in(order.folder))
        (order.folder / TOKEN).unlink(missing_ok=True)
        with open(os.open(order.folder / TOKEN, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(order.token)
        host, __, port = order.master.rpartition(":")
        if order.rank:
            self.wait_port(host, int(port), "head")
        self._start_daemons()
        if order.rank == 0:
            endpoint = {"address": order.master, "token": str(order.folder / TOKEN)}
            about = {"nodes": order.nodes, "version": version, "folder": self._packages}
            write_private(order.endpoint_file, endpoint | about | {"serial": order.serial})
        return {"version": version}

    def _start_daemons(self) -> None:
        """Run ``ray start`` until it says that it is done; it then goes on, to watch its daemons.

        It gives them half a minute to know of each other, which is short on a machine that is busy.
        """
        log = self.order.folder / "ray.log"
        command = [find_python(self._packages), "-m", "ray.scripts.scripts", "start", "--block"]
        command += start_options(self.order, self._sizes, self.cpus, temp_folder(self.order))
        if self.order.rank == 0:  # cannot be switched off, and another cluster may have its port
            port = free_port(listen_address(self.order.address))
            command += ["--ray-client-server-port", str(port)]
        deadline = time.monotonic() + START_SECONDS
        for __ in range(TRIES):
            kill_all(descendants(os.getpid()))
            log.unlink(missing_ok=True)
            process = self.spawn("ray", command, self._environment())
            while process.poll() is None and not self.is_stopping:
                if READY in log.read_bytes():
                    return
                if time.monotonic() > deadline:
                    self.fail_start("daemon")
                time.sleep(TICK_SECONDS)
        self.check()

    def _environment(self) -> dict[str, str]:
        return {
            **import_path(self._packages),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.order.folder / TOKEN),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else it warns of what comes
        }

    def stop(self) -> None:
        """End all processes below this one, whatever group they are in."""
        super().stop()
        while pids := descendants(os.getpid()):
            kill_all(pids)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
            time.sleep(0.02)


def processes_in(folder: Path) -> list[int]:
    """Return the other processes that work in a folder: some of Ray hide their environment."""
    pids = []
    for entry in Path("/proc").iterdir() if sys.platform == "linux" else ():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if (entry / "cwd").samefile(folder):
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids


def temp_folder(order: EngineOrder) -> Path:
    """Return the path of Ray's folder for sockets and logs, which is below that of the node.

    Paths of sockets may have 107 bytes, of which Ray's own names take 60. So the path leads by way
    of this process: it is short, other nodes have others, and nothing of it is left anywhere.
    """
    below = Path(f"/proc/{os.getpid()}/cwd") if sys.platform == "linux" else order.folder
    return below / "ray"


def start_options(order: EngineOrder, sizes: RaySizes, cpus: int, folder: Path) -> list[str]:
    """Return the options of ``ray start`` on a node.

    Examples
    --------
    >>> order = EngineOrder("ray", "/c", 1, 2, "", "10.0.0.2", "10.0.0.1:25001", "s", "t", gpus=2)
    >>> " ".join(start_options(order, RaySizes(10, 20), 4, Path("/proc/7/cwd/ray"))[:6])
    '--address 10.0.0.1:25001 --node-ip-address 10.0.0.2 --num-cpus 4'
    """
    port = order.master.rpartition(":")[2]
    head = ["--head", "--port", port, "--include-dashboard", "false", "--no-monitor"]
    gpus = ["--num-gpus", f"{order.gpus:g}"] if order.gpus >= 1 else []
    return [
        *(head if order.rank == 0 else ["--address", order.master]),
        *("--node-ip-address", order.address, "--num-cpus", str(cpus), *gpus),
        *("--object-store-memory", str(sizes.objects), "--memory", str(sizes.tasks)),
        *("--disable-usage-stats", "--temp-dir", str(folder)),
    ]


def check_network(rank: int, address: str) -> None:
    """Raise SkyError where the other nodes reach this one by a public address.

    What Ray sends is authenticated, but not encrypted.

    Examples
    --------
    >>> check_network(0, "10.0.0.1")
    """
    number = ipaddress.ip_address(socket.gethostbyname(address))
    if not number.is_private and number not in SHARED_ADDRESSES:
        raise SkyError(
            _("Ray does not encrypt what it sends, and node {rank} has no private address").format(
                rank=rank
            ),
            hint=_("take machines of one private network, or one node, or --engine dask"),
        )


def installed_version(packages: str) -> str:
    """Return the version of Ray in a folder of packages, or of this process's own.

    Raises
    ------
    SkyError
        It is too old.
    """
    from importlib.metadata import distributions

    from packaging.version import Version

    path = [packages, *sys.path] if packages else sys.path
    version = next(iter(distributions(name="ray", path=path))).version
    if Version(version) < Version(MIN_VERSION):
        raise SkyError(
            _("Ray {version} has no authentication that could be used here").format(
                version=version
            ),
            hint=_('ask for a later one: --engine "ray>={version}"').format(version=MIN_VERSION),
        )
    return version
