"""Time chart of a run as SVG: when each task ran, and when its plan had it.

What ran is a full bar, what was planned a dashed outline above it, so that nothing rests on colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.quantities import format_elapsed
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.explain.timeline import timeline
from jupyter_sky.interfaces.widgets.gantt import format_time, ticks
from jupyter_sky.interfaces.widgets.run_tasks import ShownTask, fill
from jupyter_sky.interfaces.widgets.svg import EDGE, QUIET, TEXT, make_figure, text_width

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan

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
