"""The `local` cloud: this machine, with real processes, at 0 USD/h.

A cluster is a directory below the data directory with one supervisor process, below which
everything of the cluster runs. Its nodes are engines held to the vCPUs and the memory asked for.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_sky.base.clouds.cloud_facts import CloudFacts
from jupyter_sky.base.errors import SkyClusterLost, SkyNoCapacity, SkyUnreachable
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.remote import processes, supervisor
from jupyter_sky.base.remote.supervisor import write_private
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import format_vcpus
from jupyter_sky.base.requests.resources import Amount, Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.base import Credentials, Tick, no_tick
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine

PASSED_VARIABLES = (
    "PATH HOME USER LOGNAME SHELL TERM TZ TMPDIR LANG LANGUAGE PYTHONPATH VIRTUAL_ENV JAVA_HOME "
    "SPARK_HOME LD_LIBRARY_PATH DYLD_LIBRARY_PATH HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy "
    "https_proxy no_proxy SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE SYSTEMROOT"
).split()
PASSED_PREFIXES = ("LC_", "CONDA_", "PIP_", "UV_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "OPENBLAS_")
"""Environment that engines need to run at all. The rest (and so every secret) stays here unless
a cell asks for it with ``--env``, as it would for a machine elsewhere."""

KEEP_DAYS = 7.0
"""Journals of clusters that ended longer ago are deleted at the next launch."""


def machine_size() -> tuple[int, float]:
    """Return the vCPUs and the GiB of memory of this machine that this process may use."""
    import psutil

    usable = getattr(os, "sched_getaffinity", None)
    cpus = len(usable(0)) if usable else os.cpu_count() or 1
    memory = psutil.virtual_memory().total
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            memory = min(memory, int(Path(name).read_text()))
    return cpus, round(memory / 2**30, 1)


def _slice_size(asked: Amount | None, whole: float) -> float:
    """Size of a slice of this machine: what was asked for where it is there, else all."""
    return min(asked.value, whole) if asked else whole


@dataclass(frozen=True, slots=True)
class LocalHost:
    """Head node of one cluster: the computer of the notebook."""

    directory: Path
    limits: dict[str, object]
    python: str = sys.executable

    def start(self, module: str, config: dict[str, object]) -> None:
        """Start `module` below a supervisor of its own, apart from this process."""
        path = self.directory / "config.json"
        known = {"directory": str(self.directory), "keeps_environment": True}
        write_private(path, config | known)
        log = os.open(
            self.directory / "controller.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600
        )
        command = [self.python, "-I", "-S", supervisor.__file__, str(self.directory)]
        process = subprocess.Popen(
            [*command, self.python, "-m", module, str(path)],
            cwd=self.directory,
            env=_environment(self.directory),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        os.close(log)
        _reap_child(process)
        write_private(self.directory / "supervisor.json", processes.identity(process.pid))

    @property
    def has_started(self) -> bool:
        """Whether a supervisor was started here, running or not."""
        return (self.directory / "supervisor.json").exists()

    def is_running(self) -> bool:
        """Whether the supervisor lives."""
        return _is_cluster_running(self.directory)

    def read_end(self) -> JsonObject:
        """Return ``time`` and ``reason`` of the supervisor's end; nothing before."""
        return _read(self.directory / "ended.json")

    def await_connection(self, timeout: float, alive: Callable[[], None]) -> Path:
        """Wait for the controller's client file."""
        path, deadline = self.directory / "security" / "client.json", time.monotonic() + timeout
        while not path.exists():
            alive()
            if time.monotonic() > deadline:
                raise SkyClusterLost(
                    _("the controller did not start within {timeout:g} s").format(timeout=timeout)
                )
            time.sleep(0.02)
        return path


class LocalFacts(CloudFacts):
    """Facts of this machine as a cloud."""

    name, title, colour = "local", "This machine", "#808080"
    note = "this machine, free"
    launchable = on_premises = True


class LocalCloud:
    """Cloud that is the computer of the notebook."""

    name = "local"

    def check(self) -> Credentials:
        """Return the size of this machine, which is always usable."""
        cpus, memory = machine_size()
        size = _("this machine: {vcpus}, {memory:g} GiB, $0.00/h").format(
            vcpus=format_vcpus(cpus), memory=memory
        )
        return Credentials("local", True, size)

    def offers(self, resources: Resources) -> list[Offer]:
        """Offer a slice of this machine, as big as asked for where it is that big."""
        cpus, memory = machine_size()
        nodes = resources.nodes
        return [
            Offer(
                cloud="local",
                region="this-machine",
                instance_type=platform.machine(),
                # nodes share the machine; one slice each
                vcpus=_slice_size(resources.cpus, cpus / nodes if resources.cpus else cpus),
                memory=_slice_size(
                    resources.memory, memory / nodes if resources.memory else memory
                ),
                price=0.0,
                source="this machine",
                date=time.strftime("%Y-%m-%d"),
                disk=None,
            )
        ]

    def slots(self, resources: Resources, offer: Offer) -> int | None:
        """Return how many nodes there may be: as many as are asked for, they share the machine."""
        return None

    def free_slots(self, resources: Resources, offer: Offer) -> int | None:
        """Return None: this machine takes whatever fits it."""
        return None

    def launch(self, request: LaunchRequest, tick: Tick = no_tick) -> list[Machine]:
        """Make the cluster's directory; its processes start with its controller."""
        root = _root()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_old_folders(root)
        directory = root / request.token
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            (directory / "work").mkdir(mode=0o700, exist_ok=True)
            write_private(
                directory / "machine.json",
                {
                    "cluster": request.cluster,
                    "nodes": request.resources.nodes,
                    "started": time.time(),
                    "owner": request.owner,
                    "notebook": request.notebook,
                    "cpus": request.offer.vcpus if request.resources.cpus else None,
                    "memory": request.offer.memory if request.resources.memory else None,
                },
            )
        except OSError as error:
            raise SkyNoCapacity(
                _("this machine refuses a cluster: {error}").format(error=error)
            ) from error
        return self._machines(directory, "starting")

    def host(self, machines: Sequence[Machine]) -> LocalHost:
        """Return this machine, holding engines to their slices."""
        directory = _root() / machines[0].id.partition("/")[0]
        record = _read(directory / "machine.json")
        cpus = record.get("cpus")
        slices = _cpu_slices(int(cpus), record["nodes"]) if cpus else None
        return LocalHost(directory, {"cpus": slices, "memory": record.get("memory")})

    def describe(self, ids: Sequence[str]) -> list[Machine]:
        """Say how machines are, from their supervisors."""
        found: list[Machine] = []
        for token in dict.fromkeys(identity.partition("/")[0] for identity in ids):
            directory = _root() / token
            machines = self._machines(
                directory, "running" if _is_cluster_running(directory) else "ended"
            )
            found += [machine for machine in machines if machine.id in ids]
        return found

    def terminate(self, ids: Sequence[str]) -> None:
        """Tell the supervisors to end, and wait until they have.

        Raises
        ------
        SkyUnreachable
            A cluster runs on another machine or in another container, which shares this folder.
        """
        end_supervisors(
            [_root() / token for token in dict.fromkeys(i.partition("/")[0] for i in ids)]
        )

    def list_mine(self, everywhere: bool = False) -> list[Machine]:
        """List the machines whose supervisors live."""
        root = _root()
        directories = sorted(root.iterdir()) if root.is_dir() else []
        return [
            machine
            for directory in directories
            if _is_cluster_running(directory)
            for machine in self._machines(directory, "running")
        ]

    def _machines(self, directory: Path, state: Any) -> list[Machine]:
        record, ended = _read(directory / "machine.json"), {}
        if state == "ended":
            ended = _read(directory / "ended.json")
        return [
            Machine(
                id=f"{directory.name}/{rank}",
                cloud="local",
                cluster=record.get("cluster", ""),
                rank=rank,
                state=state,
                started=record.get("started", 0.0),
                ended=ended.get("time"),
                reason=ended.get("reason", ""),
                token=directory.name,
                owner=record.get("owner", ""),
            )
            for rank in range(record.get("nodes", 1))
        ]


def end_supervisors(directories: Sequence[Path]) -> None:
    """Tell the supervisors of clusters to end, and wait until they have.

    Raises
    ------
    SkyUnreachable
        A cluster runs on another machine or in another container, which shares this folder.
    """
    supervisors, elsewhere = [], list[str]()
    for directory in directories:
        identity = _read(directory / "supervisor.json")
        if processes.liveness(identity) == "foreign" and _is_cluster_running(directory):
            elsewhere.append(f"{directory.name} on {identity.get('host') or 'another machine'}")
        elif _is_supervisor_alive(
            identity
        ):  # only this process may be signalled: PIDs are used again
            with contextlib.suppress(ProcessLookupError):
                os.kill(identity["pid"], signal.SIGTERM)
                supervisors.append(identity)
    deadline = time.monotonic() + supervisor.GRACE_SECONDS + 5.0
    while (
        any(_is_supervisor_alive(identity) for identity in supervisors)
        and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    for identity in filter(_is_supervisor_alive, supervisors):  # it is frozen, perhaps
        supervisor.kill_all([*supervisor.descendants(identity["pid"]), identity["pid"]])
    for directory in directories:
        supervisor.unmount_below(directory)
    if elsewhere:
        raise SkyUnreachable(
            _(
                "what runs in another machine or container cannot be ended from here: {elsewhere}"
            ).format(elsewhere=", ".join(elsewhere)),
            hint=_("end it there: %sky down; unused it ends by itself"),
        )


cloud = LocalCloud()

_child_processes: list[subprocess.Popen] = []


def _reap_child(process: subprocess.Popen) -> None:
    """Keep the handle: a supervisor that ends while we live must not stay as a zombie."""
    _child_processes[:] = [child for child in _child_processes if child.poll() is None]
    _child_processes.append(process)


def _root() -> Path:
    return Path(Sky.load().data_dir) / "local"


def _cpu_slices(cpus: int, nodes: int) -> list[list[int]]:
    """Share out this machine's CPUs, a slice a node, beginning with a different one each time."""
    usable = getattr(os, "sched_getaffinity", None)
    every = sorted(usable(0)) if usable else list(range(os.cpu_count() or 1))
    first = int(time.time() * 1000) % len(every)
    width = max(cpus, 1)
    return [
        [every[(first + rank * width + index) % len(every)] for index in range(width)]
        for rank in range(nodes)
    ]


def _environment(directory: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in PASSED_VARIABLES or name.startswith(PASSED_PREFIXES)
    }
    # our own package, also where it is imported from a checkout
    package = str(Path(__file__).parents[2])
    paths = [path for path in (kept.get("PYTHONPATH"), package) if path]
    return kept | {
        "PYTHONPATH": os.pathsep.join(paths),
        "IPYTHONDIR": str(directory / "profile"),
    }


def _is_supervisor_alive(identity: JsonObject) -> bool:
    """Whether a supervisor lives on this machine."""
    for child in _child_processes:
        child.poll()  # no zombies
    return processes.liveness(identity) == "alive"


def _is_cluster_running(directory: Path) -> bool:
    """Whether a cluster runs, here or on another machine that shares its folder."""
    path = directory / "supervisor.json"
    identity = _read(path)
    if processes.liveness(identity) != "foreign":
        return _is_supervisor_alive(identity)
    try:
        seen = (
            path.stat().st_mtime
        )  # its controller touches it: see `jupyter_sky.machines.engines.node.keepalive`
    except OSError:
        return False
    return processes.is_alive(identity, seen)


def _read(path: Path) -> JsonObject:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _remove_old_folders(root: Path) -> None:
    import shutil

    for directory in root.iterdir():
        ended = _read(directory / "ended.json").get("time")
        # one whose supervisor was killed, or whose machine lost its power, has not said when
        ended = ended or _read(directory / "machine.json").get("started") or time.time()
        old = time.time() - ended > KEEP_DAYS * 86400
        has_mounts = (directory / "mounts").is_dir()
        if (old or has_mounts) and not _is_cluster_running(directory):
            supervisor.unmount_below(directory)  # nobody has, where all processes were killed
            if old:
                shutil.rmtree(directory, ignore_errors=True)
