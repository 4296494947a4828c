"""Decisions of a run: which events follow from its state, and which actions it waits for.

Both are pure functions. An action is carried out only after the events that make it due are on the
disk; after a crash the same state makes the same actions due, with the same names and tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from zlib import crc32

from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.workflows.pipelines.run.actions import (
    Action,
    FindResult,
    Follow,
    Launch,
    LookUpPrices,
    MakePlan,
    Move,
    Release,
    Send,
    Stop,
)
from jupyter_sky.workflows.pipelines.run.cluster_state import ClusterPhase
from jupyter_sky.workflows.pipelines.run.events import Event, Kind
from jupyter_sky.workflows.pipelines.run.outlook import spent_usd
from jupyter_sky.workflows.pipelines.run.room import Room
from jupyter_sky.workflows.pipelines.run.state import RunState, fold
from jupyter_sky.workflows.pipelines.run.task_state import UNFINISHED, Phase, TaskState
from jupyter_sky.workflows.pipelines.run.triggers import find_causes, next_trigger, wants_prices

FIRST_DELAY, LONGEST_DELAY = 10.0, 600.0
"""Seconds before the first new try after a loss, and the longest time between two."""
GATHER_SECONDS = 2.0
"""Time for which refusals are gathered before the next plan is made."""


def decide(state: RunState, now: float, run: str) -> tuple[RunState, list[Event]]:
    """Return the state after all that follows from it, and the events that lead there.

    Parameters
    ----------
    state
        Of the run.
    now
        Unix time.
    run
        Name of the run, of which tokens are made.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
    >>> state, events = decide(RunState.begin(RunGraph([RunTask("a")])), 0.0, "r")
    >>> [str(event.kind) for event in events], due_actions(state, 0.0)
    (['ready'], [FindResult(task='a', attempts=0)])
    """
    decided: list[Event] = []
    # clusters last: a task may call for a plan that changes them
    while events := [*_decide_tasks(state, now)] or [*_decide_clusters(state, now, run)]:
        decided += events
        state = fold(state, events)
    return state, decided


def _decide_tasks(state: RunState, now: float) -> Iterator[Event]:
    if state.fail_fast and state.has_failed and not state.cancelled:
        yield Event(Kind.CANCEL, "", now)
        return
    for name in state.ready:
        if state.cancelled:
            yield Event(Kind.CANCELLED, name, now)
        elif bad := state.bad_producer(name):
            yield Event(Kind.SKIPPED, name, now, {"reason": bad})
        elif not state.paused:
            yield Event(Kind.READY, name, now)
    for name in state.by_phase[Phase.JUDGED]:
        yield _judge(state, name, state.tasks[name], now)
    for name in state.by_phase[Phase.DELAYED]:
        if state.cancelled:
            yield Event(Kind.CANCELLED, name, now)
        elif state.tasks[name].until <= now:
            yield Event(Kind.RETRIED, name, now)
    if state.cancelled:
        for phase in (Phase.PLACING, Phase.MOVING):
            for name in state.by_phase[phase]:
                yield Event(Kind.CANCELLED, name, now)
    yield from _place(state, now)
    unplaced = any(name not in state.placement for name in state.by_phase[Phase.PLACING])
    yield from _decide_plans(state, unplaced, now)


def _place(state: RunState, now: float) -> Iterator[Event]:
    """Give the room of clusters to the tasks that wait for it, in their order."""
    if state.cancelled or state.paused:
        return
    room, full = Room(state), set[str]()
    for name in state.by_phase[Phase.PLACING]:
        cluster = state.placement.get(name)
        if cluster is None or cluster in full:
            continue
        if room.take(name):
            is_batched = state.graph.tasks[name].is_batched
            yield Event(Kind.PLACED, name, now, {"without_move": True} if is_batched else {})
        elif room.is_full(cluster):
            full.add(cluster)


def _decide_plans(state: RunState, unplaced: bool, now: float) -> Iterator[Event]:
    """Decide whether another plan is made, and whether the budget is used up."""
    if state.cancelled or state.limit:
        return
    budget = state.budget_usd
    if budget is not None and state.is_active and spent_usd(state, now) > budget:
        reason = _("the budget of {usd} is used up").format(usd=format_usd(budget))
        yield Event(Kind.LIMIT_REACHED, "", now, {"reason": reason})
    elif state.plan_at is None:
        causes = find_causes(state, now)
        if unplaced or causes:
            causes = [*state.troubles, *causes]
            delay = GATHER_SECONDS if state.plans else 0.0
            yield Event(Kind.PLAN_WANTED, "", now, {"until": now + delay, "causes": causes})


def _judge(state: RunState, name: str, task: TaskState, now: float) -> Event:
    """Decide whether a task whose attempt did not end well is tried again."""
    rules = state.graph.tasks[name]
    if state.limit:
        return Event(Kind.GIVEN_UP, name, now, {"reason": state.limit})
    if state.cancelled:
        return Event(Kind.CANCELLED, name, now)
    if task.errors > rules.retries or task.losses > rules.losses:
        return Event(Kind.GIVEN_UP, name, now, {"reason": task.reason})
    tries = task.errors + task.losses
    delay = min(FIRST_DELAY * 2 ** (tries - 1), LONGEST_DELAY)
    spread = crc32(f"{name}/{tries}".encode()) / 2**32  # not all at once, and the same again
    return Event(Kind.RETRY_LATER, name, now, {"until": now + delay * (0.75 + spread / 2)})


def _decide_clusters(state: RunState, now: float, run: str) -> Iterator[Event]:
    # a plan that is about to change launches nothing
    if not (state.cancelled or state.paused or state.limit or state.plan_at is not None):
        for name in sorted(_wanted_clusters(state)):
            cluster = state.clusters.get(name)
            number = cluster.launches + 1 if cluster else 1
            data = {"token": f"{run}/{name}/{number}", "offer": state.offers[name]}
            yield Event(Kind.CLUSTER_WANTED, name, now, data)
    up = {name for name, one in state.clusters.items() if one.phase is ClusterPhase.UP}
    busy = _clusters_with_work(state, up)
    for name, cluster in state.clusters.items():
        if name in up and name not in busy:
            yield Event(Kind.DRAINED, name, now, {"token": cluster.token})


def _wanted_clusters(state: RunState) -> set[str]:
    """Return the clusters to launch: a task waits for them."""
    gone = {
        name
        for name in state.offers
        if (known := state.clusters.get(name)) is None or known.phase is ClusterPhase.GONE
    }
    return gone and gone.intersection(map(state.placement.get, state.by_phase[Phase.PLACING]))


def _clusters_with_work(state: RunState, clusters: Set[str]) -> set[str]:
    """Return those of some clusters to which a plan gives a task that has not ended."""
    phases = (Phase.SENDING, Phase.RUNNING) if state.cancelled else UNFINISHED[::-1]
    found: set[str] = set()
    for name in (name for phase in phases for name in state.by_phase[phase]):
        if len(found) == len(clusters):
            break
        if (cluster := state.placement.get(name, "")) in clusters:
            found.add(cluster)
    return found


def due_actions(state: RunState, now: float) -> list[Action]:
    """Return the actions that a run waits for; none is new while nothing changes.

    Parameters
    ----------
    state
        After `decide`.
    now
        Unix time.
    """
    actions: list[Action] = []
    if state.plan_at is not None and state.plan_at <= now and not state.cancelled:
        actions.append(MakePlan(state.plans, state, now))
    if wants_prices(state, now) and not state.cancelled:
        offers = {n: o for n, o in state.offers.items() if n not in state.clusters}
        actions.append(LookUpPrices(state.priced_at, offers))
    for name, cluster in state.clusters.items():
        if cluster.phase is ClusterPhase.LAUNCHING:
            actions.append(Launch(name, cluster.token, cluster.offer))
        elif cluster.phase is ClusterPhase.DRAINING:
            actions.append(Release(name, cluster.token))
    for name in state.by_phase[Phase.LOOKING_UP]:
        actions.append(FindResult(name, state.tasks[name].attempts))
    for phase, usual in _ON_CLUSTERS.items():
        kind = Stop if usual is Follow and (state.cancelled or state.limit) else usual
        for name in state.by_phase[phase]:
            cluster = state.placement[name]
            known = state.clusters[cluster]
            more = (known.offer,) if kind is Send else ()
            actions.append(kind(name, cluster, known.token, state.tasks[name].attempts, *more))
    return actions


_ON_CLUSTERS = {Phase.MOVING: Move, Phase.SENDING: Send, Phase.RUNNING: Follow}


def next_time(state: RunState, now: float) -> float | None:
    """Return the Unix time at which something follows without an event; None where nothing does."""
    times = [state.tasks[name].until for name in state.by_phase[Phase.DELAYED]]
    if state.plan_at is not None:
        times.append(state.plan_at)
    if (trigger := next_trigger(state, now)) is not None:
        times.append(trigger)
    return min(times, default=None)
