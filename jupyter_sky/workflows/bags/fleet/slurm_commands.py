"""Options of ``sbatch`` for a bag, and the meaning of the ends of its jobs."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import replace

from jupyter_sky.base.errors import SkyNodeLost, SkyTaskLost, SkyUsageError
from jupyter_sky.base.remote.slurm import LOST, SlurmJob, job_options
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _


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
    found = job_options(
        resources.nodes,
        resources.cpus.value if resources.cpus is not None else None,
        resources.memory.value if resources.memory is not None else None,
        resources.gpu,
        resources.gpu_count,
        timeout,
    )
    try:
        return [*found, *shlex.split(more)]
    except ValueError as error:
        raise SkyUsageError(_("--sbatch {text}: {error}").format(text=more, error=error)) from None


def end_error(number: str, found: SlurmJob | None, printed: str) -> BaseException:
    """Return the error of a job that has ended without a result.

    Parameters
    ----------
    found
        Its last state; None where Slurm has forgotten it.
    printed
        Last line that it has printed.

    Examples
    --------
    >>> type(end_error("7", SlurmJob("7", "NODE_FAIL"), "")).__name__
    'SkyNodeLost'
    >>> print(end_error("7", SlurmJob("7", "TIMEOUT", "TimeLimit"), ""))
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
