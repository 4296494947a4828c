"""Applications of bags: a function, a shell command or a cell, called with a job's parameters.

They travel to machines as they are, and run there by `call`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.calls.lazy_calls import Function

PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_]\w*)\}")
"""Name of a parameter in a command: ``{lr}``, and not ``${HOME}``."""
_KILL_SECONDS = 5.0
"""Time for a command to end after it was asked to."""


@dataclass(frozen=True, slots=True)
class FunctionApp:
    """Function that is called with the parameters of a job by their names."""

    function: Callable[..., Any]
    kind: ClassVar[str] = "function"

    @property
    def name(self) -> str:
        """Its name."""
        return getattr(self.function, "__qualname__", None) or repr(self.function)

    def call(self, parameters: Mapping[str, Any]) -> Any:
        """Return its value."""
        return self.function(**parameters)


class CommandFailed(RuntimeError):
    """A command has ended with another code than 0."""


@dataclass(frozen=True, slots=True)
class CommandApp:
    """Shell command: a job's parameters stand in for ``{name}``, quoted, and are variables.

    Examples
    --------
    >>> CommandApp("simulate --lr {lr} --out {name}").fill({"lr": 0.1, "name": "a b"})
    "simulate --lr 0.1 --out 'a b'"
    """

    command: str
    kind: ClassVar[str] = "command"

    @property
    def name(self) -> str:
        """The command."""
        return self.command

    def fill(self, parameters: Mapping[str, Any]) -> str:
        """Return the command of a job."""

        def value(match: re.Match[str]) -> str:
            name = match[1]
            return shlex.quote(_as_text(parameters[name])) if name in parameters else match[0]

        return PLACEHOLDER.sub(value, self.command)

    def call(self, parameters: Mapping[str, Any]) -> Any:
        """Run it; return the JSON of the last line that it prints, if that is some, else nothing.

        Raises
        ------
        CommandFailed
            It has ended with another code than 0.
        """
        variables = {name: _as_text(value) for name, value in parameters.items()}
        process = subprocess.Popen(
            ["/bin/sh", "-c", self.fill(parameters)],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # it is stopped together with what it has started
            # the line to the process manager of an MPI program that this is a rank of
            pass_fds=[int(os.environ["PMI_FD"])] if "PMI_FD" in os.environ else (),
        )
        last = ""
        try:
            assert process.stdout is not None
            for line in process.stdout:
                sys.stdout.write(line)
                last = line.strip() or last
            code = process.wait()
        except BaseException:
            _stop(process)
            raise
        if code:
            text = _("the command ended with code {code}").format(code=code)
            raise CommandFailed(f"{text}: {last}" if last else text)
        return _read_value(last)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read_value(line: str) -> Any:
    """Return the value in the last line of a command; None where it is no JSON."""
    with suppress(ValueError):
        return json.loads(line)
    return None


def _stop(process: subprocess.Popen[str]) -> None:
    """End a command and what it has started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
            return


@dataclass(frozen=True, slots=True)
class CellApp:
    r"""Code of a cell, executed with a job's parameters as variables.

    Attributes
    ----------
    code
        Of the cell.
    outputs
        Variables that a job brings back; without any, the value of the last expression.
    inputs
        Variables of the notebook that all jobs read.

    Examples
    --------
    >>> CellApp("x = n * base\nx + 1", inputs={"base": 10}).call({"n": 2})
    21
    >>> CellApp("x = n * 2\ny = 0", ("x",)).call({"n": 2})
    {'x': 4}
    """

    code: str
    outputs: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    kind: ClassVar[str] = "cell"

    @property
    def name(self) -> str:
        """The first line of the cell."""
        return self.code.strip().partition("\n")[0]

    def call(self, parameters: Mapping[str, Any]) -> Any:
        """Execute it; return a dict of its outputs, or the value of its last expression."""
        import ast

        tree = ast.parse(self.code)
        last = None
        if not self.outputs and tree.body and isinstance(tree.body[-1], ast.Expr):
            last = ast.Expression(tree.body.pop().value)  # type: ignore[attr-defined]
        names: dict[str, Any] = {"__name__": "__main__", **self.inputs, **parameters}
        exec(compile(tree, "<cell>", "exec"), names)
        if last is not None:
            return eval(compile(last, "<cell>", "eval"), names)
        return {name: names[name] for name in self.outputs} or None


App = FunctionApp | CommandApp | CellApp


def make_app(app: Any) -> App:
    """Return the application of a function, a lazy function or a command.

    Raises
    ------
    SkyUsageError
        It is none of these, or the command is empty.

    Examples
    --------
    >>> make_app("ls {folder}").name
    'ls {folder}'
    """
    if isinstance(app, FunctionApp | CommandApp | CellApp):
        return app
    if isinstance(app, str):
        if not app.strip():
            raise SkyUsageError(
                _("a bag with an empty command"), hint=_('such as "simulate --seed {seed}"')
            )
        return CommandApp(app.strip())
    if isinstance(app, Function):
        return FunctionApp(app.local)
    if not callable(app):
        raise SkyUsageError(
            _("a {kind} cannot be run by a bag").format(kind=type(app).__name__),
            hint=_("a function, or a shell command as text"),
        )
    return FunctionApp(app)


def pickle_app(app: App, around: Mapping[str, Any]) -> bytes:
    """Return an application and what belongs to its machines as bytes.

    Raises
    ------
    SkyUsageError
        It cannot be pickled.
    """
    import cloudpickle

    try:
        return cloudpickle.dumps((app, dict(around)))
    except Exception as error:
        raise SkyUsageError(
            _("{app} cannot be sent: {error}").format(app=app.name, error=error),
            hint=_("make what it reads inside it, or pass it as a parameter"),
        ) from error


# -- Values that the queue, the controller and the handle of a bag share --------------------------


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
