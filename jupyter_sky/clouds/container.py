"""Containers on this machine by podman or Docker: real ones, of the image that was asked for.

A container publishes no port: its SSH server is reached by ``podman exec``. Its first process is
the script of `clouds.launches.machine_script`, with which the lease ends it; podman ends it at
the end of the lease as well. One that has ended is kept until it is swept, for its last lines.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import N_, _
from jupyter_sky.clouds.launches.machine_script import (
    DEFAULT_IMAGE,
    SETUP_COMMAND,
    SETUP_VARIABLE,
    SSHD_PROGRAM,
    pack_script,
)
from jupyter_sky.clouds.launches.machine_slices import slice_name, slice_sizes
from jupyter_sky.clouds.launches.rest_provider import RANK, ListedMachine, RestProvider
from jupyter_sky.clouds.local import machine_size
from jupyter_sky.clouds.provider.classification import ProviderError, Refinement, group_codes
from jupyter_sky.clouds.provider.naming import TOKEN, container_name
from jupyter_sky.clouds.provider.values import LaunchRequest, Machine, MachineConfig

# -- Podman or Docker on this machine, by its command line ----------------------------------------

REFUSED, MISSING, KILLED = "REFUSED", "MISSING", "KILLED"
"""Codes of errors: the program refuses, is not there, was ended before it was done."""
NOT_INSTALLED = N_("podman is not installed, nor Docker with a running daemon")
START_SECONDS, COMMAND_SECONDS = 3600.0, 120.0
"""Longest times of a start, which pulls an image, and of any other command."""
_PROGRAMS = ("podman", "docker")
_SOCKETS = ("/var/run/docker.sock", "~/.docker/run/docker.sock", "~/.docker/contexts/meta")
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
        for limit, most in _hard_limits().items():  # podman asks for more than we may have
            if most < _MOST_LIMIT:
                words.append(f"--ulimit={limit}={most}:{most}")
        if Path("/sys/fs/cgroup/unified").is_dir() and shutil.which("runc"):
            words.append("--runtime=runc")  # crun refuses control groups of both versions
        return words

    def inspect(self, *filters: str) -> list[JsonObject]:
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


def _hard_limits() -> dict[str, int]:
    """Return the most that podman may ask for of files and processes; `_MOST_LIMIT` if unlimited.

    Podman gives itself no more processes than the kernel has numbers for.
    """
    import resource  # not on Windows

    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    found = {name: resource.getrlimit(kind)[1] for name, kind in kinds.items()}
    limits = {
        name: _MOST_LIMIT if most == resource.RLIM_INFINITY else most
        for name, most in found.items()
    }
    with suppress(OSError, ValueError):
        most = int(Path("/proc/sys/kernel/pid_max").read_text())
        limits["nproc"] = min(limits["nproc"], most)
    return limits


def _has_docker_host() -> bool:
    named = any(os.environ.get(name) for name in ("DOCKER_HOST", "DOCKER_CONTEXT"))
    return named or any(os.path.exists(os.path.expanduser(path)) for path in _SOCKETS)


# -- Containers on this machine by podman or Docker: real ones, of the image that -----------------

REGION = "this-machine"
NETWORK = "jupyter-sky"
"""Network on which the containers of several nodes reach each other."""
_MEMORY, _GPUS = "jupyter-sky-memory", "jupyter-sky-gpus"
"""Labels with the GiB and the numbers of the GPUs that a container has."""
_INSTALL = "sudo apt-get install -y podman (or Docker: https://docs.docker.com/engine/install)"
_DOCKER = "sudo systemctl start docker; with Docker Desktop, start the application"
_GROUP = "sudo usermod -aG docker $USER, and log in again"
_RUNTIME = "sudo apt-get install -y runc: it is used where podman's own runtime cannot start"
_IMAGE = "name another one: --image, or the setting providers.container.image"
_LEFT = ("created", "configured", "initialized", "restarting")


class Container(RestProvider):
    """Podman or Docker as a cloud of slices of this machine; an ID is the name of a container.

    Examples
    --------
    >>> gone = ProviderError("manifest unknown", code="REFUSED")
    >>> Container.explain_refusal(gone).cause
    'invalid'
    """

    name, title, short_title = "container", "Containers on this machine", "Containers"
    note, colour = "containers on this machine, free", "#495057"
    launchable = on_premises = has_live_offers = only_by_name = runs_images = True
    settings: ClassVar = {
        "image": "Image of containers, with a shell and either sshd, apt or apk.",
        "options": "Further options of 'podman run', such as -v /data:/data:ro.",
        "program": "podman or docker, or its path; the first that is installed.",
    }

    api = ""
    login, power_off = _INSTALL, "kill 1"
    unconfigured, leftover = NOT_INSTALLED, "container that has ended: {id}"
    errors: ClassVar = group_codes(
        ("capacity", "region", "", "NO_ROOM"),
        ("permission", "region", _INSTALL, MISSING),
        ("transient", "region", "", KILLED),
        ("invalid", "region", "", REFUSED),
    )
    refinements = (
        Refinement(
            REFUSED, r"(?i)permission denied .*(daemon|docker.sock)", cause="permission", fix=_GROUP
        ),
        Refinement(
            REFUSED,
            r"(?i)cannot connect to the docker daemon|cannot connect to podman",
            cause="permission",
            fix=_DOCKER,
        ),
        Refinement(REFUSED, r"(?i)toomanyrequests|rate limit", cause="throttled"),
        Refinement(
            REFUSED,
            r"(?i)unauthorized|authentication required",
            cause="permission",
            fix="podman login (docker login) with the registry of the image",
        ),
        Refinement(
            REFUSED,
            r"(?i)manifest unknown|name unknown|not found|does not exist|no such image"
            r"|invalid reference|access .*denied",
            fix=_IMAGE,
        ),
        Refinement(
            REFUSED, r"(?i)cgroup|OCI runtime|crun:|newuidmap", cause="permission", fix=_RUNTIME
        ),
        Refinement(REFUSED, r"(?i)disk quota exceeded", cause="quota", fix="podman system prune"),
        Refinement(REFUSED, r"(?i)no space left", cause="capacity", fix="podman system prune"),
        Refinement(
            REFUSED, r"(?i)cannot allocate memory|temporarily unavailable", cause="capacity"
        ),
        Refinement(
            REFUSED,
            r"(?i)i/o timeout|connection (refused|reset)|TLS handshake|\bEOF\b|no such host",
            cause="transient",
        ),
    )

    @property
    def _program(self) -> ContainerProgram:
        return ContainerProgram(self.setting("program", ""))

    # -- what is here ---------------------------------------------------------------------------

    def configured(self) -> str:
        """Return the program that starts containers; empty without one."""
        return self._program.path

    def identify(self) -> str:
        """Prove that the program can list containers; Docker's client asks its daemon."""
        self._program.run("ps", "--quiet")
        cpus, memory = machine_size()
        return f"{self._program.run('--version').strip()}, {cpus} vCPUs, {memory:g} GiB"

    def offers(self) -> Iterator[Offer]:
        """Yield slices of this machine, which cost nothing."""
        self._program.run("ps", "--quiet")
        cpus, memory = machine_size()
        gpus = read_gpus()
        names = {gpu for gpu, __ in gpus}
        for vcpus, gib in slice_sizes(cpus, memory):
            yield self._offer(vcpus, gib)
            for count in range(1, len(gpus) + 1) if len(names) == 1 else ():
                yield self._offer(vcpus, gib, *gpus[0], count)

    def _offer(self, vcpus: int, gib: int, gpu: str = "", each: float = 0, count: int = 0) -> Offer:
        return Offer(
            self.name,
            REGION,
            slice_name(vcpus, gib, gpu, count),
            vcpus,
            gib,
            gpu=gpu or None,
            gpu_count=count,
            gpu_memory=each or None,
            price=0.0,
            source="this machine",
            date=time.strftime("%Y-%m-%d"),
            arch={"aarch64": "arm64", "arm64": "arm64"}.get(platform.machine(), "x86_64"),
        )

    # -- machines -------------------------------------------------------------------------------

    def prepare_launch(self, request: LaunchRequest, config: MachineConfig) -> list[str]:
        """Return the options of the network; make the one on which several nodes meet."""
        own = shlex.split(self.setting("options", ""))
        if request.resources.nodes == 1 or any(w.startswith(("--net", "--pod")) for w in own):
            return own
        try:
            self._program.run("network", "inspect", NETWORK)
        except ProviderError:
            self._program.run("network", "create", NETWORK)
        return [*own, "--network", NETWORK]

    def create_machine(
        self,
        request: LaunchRequest,
        config: MachineConfig,
        tags: Mapping[str, str],
        prepared: Sequence[str],
    ) -> Machine:
        """Start one container, with limits that are those of its slice."""
        offer, name = request.offer, container_name(request.token, tags[RANK])
        script, gpus = pack_script(config.script), self._find_room(offer)
        labels = {**tags, _MEMORY: f"{offer.memory:g}"}
        labels |= {_GPUS: " ".join(map(str, gpus))} if gpus else {}
        image = request.resources.image or self.setting("image", DEFAULT_IMAGE)
        words = ["run", "--detach", "--name", name, "--user", "0", "--entrypoint", "sh"]
        words += [f"--label={key}={value}" for key, value in labels.items()]
        words += [f"--env={SETUP_VARIABLE}"]  # by its name: others see the command line
        words += [f"--cpus={offer.vcpus:g}", f"--memory={round(offer.memory * 1024)}m"]
        words += ["--cap-add=AUDIT_WRITE"]  # the SSH server ends without it
        seconds = max(1, round(config.lease_end - time.time()))
        words += self._program.start_options(gpus, seconds)
        try:
            self._program.run(
                *words, *prepared, image, "-c", SETUP_COMMAND, env={SETUP_VARIABLE: script}
            )
        except ProviderError as error:
            if not re.search(r"(?i)name .*is already in use", error.message):
                with suppress(ProviderError):  # some that cannot start are left behind
                    self.delete_machine(name)
                raise
        return self.tagged(tags, id=name, state="starting")

    def _find_room(self, offer: Offer) -> list[int]:
        """Return the numbers of the GPUs for a container, which no other container has.

        Raises
        ------
        ProviderError
            This machine does not have its memory or its GPUs beside what others have.
        """
        running = self._program.inspect(f"label={_MEMORY}", "status=running")
        labels = [each["Config"]["Labels"] for each in running]
        gib, count = offer.memory, int(offer.gpu_count)
        taken, total = sum(float(each.get(_MEMORY) or 0) for each in labels), machine_size()[1]
        if taken + gib > total:
            text = _("{gib:g} GiB are asked for; containers have {taken:g} of {total:g} GiB")
            raise ProviderError(text.format(gib=gib, taken=taken, total=total), code="NO_ROOM")
        if not count:
            return []
        numbers = range(len(read_gpus()))
        used = {int(number) for each in labels for number in each.get(_GPUS, "").split()}
        free = [number for number in numbers if number not in used]
        if len(free) < count:
            text = _("{count} GPUs are asked for; containers have {taken} of {total}")
            told = text.format(count=count, taken=len(used), total=len(numbers))
            raise ProviderError(told, code="NO_ROOM")
        return free[:count]

    def list_machines(self) -> Iterator[ListedMachine]:
        """Yield the containers that were started from here, also those that have ended."""
        for each in self._program.inspect(f"label={TOKEN}"):
            yield ListedMachine(self._parse(each), REGION)

    def _parse(self, found: JsonMapping) -> Machine:
        state, name = found["State"], found["Name"].lstrip("/")
        status = state["Status"]
        ended = status not in ("running", "paused", *_LEFT)
        reason = _("its first process has ended with exit code {code}")
        if state.get("OOMKilled"):
            reason = _("it needed more memory than it has")
        return self.tagged(
            found["Config"]["Labels"] or {},
            id=name,
            state="ended" if ended else "starting" if status in _LEFT else "running",
            reason=reason.format(code=state.get("ExitCode")) if ended else "",
            address=name,
            private=read_address(found),
            through=(self._program.require(), "exec", "-i", name, f"/{SSHD_PROGRAM}"),
        )

    def delete_machine(self, id: str) -> None:
        """Remove one container, running or not."""
        self._program.remove(id)

    def console(self, id: str) -> str:
        """Return the last lines that a container has printed."""
        return self._program.run("logs", "--tail", "20", id)


def read_address(found: JsonMapping) -> str:
    """Return where other containers reach one: on the machine's own network, at the machine.

    Examples
    --------
    >>> read_address({"HostConfig": {"NetworkMode": "host"}, "NetworkSettings": {}})
    '127.0.0.1'
    """
    if found["HostConfig"].get("NetworkMode") == "host":
        return "127.0.0.1"
    networks = found["NetworkSettings"]
    each = [net.get("IPAddress") for net in (networks.get("Networks") or {}).values()]
    return networks.get("IPAddress") or next(filter(None, each), "")


def read_gpus() -> list[tuple[str, float]]:
    """Return name and GiB of each GPU of this machine, by NVIDIA's tool; empty without it."""
    from jupyter_sky.clouds.prices.entries import canonical_accelerator, nominal_memory

    query = ["--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = []
    for line in done.stdout.splitlines() if done.returncode == 0 else ():
        name, __, mib = line.rpartition(",")
        # a GPU that shares the memory of its machine says "[N/A]"
        gib = float(mib) / 1024 if mib.strip().isdigit() else None
        gpu = canonical_accelerator(name.removeprefix("NVIDIA "), gib)
        found.append((gpu, nominal_memory(gpu, gib) or 0.0))
    return found
