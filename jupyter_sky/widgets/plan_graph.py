"""Graph of a plan as SVG: tasks at their places and the transfers between them.

Tasks stand in columns by how many others come before them; each says its place in words, so that
nothing rests on colour alone. Colours follow JupyterLab's theme, or the page's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from ..ledger.ledger import format_usd
from ..provider.register import find_facts
from ..tables import NO_MATHJAX_CLASSES, PAGE
from ..translation import _
from .plan_format import format_clock, format_size
from .svg import BOX, CHAR, EDGE, QUIET, TEXT, make_figure, text_width

if TYPE_CHECKING:
    from ..optimizer.plan import Plan
    from ..optimizer.plan_values import PlannedTask, PlannedTransfer

MAX_TASKS = 60
"""Largest graph that is drawn: larger ones are illegible."""
MAX_LABELS = 40
"""Largest number of arrows with labels; of more, the table has the amounts."""
_LINE, _PAD, _GAP, _ROW, _PASSAGE = 16, 10, 30, 28, 14.0
_LABEL_LINE = 13
_LABEL = 3 * _LABEL_LINE + 3  # height of the label of an arrow [px]


@dataclass
class _Box:
    """Box of a task or a store, or the gap that lets an arrow pass a column."""

    key: str
    lines: tuple[str, ...]
    cloud: str = ""
    store: bool = False
    level: int = 0
    x: float = 0.0
    y: float = 0.0
    column_end: float = 0.0

    @property
    def width(self) -> float:
        """Width in pixels, by the longest line."""
        return text_width(max(self.lines, key=len)) + 2 * _PAD + 4 if self.lines else 0.0

    @property
    def height(self) -> float:
        """Height in pixels."""
        return len(self.lines) * _LINE + 2 * _PAD - 2 if self.lines else _PASSAGE

    @property
    def pitch(self) -> float:
        """Distance to the next box below: labels stand halfway to where arrows meet."""
        return max(self.height + _ROW, 2 * _LABEL if self.store else 0)

    @property
    def middle(self) -> float:
        """Vertical position of its arrows."""
        return self.y + self.height / 2


@dataclass
class _Arrow:
    """Transfer with its boxes from left to right."""

    move: PlannedTransfer
    stops: list[_Box]


def draw_graph(plan: Plan) -> str:
    """Return the SVG of a plan, or a sentence for too many tasks."""
    if len(plan) > MAX_TASKS:
        sentence = _("{plan_count} tasks: a graph of so many is not drawn").format(
            plan_count=len(plan)
        )
        return f'<div class="{NO_MATHJAX_CLASSES}">{sentence}</div>'
    boxes, arrows = _parts(plan)
    _level(boxes, arrows)
    boxes += _gaps(arrows)
    _layout(boxes, arrows)
    width = max(box.column_end for box in boxes) + 12
    height = max(box.y + box.height for box in boxes) + 12
    body = "".join(map(_line, arrows)) + "".join(_box(box) for box in boxes if box.lines)
    if sum(bool(arrow.move.gb) for arrow in arrows) <= MAX_LABELS:
        body += "".join(_labels(arrows))
    title = _("Graph of the plan: {plan_count} tasks, {usd}, {hours}.").format(
        plan_count=len(plan), usd=format_usd(plan.usd), hours=format_clock(plan.hours)
    )
    return make_figure(width, height, title, _alt_text(plan), body, _("graph of the plan"))


def _alt_text(plan: Plan) -> str:
    """Return the graph in words, for screen readers."""
    placed = "; ".join(
        _("{task} on {place}").format(task=one.task, place=one.offer.place) for one in plan.tasks
    )
    moved = "; ".join(
        _("{gb} from {source} to {target} for {move} in {hours}").format(
            gb=format_size(move.gb),
            source=move.source,
            target=move.target,
            move=amount(move),
            hours=format_clock(move.hours),
        )
        for move in plan.moves
        if move.gb
    )
    return f"{placed}." + (f" {moved}." if moved else "")


def amount(move: PlannedTransfer) -> str:
    """Format the cost of a transfer; ``~`` marks a price that is not listed."""
    return ("" if move.basis in ("listed", "free") else "~") + format_usd(move.usd)


def _parts(plan: Plan) -> tuple[list[_Box], list[_Arrow]]:
    tasks = {one.task: _task(one) for one in plan.tasks}
    boxes, arrows = list(tasks.values()), []
    for number, move in enumerate(plan.moves):
        ends = [move.source, move.target]
        stops = [tasks[end] for end in ends if end in tasks] if move.kind == "edge" else []
        if move.kind != "edge":
            store = 0 if move.kind == "input" else 1
            # one box for each use: a line back to one store would cross all the others
            box = _Box(f"{number} {ends[store]}", (_short(ends[store]),), store=True)
            boxes.append(box)
            stops = [box, tasks[ends[1]]] if store == 0 else [tasks[ends[0]], box]
        arrows.append(_Arrow(move, stops))
    return boxes, arrows


def _task(one: PlannedTask) -> _Box:
    offer = one.offer
    plain = offer.gpu is None or offer.gpu in offer.instance_type
    gpu = "" if plain else f" {offer.gpu}:{offer.gpu_count:g}"
    nodes = f"{one.nodes} x " if one.nodes > 1 else ""
    zone = offer.zone or offer.region
    market = " spot" if offer.spot else ""
    time = format_clock(one.hours) + (" assumed" if one.assumed else "")
    lines = (
        one.task,
        f"{offer.cloud} {zone}",
        f"{nodes}{offer.instance_type}{market}{gpu}",
        f"{time} · {format_usd(one.usd)}",
    )
    return _Box(one.task, lines, offer.cloud)


def _short(uri: str) -> str:
    return uri if len(uri) <= 28 else f"{uri[:27]}…"


# -- layout --------------------------------------------------------------------------------------


def _level(boxes: Sequence[_Box], arrows: Sequence[_Arrow]) -> None:
    """Assign columns by the longest path; an input stands right before its task."""
    for __ in boxes:
        moved = False
        for a, b in (arrow.stops for arrow in arrows):
            if b.level <= a.level:
                b.level, moved = a.level + 1, True
        if not moved:
            break
    for a, b in (arrow.stops for arrow in arrows):
        if a.store:
            a.level = b.level - 1


def _gaps(arrows: Sequence[_Arrow]) -> list[_Box]:
    """Return a gap in each column that an arrow passes, so that it crosses no box."""
    found = []
    for number, arrow in enumerate(arrows):
        a, b = arrow.stops
        gaps = [_Box(f"{number} {level}", (), level=level) for level in range(a.level + 1, b.level)]
        arrow.stops = [a, *gaps, b]
        found += gaps
    return found


def _layout(boxes: Sequence[_Box], arrows: Sequence[_Arrow]) -> None:
    """Place columns from left to right, each ordered by the sources of its arrows."""
    columns: dict[int, list[_Box]] = {}
    for box in boxes:
        columns.setdefault(box.level, []).append(box)
    before: dict[str, list[_Box]] = {box.key: [] for box in boxes}
    after: dict[str, list[_Box]] = {box.key: [] for box in boxes}
    for arrow in arrows:
        for a, b in zip(arrow.stops, arrow.stops[1:], strict=False):
            before[b.key].append(a)
            after[a.key].append(b)
    _order(columns, before, after)
    middle = max(map(_extent, columns.values())) / 2
    x = 8.0
    for level in sorted(columns):
        column = columns[level]
        y = middle - _extent(column) / 2 + 8
        end = x + max(box.width for box in column)
        for box in column:
            box.x, box.y, box.column_end = x, y, end
            y += box.pitch
        longest = max(
            (
                len(line)
                for arrow in arrows
                if arrow.stops[0].level == level
                for line in _label(arrow.move)
            ),
            default=0,
        )
        x = end + max(_GAP, longest * CHAR * 0.92 + 22)


def _extent(column: Sequence[_Box]) -> float:
    """Return the height of a column from its first box to its last [px]."""
    return sum(box.pitch for box in column[:-1]) + column[-1].height


def _order(
    columns: dict[int, list[_Box]], before: dict[str, list[_Box]], after: dict[str, list[_Box]]
) -> None:
    """Sort each column by the mean rank of its neighbours, so that few lines cross."""
    rank = {box.key: float(i) for column in columns.values() for i, box in enumerate(column)}

    def mean(box: _Box, near: dict[str, list[_Box]]) -> float:
        ranks = [rank[other.key] for other in near[box.key]]
        return sum(ranks) / len(ranks) if ranks else rank[box.key]

    for near, levels in ((before, sorted(columns)), (after, sorted(columns)[::-1])) * 2:
        for level in levels:
            columns[level].sort(key=lambda box: mean(box, near))
            # as a share of the column: columns of different length compare
            share = 1 / len(columns[level])
            rank |= {box.key: (i + 0.5) * share for i, box in enumerate(columns[level])}


# -- drawing -------------------------------------------------------------------------------------


def _label(move: PlannedTransfer) -> tuple[str, ...]:
    """Return size, cost and time, one below the other: side by side they made graphs too wide."""
    return (format_size(move.gb), amount(move), format_clock(move.hours)) if move.gb else ()


def _line(arrow: _Arrow) -> str:
    move, first, last = arrow.move, arrow.stops[0], arrow.stops[-1]
    x, y = first.x + first.width, first.middle
    path = [f"M{x:.1f} {y:.1f}"]
    for stop in arrow.stops[1:]:
        to, bend = stop.x - (6 if stop is last else 0), max(20.0, (stop.x - x) / 2)
        path.append(
            f"C{x + bend:.1f} {y:.1f} {to - bend:.1f} {stop.middle:.1f} {to:.1f} {stop.middle:.1f}"
        )
        x, y = stop.column_end, stop.middle
        if stop is not last:
            path.append(f"H{x:.1f}")
    thick = 2.2 if move.usd >= 0.01 else 1.2
    dash = "" if move.gb else "stroke-dasharray: 4 3; "
    said = _("{source} to {target}: {move}").format(
        source=move.source, target=move.target, move=" · ".join(_label(move)) or _("no data moves")
    )
    return (
        f'<path d="{" ".join(path)}" '
        f'style="fill: none; {dash}stroke: {EDGE}; stroke-width: {thick}">'
        f"<title>{escape(said)}</title></path>"
        f'<path d="M{last.x - 9:.1f} {last.middle - 5:.1f} l9 5 l-9 5 z" style="fill: {EDGE}"/>'
    )


def _labels(arrows: Sequence[_Arrow]) -> Iterator[str]:
    """Yield the labels of arrows, between their first two columns, without overlaps."""
    spots = []
    for arrow in arrows:
        if label := _label(arrow.move):
            a, b = arrow.stops[:2]
            x1, x = a.x + a.width, (a.column_end + b.x) / 2
            part = (x - x1) / (b.x - x1)
            # the size stands above the curve, about where that is
            y = a.middle + (b.middle - a.middle) * part * part * (3 - 2 * part) - 5
            spots.append((x, y, label))
    lowest: dict[float, float] = {}
    for x, wanted, label in sorted(spots):
        y = max(wanted, lowest.get(x, -_LABEL) + _LABEL)
        lowest[x] = y
        lines = "".join(
            f'<tspan x="{x:.1f}" y="{y + (number and number * _LABEL_LINE + 5):.1f}">'
            f"{escape(line)}</tspan>"
            for number, line in enumerate(label)
        )
        yield (
            f'<text text-anchor="middle" style="font-size: 11px; '
            f"fill: {TEXT}; stroke: {PAGE}; stroke-width: 3px; paint-order: stroke; "
            f'stroke-linejoin: round">{lines}</text>'
        )


def _box(box: _Box) -> str:
    radius = box.height / 2 if box.store else 4
    dash = "stroke-dasharray: 4 3; " if box.store else ""
    parts = [
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.0f}" '
        f'style="fill: {BOX}; {dash}stroke: {EDGE}"/>'
    ]
    if box.cloud:
        colour = find_facts(box.cloud).colour
        parts.append(
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="4" height="{box.height:.1f}" '
            f'style="fill: {colour}"/>'
        )
    for number, line in enumerate(box.lines):
        weight = "font-weight: 600; " if number == 0 and not box.store else ""
        fill = QUIET if 0 < number < 3 else TEXT
        parts.append(
            f'<text x="{box.x + _PAD + 3:.1f}" y="{box.y + _PAD + 10 + number * _LINE:.1f}" '
            f'style="{weight}fill: {fill}">{escape(line)}</text>'
        )
    return "".join(parts)
