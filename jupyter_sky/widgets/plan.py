"""A plan as a table and a graph in a notebook, and as text elsewhere; it asks no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from ..ledger import format_rate, format_usd
from .plangraph import graph
from .planwords import clock
from .statusline import PLAIN
from .table import TABLE, Table

if TYPE_CHECKING:
    from ..offers import Offer
    from ..optimizer.planned import Moved, Placed, Plan

_CLIP = 32
_MOST_REASONS = 12  # lines of reasons that are worked out for a display; `explain()` has them all


def to_text(plan: Plan) -> str:
    """The plan as plain text."""
    parts = [str(tasks_table(plan))]
    if any(move.gb for move in plan.moves):
        parts.append(str(moves_table(plan)))
    if plan.compared_:
        parts.append(str(compared_table(plan)))
    return "\n\n".join([*parts, "\n".join(footer(plan))])


def to_html(plan: Plan) -> str:
    """The plan as HTML that is legible in light and in dark, and where styles are stripped."""
    plain = f'<div class="{PLAIN}" style="{TABLE}; padding: 2px 8px">'
    parts = [tasks_table(plan)._repr_html_()]
    if len(plan) > 1 or plan.moves:
        parts.append(graph(plan))
    if any(move.gb for move in plan.moves):
        parts.append(_folded("what moves", moves_table(plan)._repr_html_()))
    if why := _why(plan):
        items = "".join(f"<li>{escape(line)}</li>" for line in why)
        parts.append(_folded("why", f'<ul style="margin: 0">{items}</ul>'))
    if plan.work is not None and len(plan) > 1 and len(plan) <= _MOST_REASONS:
        plan.compared()
    if plan.compared_:
        parts.append(_folded("what if", compared_table(plan)._repr_html_()))
    parts += [f"{plain}{escape(line)}</div>" for line in footer(plan)]
    return "".join(parts)


def _why(plan: Plan) -> list[str]:
    if plan.reasons_ is None and (plan.work is None or len(plan) > _MOST_REASONS):
        return []
    return [reason.text for reason in plan.reasons()]


def _folded(name: str, html: str) -> str:
    return (
        f'<details class="{PLAIN}" style="{TABLE}; padding: 2px 8px">'
        f"<summary>{escape(name)}</summary>{html}</details>"
    )


def headline(plan: Plan) -> str:
    """Name, objective and totals in a line."""
    name = f"Plan {plan.name}".rstrip()
    return f"{name}: {plan.objective}: {totals(plan.usd, plan.hours, plan.gco2)} (estimates)"


def totals(usd: float, hours: float, gco2: float) -> str:
    """Cost, time and carbon.

    Examples
    --------
    >>> totals(57.2, 5.4, 3200)
    '$57.20, 5:24:00, 3.20 kg CO2'
    """
    carbon = f"{gco2 / 1000:.3g}" if gco2 >= 1e6 else f"{gco2 / 1000:.2f}"
    return f"{format_usd(usd)}, {clock(hours)}, {carbon} kg CO2"


def tasks_table(plan: Plan) -> Table:
    """Each task with its place, its machine, its times and its cost."""
    rows = []
    for one in plan.tasks:
        offer = one.offer
        price = None if offer.price is None else offer.price * one.nodes
        rows.append(
            (
                one.task,
                f"{one.nodes} x {offer.place}" if one.nodes > 1 else offer.place,
                machine(one),
                format_rate(price),
                clock(one.hours) + (" (assumed)" if one.assumed else ""),
                clock(one.start_h),
                format_usd(one.usd),
                known_from(offer),
            )
        )
    columns = ("task", "where", "machine", "price", "time", "starts at", "cost", "price from")
    return Table(headline(plan), columns, tuple(rows))


def known_from(offer: Offer) -> str:
    """Date and source of a price; a long source is cut, `plan[task].offer.source` has it whole."""
    source = offer.source if len(offer.source) <= _CLIP else f"{offer.source[: _CLIP - 1]}…"
    return f"{offer.date} {source}".strip()


def machine(one: Placed) -> str:
    """Processors, memory and accelerators of one node."""
    offer = one.offer
    parts = [f"{offer.gpu}:{offer.gpu_count:g}"] if offer.gpu else []
    if offer.vcpus:
        parts.append(f"{offer.vcpus:g} vCPUs")
    if offer.memory:
        parts.append(f"{offer.memory:g} GiB")
    return ", ".join(parts)


def moves_table(plan: Plan) -> Table:
    """Data that moves, with its price and time."""
    rows = tuple(
        (
            move.source,
            move.target,
            f"{move.gb:,.3g} GB" if move.gb < 1000 else f"{move.gb:,.0f} GB",
            format_usd(move.usd),
            clock(move.hours),
            basis(move),
        )
        for move in plan.moves
        if move.gb
    )
    return Table("Data", ("from", "to", "size", "cost", "time", "known by"), rows)


def basis(move: Moved) -> str:
    """How price and rate of a transfer are known."""
    price = {"listed": "listed price", "estimate": "estimated price", "free": "free"}
    words = price.get(move.basis, "assumed price")
    return f"{words}, {move.rate_basis} rate" if move.rate_basis else words


def compared_table(plan: Plan) -> Table:
    """The plan beside what it would be under other conditions."""
    rows = [("this plan", format_usd(plan.usd), clock(plan.hours), "")]
    for one in plan.compared_ or ():
        if one.usd is None or one.hours is None:
            rows.append((one.condition, "", "", one.error))
            continue
        share = f"{100 * (one.usd / plan.usd - 1):+.0f} % cost" if plan.usd > 0 else ""
        rows.append((one.condition, format_usd(one.usd), clock(one.hours), share))
    return Table("What if", ("condition", "cost", "time", ""), tuple(rows))


def footer(plan: Plan) -> Sequence[str]:
    """Certificate and notes."""
    return [str(plan.certificate), *plan.notes]
