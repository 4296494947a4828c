"""State of a run, a pure function of its events.

`fold` computes it; nothing else changes it. What is stored of a run is its graph and its events.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any, Self

from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.run.cluster_state import ClusterPhase, ClusterState
from jupyter_sky.workflows.pipelines.run.events import Event, Kind
from jupyter_sky.workflows.pipelines.run.task_state import (
    ACTIVE,
    ENDED_BADLY,
    FINAL,
    TASK_CHANGES,
    UNDER_WAY,
    UNFINISHED,
    Phase,
    TaskEstimate,
    TaskState,
)

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
