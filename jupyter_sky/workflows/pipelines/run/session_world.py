"""World of a run whose tasks are cells of a session: its clusters, engines and store of runs.

A launch is known by the name of its cluster, an attempt by the name of its cell: what was asked for
before is found again, also by another process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import (
    SkyStoreError,
)
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.knowledge import tracker
from jupyter_sky.workflows.pipelines.model.graph import (
    RunGraph,
    RunTask,
)
from jupyter_sky.workflows.pipelines.model.kept_results import (
    Claims,
    KeptResults,
    RunResults,
    TaskResult,
)
from jupyter_sky.workflows.pipelines.model.reuse import Reuse
from jupyter_sky.workflows.pipelines.model.task_body import TaskBody
from jupyter_sky.workflows.pipelines.notebook.cell_body import CellBody
from jupyter_sky.workflows.pipelines.notebook.cell_runs import (
    CellRuns,
)
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
from jupyter_sky.workflows.pipelines.run.attempts import Attempts
from jupyter_sky.workflows.pipelines.run.batches import Batches
from jupyter_sky.workflows.pipelines.run.replanning import (
    look_up_prices,
)
from jupyter_sky.workflows.pipelines.run.result_lookup import ResultLookup
from jupyter_sky.workflows.pipelines.run.run_clusters import RunClusters
from jupyter_sky.workflows.pipelines.run.run_storage import open_shared
from jupyter_sky.workflows.pipelines.run.state import Event, Kind


class SessionWorld:
    """Clusters, engines and results of a session.

    Parameters
    ----------
    session
        Whose clusters are used; they are named after the run.
    results
        Values of the tasks.
    kept
        Results of all runs.
    claims
        On the results that the run is about to make.
    """

    def __init__(
        self, session: Session, results: RunResults, kept: KeptResults, claims: Claims
    ) -> None:
        self._session, self._results, self._kept = session, results, kept
        self._claims = claims
        self._run, self._graph = "", RunGraph([])
        self._assemble(Reuse(self._graph, kept, "", results), {}, CellRuns(session))

    def prepare(self, run: str, graph: RunGraph, settings: Mapping[str, Any]) -> None:
        """Load a run before its actions are performed."""
        self._run, self._graph = run, graph
        for task, data in settings.get("taken", {}).items():  # of a run of a part
            if self._results.find(task) is None:
                self._results.adopt(task, TaskResult.from_json(data))
        origin, is_fresh = settings.get("origin", ""), settings.get("fresh", False)
        shared = open_shared(self._session.config, self._kept)
        reuse = Reuse(graph, self._kept, origin, self._results, is_fresh, shared=shared)
        # notebooks change their folder; what the run names is relative to that where it was begun
        folder = settings.get("folder")  # runs of older versions have none
        cells = CellRuns(self._session, Path(folder) if folder else None)
        self._assemble(reuse, settings, cells)

    def _assemble(self, reuse: Reuse, settings: Mapping[str, Any], cells: CellRuns) -> None:
        session, graph, results = self._session, self._graph, self._results
        self._clusters = RunClusters(session, graph, settings)
        is_fresh = bool(settings.get("fresh"))
        self._lookup = ResultLookup(graph, results, self._kept, self._claims, reuse, is_fresh)
        load = self._lookup.load_handle
        self._attempts = Attempts(session, self._run, graph, cells, results, reuse, load)
        self._batches = Batches(session, cells, self._run, graph, results, self._kept, reuse)

    async def perform(self, action: Action, task: RunTask | None) -> Sequence[Event]:
        """Carry out an action and return what became of it."""
        match action:
            case MakePlan():
                return [await asyncio.to_thread(self._clusters.plan, action.residual)]
            case LookUpPrices():
                return [await asyncio.to_thread(look_up_prices, action.offers, _price_now)]
            case FindResult(task=name):
                return [await self._lookup.find(name)]
            case Launch():
                return [await asyncio.to_thread(self._clusters.launch, action)]
            case Move(task=name):  # data are brought with the cell
                return [Event(Kind.MOVED, name, time.time())]
            case Send() | Follow() if task is not None and task.is_batched:
                return (await self.perform_together([action]))[action]
            case Send():
                assert task is not None
                return [await asyncio.to_thread(self._attempts.send, action, _read_body(task.body))]
            case Follow():
                return [await self._attempts.follow(action)]
            case Stop():
                return [await self._attempts.stop(action)]
            case Release():
                return [await asyncio.to_thread(self._clusters.release, action)]

    def together(self, actions: Sequence[Action]) -> Iterable[Sequence[Action]]:
        """Return actions in groups: looks for results, and what cells of several tasks hold."""
        groups: dict[Hashable, list[Action]] = {}
        for action in actions:
            key: Hashable = action
            if isinstance(action, FindResult):
                key = FindResult
            elif isinstance(action, Send | Follow) and self._graph.tasks[action.task].is_batched:
                is_send = isinstance(action, Send)
                key = Send if is_send else self._batches.cell_of(action)
            groups.setdefault(key, []).append(action)
        return groups.values()

    async def perform_together(self, actions: Sequence[Action]) -> Mapping[Action, Sequence[Event]]:
        """Carry out a group of `together`; return what became of each action.

        The results that another run is making are left out, and waited for one by one.
        """
        if looks := [each.task for each in actions if isinstance(each, FindResult)]:
            events = await asyncio.to_thread(self._lookup.find_together, looks)
        elif sent := [each for each in actions if isinstance(each, Send)]:
            events = await asyncio.to_thread(self._batches.send, sent)
        else:
            followed = [each for each in actions if isinstance(each, Follow)]
            events = await self._batches.follow(followed)
        done = zip(actions, events, strict=True)
        return {action: [event] for action, event in done if not event.data.get("maker")}


def _price_now(offer: Offer) -> float | None:
    """Return the last price of a spot machine that the tracker has seen, USD/h."""
    with suppress(SkyStoreError):  # what is remembered helps; it is not needed
        found = tracker.current().price(offer, time.time())
        return found.usd if found else None
    return None


def _read_body(data: Mapping[str, Any]) -> TaskBody | CellBody:
    kind = CellBody if data["kind"] == "cell" else TaskBody
    return kind.from_json(data)
