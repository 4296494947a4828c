"""Podman or Docker on this machine, by its command line."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jupyter_sky.base.translation import N_, _
from jupyter_sky.clouds.provider.classification import ProviderError

REFUSED, MISSING, KILLED = "REFUSED", "MISSING", "KILLED"
"""Codes of errors: the program refuses, is not there, was ended before it was done."""
NOT_INSTALLED = N_("podman is not installed, nor Docker with a running daemon")
START_SECONDS, COMMAND_SECONDS = 3600.0, 120.0
"""Longest times of a start, which pulls an image, and of any other command."""
_PROGRAMS = ("podman", "docker")
_SOCKETS = ("/var/run/docker.sock", "~/.docker/run/docker.sock", "~/.docker/contexts/meta")
_LIMITS = ("nofile", "nproc")
_MOST_LIMIT = 1 << 20
"""Limit that podman sets on its own."""


@dataclass(frozen=True, slots=True)
class ContainerProgram:
    """Program that starts containers.

    Attributes
    ----------
    named : str
        Its name or path; empty for the first that is installed. A Docker of which no daemon is
        known here is not taken by itself.
    """

    named: str = ""

    @property
    def path(self) -> str:
        """Path of the program; empty where there is none."""
        if self.named:
            return shutil.which(self.named) or ""
        found = {name: shutil.which(name) for name in _PROGRAMS}
        if found["podman"] or not _has_docker_host():
            return found["podman"] or ""
        return found["docker"] or ""

    @property
    def is_docker(self) -> bool:
        """Whether it is Docker, which has other options."""
        return "docker" in Path(self.require()).name

    def require(self) -> str:
        """Return the path of the program.

        Raises
        ------
        ProviderError
            There is none.
        """
        if not self.path:
            text = _("{program}: there is no such program").format(program=self.named)
            raise ProviderError(text if self.named else _(NOT_INSTALLED), code=MISSING)
        return self.path

    def start_options(self, gpus: Sequence[int], seconds: int) -> list[str]:
        """Return the options of a start that only one of the programs has.

        Parameters
        ----------
        gpus
            Numbers of the GPUs that the container gets.
        seconds
            After which podman ends the container; Docker cannot.
        """
        if self.is_docker:
            devices = ",".join(map(str, gpus))
            return [f'--gpus="device={devices}"'] if gpus else []  # quoted: it is a list of CSV
        words = [f"--timeout={seconds}"]
        words += [f"--device=nvidia.com/gpu={number}" for number in gpus]
        for limit in _LIMITS:  # podman asks for more than this process may have
            if (most := _hard_limit(limit)) < _MOST_LIMIT:
                words.append(f"--ulimit={limit}={most}:{most}")
        if Path("/sys/fs/cgroup/unified").is_dir() and shutil.which("runc"):
            words.append("--runtime=runc")  # crun refuses control groups of both versions
        return words

    def inspect(self, *filters: str) -> list[dict[str, Any]]:
        """Return the containers that all filters pass, as both programs describe them."""
        words = [word for each in filters for word in ("--filter", each)]
        ids = self.run("ps", "--all", "--quiet", "--no-trunc", *words).split()
        return json.loads(self.run("inspect", *ids, may_miss=True) or "[]") if ids else []

    def remove(self, name: str) -> None:
        """Remove a container, also one that runs."""
        self.run("rm", "--force", *([] if self.is_docker else ["--time=0"]), name)

    def run(self, *words: str, env: Mapping[str, str] | None = None, may_miss: bool = False) -> str:
        """Run the program; return what it prints.

        Parameters
        ----------
        env
            Further environment variables.
        may_miss
            Whether it is no error that some containers are gone meanwhile.

        Raises
        ------
        ProviderError
            It is not there, refuses, or takes too long.
        """
        logs = words[0] == "logs"  # to both outputs
        seconds = START_SECONDS if words[0] == "run" else COMMAND_SECONDS
        try:
            done = subprocess.run(
                [self.require(), *words],
                env=os.environ | (env or {}),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if logs else subprocess.PIPE,
                text=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            text = f"{words[0]} was not done after {seconds:g} s"
            raise ProviderError(text, code=KILLED) from None
        said = done.stderr or ""
        if done.returncode == 0 or (may_miss and re.search(r"(?i)no such", said)):
            return done.stdout
        if done.returncode < 0:
            text = f"{words[0]} was ended by signal {-done.returncode}"
            raise ProviderError(text, code=KILLED)
        lines = [line for line in said.splitlines() if line.strip() and "--help" not in line]
        text = re.sub("^Error: ", "", lines[-1]) if lines else f"exit code {done.returncode}"
        gone = re.search(r"(?i)no such container|no container with", text)
        raise ProviderError(text, code=REFUSED, status=404 if gone else 0)


def _hard_limit(name: str) -> int:
    """Return the most that podman may ask for of a resource, `_MOST_LIMIT` without a limit.

    Of processes it gives itself no more than the kernel has numbers for.
    """
    import resource  # not on Windows

    most = resource.getrlimit(getattr(resource, f"RLIMIT_{name.upper()}"))[1]
    found = _MOST_LIMIT if most == resource.RLIM_INFINITY else most
    with suppress(OSError, ValueError):
        if name == "nproc":
            found = min(found, int(Path("/proc/sys/kernel/pid_max").read_text()))
    return found


def _has_docker_host() -> bool:
    named = any(os.environ.get(name) for name in ("DOCKER_HOST", "DOCKER_CONTEXT"))
    return named or any(os.path.exists(os.path.expanduser(path)) for path in _SOCKETS)
