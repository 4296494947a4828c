"""Values that the queue, the controller and the handle of a bag share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class JobState(StrEnum):
    """State of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """Enough others had succeeded, or too many failed."""
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether no further attempt is made."""
        return self not in (JobState.QUEUED, JobState.RUNNING)


class End(StrEnum):
    """Reason why a bag has ended."""

    DONE = "done"
    """Every job has ended, or as many have succeeded as were needed."""
    FAILED = "failed"
    """Too many jobs have failed for as many to succeed as are needed."""
    ALL_FAIL = "all fail"
    """The first jobs have all failed: the others would, too."""
    CANCELLED = "cancelled"
    BUDGET = "budget"
    """The budget is used up; jobs that have not run stay in the queue."""
    DEADLINE = "deadline"
    """The deadline has passed; jobs that have not run stay in the queue."""
    NO_MACHINES = "no machines"
    """No machine can be had, or the last one was lost for good."""


@dataclass(frozen=True, slots=True)
class BagSettings:
    """What was asked of a bag, in values of JSON.

    Attributes
    ----------
    app
        Name of the function, or the command.
    kind
        ``function``, ``command`` or ``cell``.
    options
        Options of the machines, as ``%%sky`` has them.
    machines
        Number of machines; None to let the bag decide.
    per_machine
        Jobs that run at once on each.
    needed
        Jobs that must succeed; None for as many as do.
    deadline
        Seconds from the begin; None without one.
    budget
        USD that it may cost; None without a limit.
    retries
        Further attempts of a job after an error of its own.
    timeout
        Seconds that an attempt may take; None without a limit.
    idempotent
        Whether a job may run twice at a time, so that a straggler is raced by a copy.
    recover
        Whether attempts go on with what they have saved by `checkpointed`, on another machine.
    size
        Name of the parameter that jobs of more work have more of; the longest begin first.
    notebook
        That has begun it.
    slurm
        Further options of ``sbatch`` where the Slurm of this machine runs it; None for clouds.
    explore
        Whether types of machines are measured first, and the cheapest runs the rest.
    """

    app: str
    kind: str
    options: str = ""
    machines: int | None = None
    per_machine: int = 1
    needed: int | None = None
    deadline: float | None = None
    budget: float | None = None
    retries: int = 0
    timeout: float | None = None
    idempotent: bool = True
    recover: bool = False
    size: str = ""
    notebook: str = ""
    slurm: str | None = None
    explore: bool = False


@dataclass(frozen=True, slots=True)
class OpenJob:
    """Job that has not ended, as its controller holds it.

    Attributes
    ----------
    number
        Its place in the bag, from 0.
    parameters
        Its values.
    attempts
        Attempts that were begun.
    failures
        Attempts that ended with an error of its own.
    deaths
        Attempts that ended with the process that ran it alone.
    losses
        Attempts that ended with their machine.
    """

    number: int
    parameters: Mapping[str, Any]
    attempts: int = 0
    failures: int = 0
    deaths: int = 0
    losses: int = 0

    @property
    def is_suspect(self) -> bool:
        """Whether it may have ended the process that ran it, and is sent alone."""
        return self.deaths + self.losses > 0


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Outcome of one attempt, as its machine reports it.

    Attributes
    ----------
    number
        Of the job.
    value
        Pickled result; None where it failed.
    summary
        Result as JSON, where it is short and can be; else empty.
    error
        Line that names the exception; empty where it succeeded.
    seconds
        That it took.
    output
        Text that it printed, shortened in the middle.
    rank
        Of the node that ran it.
    """

    number: int
    value: bytes | None
    summary: str = ""
    error: str = ""
    seconds: float = 0.0
    output: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class JobChange:
    """Change of a job that is stored.

    Attributes
    ----------
    job
        The job after it, with its new counts.
    state
        Its new state.
    outcome
        Of the attempt that has ended; None where it was lost, returned or not begun.
    machine
        Place of the machine.
    usd
        Cost of the attempt.
    reason
        Why it failed, or is queued again.
    """

    job: OpenJob
    state: JobState
    outcome: JobOutcome | None = None
    machine: str = ""
    usd: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BagCounts:
    """Number of jobs in each state.

    Examples
    --------
    >>> BagCounts(queued=1, succeeded=3).total
    4
    """

    queued: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """Number of jobs."""
        return self.open + self.succeeded + self.failed + self.skipped + self.cancelled

    @property
    def open(self) -> int:
        """Number of jobs that have not ended."""
        return self.queued + self.running

    def by_state(self) -> dict[str, int]:
        """Return the numbers by state, without the states that no job has.

        Examples
        --------
        >>> BagCounts(queued=1, succeeded=3).by_state()
        {'queued': 1, 'succeeded': 3}
        """
        numbers = {state.value: getattr(self, state.value) for state in JobState}
        return {state: number for state, number in numbers.items() if number}
