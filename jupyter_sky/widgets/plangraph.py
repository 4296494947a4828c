"""The graph of a plan as one SVG: tasks at their places, and what moves between them.

Tasks stand in columns by how many others come before them; each says its place in words, so that
nothing rests on colour alone. Colours follow JupyterLab's theme, or the page's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ..ledger import format_usd
from .planwords import clock
from .statusline import PLAIN

if TYPE_CHECKING:
    from ..optimizer.planned import Moved, Placed, Plan

MOST_TASKS = 60
"""Graphs of more tasks are not drawn: nobody could read them."""
_MOST_LABELS = 24
_CHAR, _LINE, _PAD, _GAP, _ROW = 7.2, 16, 10, 30, 28

# Strips that tell clouds apart at a glance; each box names its cloud as well.
_CLOUDS = {"aws": "#c77700", "azure": "#1f77c9", "gcp": "#2e8b57", "local": "#808080"}
_OTHER = "#8a63c9"
_TEXT = "var(--jp-ui-font-color1, currentColor)"
_QUIET = "var(--jp-ui-font-color2, currentColor)"
_EDGE = "var(--jp-border-color0, #909090)"
_PAGE = "var(--jp-layout-color0, Canvas)"
_BOX = "var(--jp-layout-color2, rgba(128, 128, 128, 0.12))"


@dataclass
class _Box:
    """A task or a store, as it is drawn."""

    key: str
    lines: tuple[str, ...]
    cloud: str
    store: bool
    level: int = 0
    x: float = 0.0
    y: float = 0.0
    column_end: float = 0.0

    @property
    def width(self) -> float:
        """Width in pixels, by the longest line."""
        return max(map(len, self.lines)) * _CHAR + 2 * _PAD + 4

    @property
    def height(self) -> float:
        """Height in pixels."""
        return len(self.lines) * _LINE + 2 * _PAD - 2


def graph(plan: Plan) -> str:
    """The SVG of a plan, or a sentence where there are too many tasks."""
    if len(plan) > MOST_TASKS:
        return f'<div class="{PLAIN}">{len(plan)} tasks: a graph of so many is not drawn</div>'
    boxes, arrows = _parts(plan)
    _layout(boxes, arrows)
    width = max(box.x + box.width for box in boxes.values()) + 12
    height = max(box.y + box.height for box in boxes.values()) + 12
    shown = len([move for *_, move in arrows if move.gb]) <= _MOST_LABELS
    lines = "".join(_arrow(boxes[a], boxes[b], move) for a, b, move in arrows)
    body = "".join(map(_box, boxes.values()))
    if shown:
        body += "".join(_written(boxes[a], boxes[b], move) for a, b, move in arrows)
    font = "var(--jp-ui-font-family, system-ui, sans-serif)"
    return (
        f'<div class="{PLAIN}" style="overflow-x: auto; padding: 4px 8px">'
        f'<svg role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="width: {width:.0f}px; max-width: 100%; min-width: min({width:.0f}px, 640px); '
        f'height: auto; font: 12px {font}; color: {_TEXT}">'
        f"<title>{escape(_spoken(plan))}</title>"
        f'<defs><marker id="jupyter-sky-arrow" viewBox="0 0 8 8" refX="7" refY="4" '
        f'markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" style="fill: {_EDGE}"/></marker></defs>'
        f"{lines}{body}</svg></div>"
    )


def _spoken(plan: Plan) -> str:
    """The graph in words, for those who do not see it."""
    placed = "; ".join(f"{one.task} on {one.offer.place}" for one in plan.tasks)
    moved = "; ".join(
        f"{_size(move.gb)} from {move.source} to {move.target} for {format_usd(move.usd)}"
        for move in plan.moves
        if move.gb
    )
    return f"Graph of the plan. {placed}." + (f" {moved}." if moved else "")


def _parts(plan: Plan) -> tuple[dict[str, _Box], list[tuple[str, str, Moved]]]:
    boxes = {one.task: _task(one) for one in plan.tasks}
    arrows = []
    for number, move in enumerate(plan.moves):
        ends = [move.source, move.target]
        if move.kind != "edge":
            store = 0 if move.kind == "input" else 1
            # one box for each use: a line back to one store would cross all the others
            key = f"{number} {ends[store]}"
            boxes[key] = _Box(key, (_short(ends[store]),), "", True)
            ends[store] = key
        arrows.append((*ends, move))
    return boxes, arrows


def _task(one: Placed) -> _Box:
    offer = one.offer
    plain = offer.gpu is None or offer.gpu in offer.instance_type
    gpu = "" if plain else f" {offer.gpu}:{offer.gpu_count:g}"
    nodes = f"{one.nodes} x " if one.nodes > 1 else ""
    zone = offer.zone or offer.region
    market = " spot" if offer.spot else ""
    time = clock(one.hours) + (" assumed" if one.assumed else "")
    return _Box(
        one.task,
        (
            one.task,
            f"{offer.cloud} {zone}",
            f"{nodes}{offer.instance_type}{market}{gpu}",
            f"{time} · {format_usd(one.usd)}",
        ),
        offer.cloud,
        False,
    )


def _short(uri: str) -> str:
    return uri if len(uri) <= 28 else f"{uri[:27]}…"


def _size(gb: float) -> str:
    """GB as an arrow shows it.

    Examples
    --------
    >>> _size(150), _size(0.25), _size(20480)
    ('150 GB', '256 MB', '20 TB')
    """
    if gb >= 1000:
        return f"{gb / 1024:.3g} TB"
    return f"{gb:.3g} GB" if gb >= 1 else f"{gb * 1024:.3g} MB"


def _layout(boxes: dict[str, _Box], arrows: Sequence[tuple[str, str, Moved]]) -> None:
    """Columns by the longest path, each ordered by where its arrows come from."""
    for _ in boxes:
        moved = False
        for a, b, _move in arrows:
            if boxes[b].level <= boxes[a].level:
                boxes[b].level, moved = boxes[a].level + 1, True
        if not moved:
            break
    columns: dict[int, list[_Box]] = {}
    for box in boxes.values():
        columns.setdefault(box.level, []).append(box)
    before: dict[str, list[str]] = {key: [] for key in boxes}
    for a, b, _move in arrows:
        before[b].append(a)
    middle = max(sum(b.height + _ROW for b in column) for column in columns.values()) / 2
    x = 8.0
    for level in sorted(columns):
        column = columns[level]
        if level:
            column.sort(key=lambda box: _mean([boxes[a].y for a in before[box.key]]))
        y = max(8.0, middle - sum(box.height + _ROW for box in column) / 2 + 8)
        for box in column:
            box.x, box.y = x, y
            y += box.height + _ROW
        labels = [_label(move) for a, b, move in arrows if boxes[a].level == level]
        longest = max(map(len, labels), default=0)
        for box in column:
            box.column_end = x + max(each.width for each in column)
        x += max(box.width for box in column) + max(_GAP, longest * _CHAR * 0.92 + 32)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _label(move: Moved) -> str:
    if not move.gb:
        return ""
    time = f" · {clock(move.hours)}" if move.hours * 3600 >= 1 else ""
    return f"{_size(move.gb)} · {format_usd(move.usd)}{time}"


def _arrow(a: _Box, b: _Box, move: Moved) -> str:
    x1, y1 = a.x + a.width, a.y + a.height / 2
    x2, y2 = b.x - 3, b.y + b.height / 2
    bend = max(24.0, (x2 - x1) / 2)
    path = (
        f"M{x1:.1f} {y1:.1f} C{x1 + bend:.1f} {y1:.1f} {x2 - bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    )
    label = _label(move)
    width = 2.2 if move.usd >= 0.01 else 1.2
    dash = "" if move.gb else "stroke-dasharray: 4 3; "
    return (
        f'<path d="{path}" marker-end="url(#jupyter-sky-arrow)" '
        f'style="fill: none; {dash}stroke: {_EDGE}; stroke-width: {width}">'
        f"<title>{escape(f'{move.source} to {move.target}: {label}')}</title></path>"
    )


def _written(a: _Box, b: _Box, move: Moved) -> str:
    """What an arrow says, on its line between the two columns."""
    label = _label(move)
    if not label:
        return ""
    x1, y1, x2, y2 = a.x + a.width, a.y + a.height / 2, b.x, b.y + b.height / 2
    x = (a.column_end + x2) / 2
    part = (x - x1) / (x2 - x1)
    y = y1 + (y2 - y1) * part * part * (3 - 2 * part) - 5  # about where the curve is
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" style="font-size: 11px; '
        f"fill: {_TEXT}; stroke: {_PAGE}; stroke-width: 3px; paint-order: stroke; "
        f'stroke-linejoin: round">{escape(label)}</text>'
    )


def _box(box: _Box) -> str:
    radius = box.height / 2 if box.store else 4
    dash = "stroke-dasharray: 4 3; " if box.store else ""
    parts = [
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.0f}" '
        f'style="fill: {_BOX}; {dash}stroke: {_EDGE}"/>'
    ]
    if box.cloud:
        colour = _CLOUDS.get(box.cloud, _OTHER)
        parts.append(
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="4" height="{box.height:.1f}" '
            f'style="fill: {colour}"/>'
        )
    for number, line in enumerate(box.lines):
        weight = "font-weight: 600; " if number == 0 and not box.store else ""
        fill = _QUIET if 0 < number < 3 else _TEXT
        parts.append(
            f'<text x="{box.x + _PAD + 3:.1f}" y="{box.y + _PAD + 10 + number * _LINE:.1f}" '
            f'style="{weight}fill: {fill}">{escape(line)}</text>'
        )
    return "".join(parts)
