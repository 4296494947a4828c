"""Jobs on a machine: several of a bag, one after the other, each with its outcome."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from jupyter_sky.machines.engines.node.instance import instance_info
from jupyter_sky.workflows.bags.queue.application import (
    App,
    FunctionApp,
    JobOutcome,
)

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.group_restart import GroupKind


T = TypeVar("T")
Call = tuple[int, int, Mapping[str, Any]]
"""Number of a job, number of its attempt, its parameters."""
HEAD_CHARACTERS, TAIL_CHARACTERS = 16_000, 48_000
"""Characters of a job's output that are kept, from its begin and from its end."""
SUMMARY_CHARACTERS = 4_000
"""Length of the longest result that tables show without loading it."""


def run_jobs(app: App, calls: Sequence[Call], seconds: float) -> list[JobOutcome]:
    """Run jobs one after the other; return the outcomes of those that were begun.

    Parameters
    ----------
    app
        What each job calls.
    calls
        The jobs.
    seconds
        Time after which no further one begins; the first one begins in any case.

    Examples
    --------
    >>> from jupyter_sky.workflows.bags.queue.application import FunctionApp
    >>> app = FunctionApp(lambda x: {"y": 1 / x})
    >>> for outcome in run_jobs(app, [(0, 1, {"x": 2}), (1, 1, {"x": 0})], seconds=60):
    ...     print(outcome.number, outcome.summary or outcome.error)
    0 {"y": 0.5}
    1 ZeroDivisionError: division by zero
    """
    from jupyter_sky.machines.engines.node.instance import instance_info

    rank, began = instance_info().node, time.monotonic()
    outcomes: list[JobOutcome] = []
    for number, attempt, parameters in calls:
        if outcomes and time.monotonic() - began > seconds:
            break
        outcomes.append(_run_job(app, number, attempt, parameters, rank))
    return outcomes


def _run_job(
    app: App, number: int, attempt: int, parameters: Mapping[str, Any], rank: int
) -> JobOutcome:
    printed, start = _Output(), time.monotonic()
    value: bytes | None = None
    summary = error = ""
    try:
        _set_variables(number, attempt)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            result = app.call(parameters)
        value, summary = _pickle(result), _summary(result)
    except KeyboardInterrupt:  # the bag stops it
        raise
    except BaseException as raised:
        error = _name_error(raised, printed)
    seconds = time.monotonic() - start
    return JobOutcome(number, value, summary, error, seconds, printed.text, rank)


def _pickle(result: Any) -> bytes:
    import cloudpickle

    try:
        return cloudpickle.dumps(result)
    except Exception as error:
        raise TypeError(
            f"the result, a {type(result).__name__}, cannot be pickled: {error}"
        ) from error


def _name_error(raised: BaseException, printed: _Output) -> str:
    """Return the line that names an exception; its traceback is printed."""
    import traceback

    from jupyter_sky.workflows.bags.queue.application import CommandFailed

    if isinstance(raised, CommandFailed):  # what it has printed says more
        return str(raised)
    own = raised.__traceback__
    for _frame in range(2):  # of this file and of the app's caller
        own = own.tb_next if own is not None else None
    printed.write("".join(traceback.format_exception(type(raised), raised, own)))
    return "".join(traceback.format_exception_only(raised)).strip().splitlines()[-1]


def _set_variables(number: int, attempt: int) -> None:
    """Set the variables by which a job knows itself, also under the name that Slurm gives them."""
    os.environ["SKY_JOB_INDEX"] = os.environ["SLURM_ARRAY_TASK_ID"] = str(number)
    os.environ["SKY_ATTEMPT"] = str(attempt)


def _summary(result: Any) -> str:
    """Return a result as JSON, where that says all of it and is short; else nothing."""
    try:
        text = json.dumps(result, default=_plain)
    except (TypeError, ValueError, RecursionError):
        return ""
    return text if len(text) <= SUMMARY_CHARACTERS else ""


def _plain(value: Any) -> Any:
    """Return the number that a scalar of NumPy holds."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    raise TypeError(type(value).__name__)


class _Output(io.TextIOBase):
    """Text that a job prints: the begin and the end of it."""

    def __init__(self) -> None:
        self._head, self._tail, self._left_out = "", "", 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        room = HEAD_CHARACTERS - len(self._head)
        self._head, rest = self._head + text[: max(room, 0)], text[max(room, 0) :]
        if rest:
            self._tail += rest
            excess = len(self._tail) - TAIL_CHARACTERS
            if excess > TAIL_CHARACTERS:  # seldom, so that each character is moved once
                self._cut(excess)
        return len(text)

    def _cut(self, count: int) -> None:
        self._tail = self._tail[count:]
        self._left_out += count

    @property
    def text(self) -> str:
        """What was printed, with the number of characters that are left out."""
        if len(self._tail) > TAIL_CHARACTERS:
            self._cut(len(self._tail) - TAIL_CHARACTERS)
        gap = f"\n... {self._left_out} characters ...\n" if self._left_out else ""
        return self._head + gap + self._tail


class GangFailed(Exception):
    """A rank of a job has failed; the others are stopped, since they would wait for it.

    Attributes
    ----------
    outcome : JobOutcome
        Of this rank.
    """

    @property
    def outcome(self) -> JobOutcome:
        """Outcome of the rank."""
        return self.args[0]


@dataclass(frozen=True, slots=True)
class CommandWorld:
    """Plug-in that makes the commands which nodes run together one MPI world."""

    group: ClassVar[GroupKind] = "calls"
    """After a loss all of them begin again."""

    def around(self, call: Callable[[], T]) -> T:
        """Run a call whose commands find the others."""
        from jupyter_sky.execution.functions.plugins.mpi_world import start_pmi_server
        from jupyter_sky.execution.functions.plugins.rendezvous import SINGLE_NODE, broadcast_id

        name = broadcast_id()
        if not name or name == SINGLE_NODE:
            return call()
        info = instance_info()
        line = start_pmi_server(name)
        own = {"PMI_FD": line, "PMI_RANK": info.node, "PMI_SIZE": info.total_nodes}
        os.environ.update({key: str(value) for key, value in own.items()})
        try:
            return call()
        finally:
            for key in own:
                os.environ.pop(key, None)
            os.close(line)


def make_gang_runner(app: App) -> Callable[..., list[JobOutcome]]:
    """Return the function that all nodes of a group call; modules of the app travel with it."""

    def run(calls: Sequence[Call], seconds: float) -> list[JobOutcome]:
        outcomes = run_jobs(app, calls, seconds)
        if instance_info().total_nodes > 1:
            for outcome in outcomes:
                if outcome.error:
                    raise GangFailed(outcome)
        return outcomes

    if isinstance(app, FunctionApp):
        run.__module__ = getattr(app.function, "__module__", run.__module__)
    run.__qualname__ = app.name  # notices name it
    return run
