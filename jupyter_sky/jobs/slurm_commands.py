"""Commands of Slurm as calls: what is submitted, what its jobs are doing, and their end."""

from __future__ import annotations

import math
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..errors import SkyError, SkyNodeLost, SkyTaskLost, SkyUsageError
from ..resources import Resources
from ..translation import _

COMMAND_SECONDS = 60.0
"""Longest time that a command of Slurm may take."""
LOST = frozenset({"NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "REQUEUED", "REVOKED"})
"""States of jobs that ended with their nodes: they run again."""
OPEN = frozenset({"PENDING", "RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "RESIZING"})
"""States of jobs that have not ended."""


@dataclass(frozen=True, slots=True)
class SlurmState:
    """State of a job as ``squeue`` has it.

    Attributes
    ----------
    state
        ``PENDING``, ``RUNNING``, ``TIMEOUT`` and so on.
    reason
        Why it waits or has ended.
    nodes
        Nodes that it has or had.
    """

    state: str
    reason: str = ""
    nodes: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it has not ended."""
        return self.state in OPEN


class SlurmJobFailed(RuntimeError):
    """A job of Slurm has ended without a result."""


def check_slurm() -> None:
    """Raise SkyUsageError where there is no Slurm."""
    if shutil.which("sbatch") is None:
        raise SkyUsageError(
            _("--slurm: there is no sbatch on this machine"),
            hint=_("run it on a login node of the cluster, or leave --slurm out for clouds"),
        )


def batch_options(resources: Resources, timeout: float | None, more: str = "") -> list[str]:
    """Return the options of ``sbatch`` for the machines of a job.

    Parameters
    ----------
    resources
        Of each machine, and their number.
    timeout
        Longest time of an attempt, s; without, that of the partition holds.
    more
        Further options in Slurm's own words.

    Raises
    ------
    SkyUsageError
        Something is asked for that only clouds have, or the options cannot be split.

    Examples
    --------
    >>> batch_options(Resources.parse(cpus=4, memory=8, gpus="A100:2"), 90.0, "-p short")
    ['--cpus-per-task=4', '--mem=8192M', '--gres=gpu:A100:2', '--time=2', '-p', 'short']
    """
    rest = replace(
        resources,
        cpus=None,
        memory=None,
        gpu=None,
        gpu_count=0,
        gpu_at_least=False,
        nodes=1,
        spot=resources.spot or None,
    )
    flags = rest.command_line().split()[:1]
    if resources.gpu_form:
        flags.append(f"--gpus {resources.gpu}-{resources.gpu_form}")
    if flags:
        raise SkyUsageError(
            _("--slurm and {flag} cannot be given together").format(flag=flags[0]),
            hint=_('Slurm decides on the nodes: --sbatch "--partition short" and the like'),
        )
    found = []
    if resources.nodes > 1:
        found += [f"--nodes={resources.nodes}", "--ntasks-per-node=1"]
    if resources.cpus is not None:
        found.append(f"--cpus-per-task={math.ceil(resources.cpus.value)}")
    if resources.memory is not None:
        found.append(f"--mem={math.ceil(1024 * resources.memory.value)}M")
    if resources.gpu_count:
        kind = f"{resources.gpu}:" if resources.gpu else ""
        found.append(f"--gres=gpu:{kind}{math.ceil(resources.gpu_count)}")
    if timeout is not None:
        found.append(f"--time={math.ceil(timeout / 60)}")
    try:
        return [*found, *shlex.split(more)]
    except ValueError as error:
        raise SkyUsageError(_("--sbatch {text}: {error}").format(text=more, error=error)) from None


def run_command(*command: str, text: str | None = None) -> str:
    """Run a command of Slurm; return what it prints.

    Raises
    ------
    SkyError
        It has failed, with its own words.
    """
    try:
        ran = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=COMMAND_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SkyError(_("{command}: {error}").format(command=command[0], error=error)) from error
    if ran.returncode:
        told = (ran.stderr or ran.stdout).strip().splitlines() or [str(ran.returncode)]
        words = told[-1].removeprefix(f"{command[0]}: ").removeprefix("error: ")
        raise SkyError(_("{command}: {error}").format(command=command[0], error=words))
    return ran.stdout


def submit_batch(name: str, log: str, options: Sequence[str], script: str) -> str:
    """Submit a script; return the number of its job.

    Raises
    ------
    SkyError
        Slurm refuses it.
    """
    own = ["--parsable", "--no-requeue", f"--job-name={name}", f"--output={log}"]
    printed = run_command("sbatch", *own, *options, text=script)
    return printed.strip().split(";")[0]


def read_states(name: str) -> dict[str, SlurmState]:
    """Return the states of the jobs of a name, also of those that have ended lately."""
    form = "%A|%T|%r|%N"
    printed = run_command("squeue", f"--name={name}", "--states=all", "-h", "-o", form)
    rows = [line.split("|") for line in printed.splitlines()]
    return {row[0]: SlurmState(*row[1:4]) for row in rows if len(row) == 4}


def cancel_jobs(name: str = "", numbers: Iterable[str] = ()) -> None:
    """Cancel jobs by their numbers, or all of a name; one that has ended is no error."""
    found = [f"--name={name}"] if name else list(numbers)
    if found:
        run_command("scancel", "--quiet", *found)


def end_error(number: str, found: SlurmState | None, printed: str) -> BaseException:
    """Return the error of a job that has ended without a result.

    Parameters
    ----------
    found
        Its last state; None where Slurm has forgotten it.
    printed
        Last line that it has printed.

    Examples
    --------
    >>> type(end_error("7", SlurmState("NODE_FAIL"), "")).__name__
    'SkyNodeLost'
    >>> print(end_error("7", SlurmState("TIMEOUT", "TimeLimit"), ""))
    job 7 of Slurm ended as TIMEOUT
    """
    state = found.state if found else _("unknown")
    text = _("job {number} of Slurm ended as {state}").format(number=number, state=state)
    text = f"{text}: {printed}" if printed else text
    if found is not None and found.state in LOST:
        return SkyNodeLost(text)
    if found is not None and found.state in ("TIMEOUT", "CANCELLED", "DEADLINE"):
        return SlurmJobFailed(text)
    error = SkyTaskLost(text)  # out of memory, a segmentation fault: perhaps the job's fault
    error.is_at_fault = True
    return error
