"""Graph of a run as SVG: its tasks with their states, beside times and costs of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from jupyter_sky.base.tables import NO_MATHJAX_CLASSES
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.widgets.graph_layout import MAX_BOXES, Arrow, Box, draw, lay_out
from jupyter_sky.interfaces.widgets.run_tasks import ShownTask, describe_time, outline
from jupyter_sky.interfaces.widgets.svg import make_figure
from jupyter_sky.knowledge.ledger.ledger import format_usd

if TYPE_CHECKING:
    from jupyter_sky.workflows.pipelines.run.run_report import TaskReport

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
    name = _short(task.name)
    lines = [f"{name} × {count}" if count > 1 else name, task.state]
    places = dict.fromkeys(each.place for each in task.reports if each.place)
    if places:
        one = _short(next(iter(places)))
        lines.append(one if len(places) == 1 else _("{count} places").format(count=len(places)))
    spent = _figures(task.seconds, task.usd)
    if spent:
        lines.append(spent)
    planned = _planned(task.reports)
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


def _planned(reports: Sequence[TaskReport]) -> str:
    """Return time and cost by the plan; nothing where the plan took an hour for unknown."""
    known = [each for each in reports if each.planned_usd is not None]
    if not known or any(each.is_assumed for each in known):
        return ""
    seconds = sum(each.planned_seconds or 0.0 for each in known)
    return _figures(seconds, sum(each.planned_usd or 0.0 for each in known))


def _figures(seconds: float | None, usd: float | None) -> str:
    cost = "" if usd is None else format_usd(usd)
    return " · ".join(filter(None, [describe_time(seconds), cost]))


def _short(name: str) -> str:
    if len(name) <= _NAME_CHARACTERS:
        return name
    return f"{name[: _NAME_CHARACTERS - 1]}…"
