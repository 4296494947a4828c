"""State of a task of a run, its changes by events, and what a plan expects of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from jupyter_sky.workflows.pipelines.run.events import Event, Kind


class Phase(StrEnum):
    """Phase of a task; each but the resting ones names the action that is under way."""

    WAITING = "waiting"
    """Its producers have not ended."""
    LOOKING_UP = "looking up"
    """Its stored result is looked for, before its first attempt and after each loss."""
    PLACING = "placing"
    """It waits for a plan or for its cluster."""
    MOVING = "moving"
    """Its inputs are brought to its cluster."""
    SENDING = "sending"
    """Its attempt is sent to the cluster."""
    RUNNING = "running"
    JUDGED = "judged"
    """Its attempt did not end well; whether it is tried again is decided next."""
    DELAYED = "delayed"
    """It is tried again later."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It was not begun since a producer did not end well, or its condition does not hold."""
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing more happens to the task."""
        return self in FINAL


FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED, Phase.CANCELLED})
UNFINISHED = tuple(phase for phase in Phase if phase not in FINAL)
ACTIVE = tuple(phase for phase in UNFINISHED if phase is not Phase.WAITING)
"""Phases of tasks that neither wait for producers nor have ended."""
ENDED_BADLY = FINAL - {Phase.SUCCEEDED}
UNDER_WAY = frozenset({Phase.MOVING, Phase.SENDING, Phase.RUNNING})
"""Phases in which a task is bound to its cluster."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """State of a task.

    Attributes
    ----------
    phase
        What happens to it.
    attempts, errors, losses
        Number of attempts, each on one cluster; of those that its code ended with an error; of
        those that its machine or a transfer ended.
    refusals
        Number of clusters that were refused while it waited for them.
    until
        Unix time at which a delayed task is tried again.
    reason
        Why it did not end well, or is tried again.
    hours, usd
        Time and money of the attempt that succeeded.
    stored
        Whether its result was found and nothing ran.
    why
        Why no kept result was taken; empty before it was looked for.
    unkept
        Why its result is not kept for later runs; empty where it is.
    declined
        Whether it is skipped since its own condition does not hold.
    begun_at
        Unix time at which its last attempt began; 0 before that.
    gb
        Size of its result, GB; None where it is not known.
    place
        Where its result lies, such as ``aws/us-east-1``; empty for where it ran.
    """

    phase: Phase = Phase.WAITING
    attempts: int = 0
    errors: int = 0
    losses: int = 0
    refusals: int = 0
    until: float = 0.0
    reason: str = ""
    hours: float = 0.0
    usd: float = 0.0
    stored: bool = False
    why: str = ""
    unkept: str = ""
    declined: bool = False
    begun_at: float = 0.0
    gb: float | None = None
    place: str = ""


SIZE_FACTOR = 2.0
"""A result has another size when it is so many times larger or smaller than was said."""


@dataclass(frozen=True, slots=True)
class TaskEstimate:
    """What a plan expects of a task on its offer.

    Attributes
    ----------
    hours
        Time of its work, with reading from and writing to stores.
    boot_hours
        Time until a new machine is ready.
    move_hours, move_usd
        Time until its inputs have come, and the price of its transfers.
    gb
        Size of its result, GB; None where nobody has said.
    """

    hours: float
    boot_hours: float = 0.0
    move_hours: float = 0.0
    move_usd: float = 0.0
    gb: float | None = None

    def is_resized(self, gb: float) -> bool:
        """Return whether a result of this many GB has another size than was said."""
        return bool(self.gb and not 1 / SIZE_FACTOR < gb / self.gb < SIZE_FACTOR)


TaskChange = Callable[[TaskState, Event], TaskState | None]


def _move(start: Phase, end: Phase) -> TaskChange:
    def change(task: TaskState, event: Event) -> TaskState | None:
        return replace(task, phase=end) if task.phase is start else None

    return change


def _advance(start: Phase, end: Phase) -> TaskChange:
    """Return a change of the attempt that an event names."""

    def change(task: TaskState, event: Event) -> TaskState | None:
        is_due = task.phase is start and _is_current(task, event)
        return replace(task, phase=end) if is_due else None

    return change


def _end_badly(count: str) -> TaskChange:
    """Return a change that counts an attempt which did not end well."""

    def change(task: TaskState, event: Event) -> TaskState | None:
        if not _is_current(task, event):
            return None
        return replace(
            task,
            phase=Phase.JUDGED,
            reason=event.data.get("reason", ""),
            **{count: getattr(task, count) + 1},
        )

    return change


def _is_current(task: TaskState, event: Event) -> bool:
    """Whether an event is about the attempt that is under way."""
    return task.phase in UNDER_WAY and event.data["attempt"] == task.attempts


def _succeed(task: TaskState, event: Event) -> TaskState | None:
    if not _is_current(task, event):
        return None
    return replace(task, phase=Phase.SUCCEEDED, reason="", **_facts(event))


def _facts(event: Event) -> dict[str, Any]:
    names = ("hours", "usd", "unkept", "gb", "place")
    return {name: event.data[name] for name in names if name in event.data}


def _find(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.LOOKING_UP:
        return None
    is_kept = not task.attempts
    return replace(task, phase=Phase.SUCCEEDED, stored=is_kept, reason="", **_facts(event))


def _find_none(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.LOOKING_UP:
        return None
    return replace(task, phase=Phase.PLACING, why=event.data.get("why", ""))


def _begin(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.SENDING or not _is_current(task, event):
        return None
    return replace(task, phase=Phase.RUNNING, begun_at=event.at)


def _decline(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.LOOKING_UP:
        return None
    return replace(task, phase=Phase.SKIPPED, declined=True, reason=event.data["reason"])


def _place(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.PLACING:
        return None
    phase = Phase.SENDING if event.data.get("without_move") else Phase.MOVING
    return replace(task, phase=phase, attempts=task.attempts + 1)


def _return(task: TaskState, event: Event) -> TaskState | None:
    return replace(task, phase=Phase.PLACING) if _is_current(task, event) else None


def _delay(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.JUDGED:
        return None
    return replace(task, phase=Phase.DELAYED, until=event.data["until"])


def _end(phase: Phase) -> TaskChange:
    def change(task: TaskState, event: Event) -> TaskState | None:
        if task.phase.is_final:
            return None
        return replace(task, phase=phase, reason=event.data.get("reason", task.reason))

    return change


TASK_CHANGES: Mapping[Kind, TaskChange] = {
    Kind.READY: _move(Phase.WAITING, Phase.LOOKING_UP),
    Kind.RESULT_FOUND: _find,
    Kind.NO_RESULT: _find_none,
    Kind.DECLINED: _decline,
    Kind.PLACED: _place,
    Kind.MOVED: _advance(Phase.MOVING, Phase.SENDING),
    Kind.NOT_MOVED: _end_badly("losses"),
    Kind.BEGUN: _begin,
    Kind.SUCCEEDED: _succeed,
    Kind.FAILED: _end_badly("errors"),
    Kind.LOST: _end_badly("losses"),
    Kind.RETURNED: _return,
    Kind.STOPPED: _end(Phase.CANCELLED),
    Kind.RETRY_LATER: _delay,
    Kind.RETRIED: _move(Phase.DELAYED, Phase.LOOKING_UP),
    Kind.GIVEN_UP: _end(Phase.FAILED),
    Kind.SKIPPED: _end(Phase.SKIPPED),
    Kind.CANCELLED: _end(Phase.CANCELLED),
}
