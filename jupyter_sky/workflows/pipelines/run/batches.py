"""Functions that are sent together: one cell for several attempts, whose results come with it.

Which attempts a cell holds is on the disk before it is sent; another process finds them again. The
engine begins no further one after `BATCH_SECONDS`: the others are returned, and sent again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from jupyter_sky.base.clouds.index import LOCAL
from jupyter_sky.base.errors import SkyClusterLost, SkyError, SkyUnreachable
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellInput, CellOptions, CellOutput
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions.session import Session
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, attempt_name, cluster_name
from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, RunResults, TaskResult
from jupyter_sky.workflows.pipelines.model.reuse import Reuse
from jupyter_sky.workflows.pipelines.model.task_body import TaskBody
from jupyter_sky.workflows.pipelines.notebook.cell_runs import (
    CellRuns,
    end_of,
    hourly_price,
    notebook_outputs,
)
from jupyter_sky.workflows.pipelines.run import batch_node
from jupyter_sky.workflows.pipelines.run.actions import Follow, Send
from jupyter_sky.workflows.pipelines.run.batch_node import Call
from jupyter_sky.workflows.pipelines.run.outlook import BATCH_SECONDS
from jupyter_sky.workflows.pipelines.run.state import Event, Kind

MOST_BYTES = 2**24
"""Size of stored inputs beyond which no further task goes into a cell."""


@dataclass(slots=True)
class _Message:
    """Attempts that are sent in one cell.

    Attributes
    ----------
    attempts
        Number of the attempt of each task.
    functions
        Position and function, by its pickled text.
    calls
        Of the attempts.
    nbytes
        Stored size of their values.
    resources
        Of their cluster.
    """

    attempts: dict[str, int] = field(default_factory=dict)
    functions: dict[str, tuple[int, Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    nbytes: int = 0
    resources: str = ""

    def add(self, action: Send, body: TaskBody, stored: Sequence[bytes]) -> None:
        """Add an attempt with its stored values."""
        import cloudpickle

        known = self.functions.get(body.function)
        position, function = known or (len(self.functions), TaskBody.load_function(body.function))
        values = [cloudpickle.loads(each) for each in stored]  # a copy for each task
        self.functions[body.function] = position, function
        self.calls.append((action.task, position, values))
        self.attempts[action.task] = action.attempt
        self.nbytes += sum(map(len, stored))
        self.resources = action.offer["resources"]


class Batches:
    """Cells of a run that hold attempts of several tasks.

    Parameters
    ----------
    session, cells
        Where they run.
    run, graph
        Name and tasks of the run.
    results, kept, reuse
        Results of the run, and those of all runs.
    """

    def __init__(
        self,
        session: Session,
        cells: CellRuns,
        run: str,
        graph: RunGraph,
        results: RunResults,
        kept: KeptResults,
        reuse: Reuse,
    ) -> None:
        self._session, self._cells = session, cells
        self._run, self._graph = run, graph
        self._results, self._kept, self._reuse = results, kept, reuse
        self._following: dict[str, asyncio.Task[dict[str, Event]]] = {}

    # -- sending -------------------------------------------------------------------------------

    def send(self, actions: Sequence[Send]) -> list[Event]:
        """Send attempts, those of each cluster in one cell; return an event for each."""
        events: dict[str, Event] = {}
        ordered = sorted(actions, key=lambda action: action.token)  # stable: those of one together
        for _token, group in groupby(ordered, key=lambda action: action.token):
            events |= self._send_to_cluster(list(group))
        return [events[action.task] for action in actions]

    def _send_to_cluster(self, actions: Sequence[Send]) -> dict[str, Event]:
        message, events = self._results.together(lambda: self._gather(actions))
        if message.attempts:
            self._begin(message, actions[0].token)
        return events

    def _gather(self, actions: Sequence[Send]) -> tuple[_Message, dict[str, Event]]:
        """Return what is to be sent, which is noted as sent, and an event for each attempt."""
        message, events = _Message(), dict[str, Event]()
        for action in actions:
            cell = self._results.cell_of(action.task, action.attempt)
            if cell and self._cells.has(cell):  # of a process that has ended since
                events[action.task] = Event(Kind.BEGUN, action.task, time.time())
                continue
            try:
                is_added = self._add(message, action)
            except Exception as error:
                data = {"reason": f"{type(error).__name__}: {error}"}
                events[action.task] = Event(Kind.FAILED, action.task, time.time(), data)
            else:
                kind = Kind.BEGUN if is_added else Kind.RETURNED
                events[action.task] = Event(kind, action.task, time.time())
        if message.attempts:
            self._results.note_sent(self._cell_name(message), message.attempts)
        return message, events

    def _cell_name(self, message: _Message) -> str:
        return attempt_name(self._run, *next(iter(message.attempts.items())))

    def _add(self, message: _Message, action: Send) -> bool:
        """Add an attempt to a message; return whether there was room for it."""
        if message.nbytes > MOST_BYTES:
            return False
        body = TaskBody.from_json(self._graph.tasks[action.task].body)
        message.add(action, body, [self._results.read(each) for each in body.arguments])
        return True

    def _begin(self, message: _Message, token: str) -> None:
        cell = self._cell_name(message)
        sent = {
            f"_{cell}_functions": [function for _place, function in message.functions.values()],
            f"_{cell}_calls": message.calls,
        }
        first, second = sent
        code = (
            f"_{cell} = __import__('{batch_node.__name__}', fromlist=['run_calls'])"
            f".run_calls({first}, {second}, {BATCH_SECONDS})\ndel {first}, {second}"
        )
        options = CellOptions(
            resources=parse_cell_line(message.resources).resources,
            cluster=cluster_name(token),
            inputs=tuple(CellInput(name, name) for name in sent),
            outputs=(CellOutput(f"_{cell}"),),
        )
        self._cells.begin(cell, code, options, sent)

    # -- following -----------------------------------------------------------------------------

    def cell_of(self, action: Follow) -> str:
        """Return the name of the cell that holds an attempt."""
        return self._results.cell_of(action.task, action.attempt)

    async def follow(self, actions: Sequence[Follow]) -> list[Event]:
        """Wait for the end of the cell that holds attempts; return what became of each."""
        cell = self.cell_of(actions[0])
        if cell not in self._following:
            self._following[cell] = asyncio.ensure_future(self._follow_cell(cell, actions[0]))
        events = await asyncio.shield(self._following[cell])
        return [events[action.task] for action in actions]

    async def _follow_cell(self, cell: str, action: Follow) -> dict[str, Event]:
        tasks = self._results.tasks_in(cell)
        try:
            run = await asyncio.to_thread(self._cells.find, cell)
            await end_of(run)
            return await asyncio.to_thread(self._collect, cell, tasks, run, action.token)
        except (SkyClusterLost, SkyUnreachable) as error:
            facts = {"reason": error.message}
            lost = Event(Kind.CLUSTER_LOST, action.cluster, time.time(), facts)
            return dict.fromkeys(tasks, lost)
        except SkyError as error:
            return _all(tasks, Kind.LOST, error.message)
        except Exception as error:  # where one alone is at fault, the others end well by themselves
            kind = Kind.FAILED if len(tasks) == 1 else Kind.LOST
            return _all(tasks, kind, f"{type(error).__name__}: {error}")

    def _collect(self, cell: str, tasks: Sequence[str], run: Any, token: str) -> dict[str, Event]:
        """Keep the results that a cell has brought, and return the events of its attempts."""
        run.result()
        outcomes = self._session.namespace.pop(f"_{cell}")
        if not self._session.config.trust:
            reason = _("values of machines that are not trusted are not read")
            return _all(tasks, Kind.FAILED, reason)
        price = hourly_price(self._session.store, token)
        begun = {task: outcomes[task] for task in tasks if task in outcomes}
        facts = {
            task: {"hours": found["seconds"] / 3600, "usd": found["seconds"] / 3600 * price}
            for task, found in begun.items()
        }
        self._results.together(lambda: self._keep(begun, facts))
        self._cells.forget(cell)
        events = {task: Event(Kind.RETURNED, task, time.time()) for task in tasks}
        for task, found in begun.items():
            if found["error"]:
                data: dict[str, Any] = {"reason": found["error"]}
                events[task] = Event(Kind.FAILED, task, time.time(), data)
            else:
                events[task] = Event(Kind.SUCCEEDED, task, time.time(), facts[task])
        return events

    def _keep(self, begun: Mapping[str, Any], facts: Mapping[str, dict[str, Any]]) -> None:
        """Keep values and outputs, and note in the facts of each task why it is not kept."""
        shown = {task: notebook_outputs(found["outputs"]) for task, found in begun.items()}
        well = [task for task, found in begun.items() if not found["error"]]
        values = self._kept.write_files([begun[task]["value"] for task in well])
        outputs = self._kept.write_files([json.dumps(shown[task]).encode() for task in well])
        for task, value, output in zip(well, values, outputs, strict=True):
            self._results.adopt(task, TaskResult({"": value}, outputs=output, **facts[task]))
            # values come here before others get them
            facts[task].update(gb=len(begun[task]["value"]) / 1e9, place=LOCAL)
        for task in begun.keys() - set(well):
            self._results.save_outputs(task, shown[task])
        try:
            unkept = self._reuse.keep(well)
        except (OSError, SkyError) as error:
            unkept = dict.fromkeys(well, str(error))
        for task in well:
            facts[task]["unkept"] = unkept.get(task, "")


def _all(tasks: Sequence[str], kind: Kind, reason: str) -> dict[str, Event]:
    return {task: Event(kind, task, time.time(), {"reason": reason}) for task in tasks}
