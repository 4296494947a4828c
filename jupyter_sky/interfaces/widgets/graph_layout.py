"""Graphs as SVG: boxes in columns by how many others come before them, and arrows between them.

Colours follow JupyterLab's theme, or the page's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from jupyter_sky.base.tables import PAGE
from jupyter_sky.interfaces.widgets.svg import BOX, CHAR, EDGE, QUIET, TEXT, text_width

MAX_BOXES = 60
"""Largest graph that is drawn: larger ones are illegible."""
MAX_LABELS = 40
"""Largest number of arrows with labels."""
_LINE, _PAD, _GAP, _ROW, _PASSAGE = 16, 10, 30, 28, 14.0
_LABEL_LINE = 13
_LABEL = 3 * _LABEL_LINE + 3  # height of the label of an arrow [px]


@dataclass
class Box:
    """Box of a graph, or the gap that lets an arrow pass a column.

    Attributes
    ----------
    key : str
        Unique in the graph.
    lines : tuple of str
        Text, the first line in bold; a gap has none.
    colour : str
        Colour of the bar at its left; none if empty.
    store : bool
        Whether it is a store: round, dashed, next to its task.
    title : str
        Text of its tooltip.
    attributes : str
        Attributes of the SVG element, such as ``data-task="train"``.
    outline : str
        Style of its edge.
    """

    key: str
    lines: tuple[str, ...]
    colour: str = ""
    store: bool = False
    title: str = ""
    attributes: str = ""
    outline: str = f"stroke: {EDGE}"
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
class Arrow:
    """Arrow between two boxes.

    Attributes
    ----------
    stops : list of Box
        Its boxes from left to right.
    title : str
        What it means, in words.
    label : tuple of str
        Lines of its label.
    thick, dashed : bool
        How it is drawn.
    """

    stops: list[Box]
    title: str
    label: tuple[str, ...] = field(default=())
    thick: bool = False
    dashed: bool = False


def lay_out(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> tuple[float, float]:
    """Place boxes and arrows; return width and height of the picture [px]."""
    _level(boxes, arrows)
    all_boxes = [*boxes, *_gaps(arrows)]
    _layout(all_boxes, arrows)
    width = max(box.column_end for box in all_boxes) + 12
    return width, max(box.y + box.height for box in all_boxes) + 12


def draw(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """Return the SVG elements of boxes and arrows that have been placed."""
    body = "".join(map(_line, arrows)) + "".join(map(_box, boxes))
    if sum(bool(arrow.label) for arrow in arrows) <= MAX_LABELS:
        body += "".join(_labels(arrows))
    return body


# -- layout --------------------------------------------------------------------------------------


def _level(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> None:
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


def _gaps(arrows: Sequence[Arrow]) -> list[Box]:
    """Return a gap in each column that an arrow passes, so that it crosses no box."""
    found = []
    for number, arrow in enumerate(arrows):
        a, b = arrow.stops
        gaps = [Box(f"{number} {level}", (), level=level) for level in range(a.level + 1, b.level)]
        arrow.stops = [a, *gaps, b]
        found += gaps
    return found


def _layout(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> None:
    """Place columns from left to right, each ordered by the sources of its arrows."""
    columns: dict[int, list[Box]] = {}
    for box in boxes:
        columns.setdefault(box.level, []).append(box)
    before: dict[str, list[Box]] = {box.key: [] for box in boxes}
    after: dict[str, list[Box]] = {box.key: [] for box in boxes}
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
                for line in arrow.label
            ),
            default=0,
        )
        x = end + max(_GAP, longest * CHAR * 0.92 + 22)


def _extent(column: Sequence[Box]) -> float:
    """Return the height of a column from its first box to its last [px]."""
    return sum(box.pitch for box in column[:-1]) + column[-1].height


def _order(
    columns: dict[int, list[Box]], before: dict[str, list[Box]], after: dict[str, list[Box]]
) -> None:
    """Sort each column by the mean rank of its neighbours, so that few lines cross."""
    rank = {box.key: float(i) for column in columns.values() for i, box in enumerate(column)}

    def mean(box: Box, near: dict[str, list[Box]]) -> float:
        ranks = [rank[other.key] for other in near[box.key]]
        return sum(ranks) / len(ranks) if ranks else rank[box.key]

    for near, levels in ((before, sorted(columns)), (after, sorted(columns)[::-1])) * 2:
        for level in levels:
            columns[level].sort(key=lambda box: mean(box, near))
            # as a share of the column: columns of different length compare
            share = 1 / len(columns[level])
            rank |= {box.key: (i + 0.5) * share for i, box in enumerate(columns[level])}


def _line(arrow: Arrow) -> str:
    first, last = arrow.stops[0], arrow.stops[-1]
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
    thick = 2.2 if arrow.thick else 1.2
    dash = "stroke-dasharray: 4 3; " if arrow.dashed else ""
    return (
        f'<path d="{" ".join(path)}" '
        f'style="fill: none; {dash}stroke: {EDGE}; stroke-width: {thick}">'
        f"<title>{escape(arrow.title)}</title></path>"
        f'<path d="M{last.x - 9:.1f} {last.middle - 5:.1f} l9 5 l-9 5 z" style="fill: {EDGE}"/>'
    )


def _labels(arrows: Sequence[Arrow]) -> Iterator[str]:
    """Yield the labels of arrows, between their first two columns, without overlaps."""
    spots = []
    for arrow in arrows:
        if label := arrow.label:
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


def _box(box: Box) -> str:
    radius = box.height / 2 if box.store else 4
    dash = "stroke-dasharray: 4 3; " if box.store else ""
    parts = [
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{radius:.0f}" '
        f'style="fill: {BOX}; {dash}{box.outline}"/>'
    ]
    if box.colour:
        parts.append(
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="4" height="{box.height:.1f}" '
            f'style="fill: {box.colour}"/>'
        )
    for number, line in enumerate(box.lines):
        weight = "font-weight: 600; " if number == 0 and not box.store else ""
        fill = QUIET if 0 < number < 3 else TEXT
        parts.append(
            f'<text x="{box.x + _PAD + 3:.1f}" y="{box.y + _PAD + 10 + number * _LINE:.1f}" '
            f'style="{weight}fill: {fill}">{escape(line)}</text>'
        )
    title = f"<title>{escape(box.title)}</title>" if box.title else ""
    return f"<g {box.attributes}>{title}{''.join(parts)}</g>"
