"""State of a run, a pure function of its events.

`fold` computes it; nothing else changes it. What is stored of a run is its graph and its events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from jupyter_sky.workflows.pipelines.model.graph import RunGraph

# -- State of a cluster that a run has launched ---------------------------------------------------


class ClusterPhase(StrEnum):
    """Phase of a cluster that a run has launched."""

    LAUNCHING = "launching"
    UP = "up"
    DRAINING = "draining"
    """It is being released."""
    GONE = "gone"


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
    since
        Unix time at which its last launch was wanted: from then on it is taken to cost money.
    """

    phase: ClusterPhase
    token: str
    launches: int = 1
    offer: Any = None
    since: float = 0.0

    @property
    def usd_h(self) -> float:
        """Price, USD/h; 0 where it is not known."""
        return (self.offer or {}).get("usd_h", 0.0)

    def cost(self, now: float) -> float:
        """Return USD that it has cost from when its launch was wanted until a Unix time."""
        return max(now - self.since, 0.0) / 3600 * self.usd_h


# -- Events of a run: the rows from which its state is computed -----------------------------------


class Kind(StrEnum):
    """Kinds of events; what each is about stands in `Event.subject`.

    Those of the second half are decided by the controller before it acts (`runs.decisions`), the
    others are told by the world or by a user. Those of an attempt carry its number as ``attempt``,
    those of a cluster the ``token`` of its launch: an answer that comes too late changes nothing.
    """

    # of the run
    PLANNED = "planned"
    """A plan was made: ``clusters`` of tasks and ``offers`` of clusters, each with ``slots`` and
    ``usd_h``; ``estimates`` of tasks, ``deadline_at`` and ``budget_usd`` where they are known;
    ``text`` on why it was made anew, what it changes and what that saves."""
    PLAN_KEPT = "plan kept"
    """Another plan was made and gains too little: ``text``."""
    NO_PLAN = "no plan"
    """No plan is possible: ``reason``, and ``tasks`` that cannot run; all unless given."""
    PRICES = "prices"
    """Prices of clusters that are not launched yet: ``usd_h`` by cluster."""
    CANCEL = "cancel"
    PAUSE = "pause"
    RESUME = "resume"
    FAIL_FAST = "fail fast"
    """The first task that fails for good cancels the run."""
    # of a task
    RESULT_FOUND = "result found"
    """Its result is in the store already."""
    NO_RESULT = "no result"
    """No kept result can be used: ``why``."""
    DECLINED = "declined"
    """Its condition does not hold: ``reason``."""
    MOVED = "moved"
    """Its inputs are where it will run: it is about to be sent."""
    NOT_MOVED = "not moved"
    """They could not be brought there: ``reason``."""
    BEGUN = "begun"
    """An engine has accepted the attempt."""
    SUCCEEDED = "succeeded"
    """Its result is stored: ``hours``, ``usd``, ``gb``, where it lies (``place``, such as
    ``aws/us-east-1``), and ``unkept`` where no later run may use it."""
    FAILED = "failed"
    """Its code raised: ``reason``."""
    LOST = "lost"
    """Its attempt ended with its machine: ``reason``."""
    RETURNED = "returned"
    """Its attempt was sent with others and not begun, as their time was over: it is sent again."""
    STOPPED = "stopped"
    """Its attempt was stopped for a user."""
    # of a cluster
    LAUNCHED = "launched"
    REFUSED = "refused"
    """Its place refused: ``reason``, ``place``, and for how long it is left out
    (``block_seconds``); ``is_final`` where no other place would take it either."""
    CLUSTER_LOST = "cluster lost"
    RELEASED = "released"

    # decided by the controller
    READY = "ready"
    """Its producers have ended well: look for a stored result."""
    SKIPPED = "skipped"
    """A producer did not end well: ``reason``."""
    CLUSTER_WANTED = "cluster wanted"
    """It is about to be launched: ``token``, ``offer``."""
    PLACED = "placed"
    """Its cluster is up and has room: its next attempt begins there, with its inputs; these come
    with it where it is ``without_move``."""
    RETRY_LATER = "retry later"
    """It waits until ``until`` (Unix seconds)."""
    RETRIED = "retried"
    GIVEN_UP = "given up"
    """It is not tried again: ``reason``."""
    CANCELLED = "cancelled"
    DRAINED = "drained"
    """Nothing more will run on the cluster: release it."""
    PLAN_WANTED = "plan wanted"
    """A plan is to be made at ``until`` (Unix seconds), for ``causes``, each with its ``key``."""
    LIMIT_REACHED = "limit reached"
    """The budget is used up: ``reason``. What runs is stopped, nothing more begins."""


REPEATED = frozenset({Kind.READY, Kind.NO_RESULT, Kind.BEGUN, Kind.SUCCEEDED})
"""Kinds that are told again if a power cut takes them back, as nothing outside follows from them.

What ended well is found by its result, which is on the disk before; what was begun by its attempt.
Their rows reach the disk with the next decision, before it is carried out."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a run.

    Attributes
    ----------
    kind
        What happened.
    subject
        Name of the task or cluster; empty for the run.
    at
        When, Unix seconds.
    data
        More about it, values of JSON.
    """

    kind: Kind
    subject: str = ""
    at: float = 0.0
    data: Mapping[str, Any] = field(default_factory=dict)


# -- State of a run, a pure function of its events ------------------------------------------------

BLOCK_SECONDS = 1800.0
"""Time for which a place that refused is left out of plans, unless the refusal says another."""

MOST_REFUSALS = 20
"""Refused clusters that a task survives."""
FORCING = frozenset({"refused", "lost", "deadline", "budget"})
"""Kinds of causes for which a plan must be made; for others it is made where that gains enough."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A place that is left out of plans.

    Attributes
    ----------
    until
        Unix time.
    offer
        What was asked for there; values of JSON.
    reason
        In the words of the place.
    """

    until: float
    offer: Any = None
    reason: str = ""


@dataclass(slots=True)
class RunState:
    """State of a run, as its controller and those who look at it read it.

    Attributes
    ----------
    graph
        What is carried out.
    tasks, clusters
        States by name.
    by_phase
        Names of the tasks that have not ended, by phase, in order of arrival.
    placement
        Cluster of each task by the last plan; a task that has none waits for the next plan.
    offers
        Offer of each cluster by the last plan, values of JSON.
    estimates
        What the last plan expects of each task.
    refused
        Places that are left out of plans.
    plans
        Number of plans made.
    plan_at
        Unix time at which the next plan is due; None where none is.
    troubles
        Refusals and losses since the last plan, as causes of the next one.
    causes
        Causes of the plan that is due.
    handled
        Keys of the causes for which a plan was made.
    reviewed_at
        Unix time of the last plan that nothing forced.
    usd
        USD that clusters which have ended have cost, and transfers of tasks that have begun.
    deadline_at, budget_usd
        Limits of the run: Unix time, USD; None for none.
    prices
        Prices of clusters not launched yet, USD/h, as they were looked up since the last plan.
    priced_at
        Unix time at which they are those of the plan, or were looked up.
    limit
        Which limit has ended the run; empty where none has.
    cancelled, paused, fail_fast
        What a user asked for.
    failures
        Number of tasks that have failed for good, by group.
    has_failed
        Whether a task has failed for good that may not.
    resized
        Size that was planned of each result which has another one, GB.
    batched
        Number and hours of the tasks that may be sent with others and ended well, by cluster.
    """

    graph: RunGraph
    tasks: dict[str, TaskState]
    clusters: dict[str, ClusterState] = field(default_factory=dict)
    by_phase: dict[Phase, dict[str, None]] = field(default_factory=dict)
    ready: dict[str, None] = field(default_factory=dict)
    unfinished_producers: dict[str, int] = field(default_factory=dict)
    placement: dict[str, str] = field(default_factory=dict)
    offers: dict[str, Any] = field(default_factory=dict)
    estimates: dict[str, TaskEstimate] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    plans: int = 0
    plan_at: float | None = None
    troubles: tuple[Mapping[str, Any], ...] = ()
    causes: tuple[Mapping[str, Any], ...] = ()
    handled: frozenset[str] = frozenset()
    reviewed_at: float = -math.inf
    usd: float = 0.0
    deadline_at: float | None = None
    budget_usd: float | None = None
    prices: dict[str, float] = field(default_factory=dict)
    priced_at: float = 0.0
    limit: str = ""
    cancelled: bool = False
    paused: bool = False
    fail_fast: bool = False
    failures: dict[str, int] = field(default_factory=dict)
    has_failed: bool = False
    resized: dict[str, float] = field(default_factory=dict)
    batched: dict[str, tuple[int, float]] = field(default_factory=dict)

    @classmethod
    def begin(cls, graph: RunGraph) -> Self:
        """Return the state of a run to which nothing has happened.

        Examples
        --------
        >>> from jupyter_sky.workflows.pipelines.model.graph import RunTask
        >>> list(RunState.begin(RunGraph([RunTask("a"), RunTask("b", ("a",))])).ready)
        ['a']
        """
        counts = {name: len(set(task.after)) for name, task in graph.tasks.items()}
        return cls(
            graph,
            {name: TaskState() for name in graph.tasks},
            by_phase={
                phase: dict.fromkeys(graph.tasks) if phase is Phase.WAITING else {}
                for phase in UNFINISHED
            },
            ready={name: None for name, count in counts.items() if not count},
            unfinished_producers=counts,
        )

    @property
    def is_over(self) -> bool:
        """Whether every task has ended and every cluster is gone."""
        return not any(self.by_phase.values()) and all(
            cluster.phase is ClusterPhase.GONE for cluster in self.clusters.values()
        )

    @property
    def is_active(self) -> bool:
        """Whether a task neither waits for producers nor has ended."""
        return any(self.by_phase[phase] for phase in ACTIVE)

    def bad_producer(self, task: str) -> str:
        """Return a producer of a task that did not end well; empty where all did."""
        producers = self.graph.tasks[task].after
        return next((name for name in producers if self.is_in_the_way(name, task)), "")

    def is_tolerated(self, name: str) -> bool:
        """Return whether a task has failed, and those that follow it run even so."""
        rules = self.graph.tasks[name]
        has_failed = self.tasks[name].phase is Phase.FAILED
        return has_failed and self.failures.get(rules.group, 0) <= rules.most_failures

    def is_in_the_way(self, producer: str, consumer: str) -> bool:
        """Return whether the end of a producer keeps a consumer from running."""
        task = self.tasks[producer]
        is_replaced = task.declined and producer in self.graph.tasks[consumer].optional
        is_bad = task.phase in ENDED_BADLY and not is_replaced
        return is_bad and not self.is_tolerated(producer)

    def may_be_batched(self, name: str) -> bool:
        """Return whether a task may be sent with others: no attempt of it has ended badly."""
        task = self.tasks[name]
        return self.graph.tasks[name].is_batched and not (task.errors or task.losses)

    def copy(self) -> RunState:
        """Return a state that changes apart from this one."""
        return replace(
            self,
            tasks=dict(self.tasks),
            clusters=dict(self.clusters),
            by_phase={phase: dict(names) for phase, names in self.by_phase.items()},
            ready=dict(self.ready),
            unfinished_producers=dict(self.unfinished_producers),
            placement=dict(self.placement),
            offers=dict(self.offers),
            estimates=dict(self.estimates),
            refused=dict(self.refused),
            failures=dict(self.failures),
            resized=dict(self.resized),
            batched=dict(self.batched),
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
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunTask
    >>> state = RunState.begin(RunGraph([RunTask("a")]))
    >>> fold(state, [Event(Kind.READY, "a")]).tasks["a"].phase
    <Phase.LOOKING_UP: 'looking up'>
    """
    after = state.copy()
    for event in events:
        apply_event(after, event)
    return after


def apply_event(state: RunState, event: Event) -> None:
    """Change a state by an event; `fold` leaves the given one as it is."""
    if event.kind in _OF_CLUSTERS:
        _OF_CLUSTERS[event.kind](state, event)
        return
    if event.kind not in TASK_CHANGES:
        _OF_RUNS[event.kind](state, event)
        return
    task = state.tasks.get(event.subject)
    changed = task and TASK_CHANGES[event.kind](task, event)
    if changed is None or changed is task:
        return
    if changed.phase is Phase.CANCELLED and state.limit:
        changed = replace(changed, phase=Phase.FAILED, reason=state.limit)
    if event.kind is Kind.PLACED and event.subject in state.estimates:
        state.usd += state.estimates[event.subject].move_usd
    _set_task(state, event.subject, changed)


def _set_task(state: RunState, name: str, task: TaskState) -> None:
    before, state.tasks[name] = state.tasks[name].phase, task
    state.ready.pop(name, None)
    if task.phase is not before:
        state.by_phase[before].pop(name)
    if not task.phase.is_final:
        state.by_phase[task.phase].setdefault(name)
        return
    if task.phase is Phase.SUCCEEDED and task.gb:
        estimate = state.estimates.get(name)
        if estimate and estimate.gb and estimate.is_resized(task.gb):
            state.resized[name] = estimate.gb
    if task.phase is Phase.SUCCEEDED and not task.stored and state.may_be_batched(name):
        cluster = state.placement.get(name, "")
        count, hours = state.batched.get(cluster, (0, 0.0))
        state.batched[cluster] = (count + 1, hours + task.hours)
    if task.phase is Phase.FAILED:
        group = state.graph.tasks[name].group
        state.failures[group] = state.failures.get(group, 0) + 1
        state.has_failed |= not state.is_tolerated(name)
    for consumer in state.graph.consumers[name]:
        state.unfinished_producers[consumer] -= 1
        bad = state.is_in_the_way(name, consumer)
        if (bad or not state.unfinished_producers[consumer]) and (
            state.tasks[consumer].phase is Phase.WAITING
        ):
            state.ready.setdefault(consumer)


def _want_cluster(state: RunState, event: Event) -> None:
    before = state.clusters.get(event.subject)
    launches = before.launches + 1 if before else 1
    state.clusters[event.subject] = ClusterState(
        ClusterPhase.LAUNCHING, event.data["token"], launches, event.data["offer"], event.at
    )


def _move_cluster(start: ClusterPhase, end: ClusterPhase) -> _ClusterChange:
    def change(state: RunState, event: Event) -> None:
        cluster = state.clusters[event.subject]
        if cluster.phase is start and cluster.token == event.data["token"]:
            state.clusters[event.subject] = replace(cluster, phase=end)
            if end is ClusterPhase.GONE:
                state.usd += cluster.cost(event.at)

    return change


def _refuse_cluster(state: RunState, event: Event) -> None:
    cluster = state.clusters[event.subject]
    _end_cluster(state, event)
    if place := event.data.get("place", ""):
        until = event.at + event.data.get("block_seconds", BLOCK_SECONDS)
        state.refused[place] = Refusal(until, cluster.offer, event.data.get("reason", ""))


def _end_cluster(state: RunState, event: Event) -> None:
    """End a cluster: tasks that it holds lose their attempt, and all need another place."""
    cluster = state.clusters[event.subject]
    if cluster.phase is ClusterPhase.GONE or cluster.token != event.data["token"]:
        return
    state.clusters[event.subject] = replace(cluster, phase=ClusterPhase.GONE)
    if event.kind is Kind.CLUSTER_LOST:
        state.usd += cluster.cost(event.at)
    trouble = {
        "kind": "refused" if event.kind is Kind.REFUSED else "lost",
        "cluster": event.subject,
        "reason": event.data.get("reason", ""),
    }
    state.troubles = (*state.troubles, trouble)
    for name in [name for name, placed in state.placement.items() if placed == event.subject]:
        task = state.tasks[name]
        if task.phase.is_final:
            continue
        del state.placement[name]
        reason = event.data.get("reason", "")
        if task.phase in UNDER_WAY:
            lost = replace(task, phase=Phase.JUDGED, losses=task.losses + 1, reason=reason)
            _set_task(state, name, lost)
        elif task.phase is Phase.PLACING and event.kind is Kind.REFUSED:
            refused = replace(task, refusals=task.refusals + 1)
            if event.data.get("is_final") or refused.refusals > MOST_REFUSALS:
                refused = replace(refused, phase=Phase.FAILED, reason=reason)
            _set_task(state, name, refused)


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
        if state.tasks[name].phase not in (UNDER_WAY | FINAL):  # those stay where they are
            state.placement[name] = cluster
    state.offers.update(event.data["offers"])
    estimates = event.data.get("estimates", {})
    state.estimates.update({name: TaskEstimate(**facts) for name, facts in estimates.items()})
    state.deadline_at = event.data.get("deadline_at")
    state.budget_usd = event.data.get("budget_usd")
    state.prices, state.priced_at = {}, event.at
    _end_planning(state)


def _note_prices(state: RunState, event: Event) -> None:
    state.prices, state.priced_at = dict(event.data["usd_h"]), event.at


def _keep_plan(state: RunState, event: Event) -> None:
    _end_planning(state)


def _end_planning(state: RunState) -> None:
    state.plans, state.plan_at = state.plans + 1, None
    state.troubles = tuple(one for one in state.troubles if one not in state.causes)
    state.causes = ()


def _fail_to_plan(state: RunState, event: Event) -> None:
    _end_planning(state)
    _fail_tasks(state, event.data.get("tasks", state.tasks), UNDER_WAY, event.data["reason"])


def _reach_limit(state: RunState, event: Event) -> None:
    state.limit = event.data["reason"]
    _fail_tasks(state, state.tasks, {Phase.SENDING, Phase.RUNNING}, state.limit)


def _fail_tasks(state: RunState, names: Iterable[str], spared: Set[Phase], reason: str) -> None:
    """Let tasks fail that have not ended and are in none of the spared phases."""
    for name in names:
        task = state.tasks[name]
        if not task.phase.is_final and task.phase not in spared:
            _set_task(state, name, replace(task, phase=Phase.FAILED, reason=reason))


def _want_plan(state: RunState, event: Event) -> None:
    causes = tuple(event.data.get("causes", ()))
    state.plan_at, state.causes = event.data["until"], causes
    state.handled |= {cause["key"] for cause in causes if "key" in cause}
    if causes and not any(cause["kind"] in FORCING for cause in causes):
        state.reviewed_at = event.at


def _cancel(state: RunState, event: Event) -> None:
    state.cancelled = True


def _fail_fast(state: RunState, event: Event) -> None:
    state.fail_fast = True


def _pause(state: RunState, event: Event) -> None:
    state.paused = event.kind is Kind.PAUSE


_OF_RUNS: Mapping[Kind, Callable[[RunState, Event], None]] = {
    Kind.PLANNED: _plan,
    Kind.PLAN_KEPT: _keep_plan,
    Kind.PRICES: _note_prices,
    Kind.LIMIT_REACHED: _reach_limit,
    Kind.NO_PLAN: _fail_to_plan,
    Kind.PLAN_WANTED: _want_plan,
    Kind.CANCEL: _cancel,
    Kind.PAUSE: _pause,
    Kind.RESUME: _pause,
    Kind.FAIL_FAST: _fail_fast,
}


# -- State of a task of a run, its changes by events, and what a plan expects of it ---------------


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
