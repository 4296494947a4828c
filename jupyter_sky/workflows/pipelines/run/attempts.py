"""Attempts at tasks: each is a cell on a cluster of the run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jupyter_sky.base.errors import (
    SkyBudget,
    SkyClusterLost,
    SkyError,
    SkyPermission,
    SkyTimeout,
    SkyUnreachable,
    SkyUsageError,
)
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.cells.earlier_run import EarlierRun
from jupyter_sky.execution.cells.run import SkyRun
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.pipelines.model.graph import (
    RunGraph,
    attempt_name,
    cluster_name,
)
from jupyter_sky.workflows.pipelines.model.kept_results import RunResults
from jupyter_sky.workflows.pipelines.model.reuse import Reuse
from jupyter_sky.workflows.pipelines.model.task_body import Address, TaskBody, TaskCell
from jupyter_sky.workflows.pipelines.notebook.cell_body import CellBody
from jupyter_sky.workflows.pipelines.notebook.cell_runs import (
    CellRuns,
    end_of,
    hourly_price,
    output_text,
)
from jupyter_sky.workflows.pipelines.run.actions import (
    Follow,
    Send,
    Stop,
)
from jupyter_sky.workflows.pipelines.run.placing import read_offer
from jupyter_sky.workflows.pipelines.run.state import Event, Kind
from jupyter_sky.workflows.pipelines.run.stored_inputs import (
    fetch_stored,
    place_of_result,
    read_on_machine,
    result_address,
)

_OWN_ERRORS = (SkyTimeout, SkyBudget, SkyUsageError, SkyPermission)
"""Errors of a task that it would meet elsewhere, too: its limits, files that are gone, rights."""


class Attempts:
    """Cells of tasks: sent, followed to their end, and stopped.

    Parameters
    ----------
    run
        Name of the run.
    cells
        Cells of this process and of earlier ones.
    results
        Values of the tasks.
    load
        Returns a value of another task, or the handle of one in a store.
    """

    def __init__(
        self,
        session: Session,
        run: str,
        graph: RunGraph,
        cells: CellRuns,
        results: RunResults,
        reuse: Reuse,
        load: Callable[[str, str], Any],
    ) -> None:
        self._session, self._run, self._graph = session, run, graph
        self._cells, self._results, self._reuse, self._load_handle = cells, results, reuse, load

    def send(self, action: Send, body: TaskBody | CellBody) -> Event:
        """Send the cell of a task, unless it was sent before."""
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

    async def follow(self, action: Follow) -> Event:
        """Wait for the end of a cell, and keep what it has made."""
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
            facts |= {"gb": self._results.size(result) / 1e9, "place": place_of_result(result)}
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

    async def stop(self, action: Stop) -> Event:
        """Stop the cell of a task, if it ever began."""
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
