"""Controller of a run: stores what happens, decides what follows, has it carried out.

It holds nothing that is not in the journal: killed at any point, another goes on. What a decision
makes due is carried out only when the decision is on the disk, under names by which the world knows
what it was asked before.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_sky.base.remote.processes import identity
from jupyter_sky.workflows.pipelines.model.graph import RunTask
from jupyter_sky.workflows.pipelines.run.actions import (
    Action,
    FindResult,
    Launch,
    LookUpPrices,
    MakePlan,
    Release,
    World,
)
from jupyter_sky.workflows.pipelines.run.decisions import decide, due_actions, next_time
from jupyter_sky.workflows.pipelines.run.events import Event
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import RunState, fold

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
