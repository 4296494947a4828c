"""World of a run whose tasks are cells of a session: its clusters, engines and store of runs.

A launch is known by the name of its cluster, an attempt by the name of its cell: what was asked for
before is found again, also by another process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.errors import (
    SkyBudget,
    SkyCancelled,
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyPermission,
    SkyStoreError,
    SkyTimeout,
    SkyUnreachable,
    SkyUsageError,
)
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.execution.cells.earlier_run import EarlierRun
from jupyter_sky.execution.cells.run import SkyRun
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.knowledge import tracker
from jupyter_sky.machines.storage.stores.places import place_of
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, TaskResult
from jupyter_sky.workflows.pipelines.model.results import RunResults
from jupyter_sky.workflows.pipelines.model.reuse import Freshness, Reuse
from jupyter_sky.workflows.pipelines.model.task_body import Address, TaskBody, TaskCell
from jupyter_sky.workflows.pipelines.model.task_names import attempt_name, cluster_name
from jupyter_sky.workflows.pipelines.notebook.cell_body import CellBody
from jupyter_sky.workflows.pipelines.notebook.cell_outputs import output_text
from jupyter_sky.workflows.pipelines.notebook.cell_runs import CellRuns, end_of, hourly_price
from jupyter_sky.workflows.pipelines.notebook.conditions import TaskCondition
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
from jupyter_sky.workflows.pipelines.run.batches import Batches
from jupyter_sky.workflows.pipelines.run.claims import Claims
from jupyter_sky.workflows.pipelines.run.events import Event, Kind
from jupyter_sky.workflows.pipelines.run.outlook import Residual
from jupyter_sky.workflows.pipelines.run.placing import plan_graph
from jupyter_sky.workflows.pipelines.run.replanning import (
    RunProblem,
    first_event,
    look_up_prices,
    replan,
)
from jupyter_sky.workflows.pipelines.run.residual_graph import read_offer
from jupyter_sky.workflows.pipelines.run.run_storage import open_shared
from jupyter_sky.workflows.pipelines.run.stored_inputs import (
    fetch_stored,
    fetched,
    read_on_machine,
    result_address,
)


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
        self._reuse = Reuse(self._graph, kept, "", results)
        self._settings: Mapping[str, Any] = {}
        self._cells = CellRuns(session)
        self._make_batches()

    def prepare(self, run: str, graph: RunGraph, settings: Mapping[str, Any]) -> None:
        """Get to know the run whose actions are going to be asked for."""
        self._run, self._graph, self._settings = run, graph, settings
        for task, data in settings.get("taken", {}).items():  # of a run of a part
            if self._results.find(task) is None:
                self._results.adopt(task, TaskResult.from_json(data))
        origin, is_fresh = settings.get("origin", ""), settings.get("fresh", False)
        shared = open_shared(self._session.config, self._kept)
        self._reuse = Reuse(graph, self._kept, origin, self._results, is_fresh, shared=shared)
        # notebooks change their folder; what the run names is relative to that where it was begun
        folder = settings.get("folder")  # runs of older versions have none
        self._cells = CellRuns(self._session, Path(folder) if folder else None)
        self._make_batches()

    def _make_batches(self) -> None:
        self._batches = Batches(
            self._session,
            self._cells,
            self._run,
            self._graph,
            self._results,
            self._kept,
            self._reuse,
        )

    async def perform(self, action: Action, task: RunTask | None) -> Sequence[Event]:
        """Carry out an action and return what became of it."""
        match action:
            case MakePlan():
                return [await asyncio.to_thread(self._plan, action.residual)]
            case LookUpPrices():
                return [await asyncio.to_thread(look_up_prices, action.offers, _price_now)]
            case FindResult(task=name):
                return [await self._find(name)]
            case Launch():
                return [await asyncio.to_thread(self._launch, action)]
            case Move(task=name):  # data are brought with the cell
                return [Event(Kind.MOVED, name, time.time())]
            case Send() | Follow() if task is not None and task.is_batched:
                return (await self.perform_together([action]))[action]
            case Send():
                assert task is not None
                return [await asyncio.to_thread(self._send, action, _read_body(task.body))]
            case Follow():
                return [await self._follow(action)]
            case Stop():
                return [await self._stop(action)]
            case Release():
                return [await asyncio.to_thread(self._release, action)]

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
            events = await asyncio.to_thread(self._find_results, looks)
        elif sent := [each for each in actions if isinstance(each, Send)]:
            events = await asyncio.to_thread(self._batches.send, sent)
        else:
            followed = [each for each in actions if isinstance(each, Follow)]
            events = await self._batches.follow(followed)
        done = zip(actions, events, strict=True)
        return {action: [event] for action, event in done if not event.data.get("maker")}

    # -- clusters ------------------------------------------------------------------------------

    def _plan(self, left: Residual) -> Event:
        """Take the plan with which the run was begun; later plan what is left."""
        problem = RunProblem.from_text(self._settings["problem"])
        if not left.plans:
            plan = Plan.from_json(self._settings["plan"])
            return first_event(problem, self._graph, plan, left)
        return replan(problem, self._graph, left, plan_graph)

    def _launch(self, action: Launch) -> Event:
        name = cluster_name(action.token)
        clusters, known = self._session.clusters, self._session.store.cluster(name)
        if known is not None and known.state not in ("starting", "up"):
            return Event(Kind.REFUSED, action.cluster, time.time(), {"reason": "it has ended"})
        resources = parse_cell_line(action.offer["resources"]).resources
        request = ClusterRequest(resources, name, engine="spark" if resources.service else None)
        # without another cluster of its name nothing is shared, and launches go side by side
        start = clusters.obtain if known is not None else clusters.launch
        try:
            start(request, lambda stage, detail: None)
        except SkyError as error:
            return Event(Kind.REFUSED, action.cluster, time.time(), _refusal(error, action.offer))
        return Event(Kind.LAUNCHED, action.cluster, time.time())

    def _release(self, action: Release) -> Event:
        try:
            self._session.clusters.terminate(cluster_name(action.token))
        except SkyUsageError:
            pass  # it has ended
        return Event(Kind.RELEASED, action.cluster, time.time())

    # -- results -------------------------------------------------------------------------------

    async def _find(self, task: str) -> Event:
        """Look for the result of a task; wait while another run makes it."""
        while True:
            [event] = await asyncio.to_thread(self._find_results, [task])
            if not event.data.get("maker"):
                return event
            await asyncio.sleep(_CLAIM_SECONDS)

    def _find_results(self, tasks: Sequence[str]) -> list[Event]:
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
        if found.key is None or self._settings.get("fresh"):
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
        return fetched(self._load_handle(task, name))

    def _load_handle(self, task: str, name: str) -> Any:
        """Return a value as `_load` does; the handle of one that lies in a store."""
        if self._graph.tasks[task].most_failures and self._results.find(task) is None:
            return None
        return self._results.load(task, name)

    # -- attempts ------------------------------------------------------------------------------

    def _send(self, action: Send, body: TaskBody | CellBody) -> Event:
        name = self._attempt_name(action)
        if not self._cells.has(name):
            place = CellOptions(
                resources=parse_cell_line(action.offer["resources"]).resources,
                cluster=cluster_name(action.token),
                yes=True,
            )
            try:
                cell = body.as_cell(
                    action.task, f"_{name}", self._load_handle, self._address(name, place)
                )
                if runs_here(read_offer(action.offer).cloud):
                    cell = replace(cell, values=fetch_stored(cell.values))
                else:
                    cell = read_on_machine(cell)
                self._prepare(cell, place)
            except (SkyClusterLost, SkyUnreachable) as error:
                reason = {"reason": error.message}
                return Event(Kind.CLUSTER_LOST, action.cluster, time.time(), reason)
            except Exception as error:
                return self._failed(action, f"{type(error).__name__}: {error}")
            engine = "spark" if place.resources.service else cell.options.engine
            where = {"resources": place.resources, "cluster": place.cluster, "engine": engine}
            options = replace(cell.options, **where)
            self._cells.begin(name, cell.code, options, above=cell.above)
        return Event(Kind.BEGUN, action.task, time.time())

    def _address(self, attempt: str, place: CellOptions) -> Address | None:
        """Return where large values of an attempt go; None where they come here."""
        results, need = self._session.config.results, place.resources
        if not results or need.nodes > 1 or need.service:
            return None
        return result_address(results, self._run, attempt)

    def _prepare(self, cell: TaskCell, place: CellOptions) -> None:
        """Send the values of a task, and run what comes before its cell."""
        if not cell.values and not cell.before:
            return
        inputs = tuple(CellInput(name, name) for name in cell.values)
        options = replace(place, inputs=inputs, data=cell.data)
        self._session.run(cell.before, options, values=cell.values)

    async def _follow(self, action: Follow) -> Event:
        name = self._attempt_name(action)
        try:
            run = await asyncio.to_thread(self._cells.find, name)
        except SkyError as error:  # the process that began it has ended before it was stored
            return Event(Kind.LOST, action.task, time.time(), {"reason": error.message})
        try:
            await end_of(run)
            outputs = await asyncio.to_thread(self._cells.outputs, run)
            self._results.save_outputs(action.task, outputs)
            if isinstance(run, EarlierRun) and run.status == "failed":
                return self._failed(action, output_text(outputs).rstrip().rpartition("\n")[2])
            await asyncio.to_thread(run.result)
        except (SkyClusterLost, SkyUnreachable) as error:
            return Event(Kind.CLUSTER_LOST, action.cluster, time.time(), {"reason": error.message})
        except _OWN_ERRORS as error:
            return self._failed(action, error.message)
        except SkyError as error:
            return Event(Kind.LOST, action.task, time.time(), {"reason": error.message})
        except BaseException as error:
            return self._failed(action, f"{type(error).__name__}: {error}")
        return await asyncio.to_thread(self._keep, action, run)

    def _keep(self, action: Follow, run: SkyRun | EarlierRun) -> Event:
        """Keep the value of a task, which its run has brought."""
        name = self._attempt_name(action)
        row = self._session.store.run(run.id)
        hours = ((row.ended or time.time()) - row.started) / 3600 if row else 0.0
        usd = hours * hourly_price(self._session.store, action.token)
        facts: dict[str, Any] = {"hours": hours, "usd": usd}
        try:
            values = self._take_values(f"_{name}", self._graph.tasks[action.task].body)
            result = self._results.save(
                action.task, values, **facts, **self._reuse.shown_and_written(action.task)
            )
            facts |= {"gb": self._results.size(result) / 1e9, "place": _place_of(result)}
        except Exception as error:
            return self._failed(action, f"{type(error).__name__}: {error}")
        self._cells.forget(name)
        try:
            facts["unkept"] = self._reuse.keep([action.task]).get(action.task, "")
        except (OSError, SkyError) as error:
            facts["unkept"] = str(error)
        return Event(Kind.SUCCEEDED, action.task, time.time(), facts)

    def _take_values(self, result: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that an attempt has brought into the notebook, by name."""
        namespace = self._session.namespace
        value = namespace.pop(result, None)
        if body["kind"] != "cell":
            return {"": value}
        if isinstance(value, list):  # of several nodes
            value = {name: [each[name] for each in value] for name in value[0]}
        stored = {name: namespace.pop(f"{result}_{name}", None) for name in body["stores"] or ()}
        apart = [name for name in body["gives"] if f"{result}_{name}" in namespace]
        stored |= {name: namespace.pop(f"{result}_{name}") for name in apart}
        return {**(value or {}), **stored}

    async def _stop(self, action: Stop) -> Event:
        name = self._results.cell_of(action.task, action.attempt) or self._attempt_name(action)
        try:
            run = await asyncio.to_thread(self._cells.find, name)
        except SkyError:  # it never began
            return Event(Kind.STOPPED, action.task, time.time())
        await asyncio.to_thread(run.cancel)
        await end_of(run)
        return Event(Kind.STOPPED, action.task, time.time())

    def _attempt_name(self, action: Send | Follow | Stop) -> str:
        return attempt_name(self._run, action.task, action.attempt)

    def _failed(self, action: Send | Follow, reason: str) -> Event:
        return Event(Kind.FAILED, action.task, time.time(), {"reason": reason})


_CLAIM_SECONDS = 0.5
"""Time between two looks at a result that another run makes."""
_OWN_ERRORS = (SkyTimeout, SkyBudget, SkyUsageError, SkyPermission)
"""Errors of a task that it would meet elsewhere, too: its limits, files that are gone, rights."""
_FINAL_ERRORS = (SkyBudget, SkyCancelled, SkyStoreError, SkyUsageError)
"""Errors of a launch that another place would not mend."""
_QUOTA_SECONDS = 7200.0
"""Time for which a place is left out whose quota is used up."""


def _refusal(error: SkyError, offer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a refused launch."""
    facts: dict[str, Any] = {"reason": error.message, "place": read_offer(offer).place}
    if isinstance(error, _FINAL_ERRORS):
        facts["is_final"] = True
    if isinstance(error, SkyNoCapacity) and error.cause == "quota":
        facts["block_seconds"] = _QUOTA_SECONDS
    return facts


def _place_of(result: TaskResult) -> str:
    """Return where the values of a result are: in a store, or here, where others get them from."""
    stored = next(iter(result.handles.values()), None)
    if stored is None:
        return LOCAL
    uri = StorageUri.parse(stored["uri"])
    return place_of(open_store(uri), uri)


def _price_now(offer: Offer) -> float | None:
    """Return the last price of a spot machine that the tracker has seen, USD/h."""
    with suppress(SkyStoreError):  # what is remembered helps; it is not needed
        found = tracker.current().price(offer, time.time())
        return found.usd if found else None
    return None


def _read_body(data: Mapping[str, Any]) -> TaskBody | CellBody:
    kind = CellBody if data["kind"] == "cell" else TaskBody
    return kind.from_json(data)
