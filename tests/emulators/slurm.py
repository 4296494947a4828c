"""A Slurm on this machine, of one node or several.

Nothing of it is emulated: munged, slurmctld and slurmd are those of the distribution's packages. It
listens on the loopback device and keeps all of its files in one folder; `Slurm.env` is what
``sbatch``, ``squeue`` and ``srun`` need to find it. The daemons must run as root, as they do on a
real node.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "srun")
USABLE = os.geteuid() == 0 and all(shutil.which(name) for name in PROGRAMS)
"""Whether this machine can run it: Debian's packages are slurmctld, slurmd, slurm-client, munge."""
WAIT = 60.0
"""Longest time until the node is idle, s."""

_CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
KillWait=2
MinJobAge=300
InactiveLimit=0
PartitionName=main Nodes=ALL Default=YES MaxTime=60 State=UP DefMemPerCPU=64
PartitionName=short Nodes=ALL MaxTime=1 State=UP DefMemPerCPU=64
PartitionName=single Nodes=ALL MaxNodes=1 MaxTime=60 State=UP DefMemPerCPU=64
"""
_NODE = "NodeName={name} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={memory}\n"


@dataclass(frozen=True)
class Slurm:
    """A Slurm that runs.

    Attributes
    ----------
    folder
        Where its files are.
    env
        Environment of the commands of its users.
    host
        Name of its first node.
    cpus
        Processors that a node has, as it says.
    nodes
        Names of its nodes.
    """

    folder: Path
    env: Mapping[str, str]
    host: str
    cpus: int
    nodes: tuple[str, ...]

    def ask(self, *command: str) -> str:
        """Run one of Slurm's commands; return what it prints."""
        ran = subprocess.run(command, env=dict(self.env), capture_output=True, text=True)
        if ran.returncode:
            raise RuntimeError(f"{' '.join(command)}: {ran.stderr or ran.stdout}")
        return ran.stdout.strip()

    def jobs(self) -> list[str]:
        """Return the numbers of the jobs that wait or run."""
        return self.ask("squeue", "-h", "-o", "%A").split()


@contextmanager
def slurm(cpus: int = 4, memory: int = 2048, nodes: int = 1) -> Iterator[Slurm]:
    """Bring a Slurm up, and take it down with whatever it still runs.

    Parameters
    ----------
    cpus
        Processors of each node; they need not be there.
    memory
        Of each node, MiB.
    nodes
        Each is a slurmd.
    """
    # the name of munge's socket has to be short
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    host = re.sub(r"\..*", "", socket.gethostname())
    path = folder / "slurm.conf"
    names = (host, *(f"{host}-{number}" for number in range(1, nodes)))
    controller_port, *ports = _free_ports(1 + nodes)
    lines = [
        _NODE.format(name=name, port=port, cpus=cpus, memory=memory)
        for name, port in zip(names, ports, strict=True)
    ]
    head, sign, tail = _CONFIG.partition("PartitionName=main")
    config = head.format(folder=folder, host=host, controller_port=controller_port)
    path.write_text("".join((config, *lines, sign, tail)))
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    found = Slurm(folder, {**os.environ, "SLURM_CONF": str(path)}, host, cpus, names)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        daemons.append(_start_munged(folder))
        daemons.append(_start(found, "slurmctld", "-D", "-c", "-f", str(path)))
        for name in names:
            daemons.append(_start(found, "slurmd", "-D", "-c", "-N", name, "-f", str(path)))
        _wait_until_idle(found, daemons)
        yield found
    finally:
        with suppress(RuntimeError):
            found.ask("scancel", "--signal=KILL", "--full", "--state=RUNNING")
            found.ask("scancel", "--state=PENDING")
            _wait_until_empty(found)
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _port in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _start_munged(folder: Path) -> subprocess.Popen[bytes]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    files = {"key": key, "pid": "munged.pid", "seed": "munged.seed", "log": "munged.log"}
    options = [f"--{name}-file={folder / file}" for name, file in files.items()]
    command = ["munged", "--foreground", "--force", f"--socket={folder / 'munge.socket'}"]
    with (folder / "munged.out").open("wb") as out:
        return subprocess.Popen([*command, *options], stdout=out, stderr=out)


def _start(found: Slurm, *command: str) -> subprocess.Popen[bytes]:
    with (found.folder / f"{command[0]}.out").open("ab") as out:
        return subprocess.Popen(command, env=dict(found.env), stdout=out, stderr=out)


def _wait_until_idle(found: Slurm, daemons: list[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + WAIT
    while True:
        with suppress(RuntimeError):
            if found.ask("sinfo", "-h", "-o", "%T", "-p", "main") == "idle":
                return
        if time.monotonic() > end or any(daemon.poll() is not None for daemon in daemons):
            raise RuntimeError("\n".join(_last_words(path) for path in found.folder.glob("*.out")))
        time.sleep(0.1)


def _wait_until_empty(found: Slurm) -> None:
    end = time.monotonic() + 10
    while found.jobs() and time.monotonic() < end:
        time.sleep(0.1)


def _last_words(path: Path) -> str:
    return f"{path.name}: {path.read_text(errors='replace')[-2000:]}"
