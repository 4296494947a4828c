"""Graph of a plan as SVG: tasks at their places and the transfers between them.

Tasks stand in columns by how many others come before them; each says its place in words, so that
nothing rests on colour alone. Colours follow JupyterLab's theme, or the page's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.tables import NO_MATHJAX_CLASSES
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.widgets.graph_layout import MAX_BOXES, Arrow, Box, draw, lay_out
from jupyter_sky.interfaces.widgets.plan_format import format_clock, format_size
from jupyter_sky.interfaces.widgets.svg import make_figure
from jupyter_sky.knowledge.ledger.ledger import format_usd

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan
    from jupyter_sky.decisions.optimizer.plan_values import PlannedTask, PlannedTransfer


def draw_graph(plan: Plan) -> str:
    """Return the SVG of a plan, or a sentence for too many tasks."""
    if len(plan) > MAX_BOXES:
        sentence = _("{plan_count} tasks: a graph of so many is not drawn").format(
            plan_count=len(plan)
        )
        return f'<div class="{NO_MATHJAX_CLASSES}">{sentence}</div>'
    boxes, arrows = _parts(plan)
    width, height = lay_out(boxes, arrows)
    body = draw(boxes, arrows)
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


def _parts(plan: Plan) -> tuple[list[Box], list[Arrow]]:
    tasks = {one.task: _task(one) for one in plan.tasks}
    boxes, arrows = list(tasks.values()), []
    for number, move in enumerate(plan.moves):
        ends = [move.source, move.target]
        stops = [tasks[end] for end in ends if end in tasks] if move.kind == "edge" else []
        if move.kind != "edge":
            store = 0 if move.kind == "input" else 1
            # one box for each use: a line back to one store would cross all the others
            box = Box(f"{number} {ends[store]}", (_short(ends[store]),), store=True)
            boxes.append(box)
            stops = [box, tasks[ends[1]]] if store == 0 else [tasks[ends[0]], box]
        arrows.append(_arrow(move, stops))
    return boxes, arrows


def _arrow(move: PlannedTransfer, stops: list[Box]) -> Arrow:
    # one below the other: side by side they made graphs too wide
    label = (format_size(move.gb), amount(move), format_clock(move.hours)) if move.gb else ()
    title = _("{source} to {target}: {move}").format(
        source=move.source, target=move.target, move=" · ".join(label) or _("no data moves")
    )
    return Arrow(stops, title, label, thick=move.usd >= 0.01, dashed=not move.gb)


def _task(one: PlannedTask) -> Box:
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
    return Box(one.task, lines, find_facts(offer.cloud).colour)


def _short(uri: str) -> str:
    return uri if len(uri) <= 28 else f"{uri[:27]}…"
