"""Processes of a data engine on a node: their start, their watch, their end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from packaging.requirements import Requirement

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote.supervisor import PR_SET_PDEATHSIG, kill_all, prctl, tail_log
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.environment import install_packages
from jupyter_sky.machines.engines.node.service_orders import EngineOrder, write_state

START_SECONDS = 300.0
"""Longest start of a process: a machine that is busy is slow."""
STOP_SECONDS = 3.0
TICK_SECONDS = 0.1


class EngineNode:
    """Processes of a data engine on this node, in the order of their start.

    A data engine is a subclass: `install` finds or installs it, `start` starts what belongs to the
    node and returns the facts that notebooks are told.
    """

    title = ""
    """Name of the data engine, as its makers write it."""

    def __init__(self, order: EngineOrder) -> None:
        self.order = order
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.is_stopping = False
        self.cpus, self.memory = node_size(order)

    def install(self) -> None:
        """Find the data engine on this machine, or install it."""
        raise NotImplementedError

    def start(self) -> Mapping[str, object]:
        """Start what belongs to the node; return facts, the version among them."""
        raise NotImplementedError

    def run(self) -> None:
        """Start what belongs to the node, and watch it until this process is told to end."""
        self.install()
        write_state(self.order, "starting")
        write_state(self.order, "ready", facts=self.start())
        while not self.is_stopping:
            self.check()
            time.sleep(TICK_SECONDS)

    def spawn(
        self, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process that ends with this one."""
        with self._log(name) as log:
            self.processes[name] = subprocess.Popen(
                command,
                cwd=self.order.folder,
                env=os.environ | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=end_with_parent,
            )
        return self.processes[name]

    def _log(self, name: str) -> IO[bytes]:
        path = self.order.folder / f"{name}.log"
        return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb")

    def wait_port(self, host: str, port: int, name: str) -> None:
        """Wait until a process of this cluster listens."""
        deadline = time.monotonic() + START_SECONDS
        while not self.is_stopping:
            try:
                with socket.create_connection((host, port), timeout=1.0):
                    return
            except OSError:
                pass
            self.check()
            if time.monotonic() > deadline:
                self.fail_start(name)
            time.sleep(TICK_SECONDS)

    def fail_start(self, name: str) -> None:
        """Raise SkyError: a process is not ready, though it has had its time."""
        raise SkyError(
            _("{engine}'s {name} has not come up within {seconds:g} s{log}").format(
                engine=self.title, name=name, seconds=START_SECONDS, log=self._log_tail(name)
            )
        )

    def check(self) -> None:
        """Raise SkyError when a process has ended that was to go on."""
        for name, process in self.processes.items():
            if process.poll() is not None and not self.is_stopping:
                raise SkyError(
                    _("{engine}'s {name} on node {rank} has ended{log}").format(
                        engine=self.title,
                        name=name,
                        rank=self.order.rank,
                        log=self._log_tail(name),
                    )
                )

    def _log_tail(self, name: str) -> str:
        return tail_log(self.order.folder / f"{name}.log")

    def stop(self) -> None:
        """End all processes, those first that were started last."""
        self.is_stopping = True
        if self.order.rank == 0:  # cells learn of the end from this file
            self.order.endpoint_file.unlink(missing_ok=True)
        for process in reversed(self.processes.values()):
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in reversed(self.processes.values()):
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                kill_all([process.pid])
                process.wait()


def end_with_parent() -> None:
    """Have a process killed when its parent ends; call it in the child."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # by which Ray's workers cancel a task


def node_size(order: EngineOrder) -> tuple[int, float]:
    """Return the vCPUs of a node and its memory in GiB."""
    import psutil

    cpus = len(order.cpus or os.sched_getaffinity(0))
    if order.cpus is None:
        cpus = max(cpus // order.neighbours, 1)
    memory = order.memory or psutil.virtual_memory().total / 2**30 / order.neighbours
    return cpus, memory


def ensure_packages(engine: str, requirements: Sequence[str], others: Sequence[str] = ()) -> str:
    """Return the folder of packages, which are installed once on a machine; empty if it has them.

    Parameters
    ----------
    engine
        Data engine that needs them, for messages.
    others
        Packages that are installed, too, if any of those is lacking.

    Raises
    ------
    SkyError
        They cannot be installed; has the installer's last lines.
    """
    lacking = [each for each in requirements if not _is_met(each)]
    if not lacking:
        return ""
    try:
        return install_packages([*lacking, *others], f"--engine {engine}")
    except SkyError as error:
        raise SkyError(
            error.message,
            hint=_("ask for a version that there is, on a machine that reaches a package index"),
        ) from error


def _is_met(text: str) -> bool:
    from importlib.metadata import PackageNotFoundError, version

    requirement = Requirement(text)
    try:
        return requirement.specifier.contains(version(requirement.name), prereleases=True)
    except PackageNotFoundError:
        return False


def find_python(packages: str) -> str:
    """Return the interpreter of a folder of packages; without one that of this process."""
    return str(Path(packages).parents[2] / "bin" / "python") if packages else sys.executable


def import_path(packages: str) -> dict[str, str]:
    """Return the variable by which a process imports from a folder what it has, and as we do."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (packages, *sys.path)))}
