"""Controller of a run: stores what happens, decides what follows, has it carried out.

It holds nothing that is not in the journal: killed at any point, another goes on. What a decision
makes due is carried out only when the decision is on the disk, under names by which the world knows
what it was asked before.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Any
from zlib import crc32

from jupyter_sky.base.remote.processes import identity
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.workflows.pipelines.model.graph import RunTask
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
    World,
)
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.outlook import Room, forecast, is_held, spent_usd
from jupyter_sky.workflows.pipelines.run.state import (
    UNDER_WAY,
    UNFINISHED,
    ClusterPhase,
    Event,
    Kind,
    Phase,
    RunState,
    TaskState,
    fold,
)

WISH_SECONDS = 0.5
"""Time between two looks at what users wish."""


class Controller:
    """Carries out one run.

    Parameters
    ----------
    journal
        Of the user's runs.
    name
        Of the run, which is in the journal.
    world
        What carries out its actions.
    clock
        Unix time.
    at_point
        Called between any two steps that outlast this process; for tests that end it there.
    """

    def __init__(
        self,
        journal: RunJournal,
        name: str,
        world: World,
        clock: Callable[[], float] = time.time,
        at_point: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._journal, self._name, self._world = journal, name, world
        self._clock, self._at_point = clock, at_point
        self._under_way: dict[Action, asyncio.Task[None]] = {}
        self._happened: list[Event] = []
        self._news = asyncio.Event()
        self._error: BaseException | None = None
        self._epoch = 0

    async def run(self) -> RunState:
        """Carry the run out, from wherever it stands, and return its last state.

        Raises
        ------
        SkyRunTaken
            Another controller has taken it over; nothing more is done here.
        SkyStoreError
            The journal cannot be written; what runs goes on and nothing new begins.
        """
        recorded = self._journal.read(self._name)
        self._epoch = self._journal.take_over(self._name, identity())
        self._world.prepare(self._name, recorded.graph, recorded.settings)
        state = fold(RunState.begin(recorded.graph), self._journal.events(self._name))
        try:
            return await self._carry_out(state)
        finally:
            under_way = set(self._under_way.values())
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _carry_out(self, state: RunState) -> RunState:
        happened: list[Event] = []
        while True:
            state = self._record(fold(state, happened), happened)
            if state.is_over:
                return state
            now = self._clock()
            due = [each for each in due_actions(state, now) if each not in self._under_way]
            for group in self._world.together(due):
                self._start(group, state)
            happened = await self._wait(next_time(state, now))

    def _record(self, state: RunState, happened: list[Event]) -> RunState:
        """Store what happened and what follows from it; return the state after that."""
        while True:
            state, decided = decide(state, self._clock(), self._name)
            happened = [*happened, *decided]
            if not happened and not self._journal.has_wishes(self._name):
                return state
            self._at_point("before the journal")
            wishes = self._journal.append(self._name, self._epoch, happened)
            self._at_point("after the journal")
            if not wishes:
                return state
            state, happened = fold(state, wishes), []

    def _start(self, group: Sequence[Action], state: RunState) -> None:
        for action in group:
            self._at_point(f"before {type(action).__name__}")
        task = asyncio.create_task(self._perform(group, state))
        task.add_done_callback(self._notice_error)
        self._under_way |= dict.fromkeys(group, task)

    async def _perform(self, group: Sequence[Action], state: RunState) -> None:
        outcomes: Mapping[Action, Sequence[Event]]
        if len(group) > 1:
            outcomes = await self._world.perform_together(group)
        else:
            outcomes = {group[0]: await self._world.perform(group[0], _task_of(group[0], state))}
        for action in group:
            if action not in outcomes:
                self._start([action], state)
                continue
            self._at_point(f"after {type(action).__name__}")
            self._happened += [_mark(event, action) for event in outcomes[action]]
            del self._under_way[action]
        self._news.set()

    def _notice_error(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = error
            self._news.set()

    async def _wait(self, until: float | None) -> list[Event]:
        """Wait for outcomes, a time, or a wish; return what happened.

        A world that raises ends the controller, and not the run: another can go on with it.
        """
        timeout = WISH_SECONDS if until is None else min(WISH_SECONDS, until - self._clock())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), max(timeout, 0.0))
        self._news.clear()
        if self._error is not None:
            raise self._error
        happened, self._happened = self._happened, []
        return happened


def _task_of(action: Action, state: RunState) -> RunTask | None:
    if isinstance(action, MakePlan | LookUpPrices | Launch | Release):
        return None
    return state.graph.tasks[action.task]


def _mark(event: Event, action: Action) -> Event:
    """Return an event with the attempt and the launch that it is about."""
    if isinstance(action, MakePlan | LookUpPrices | FindResult):
        return event
    marks: dict[str, Any] = {"token": action.token}
    if not isinstance(action, Launch | Release):
        marks["attempt"] = action.attempt
    return Event(event.kind, event.subject, event.at, {**event.data, **marks})


# -- Decisions of a run: which events follow from its state, and which actions it waits for -------
#
# Both are pure functions. An action is carried out only after the events that make it due are on
# the disk; after a crash the same state makes the same actions due, with the same names and tokens.

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


# -- Triggers of another plan while a run goes on: pure functions of its state and the time -------
#
# A refusal or a loss leaves tasks without a cluster, which `runs.decisions` sees by itself. Those
# here are forced (the deadline or the budget is in danger) or not (a task runs for too long or has
# taken another time, a result has another size, a price has risen): then the plan changes only
# where that gains enough. Each cause has a key, for which a plan is made once.

OVERRUN_SHARE, OVERRUN_SECONDS = 1.5, 600.0
"""A task runs for too long from so many times its estimate on, and so much time more than that."""
ENDED_SHARE = 0.1
"""A task has ended sooner or later than planned from such a share of its estimate on."""
PRICE_FACTOR = 1.2
"""A price has risen when it is so many times that of the plan."""
REVIEW_SECONDS = 600.0
"""Least time between two plans that nothing forced."""
BUDGET_SHARE = 0.8
"""Share of the budget at which the rest is planned anew."""
SLACK_SHARE = 0.01
"""Share of the time to the deadline by which the end must move for another forced plan."""

Cause = dict[str, Any]


def find_causes(state: RunState, now: float) -> list[Cause]:
    """Return why another plan is to be made now; empty where nothing calls for one.

    Parameters
    ----------
    state
        Of the run.
    now
        Unix time.
    """
    if not state.estimates or state.limit or not _movable(state):
        return []
    causes = [*_forced(state, now), *_ended(state)]
    if now >= state.reviewed_at + REVIEW_SECONDS:
        causes += _unforced(state, now)
    return [one for one in causes if one["key"] not in state.handled]


def _movable(state: RunState) -> bool:
    """Whether a task could still go elsewhere."""
    return any(
        not is_held(state, name)
        for phase in UNFINISHED
        if phase not in UNDER_WAY
        for name in state.by_phase[phase]
    )


def _forced(state: RunState, now: float) -> Iterator[Cause]:
    if state.deadline_at is None and state.budget_usd is None:
        return
    ended = sum(task.phase.is_final for task in state.tasks.values())
    outlook = forecast(state, now)
    if state.deadline_at is not None and outlook.finish_at > state.deadline_at + _EPSILON_SECONDS:
        late = outlook.finish_at - state.deadline_at
        doubled = int(math.log2(1 + late / _slack(state)))  # not each second that it moves
        key = f"deadline/{ended}/{doubled}"
        yield {"kind": "deadline", "key": key, "seconds": late}
    budget = state.budget_usd
    if budget is None:
        return
    if outlook.spent_usd >= BUDGET_SHARE * budget:
        yield {"kind": "budget", "key": "budget", "usd": outlook.spent_usd, "budget": budget}
    elif outlook.usd > budget * (1 + SLACK_SHARE):
        key = f"budget/{ended}"
        yield {"kind": "budget", "key": key, "usd": outlook.usd, "budget": budget}


def _ended(state: RunState) -> Iterator[Cause]:
    """Yield the tasks whose time was another than planned, where the rest has a limit to keep."""
    if state.deadline_at is None and state.budget_usd is None:
        return
    for name, task in state.tasks.items():
        planned = state.estimates[name].hours if name in state.estimates else 0.0
        is_over = task.phase is Phase.SUCCEEDED and not task.stored and planned > 0
        if is_over and abs(task.hours / planned - 1) >= ENDED_SHARE:
            facts = {"seconds": task.hours * 3600, "planned": planned * 3600}
            yield {"kind": "ended", "key": f"ended/{name}", "task": name, **facts}


_EPSILON_SECONDS = 1.0


def _slack(state: RunState) -> float:
    """Return seconds by which the expected end must move for another plan, at least one."""
    begun = min((one.since for one in state.clusters.values()), default=0.0)
    assert state.deadline_at is not None
    return max((state.deadline_at - begun) * SLACK_SHARE, 1.0)


def _unforced(state: RunState, now: float) -> Iterator[Cause]:
    for name in state.by_phase[Phase.RUNNING]:
        if (estimate := state.estimates.get(name)) and now >= _overrun_at(state, name):
            task = state.tasks[name]
            key = f"overrun/{name}/{task.attempts}"
            facts = {"seconds": now - task.begun_at, "planned": estimate.hours * 3600}
            yield {"kind": "overrun", "key": key, "task": name, **facts}
    for name, planned_gb in state.resized.items():
        facts = {"gb": state.tasks[name].gb, "planned": planned_gb}
        yield {"kind": "size", "key": f"size/{name}", "task": name, **facts}
    yield from _risen_prices(state)


def wants_prices(state: RunState, now: float) -> bool:
    """Whether prices of clusters that are not launched yet are to be looked up."""
    return now >= state.priced_at + REVIEW_SECONDS and _has_varying_prices(state)


def _has_varying_prices(state: RunState) -> bool:
    varying = {
        cluster
        for cluster, offer in state.offers.items()
        if cluster not in state.clusters and offer.get("is_spot")
    }
    return bool(varying) and any(
        cluster in varying and not state.tasks[name].phase.is_final
        for name, cluster in state.placement.items()
    )


def _risen_prices(state: RunState) -> Iterator[Cause]:
    """Yield the prices of clusters not launched yet that have risen since the plan."""
    for cluster, price in state.prices.items():
        planned = state.offers[cluster].get("usd_h", 0.0)
        if cluster not in state.clusters and planned and price >= PRICE_FACTOR * planned:
            key = f"price/{cluster}/{price:.4g}"
            facts = {"cluster": cluster, "usd_h": price, "planned": planned}
            yield {"kind": "price", "key": key, **facts}


def _overrun_at(state: RunState, name: str) -> float:
    """Return the Unix time from which a running task has run for too long."""
    planned = state.estimates[name].hours * 3600
    return state.tasks[name].begun_at + max(OVERRUN_SHARE * planned, planned + OVERRUN_SECONDS)


def next_trigger(state: RunState, now: float) -> float | None:
    """Return the Unix time at which a plan may be called for without an event; None for never."""
    if not state.estimates or state.limit or state.plan_at is not None:
        return None
    times: list[float] = []
    for name in state.by_phase[Phase.RUNNING]:
        if name in state.estimates:
            times.append(max(_overrun_at(state, name), state.reviewed_at + REVIEW_SECONDS))
    if _has_varying_prices(state):
        times.append(state.priced_at + REVIEW_SECONDS)
    if state.deadline_at is not None and state.is_active:
        times.append(now + _slack(state))
    if state.budget_usd is not None and state.is_active:
        times += _spending_times(state, now)
    return min((each for each in times if each > now), default=None)


def _spending_times(state: RunState, now: float) -> list[float]:
    """Return the times at which shares of the budget are spent if nothing changes."""
    live = [c for c in state.clusters.values() if c.phase is not ClusterPhase.GONE]
    rate = sum(cluster.usd_h for cluster in live)
    if not rate or state.budget_usd is None:
        return []
    spent = spent_usd(state, now)
    return [
        now + (share * state.budget_usd - spent) / rate * 3600 + 0.1 for share in (BUDGET_SHARE, 1)
    ]
