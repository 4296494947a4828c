"""Gantt chart of a plan as SVG and as text.

Work is a full bar, boot a striped one, transfers are thin and dashed; the critical path has a dark
edge and a mark by its name, so that nothing rests on colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from jupyter_sky.base.tables import PAGE
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.explain.timeline import (
    TaskBar,
    TaskPhase,
    critical_path,
    timeline,
)
from jupyter_sky.interfaces.widgets.plan_format import format_clock, format_size
from jupyter_sky.interfaces.widgets.svg import EDGE, QUIET, TEXT, make_figure, text_width

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan

_Scale = Callable[[float], float]
"""Horizontal position of a time: from hours to pixels."""
MAX_BARS = 40
"""Largest number of bars; the critical path comes first, then the earliest tasks."""
COLUMNS = 46  # of the text form
_PLOT, _ROW, _TOP, _CLIP = 520.0, 24.0, 30.0, 26

_FILL = "var(--jp-brand-color1, #1976d2)"
_LIMIT = "var(--jp-error-color1, #d32f2f)"
_WORDS = {
    "transfer": "waits for data",
    "boot": "machine boots",
    "work": "works",
    "store": "reads and writes stores",
}
_SIGNS = {"transfer": "-", "boot": "+", "work": "#", "store": "="}
_STEPS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400 * days for days in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)


def shown_bars(plan: Plan) -> tuple[TaskBar, ...]:
    """Return the bars to draw: all, or the critical path and the earliest of many."""
    bars = timeline(plan)
    if len(bars) > MAX_BARS:
        ranked = sorted(range(len(bars)), key=lambda i: (not bars[i].critical, bars[i].start_h, i))
        bars = tuple(bars[i] for i in ranked[:MAX_BARS])
    return tuple(sorted(bars, key=lambda bar: (bar.start_h, bar.end_h)))


def _span(plan: Plan) -> float:
    """Return the hours of the axis: to the end, or to a deadline shortly after it."""
    near = plan.deadline_h is not None and plan.hours <= plan.deadline_h <= 1.6 * plan.hours
    return (plan.deadline_h or 0.0) if near else plan.hours


def summarize(plan: Plan) -> str:
    """Return the chart's content in a sentence."""
    bars = timeline(plan)
    chain = critical_path(bars)
    path = " > ".join(bar.task for bar in chain)
    named = path if len(path) <= 90 else f"the {len(chain)} tasks marked as critical"
    more = max(0, len(bars) - MAX_BARS)
    left = (
        _("; {more} of {bars_count} tasks are not drawn").format(more=more, bars_count=len(bars))
        if more
        else ""
    )
    return _("{hours} from start to end (est.), decided by {named}{left}").format(
        hours=format_clock(plan.hours), named=named, left=left
    )


# -- text ---------------------------------------------------------------------------------------


def to_text(plan: Plan) -> str:
    """Return the chart as characters, for terminals."""
    bars, span = shown_bars(plan), _span(plan)
    if not bars or span <= 0:
        return ""
    names = [f"{'*' if bar.critical else ' '} {_short(bar.task)}" for bar in bars]
    width = max(map(len, names))
    limit = (
        _column(plan.deadline_h, span) if (plan.deadline_h or 0) and _shows_deadline(plan) else None
    )
    rows = []
    for name, bar in zip(names, bars, strict=True):
        line = _bar_text(bar, span)
        if limit is not None:
            line[min(limit, COLUMNS)] = "|"
        times = _("{start_h} to {end_h}").format(
            start_h=format_clock(bar.start_h), end_h=format_clock(bar.end_h)
        )
        rows.append(f"{name:<{width}}  {''.join(line)} {times}".rstrip())
    axis = [f"{'':<{width}}  {_scale(span)}"]
    kinds = {part.kind for bar in bars for part in bar.parts if part.hours}
    legend = [f"{_SIGNS[kind]} {words}" for kind, words in _WORDS.items() if kind in kinds]
    legend.append(_("* critical path"))
    if plan.deadline_h is not None:
        legend.append(
            _("| deadline {deadline_h}").format(deadline_h=format_clock(plan.deadline_h))
            + ("" if _shows_deadline(plan) else " (later)")
        )
    return "\n".join(
        [_("Time: {plan}").format(plan=summarize(plan)), *rows, *axis, "  ".join(legend)]
    )


def _bar_text(bar: TaskBar, span: float) -> list[str]:
    line = [" "] * (COLUMNS + 1)
    for part in sorted(bar.parts, key=lambda part: part.kind == "work"):
        if not part.hours:
            continue
        first, last = _column(part.start_h, span), _column(part.end_h, span)
        if part.kind == "work":  # drawn last and at least one column wide, so that it stays visible
            first = min(first, COLUMNS - 1)
            last = max(last, first + 1)
        for column in range(first, last):
            line[column] = _SIGNS[part.kind]
    return line


def _column(hours: float, span: float) -> int:
    return min(COLUMNS, max(0, round(hours / span * COLUMNS)))


def _scale(span: float) -> str:
    """Return the labels of the axis without overlaps."""
    line = [" "] * (COLUMNS + 12)
    free = 0
    for at in ticks(span, 5):
        text, column = format_time(at), _column(at, span)
        if column >= free:
            line[column : column + len(text)] = text
            free = column + len(text) + 2
    return "".join(line).rstrip()


# -- picture ------------------------------------------------------------------------------------


def draw_gantt(plan: Plan) -> str:
    """Return the chart as SVG in a scrollable box; empty if no task takes time."""
    bars, span = shown_bars(plan), _span(plan)
    if not bars or span <= 0:
        return ""
    left = 26 + 1.1 * text_width(max((_short(bar.task) for bar in bars), key=len))  # bold
    bottom = _TOP + len(bars) * _ROW

    def x(hours: float) -> float:
        return left + hours / span * _PLOT

    parts = [_axis(x, span, bottom), _links(bars, x)]
    for number, bar in enumerate(bars):
        parts.append(_row(bar, _TOP + number * _ROW, x))
    height = bottom + 30
    if plan.deadline_h is not None:
        parts.append(_deadline(plan, x, bottom))
    parts.append(_legend(bars, left, bottom + 18))
    said = [f"{bar.task} {_describe_bar(bar)}" for bar in bars]
    return make_figure(
        left + _PLOT + 150,
        height,
        _("Time chart of the plan: {plan}.").format(plan=summarize(plan)),
        "; ".join(said) + ".",
        "".join(parts),
        _("time chart of the plan"),
    )


def _shows_deadline(plan: Plan) -> bool:
    """Return whether the deadline lies within what the axis shows."""
    return plan.deadline_h is not None and plan.deadline_h <= _span(plan) * (1 + 1e-9)


def _describe_bar(bar: TaskBar) -> str:
    """Return a bar in words."""
    steps = ", ".join(
        f"{_WORDS[part.kind]} {format_clock(part.hours)}" for part in bar.parts if part.hours
    )
    times = f"from {format_clock(bar.start_h)} to {format_clock(bar.end_h)}"
    return f"{times}{_(' on the critical path') if bar.critical else ''}: {steps}"


def _axis(x: _Scale, span: float, bottom: float) -> str:
    lines = []
    for at in ticks(span, 7):
        lines.append(
            f'<path d="M{x(at):.1f} {_TOP - 6:.0f} V{bottom:.0f}" '
            f'style="stroke: {EDGE}; stroke-width: 0.6; opacity: 0.7"/>'
            f'<text x="{x(at):.1f}" y="{_TOP - 11:.0f}" text-anchor="middle" '
            f'style="font-size: 11px; fill: {QUIET}">{format_time(at)}</text>'
        )
    return "".join(lines)


def _row(bar: TaskBar, y: float, x: _Scale) -> str:
    middle, weight = y + _ROW / 2, "600" if bar.critical else "400"
    mark = "◆ " if bar.critical else ""
    shapes = "".join(_shape(part, middle, x) for part in bar.parts if part.hours)
    busy = [part for part in bar.parts if part.kind != "transfer"]
    if bar.critical and busy:
        start, end = x(busy[0].start_h), x(busy[-1].end_h)
        shapes += (
            f'<rect x="{start:.1f}" y="{middle - 7:.1f}" width="{max(end - start, 2):.1f}" '
            f'height="14" style="fill: none; stroke: {TEXT}; stroke-width: 1.6"/>'
        )
    hours = bar.end_h - bar.start_h
    return (
        f"<g><title>{escape(f'{bar.task} {_describe_bar(bar)}')}</title>"
        f'<text x="4" y="{middle + 4:.1f}" style="fill: {TEXT}; font-weight: {weight}">'
        f"{escape(mark + _short(bar.task))}</text>{shapes}"
        f'<text x="{x(bar.end_h) + 8:.1f}" y="{middle + 4:.1f}" style="font-size: 11px; '
        f"fill: {QUIET}; stroke: {PAGE}; stroke-width: 3px; paint-order: stroke"
        f'">{format_clock(hours)}</text></g>'
    )


def _shape(part: TaskPhase, middle: float, x: _Scale) -> str:
    """Return the SVG of a phase: shape before colour tells kinds apart."""
    start, end = x(part.start_h), x(part.end_h)
    width = max(end - start, 1.5)
    said = f"{_WORDS[part.kind]} {format_clock(part.hours)}" + (
        f", {format_size(part.gb)}" if part.gb else ""
    )
    title = f"<title>{escape(said)}</title>"
    if part.kind == "work":
        return (
            f'<rect x="{start:.1f}" y="{middle - 7:.1f}" width="{width:.1f}" height="14" '
            f'style="fill: {_FILL}">{title}</rect>'
        )
    thick, dash = (14, "2 2.5") if part.kind == "boot" else (4, "6 3")
    return (
        f'<path d="M{start:.1f} {middle:.1f} h{width:.1f}" style="fill: none; stroke: {QUIET}; '
        f'stroke-width: {thick}; stroke-dasharray: {dash}">{title}</path>'
    )


def _links(bars: Sequence[TaskBar], x: _Scale) -> str:
    """Draw lines from the end of each critical task to the tasks that wait for it."""
    row = {bar.task: number for number, bar in enumerate(bars)}
    lines = []
    for bar in bars:
        for name in bar.after if bar.critical else ():
            if name not in row:
                continue
            before = bars[row[name]]
            y1 = _TOP + row[name] * _ROW + _ROW / 2
            y2 = _TOP + row[bar.task] * _ROW + _ROW / 2
            lines.append(
                f'<path d="M{x(before.end_h):.1f} {y1:.1f} V{y2:.1f}" '
                f'style="fill: none; stroke: {TEXT}; stroke-width: 1.2"/>'
            )
    return "".join(lines)


def _deadline(plan: Plan, x: _Scale, bottom: float) -> str:
    text = f"deadline {format_clock(plan.deadline_h or 0)}"
    if not _shows_deadline(plan):
        return (
            f'<text x="{x(_span(plan)) + 142:.1f}" y="{bottom - 4:.0f}" text-anchor="end" '
            f'style="font-size: 11px; fill: {_LIMIT}">{text} →</text>'
        )
    at = x(plan.deadline_h or 0)
    return (
        f'<path d="M{at:.1f} {_TOP - 6:.0f} V{bottom + 4:.0f}" style="stroke: {_LIMIT}; '
        f'stroke-width: 2; stroke-dasharray: 7 3"/>'
        f'<text x="{at + 5:.1f}" y="{bottom + 4:.0f}" style="font-size: 11px; fill: {_LIMIT}">'
        f"{text}</text>"
    )


def _legend(bars: Sequence[TaskBar], left: float, y: float) -> str:
    kinds = {part.kind for bar in bars for part in bar.parts if part.hours}
    shown, at = [], left
    for kind, words in _WORDS.items():
        if kind in kinds:
            start = at
            shape = _shape(TaskPhase(kind, 0.0, 1.0), y - 4, lambda hours, s=start: s + 18 * hours)  # type: ignore[arg-type]
            shown.append(shape + _label(at + 24, y, words))
            at += 42 + text_width(words)
    shown.append(
        f'<rect x="{at:.1f}" y="{y - 11:.1f}" width="18" height="14" '
        f'style="fill: none; stroke: {TEXT}; stroke-width: 1.6"/>'
        + _label(at + 24, y, _("◆ critical path"))
    )
    return "".join(shown)


def _label(x: float, y: float, words: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" style="font-size: 11px; fill: {QUIET}">'
        f"{escape(words)}</text>"
    )


# -- axis ---------------------------------------------------------------------------------------


def ticks(span: float, most: int) -> list[float]:
    """Return the hours of an axis' ticks from 0, at round times.

    Examples
    --------
    >>> ticks(5.25, 7), ticks(2.5, 6)
    ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    """
    seconds = span * 3600
    step = next((step for step in _STEPS if seconds / step < most), seconds / most)
    return [number * step / 3600 for number in range(int(seconds / step + 1e-9) + 1)]


def format_time(hours: float) -> str:
    """Format a time on the axis as briefly as possible.

    Examples
    --------
    >>> [format_time(hours) for hours in (0, 2, 1.5, 0.25, 0.005, 48)]
    ['0', '2 h', '1:30 h', '15 min', '18 s', '2 d']
    """
    seconds = round(hours * 3600)
    if not seconds:
        return "0"
    if seconds % 86400 == 0:
        return f"{seconds // 86400} d"
    if seconds % 3600 == 0:
        return f"{seconds // 3600} h"
    if seconds > 3600:
        return f"{seconds // 3600}:{seconds % 3600 // 60:02} h"
    return _("{seconds} min").format(seconds=seconds // 60) if seconds % 60 == 0 else f"{seconds} s"


def _short(name: str) -> str:
    return name if len(name) <= _CLIP else f"{name[: _CLIP - 1]}…"
