"""Look-up of the results of tasks, before any of them runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from jupyter_sky.base.errors import (
    SkyError,
)
from jupyter_sky.workflows.pipelines.model.graph import (
    RunGraph,
)
from jupyter_sky.workflows.pipelines.model.kept_results import Claims, KeptResults, RunResults
from jupyter_sky.workflows.pipelines.model.reuse import Freshness, Reuse
from jupyter_sky.workflows.pipelines.notebook.conditions import TaskCondition
from jupyter_sky.workflows.pipelines.run.state import Event, Kind
from jupyter_sky.workflows.pipelines.run.stored_inputs import (
    fetched,
)

_CLAIM_SECONDS = 0.5
"""Time between two looks at a result that another run makes."""


class ResultLookup:
    """Look-up of results: of this run, of earlier ones, and of those that others make.

    Parameters
    ----------
    results
        Values of the tasks.
    kept
        Results of all runs.
    claims
        On the results that the run is about to make.
    is_fresh
        Whether no kept result is taken.
    """

    def __init__(
        self,
        graph: RunGraph,
        results: RunResults,
        kept: KeptResults,
        claims: Claims,
        reuse: Reuse,
        is_fresh: bool,
    ) -> None:
        self._graph, self._results, self._kept = graph, results, kept
        self._claims, self._reuse, self._is_fresh = claims, reuse, is_fresh

    async def find(self, task: str) -> Event:
        """Look for the result of a task; wait while another run makes it."""
        while True:
            [event] = await asyncio.to_thread(self.find_together, [task])
            if not event.data.get("maker"):
                return event
            await asyncio.sleep(_CLAIM_SECONDS)

    def find_together(self, tasks: Sequence[str]) -> list[Event]:
        """Look for results in one transaction."""
        with suppress(OSError, SkyError):  # what cannot be asked for runs
            self._reuse.bring_shared(tasks)
        events = self._results.together(
            lambda: [self._find_result(task) for task in tasks], durable=False
        )
        if any(event.kind is not Kind.NO_RESULT for event in events):
            self._results.sync()  # values that others are about to read
        return events

    def _find_result(self, task: str) -> Event:
        """Look for the result of a task in this run, and for a kept one of an earlier run.

        One whose condition does not hold has its defaults for a result.
        """
        if condition := self._graph.tasks[task].body.get("condition"):
            try:
                if why := self._decline(task, TaskCondition.from_json(condition)):
                    return Event(Kind.DECLINED, task, time.time(), {"reason": why})
            except (OSError, SkyError) as error:
                return Event(Kind.GIVEN_UP, task, time.time(), {"reason": str(error)})
        if self._results.find(task) is not None:
            return Event(Kind.RESULT_FOUND, task, time.time())
        try:
            found = self._reuse.look_up(task)
        except (OSError, SkyError) as error:  # what cannot be found out runs
            return Event(Kind.NO_RESULT, task, time.time(), {"why": str(error)})
        if found.result is not None:
            return Event(Kind.RESULT_FOUND, task, time.time())
        return self._claim(task, found)

    def _claim(self, task: str, found: Freshness) -> Event:
        """Return the event that a task runs, or that another run is about to make its result."""
        none = Event(Kind.NO_RESULT, task, time.time(), {"why": found.why})
        if found.key is None or self._is_fresh:
            return none
        if maker := self._claims.claim(found.key, task):
            return replace(none, data={"maker": maker})
        if self._kept.find(found.key) is None:
            return none
        again = self._reuse.look_up(task)  # it was made between the look and the claim
        return none if again.result is None else Event(Kind.RESULT_FOUND, task, time.time())

    def _decline(self, task: str, condition: TaskCondition) -> str:
        """Keep the defaults of a task whose condition does not hold, and return why; else nothing.

        The same inputs are looked at after a crash, so that it is declined again.
        """
        if why := condition.find_unmet(self._load):
            self._results.save(task, condition.defaults)
        return why

    def _load(self, task: str, name: str) -> Any:
        """Return a value for the engine of another task; one in a store is fetched.

        A task that may fail, and has, gives None.
        """
        return fetched(self.load_handle(task, name))

    def load_handle(self, task: str, name: str) -> Any:
        """Return a value as `_load` does; the handle of one that lies in a store."""
        if self._graph.tasks[task].most_failures and self._results.find(task) is None:
            return None
        return self._results.load(task, name)
