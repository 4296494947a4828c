"""View of a run of a graph: its tasks with live states, planned times beside real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import format_elapsed
from jupyter_sky.base.tables import NO_MATHJAX_CLASSES
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.explain.timeline import timeline
from jupyter_sky.interfaces.widgets.gantt import format_time, ticks
from jupyter_sky.interfaces.widgets.graph_layout import MAX_BOXES, Arrow, Box, draw, lay_out
from jupyter_sky.interfaces.widgets.plan import block, folded
from jupyter_sky.interfaces.widgets.run_tasks import (
    ShownTask,
    describe_time,
    fill,
    group_tasks,
    outline,
)
from jupyter_sky.interfaces.widgets.svg import EDGE, QUIET, TEXT, make_figure, text_width
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.workflows.pipelines.run.pipeline_run import register_view

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.workflows.pipelines.run.pipeline_run import PipelineRun
    from jupyter_sky.workflows.pipelines.run.run_report import TaskReport


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


# -- Time chart of a run as SVG: when each task ran, and when its plan had it ---------------------
#
# What ran is a full bar, what was planned a dashed outline above it, so that nothing rests on
# colour.

MAX_BARS = 40
"""Largest number of rows; those that ran last are shown."""
_PLOT, _ROW, _TOP, _CLIP = 520.0, 26.0, 30.0, 26


def draw_run_chart(tasks: Sequence[ShownTask], plan: Plan, begun: float, now: float) -> str:
    """Return the chart as SVG in a scrollable box; empty before anything has begun.

    Parameters
    ----------
    tasks
        As `group_tasks` returns them.
    plan
        With which the run began; a task whose time it assumed has no planned bar.
    begun, now
        Unix times of the run's begin, and of now or its end.
    """
    planned = _planned(tasks, plan)
    rows = [task for task in tasks if task.begun is not None or task.name in planned]
    if not any(task.begun is not None for task in rows):
        return ""
    rows = sorted(rows, key=lambda task: _start(task, planned, begun))[-MAX_BARS:]
    ends = [end for __, end in planned.values()]
    span = max([(now - begun) / 3600, *ends, 1 / 3600])
    left = 16 + text_width(max((_short(task.name) for task in rows), key=len))
    bottom = _TOP + len(rows) * _ROW
    parts = [_axis(left, span, bottom)]
    for number, task in enumerate(rows):
        bar = _Bar(left, _TOP + (number + 0.5) * _ROW, span)
        parts.append(bar.draw(task, planned.get(task.name), begun, now))
    if planned:
        parts.append(_legend(left, bottom + 20))
    said = "; ".join(_describe(task) for task in rows)
    title = _("Time chart of the run: {time} so far.").format(time=format_elapsed(now - begun))
    width = left + _PLOT + 90
    name = _("time chart of the run")
    return make_figure(width, bottom + 32, title, f"{said}.", "".join(parts), name)


def _planned(tasks: Sequence[ShownTask], plan: Plan) -> dict[str, tuple[float, float]]:
    """Return begin and end of the planned tasks whose time was known, in hours."""
    bars = {bar.task: bar for bar in timeline(plan)}
    found = {}
    for task in tasks:
        known = [bars[one.name] for one in task.reports if one.name in bars and not one.is_assumed]
        if known:
            found[task.name] = (min(b.start_h for b in known), max(b.end_h for b in known))
    return found


def _start(task: ShownTask, planned: dict[str, tuple[float, float]], begun: float) -> float:
    if task.begun is not None:
        return (task.begun - begun) / 3600
    return planned[task.name][0]


def _describe(task: ShownTask) -> str:
    time = "" if task.seconds is None else f", {format_elapsed(task.seconds)}"
    return f"{task.name} {task.state}{time}"


class _Bar:
    """Row of the chart.

    Parameters
    ----------
    left, middle
        Where the axis begins, and the vertical position of the row [px].
    span
        Hours of the axis.
    """

    def __init__(self, left: float, middle: float, span: float) -> None:
        self._left, self._middle, self._span = left, middle, span

    def _x(self, hours: float) -> float:
        return self._left + min(hours / self._span, 1.0) * _PLOT

    def draw(
        self, task: ShownTask, planned: tuple[float, float] | None, begun: float, now: float
    ) -> str:
        y = self._middle
        parts = [f"<title>{escape(_describe(task))}</title>"]
        parts.append(
            f'<text x="4" y="{y + 4:.1f}" style="fill: {TEXT}">{escape(_short(task.name))}</text>'
        )
        if planned is not None:
            x, end = self._x(planned[0]), self._x(planned[1])
            parts.append(_rectangle(x, y - 10, end - x, 5, _PLANNED))
        last = 0.0
        for report in task.reports:
            if report.begun is None:
                continue
            x = self._x((report.begun - begun) / 3600)
            last = max(last, self._x(((report.ended or now) - begun) / 3600))
            ran = self._x(((report.ended or now) - begun) / 3600) - x
            style = f"fill: {fill(report.phase)}"
            # tasks of a sweep that ran side by side stay countable
            shade = "; fill-opacity: 0.55" if len(task.reports) > 1 else ""
            parts.append(_rectangle(x, y - 3, ran, 10, style + shade))
        if task.begun is not None:
            words = f"{task.state.split()[0]} " if len(task.reports) == 1 else ""
            seconds = (task.ended or now) - task.begun
            parts.append(
                f'<text x="{last + 6:.1f}" y="{y + 6:.1f}" '
                f'style="font-size: 11px; fill: {QUIET}">{words}{format_elapsed(seconds)}</text>'
            )
        return f'<g class="jsky-RunGraph-task" data-task="{escape(task.name)}">{"".join(parts)}</g>'


_PLANNED = f"fill: none; stroke: {QUIET}; stroke-dasharray: 3 2"


def _rectangle(x: float, y: float, width: float, height: float, style: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1.5):.1f}" height="{height:.0f}" '
        f'style="{style}"/>'
    )


def _axis(left: float, span: float, bottom: float) -> str:
    lines = []
    for at in ticks(span, 7):
        x = left + at / span * _PLOT
        lines.append(
            f'<path d="M{x:.1f} {_TOP - 6:.0f} V{bottom:.0f}" '
            f'style="stroke: {EDGE}; stroke-width: 0.6; opacity: 0.7"/>'
            f'<text x="{x:.1f}" y="{_TOP - 11:.0f}" text-anchor="middle" '
            f'style="font-size: 11px; fill: {QUIET}">{format_time(at)}</text>'
        )
    return "".join(lines)


def _legend(left: float, y: float) -> str:
    ran = _("ran")
    x = left + 48 + text_width(ran)
    return "".join(
        [
            _rectangle(left, y - 8, 18, 10, f"fill: {QUIET}"),
            _words(left + 24, y, ran),
            _rectangle(x, y - 6, 18, 5, _PLANNED),
            _words(x + 24, y, _("planned")),
        ]
    )


def _words(x: float, y: float, words: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" style="font-size: 11px; fill: {QUIET}">{words}</text>'


def _short(name: str) -> str:
    return name if len(name) <= _CLIP else f"{name[: _CLIP - 1]}…"


# -- Graph of a run as SVG: its tasks with their states, beside times and costs of the plan -------

_NAME_CHARACTERS = 28


def draw_run_graph(tasks: Sequence[ShownTask]) -> str:
    """Return the SVG of the tasks of a run, or a sentence where they are too many.

    Parameters
    ----------
    tasks
        As `group_tasks` returns them.
    """
    if len(tasks) > MAX_BOXES or not tasks:
        sentence = _("{count} tasks: a graph of so many is not drawn").format(count=len(tasks))
        return f'<div class="{NO_MATHJAX_CLASSES}">{sentence}</div>'
    boxes = {task.name: _box(task) for task in tasks}
    arrows = [
        Arrow(
            [boxes[before], boxes[task.name]],
            _("{task} waits for {before}").format(task=task.name, before=before),
        )
        for task in tasks
        for before in task.after
    ]
    width, height = lay_out(list(boxes.values()), arrows)
    body = draw(list(boxes.values()), arrows)
    title = _("Graph of the run: {count} tasks.").format(count=len(tasks))
    said = "; ".join(f"{task.name} {task.state}" for task in tasks)
    return make_figure(width, height, title, f"{said}.", body, _("graph of the run"))


def _box(task: ShownTask) -> Box:
    count = len(task.reports)
    name = _short_run_graph(task.name)
    lines = [f"{name} × {count}" if count > 1 else name, task.state]
    places = dict.fromkeys(each.place for each in task.reports if each.place)
    if places:
        one = _short_run_graph(next(iter(places)))
        lines.append(one if len(places) == 1 else _("{count} places").format(count=len(places)))
    spent = _figures(task.seconds, task.usd)
    if spent:
        lines.append(spent)
    planned = _planned_run_graph(task.reports)
    if planned:
        lines.append(_("planned {figures}").format(figures=planned))
    title = "\n".join([task.name, *places, *filter(None, (r.reason for r in task.reports[:5]))])
    return Box(
        task.name,
        tuple(lines),
        title=title,
        # the button of the box: a front end shows what the task has printed
        attributes=f'class="jsky-RunGraph-task" data-task="{escape(task.name)}"',
        outline=outline(task.phase),
    )


def _planned_run_graph(reports: Sequence[TaskReport]) -> str:
    """Return time and cost by the plan; nothing where the plan took an hour for unknown."""
    known = [each for each in reports if each.planned_usd is not None]
    if not known or any(each.is_assumed for each in known):
        return ""
    seconds = sum(each.planned_seconds or 0.0 for each in known)
    return _figures(seconds, sum(each.planned_usd or 0.0 for each in known))


def _figures(seconds: float | None, usd: float | None) -> str:
    cost = "" if usd is None else format_usd(usd)
    return " · ".join(filter(None, [describe_time(seconds), cost]))


def _short_run_graph(name: str) -> str:
    if len(name) <= _NAME_CHARACTERS:
        return name
    return f"{name[: _NAME_CHARACTERS - 1]}…"
