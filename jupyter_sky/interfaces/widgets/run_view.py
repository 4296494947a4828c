"""View of a run of a graph: its tasks with live states, planned times beside real ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.widgets.plan import block, folded
from jupyter_sky.interfaces.widgets.run_gantt import draw_run_chart
from jupyter_sky.interfaces.widgets.run_graph import draw_run_graph
from jupyter_sky.interfaces.widgets.run_tasks import group_tasks
from jupyter_sky.workflows.pipelines.run.pipeline_run import register_view

if TYPE_CHECKING:
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun

LOG_CHARACTERS = 20_000
"""Characters at the end of a task's log that the view shows."""


def describe_run(run: PipelineRun) -> dict[str, Any]:
    """Return a run as its view shows it, in values of JSON.

    Returns
    -------
    dict
        ``name``; ``headline``, a sentence; ``graph``, ``chart`` and ``table`` as HTML; ``over``,
        ``paused`` and ``carried_out``, whether a process carries it out.
    """
    found = run.snapshot()
    tasks = group_tasks(run.graph, found.reports, run.sweeps)
    return {
        "name": run.name,
        "headline": found.headline,
        "graph": draw_run_graph(tasks),
        "chart": draw_run_chart(tasks, run.plan, found.begun, found.until),
        "table": found.table._repr_html_(),
        "over": found.state.is_over,
        "paused": found.state.paused,
        "carried_out": run.is_carried_out(),
    }


def describe_task(run: PipelineRun, task: str) -> dict[str, Any]:
    """Return what is known of a task, and the end of what it has printed.

    Raises
    ------
    SkyUsageError
        There is no such task.
    """
    names = run.sweeps.get(task, [task])
    reports = {report.name: report for report in run.report()}
    if not set(names) <= set(reports):
        raise SkyUsageError(_("there is no task {name!r}").format(name=task))
    facts = []
    for name in names:
        report = reports[name]
        words = [str(report.phase), report.place, report.reason, run.why(name)]
        facts.append({"name": name, "words": ", ".join(filter(None, words))})
    text = run.logs(task)
    return {"task": task, "facts": facts, "log": text[-LOG_CHARACTERS:]}


def act(run: PipelineRun, verb: str) -> dict[str, Any]:
    """Cancel, pause or resume a run.

    Raises
    ------
    SkyUsageError
        There is no such action.
    """
    actions: dict[str, Callable[[], None]] = {
        "cancel": run.cancel,
        "pause": run.pause,
        "resume": run.resume,
    }
    if verb not in actions:
        raise SkyUsageError(_("{verb}: not an action of runs").format(verb=verb))
    actions[verb]()
    return describe_run(run)


def make_view(run: PipelineRun) -> Any:
    """Return a run as a widget, which follows it until its end."""
    from jupyter_sky.interfaces.widgets.view import View

    answers = {
        "run": lambda payload: describe_run(run),
        "task": lambda payload: describe_task(run, str(payload.get("task", ""))),
        "act": lambda payload: act(run, str(payload.get("verb", ""))),
    }
    return View("run", answers, lambda: (to_html(run), str(run.table())), {"run": run.name})


def to_html(run: PipelineRun) -> str:
    """Return a run as HTML without scripts, for saved notebooks."""
    shown = describe_run(run)
    parts = [block(shown["headline"], "font-weight: 600"), shown["graph"], shown["chart"]]
    return "".join(parts) + folded(_("tasks"), shown["table"])


register_view(make_view)
