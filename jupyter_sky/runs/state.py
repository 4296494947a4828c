"""State of a run, a pure function of its events.

`fold` computes it; nothing else changes it. What is stored of a run is its graph and its events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from .events import Event, Kind
from .graph import RunGraph

BLOCK_SECONDS = 1800.0
"""Time for which a place that refused is left out of plans."""


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
        return self in _FINAL


_FINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED, Phase.CANCELLED})
_ENDED_BADLY = _FINAL - {Phase.SUCCEEDED}
_UNDER_WAY = frozenset({Phase.MOVING, Phase.SENDING, Phase.RUNNING})
"""Phases in which a task is bound to its cluster."""


class ClusterPhase(StrEnum):
    """Phase of a cluster that a run has launched."""

    LAUNCHING = "launching"
    UP = "up"
    DRAINING = "draining"
    """It is being released."""
    GONE = "gone"


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
    """

    phase: Phase = Phase.WAITING
    attempts: int = 0
    errors: int = 0
    losses: int = 0
    until: float = 0.0
    reason: str = ""
    hours: float = 0.0
    usd: float = 0.0
    stored: bool = False
    why: str = ""
    unkept: str = ""
    declined: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """State of a cluster.

    Attributes
    ----------
    phase
        What happens to it.
    token
        By which the cloud knows its launch, so that a launch is never made twice.
    launches
        Number of launches under its name.
    offer
        What is launched; values of JSON.
    """

    phase: ClusterPhase
    token: str
    launches: int = 1
    offer: Any = None


@dataclass(slots=True)
class RunState:
    """State of a run, as its controller and those who look at it read it.

    Attributes
    ----------
    graph
        What is carried out.
    tasks, clusters
        States by name.
    active
        Names of the tasks that neither wait for producers nor have ended, in order of arrival.
    placement
        Cluster of each task by the last plan; a task that has none waits for the next plan.
    offers
        Offer of each cluster by the last plan, values of JSON.
    refused
        Unix time until which each place is left out of plans.
    plans
        Number of plans made.
    plan_at
        Unix time at which the next plan is due; None where none is.
    cancelled, paused, fail_fast
        What a user asked for.
    has_failed
        Whether a task has failed for good.
    """

    graph: RunGraph
    tasks: dict[str, TaskState]
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    active: dict[str, None] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)
    unfinished_producers: dict[str, int] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    offers: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)
    plans: int = 0
    plan_at: float | None = None
    cancelled: bool = False
    paused: bool = False
    fail_fast: bool = False
    has_failed: bool = False

    @classmethod
    def begin(cls, graph: RunGraph) -> Self:
        """Return the state of a run to which nothing has happened.

        Examples
        --------
        >>> from .graph import RunTask
        >>> list(RunState.begin(RunGraph([RunTask("a"), RunTask("b", ("a",))])).ready)
        ['a']
        """
        counts = {name: len(set(task.after)) for name, task in graph.tasks.items()}
        return cls(
            graph,
            {name: TaskState() for name in graph.tasks},
            ready={name: None for name, count in counts.items() if not count},
            unfinished_producers=counts,
        )

    @property
    def is_over(self) -> bool:
        """Whether every task has ended and every cluster is gone."""
        return (
            not self.active
            and not self.ready
            and all(task.phase.is_final for task in self.tasks.values())
            and all(cluster.phase is ClusterPhase.GONE for cluster in self.clusters.values())
        )

    def bad_producer(self, task: str) -> str:
        """Return a producer of a task that did not end well; empty where all did."""
        producers = self.graph.tasks[task].after
        return next((name for name in producers if self.is_in_the_way(name, task)), "")

    def is_in_the_way(self, producer: str, consumer: str) -> bool:
        """Return whether the end of a producer keeps a consumer from running."""
        task = self.tasks[producer]
        is_replaced = task.declined and producer in self.graph.tasks[consumer].optional
        return task.phase in _ENDED_BADLY and not is_replaced

    def copy(self) -> RunState:
        """Return a state that changes apart from this one."""
        return replace(
            self,
            tasks=dict(self.tasks),
            clusters=dict(self.clusters),
            active=dict(self.active),
            ready=dict(self.ready),
            unfinished_producers=dict(self.unfinished_producers),
            placement=dict(self.placement),
            offers=dict(self.offers),
            refused=dict(self.refused),
        )


def fold(state: RunState, events: Iterable[Event]) -> RunState:
    """Return the state after events; the given one is left as it is.

    Parameters
    ----------
    state
        Before them.
    events
        In the order in which they were stored. An event about a task or an attempt that has ended
        changes nothing: late answers are harmless.

    Examples
    --------
    >>> from .graph import RunTask
    >>> state = RunState.begin(RunGraph([RunTask("a")]))
    >>> fold(state, [Event(Kind.READY, "a")]).tasks["a"].phase
    <Phase.LOOKING_UP: 'looking up'>
    """
    after = state.copy()
    for event in events:
        if event.kind in _OF_TASKS:
            task = after.tasks.get(event.subject)
            changed = task and _OF_TASKS[event.kind](task, event)
            if task is not None and changed is not None and changed is not task:
                _set_task(after, event.subject, changed)
        elif event.kind in _OF_CLUSTERS:
            _OF_CLUSTERS[event.kind](after, event)
        else:
            _OF_RUNS[event.kind](after, event)
    return after


def _set_task(state: RunState, name: str, task: TaskState) -> None:
    state.tasks[name] = task
    state.ready.pop(name, None)
    if not task.phase.is_final:
        state.active.setdefault(name)
        return
    state.active.pop(name, None)
    state.has_failed |= task.phase is Phase.FAILED
    for consumer in state.graph.consumers[name]:
        state.unfinished_producers[consumer] -= 1
        bad = state.is_in_the_way(name, consumer)
        if (bad or not state.unfinished_producers[consumer]) and (
            state.tasks[consumer].phase is Phase.WAITING
        ):
            state.ready.setdefault(consumer)


_TaskChange = Callable[[TaskState, Event], TaskState | None]


def _move(start: Phase, end: Phase) -> _TaskChange:
    def change(task: TaskState, event: Event) -> TaskState | None:
        return replace(task, phase=end) if task.phase is start else None

    return change


def _advance(start: Phase, end: Phase) -> _TaskChange:
    """Return a change of the attempt that an event names."""

    def change(task: TaskState, event: Event) -> TaskState | None:
        is_due = task.phase is start and _is_current(task, event)
        return replace(task, phase=end) if is_due else None

    return change


def _end_badly(count: str) -> _TaskChange:
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
    return task.phase in _UNDER_WAY and event.data["attempt"] == task.attempts


def _succeed(task: TaskState, event: Event) -> TaskState | None:
    if not _is_current(task, event):
        return None
    facts = {name: event.data[name] for name in ("hours", "usd", "unkept") if name in event.data}
    return replace(task, phase=Phase.SUCCEEDED, reason="", **facts)


def _find(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.LOOKING_UP:
        return None
    return replace(task, phase=Phase.SUCCEEDED, stored=not task.attempts, reason="")


def _find_none(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.LOOKING_UP:
        return None
    return replace(task, phase=Phase.PLACING, why=event.data.get("why", ""))


def _decline(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.LOOKING_UP:
        return None
    return replace(task, phase=Phase.SKIPPED, declined=True, reason=event.data["reason"])


def _place(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.PLACING:
        return None
    return replace(task, phase=Phase.MOVING, attempts=task.attempts + 1)


def _delay(task: TaskState, event: Event) -> TaskState | None:
    if task.phase is not Phase.JUDGED:
        return None
    return replace(task, phase=Phase.DELAYED, until=event.data["until"])


def _end(phase: Phase) -> _TaskChange:
    def change(task: TaskState, event: Event) -> TaskState | None:
        if task.phase.is_final:
            return None
        return replace(task, phase=phase, reason=event.data.get("reason", task.reason))

    return change


_OF_TASKS: Mapping[Kind, _TaskChange] = {
    Kind.READY: _move(Phase.WAITING, Phase.LOOKING_UP),
    Kind.RESULT_FOUND: _find,
    Kind.NO_RESULT: _find_none,
    Kind.DECLINED: _decline,
    Kind.PLACED: _place,
    Kind.MOVED: _advance(Phase.MOVING, Phase.SENDING),
    Kind.NOT_MOVED: _end_badly("losses"),
    Kind.BEGUN: _advance(Phase.SENDING, Phase.RUNNING),
    Kind.SUCCEEDED: _succeed,
    Kind.FAILED: _end_badly("errors"),
    Kind.LOST: _end_badly("losses"),
    Kind.STOPPED: _end(Phase.CANCELLED),
    Kind.RETRY_LATER: _delay,
    Kind.RETRIED: _move(Phase.DELAYED, Phase.LOOKING_UP),
    Kind.GIVEN_UP: _end(Phase.FAILED),
    Kind.SKIPPED: _end(Phase.SKIPPED),
    Kind.CANCELLED: _end(Phase.CANCELLED),
}


def _want_cluster(state: RunState, event: Event) -> None:
    before = state.clusters.get(event.subject)
    launches = before.launches + 1 if before else 1
    state.clusters[event.subject] = ClusterState(
        ClusterPhase.LAUNCHING, event.data["token"], launches, event.data["offer"]
    )


def _move_cluster(start: ClusterPhase, end: ClusterPhase) -> _ClusterChange:
    def change(state: RunState, event: Event) -> None:
        cluster = state.clusters[event.subject]
        if cluster.phase is start and cluster.token == event.data["token"]:
            state.clusters[event.subject] = replace(cluster, phase=end)

    return change


def _refuse_cluster(state: RunState, event: Event) -> None:
    _end_cluster(state, event)
    if place := event.data.get("place", ""):
        state.refused[place] = event.at + BLOCK_SECONDS


def _end_cluster(state: RunState, event: Event) -> None:
    """End a cluster: tasks that it holds lose their attempt, and all need another place."""
    cluster = state.clusters[event.subject]
    if cluster.phase is ClusterPhase.GONE or cluster.token != event.data["token"]:
        return
    state.clusters[event.subject] = replace(cluster, phase=ClusterPhase.GONE)
    for name in [name for name, placed in state.placement.items() if placed == event.subject]:
        task = state.tasks[name]
        if task.phase.is_final:
            continue
        del state.placement[name]
        if task.phase in _UNDER_WAY:
            reason = event.data.get("reason", "")
            _set_task(
                state,
                name,
                replace(task, phase=Phase.JUDGED, losses=task.losses + 1, reason=reason),
            )


_ClusterChange = Callable[[RunState, Event], None]
_OF_CLUSTERS: Mapping[Kind, _ClusterChange] = {
    Kind.CLUSTER_WANTED: _want_cluster,
    Kind.LAUNCHED: _move_cluster(ClusterPhase.LAUNCHING, ClusterPhase.UP),
    Kind.REFUSED: _refuse_cluster,
    Kind.CLUSTER_LOST: _end_cluster,
    Kind.DRAINED: _move_cluster(ClusterPhase.UP, ClusterPhase.DRAINING),
    Kind.RELEASED: _move_cluster(ClusterPhase.DRAINING, ClusterPhase.GONE),
}


def _plan(state: RunState, event: Event) -> None:
    for name, cluster in event.data["clusters"].items():
        if state.tasks[name].phase not in (_UNDER_WAY | _FINAL):  # those stay where they are
            state.placement[name] = cluster
    state.offers.update(event.data["offers"])
    state.plans, state.plan_at = state.plans + 1, None


def _fail_to_plan(state: RunState, event: Event) -> None:
    state.plans, state.plan_at = state.plans + 1, None
    for name in list(state.active):
        task = state.tasks[name]
        if task.phase is Phase.PLACING and name not in state.placement:
            _set_task(state, name, replace(task, phase=Phase.FAILED, reason=event.data["reason"]))


def _want_plan(state: RunState, event: Event) -> None:
    state.plan_at = event.data["until"]


def _cancel(state: RunState, event: Event) -> None:
    state.cancelled = True


def _fail_fast(state: RunState, event: Event) -> None:
    state.fail_fast = True


def _pause(state: RunState, event: Event) -> None:
    state.paused = event.kind is Kind.PAUSE


_OF_RUNS: Mapping[Kind, Callable[[RunState, Event], None]] = {
    Kind.PLANNED: _plan,
    Kind.NO_PLAN: _fail_to_plan,
    Kind.PLAN_WANTED: _want_plan,
    Kind.CANCEL: _cancel,
    Kind.PAUSE: _pause,
    Kind.RESUME: _pause,
    Kind.FAIL_FAST: _fail_fast,
}
