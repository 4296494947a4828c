"""Changes of the tasks of a run, with the reasons for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.notebook.cell_runs import POLL_SECONDS
from jupyter_sky.workflows.pipelines.run.events import Kind
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.phase_changes import PhaseChanges
from jupyter_sky.workflows.pipelines.run.run_report import find_replans
from jupyter_sky.workflows.pipelines.run.state import RunState
from jupyter_sky.workflows.pipelines.run.task_state import Phase, TaskState

_TOLD = frozenset({Phase.RUNNING, Phase.DELAYED, *(one for one in Phase if one.is_final)})
"""Phases that people follow."""


def follow_changes(
    journal: RunJournal, name: str, graph: RunGraph, is_done: Callable[[], bool]
) -> Iterator[tuple[str, Phase | Kind, str]]:
    """Yield the changes of tasks until the end: see `PipelineRun.changes`."""
    changes, count = PhaseChanges(graph), 0
    while True:
        is_last = is_done()
        events = journal.events(name, count)
        count += len(events)
        for event in events:
            for replan in find_replans([event]):
                yield name, event.kind, replan.text
            for task_name, task in changes.read(event):
                if task.phase in _TOLD:
                    yield task_name, task.phase, _change_reason(task)
        if is_last:
            return
        time.sleep(POLL_SECONDS)


def _change_reason(task: TaskState) -> str:
    if task.phase is Phase.RUNNING:
        return task.why
    if task.phase is Phase.SUCCEEDED:
        return _("its result was kept") if task.stored else ""
    return task.reason


def run_reason(task: TaskState) -> str:
    """Return why a task has run, or that its result was kept."""
    return _("its result was kept") if task.stored else task.why


def reason_table(name: str, state: RunState) -> Table:
    """Return a table of the tasks of a run: what became of each, and why."""
    rows = []
    for each, task in state.tasks.items():
        unkept = _("not kept: {why}").format(why=task.unkept) if task.unkept else ""
        words = "; ".join(filter(None, (run_reason(task), unkept)))
        rows.append((each, str(task.phase), words, f"${task.usd:.2f}"))
    columns = (_("task"), _("state"), _("reason"), _("cost"))
    return Table(_("Tasks of {name}").format(name=name), columns, tuple(rows))
