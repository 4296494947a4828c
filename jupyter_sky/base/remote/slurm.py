"""Commands of Slurm as calls, on this machine or on a login node reached by SSH."""

from __future__ import annotations

import math
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.remote import ssh
from jupyter_sky.base.remote.ssh_address import Address
from jupyter_sky.base.translation import _

COMMAND_SECONDS = 60.0
"""Longest time that a command of Slurm may take."""
OPEN = frozenset({"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "RESIZING"})
"""States of jobs that have not ended."""
LOST = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REQUEUED", "REVOKED"})
"""States of jobs that ended with their nodes."""
_JOB_FORMAT = "%A|%T|%r|%N|%D|%P|%V|%S|%e|%k"
_SHAPE_FORMAT = "%P|%a|%l|%c|%m|%G|%T|%D"
_USABLE = re.compile(r"(idle|mixed|allocated|completing|reserved|planned)[~#%@+]?")
"""State of a node on which jobs run, now or later; one with ``*`` does not answer."""


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """Job as ``squeue`` has it.

    Attributes
    ----------
    state
        ``PENDING``, ``RUNNING``, ``TIMEOUT`` and so on.
    reason
        Why it waits or has ended.
    nodes
        Nodes that it has or had, as Slurm abbreviates them.
    count
        Number of nodes.
    submitted, started, ends : float
        Unix seconds; 0 where not known. It ends then at the latest.
    """

    number: str
    state: str
    reason: str = ""
    nodes: str = ""
    count: int = 1
    partition: str = ""
    submitted: float = 0.0
    started: float = 0.0
    ends: float = 0.0
    comment: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in OPEN


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Nodes of a partition that are alike.

    Attributes
    ----------
    cpus, memory : int
        Of a node; memory in MiB.
    gpu, gpu_count
        Type of its GPUs in Slurm's configuration, empty where that names none, and their number.
    nodes : int
        How many run jobs, now or later.
    minutes : float
        Longest time of a job.
    """

    partition: str
    cpus: int
    memory: int
    gpu: str = ""
    gpu_count: int = 0
    nodes: int = 1
    minutes: float = math.inf


class SlurmError(SkyError):
    """Refusal of a command of Slurm.

    Parameters
    ----------
    command
        Its name.
    words
        Slurm's own.
    """

    def __init__(self, command: str, words: str) -> None:
        super().__init__(_("{command}: {error}").format(command=command, error=words))
        self.command, self.words = command, words


@dataclass(frozen=True, slots=True)
class SlurmClient:
    """Commands of Slurm.

    Parameters
    ----------
    login
        Address of a login node; None for this machine.
    """

    login: Address | None = None

    def run(self, *command: str, text: str = "", name: str = "") -> str:
        """Run a command; return what it prints.

        Parameters
        ----------
        text
            Its standard input.
        name
            Of the command in errors.

        Raises
        ------
        SlurmError
            It has failed.
        SkyUnreachable
            The login node cannot be reached.
        """
        name = name or command[0]
        if self.login is not None:
            answer = ssh.run(
                self.login, 'exec "$@"', *command, data=text.encode(), timeout=COMMAND_SECONDS
            )
            code, out, errors = answer.code, answer.text, answer.err
        else:
            try:
                ran = subprocess.run(
                    command, input=text, capture_output=True, text=True, timeout=COMMAND_SECONDS
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise SlurmError(name, str(error)) from error
            code, out, errors = ran.returncode, ran.stdout, ran.stderr
        if code:
            raise SlurmError(name, _last_line(errors) or _last_line(out) or str(code))
        return out

    def submit(self, options: Sequence[str], script: str, prepare: str = "") -> str:
        """Submit a script; return the number of its job.

        Parameters
        ----------
        prepare
            Shell script that ends with ``exec "$@"`` and is run around ``sbatch``.

        Raises
        ------
        SlurmError
            Slurm refuses it.
        """
        around = ("sh", "-c", prepare, "sh") if prepare else ()
        command = (*around, "sbatch", "--parsable", "--no-requeue", *options)
        return self.run(*command, text=script, name="sbatch").strip().split(";")[0]

    def list_jobs(self, name: str = "") -> list[SlurmJob]:
        """Return the jobs of this user, or those of a name, also such as have ended lately."""
        whose = f"--name={name}" if name else "--me"
        command = ("env", "SLURM_TIME_FORMAT=%s", "squeue", whose, "--states=all", "-h")
        printed = self.run(*command, "-o", _JOB_FORMAT, name="squeue")
        return [_parse_job(line) for line in printed.splitlines() if line.count("|") >= 9]

    def cancel(self, name: str = "", numbers: Iterable[str] = ()) -> None:
        """Cancel jobs by their numbers, or all of a name; one that has ended is no error."""
        jobs = [f"--name={name}"] if name else list(numbers)
        if jobs:
            self.run("scancel", "--quiet", *jobs)

    def list_shapes(self) -> list[NodeShape]:
        """Return the nodes that run jobs, alike ones of a partition together."""
        counts: dict[NodeShape, int] = {}
        for line in self.run("sinfo", "--exact", "-h", "-o", _SHAPE_FORMAT).splitlines():
            shape, nodes = parse_shape(line)
            if nodes:
                counts[shape] = counts.get(shape, 0) + nodes
        return [replace(shape, nodes=nodes) for shape, nodes in counts.items()]

    def connect_command(self, number: str, node: str, script: str) -> tuple[str, ...]:
        """Return the command that runs a shell script on a node of a job, beside what runs there.

        Its input and output are those of the script.
        """
        step = ["srun", "--overlap", f"--jobid={number}", f"--nodelist={node}", "--nodes=1"]
        step += ["--ntasks=1", "--mem=0", "--cpu-bind=none", "--quiet", "--unbuffered"]
        step += ["sh", "-c", script]
        if self.login is not None:
            return (*self.login.command(shared=True), shlex.join(["exec", *step]))
        # those of a job in which this process runs would count as options
        unset = [f"-u{name}" for name in sorted(os.environ) if _is_of_job(name)]
        return ("env", *unset, *step) if unset else tuple(step)


def job_options(
    nodes: int = 1,
    cpus: float | None = None,
    memory: float | None = None,
    gpu: str | None = None,
    gpu_count: float = 0,
    seconds: float | None = None,
) -> list[str]:
    """Return the options of ``sbatch`` for the machines of a job.

    Parameters
    ----------
    cpus, memory, gpu, gpu_count
        Of each machine; memory in GiB.
    seconds
        Longest time; without, that of the partition holds.

    Examples
    --------
    >>> job_options(1, 4, 8, "A100", 2, 90.0)
    ['--cpus-per-task=4', '--mem=8192M', '--gres=gpu:A100:2', '--time=2']
    >>> job_options(2)
    ['--nodes=2', '--ntasks-per-node=1']
    """
    options = [f"--nodes={nodes}", "--ntasks-per-node=1"] if nodes > 1 else []
    if cpus is not None:
        options.append(f"--cpus-per-task={math.ceil(cpus)}")
    if memory is not None:
        options.append(f"--mem={math.ceil(1024 * memory)}M")
    if gpu_count:
        options.append(f"--gres=gpu:{f'{gpu}:' if gpu else ''}{math.ceil(gpu_count)}")
    if seconds is not None:
        options.append(f"--time={math.ceil(seconds / 60)}")
    return options


def expand_nodes(text: str) -> list[str]:
    """Return the names in an abbreviated list of nodes.

    Examples
    --------
    >>> expand_nodes("login,n[08-10,12]-ib,gpu1")
    ['login', 'n08-ib', 'n09-ib', 'n10-ib', 'n12-ib', 'gpu1']
    """
    return [name for word in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text) for name in _expand(word)]


def _expand(word: str) -> Iterator[str]:
    found = re.search(r"\[([^\]]*)\]", word)
    if found is None:
        yield word
        return
    before, after = word[: found.start()], word[found.end() :]
    for part in found[1].split(","):
        first, _dash, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from _expand(f"{before}{number:0{len(first)}}{after}")


def parse_minutes(text: str) -> float:
    """Return a time limit in minutes.

    Examples
    --------
    >>> parse_minutes("1-12:00:00"), parse_minutes("30:00"), parse_minutes("infinite")
    (2160.0, 30.0, inf)
    """
    days, _dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isdigit() for part in parts):
        return math.inf
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return int(days or 0) * 1440 + seconds / 60


def parse_shape(line: str) -> tuple[NodeShape, int]:
    """Return the nodes of a line of ``sinfo``, and how many of them run jobs.

    Examples
    --------
    >>> shape, nodes = parse_shape("gpu*|up|1-00:00:00|64|257000|gpu:a100:4(S:0-1)|mixed|3")
    >>> shape.gpu, shape.gpu_count, shape.minutes, nodes
    ('a100', 4, 1440.0, 3)
    >>> parse_shape("cpu|up|infinite|8|16000|(null)|down*|2")[1]
    0
    """
    partition, is_up, limit, cpus, memory, gres, state, nodes = line.split("|")
    usable = is_up == "up" and _USABLE.fullmatch(state)
    gpus = re.search(r"(?:^|,)gpu:(?:([^:(,]+):)?(\d+)", gres)
    shape = NodeShape(
        partition.rstrip("*"),
        int(cpus.rstrip("+")),
        int(memory.rstrip("+")),
        (gpus[1] or "") if gpus else "",
        int(gpus[2]) if gpus else 0,
        minutes=parse_minutes(limit),
    )
    return shape, int(nodes) if usable else 0


def _parse_job(line: str) -> SlurmJob:
    fields = line.split("|", 9)
    number, state, reason, nodes, count, partition = fields[:6]
    submitted, started, ends = (float(text) if text.isdigit() else 0.0 for text in fields[6:9])
    return SlurmJob(
        number, state, reason, nodes, int(count), partition, submitted, started, ends, fields[9]
    )


def _last_line(text: str) -> str:
    """Return the last line without the name of the command.

    Examples
    --------
    >>> _last_line("sbatch: error: Batch job submission failed: Invalid partition name specified")
    'Batch job submission failed: Invalid partition name specified'
    """
    lines = text.strip().splitlines() or [""]
    return re.sub(r"^(?:\w+: )?(?:(?:error|fatal): )?", "", lines[-1])


def _is_of_job(name: str) -> bool:
    """Whether an environment variable describes the job in which a process runs."""
    return name.startswith(("SLURM_", "SLURMD_")) and name != "SLURM_CONF"
