"""Plan as HTML and as text: places, alternatives, transfers and times, without network access."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from html import escape
from typing import TYPE_CHECKING

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.requests.quantities import format_vcpus
from jupyter_sky.base.tables import NO_MATHJAX_CLASSES, TABLE, Table
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.plan import Plan, PlanView, register_view
from jupyter_sky.interfaces.widgets.gantt import draw_gantt, summarize
from jupyter_sky.interfaces.widgets.gantt import to_text as gantt_text
from jupyter_sky.interfaces.widgets.graph_layout import (
    MAX_BOXES,
    MAX_LABELS,
    Arrow,
    Box,
    draw,
    lay_out,
)
from jupyter_sky.interfaces.widgets.plan_format import (
    format_clock,
    format_share,
    format_size,
    format_time_difference,
    format_usd_difference,
)
from jupyter_sky.interfaces.widgets.svg import make_figure
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.catalog.regions import OLD_DAYS, days_since
from jupyter_sky.knowledge.ledger.ledger import format_rate, format_usd

if TYPE_CHECKING:
    from jupyter_sky.base.requests.offers import Offer
    from jupyter_sky.decisions.optimizer.plan import PlannedTask, PlannedTransfer


MAX_ROWS = 200
"""Largest number of rows of a table; `plan.tasks` and `plan.moves` have all."""
_MAX_TASKS = 12  # largest plan for which a display solves alternatives
_MAX_SECONDS = 0.3  # largest solver time of such a plan
SMALL = "font-size: 0.85em; opacity: 0.85"
_BLOCK = f"{TABLE}; padding: 2px 8px; overflow-wrap: anywhere"


def to_text(plan: Plan) -> str:
    """Return the plan as plain text."""
    _compute_explanations(plan)
    old = [*filter(None, [old_prices(plan)])]
    if len(plan) == 1 and not plan.moves:
        return "\n".join([*old, str(request_table(plan)), *footer(plan)])
    parts = [
        *old,
        str(tasks_table(plan)),
        *filter(None, [summary_sentence(plan)]),
        gantt_text(plan),
    ]
    if any(move.gb for move in plan.moves):
        parts.append(str(moves_table(plan)))
    parts += map(str, _other(plan))
    return "\n\n".join([*parts, "\n".join(footer(plan))])


def to_html(plan: Plan) -> str:
    """Return the plan as HTML for light and dark themes, legible without styles."""
    _compute_explanations(plan)
    visible = "".join(map(block, filter(None, [*plan.obstacles, _more_calls(plan)])))
    notes = "".join(block(line) for line in (str(plan.certificate), *plan.notes))
    fold = folded(_("Sources and assumptions"), notes) + visible
    old = block(text) if (text := old_prices(plan)) else ""
    if len(plan) == 1 and not plan.moves:
        return old + request_table(plan)._repr_html_() + fold
    moved = [move for move in plan.moves if move.gb]
    parts = [
        old,
        block(headline(plan), "font-weight: 600"),
        block(summary_sentence(plan)),
        draw_graph(plan),
    ]
    parts += [block(_arrows(moved), SMALL), block(summarize(plan)), draw_gantt(plan)]
    parts.append(tasks_table(plan, title="")._repr_html_())
    if tables := _other(plan):
        parts.append(folded(_nearest(plan), "".join(table._repr_html_() for table in tables)))
    if why := _reasons_html(plan):
        items = "".join(f"<li>{escape(line)}</li>" for line in why)
        parts.append(folded(_("why there"), f'<ul style="margin: 0">{items}</ul>'))
    if moved:
        parts.append(folded(_("what moves"), moves_table(plan)._repr_html_()))
    return "".join(parts) + fold


def _compute_explanations(plan: Plan) -> None:
    """Compute alternatives of a small plan; those of a large one the user asks for."""
    if plan.planner is None or not _is_quick(plan):
        return
    plan.alternatives()
    if len(plan) > 1 or plan.moves:
        plan.compared()
        plan.reasons()


def _is_quick(plan: Plan) -> bool:
    """Return whether the plan is small enough to solve a few more like it at once."""
    solving = [spent for stage, spent in plan.certificate.seconds.items() if stage != "tables"]
    return len(plan) <= _MAX_TASKS and sum(solving) <= _MAX_SECONDS


def _other(plan: Plan) -> list[Table]:
    tables = [compared_table(plan)] if plan.compared_ else []
    return tables + ([alternatives_table(plan)] if plan.alternatives_ else [])


def _reasons_html(plan: Plan) -> list[str]:
    return [reason.text for reason in plan.reasons_ or ()]


# -- pieces of HTML ------------------------------------------------------------------------------


def block(text: str, style: str = "") -> str:
    """Return a line of text as HTML; nothing for an empty text."""
    if not text:
        return ""
    return f'<div class="{NO_MATHJAX_CLASSES}" style="{_BLOCK}; {style}">{escape(text)}</div>'


def folded(name: str, html: str) -> str:
    """Return HTML that the reader can unfold."""
    return (
        f'<details class="{NO_MATHJAX_CLASSES}" style="{_BLOCK}">'
        f'<summary style="cursor: pointer">{escape(name)}</summary>{html}</details>'
    )


def _arrows(moved: Sequence[PlannedTransfer]) -> str:
    """Return the legend of the graph's arrows."""
    if not moved:
        return ""
    if len(moved) > MAX_LABELS:
        return _(
            "{moved_count} transfers: their size, cost and time are under “what moves”"
        ).format(moved_count=len(moved))
    guess = any(move.basis not in ("listed", "free") for move in moved)
    return _("arrows: size, cost and time of what moves (est.)") + (
        _("; ~ where no price is listed") if guess else ""
    )


# -- in words ------------------------------------------------------------------------------------


def headline(plan: Plan) -> str:
    """Return name, objective and totals in a line."""
    name = f"Plan {plan.name}".rstrip()
    return _("{name}: {objective}: {usd} (estimates)").format(
        name=name, objective=plan.objective, usd=totals(plan.usd, plan.hours, plan.gco2)
    )


def totals(usd: float, hours: float, gco2: float) -> str:
    """Format cost [USD], time [h] and carbon [g CO2].

    Examples
    --------
    >>> totals(57.2, 5.4, 3200)
    '$57.20, 5:24:00, 3.20 kg CO2'
    """
    carbon = f"{gco2 / 1000:.3g}" if gco2 >= 1e6 else f"{gco2 / 1000:.2f}"
    return _("{usd}, {hours}, {carbon} kg CO2").format(
        usd=format_usd(usd), hours=format_clock(hours), carbon=carbon
    )


def summary_sentence(plan: Plan) -> str:
    """Return the saving over the best single cloud; empty for a plan on one cloud."""
    alone = [
        (one.usd, one.condition.split()[1])
        for one in plan.compared_ or ()
        if one.condition.endswith(" only") and one.usd is not None and one.where.startswith("on ")
        if one.condition.split()[1] in one.where
    ]
    if len(plan.clouds) < 2 or not alone:
        return ""
    usd, cloud = min(alone)
    more = f"{format_usd_difference(usd - plan.usd)}, {format_share(usd - plan.usd, plan.usd)}"
    return _("The best on one cloud alone, {cloud}, costs {usd} ({more}).").format(
        cloud=cloud, usd=format_usd(usd), more=more
    )


def _nearest(plan: Plan) -> str:
    """Return the extra cost of the next best alternative, as the title of a fold."""
    nearest = [one for one in plan.alternatives_ or () if one.kind.startswith("next best")]
    if not nearest:
        return "alternatives"
    one = min(nearest, key=lambda one: (one.usd, one.hours))
    part = format_share(one.usd, plan.usd)
    costs = _("{usd} more{words}").format(
        usd=format_usd(one.usd), words=f" ({part})" if part else ""
    )
    if format_usd_difference(one.usd) == "same":
        costs = _("as much")
    return _("alternatives: the next best, {task} on {offer}, costs {costs}").format(
        task=one.task, offer=place(one.offer, one.nodes), costs=costs
    )


def footer(plan: Plan) -> Sequence[str]:
    """Return certificate and notes, and the calls that compute alternatives."""
    asked = filter(None, [_more_calls(plan)])
    return [str(plan.certificate), *plan.notes, *plan.obstacles, *asked]


def _more_calls(plan: Plan) -> str:
    """Return the calls that compute alternatives; empty where they have been computed."""
    if plan.planner is None or plan.alternatives_ is not None:
        return ""
    return _("what else could be done, and what it costs: plan.compared(), plan.alternatives()")


def old_prices(plan: Plan, today: date | None = None) -> str:
    """Return a sentence about prices of a plan that are older than a month; empty without any.

    Parameters
    ----------
    plan
        The plan.
    today
        Day from which their age is counted; the present unless given.
    """
    ages = {
        one.offer.cloud: age
        for one in plan.tasks
        if (age := days_since(one.offer.date, today)) is not None and age > OLD_DAYS
    }
    if not ages:
        return ""
    return _("prices are up to {days} days old: %sky catalog refresh {clouds}").format(
        days=max(ages.values()), clouds=" ".join(sorted(ages))
    )


def prices_from(offers: Iterable[Offer]) -> str:
    """Return publisher, dates and ages of the prices; this machine has none, as it is free."""
    found = dict.fromkeys(
        describe_origin(offer.source, offer.date).aged or _("not known")
        for offer in offers
        if offer.cloud != "local"
    )
    return _("prices: {origins}").format(origins="; ".join(sorted(found))) if found else ""


def machine(offer: Offer) -> str:
    """Return accelerators, processors and memory of one node."""
    parts = [f"{offer.gpu}:{offer.gpu_count:g}"] if offer.gpu else []
    if offer.vcpus:
        parts.append(format_vcpus(offer.vcpus))
    if offer.memory:
        parts.append(_("{memory:g} GiB").format(memory=offer.memory))
    return ", ".join(parts)


def place(offer: Offer, nodes: int) -> str:
    """Return the place with the number of nodes."""
    return offer.place_of(nodes)


def rate(offer: Offer, nodes: int) -> str:
    """Return the price of all nodes [USD/h]."""
    return format_rate(None if offer.price is None else offer.price * nodes)


def basis(move: PlannedTransfer) -> str:
    """Return the sources of a transfer's price and rate."""
    price = {"listed": _("listed price"), "estimate": _("estimated price"), "free": "free"}
    words = price.get(move.basis, "assumed price")
    return (
        _("{words}, {rate_basis} rate").format(words=words, rate_basis=move.rate_basis)
        if move.rate_basis
        else words
    )


# -- tables --------------------------------------------------------------------------------------


def _time(one: PlannedTask) -> str:
    return format_clock(one.hours) + (" (assumed)" if one.assumed else "")


def tasks_table(plan: Plan, title: str | None = None) -> Table:
    """Return a table of tasks with place, machine, times and cost."""
    rows = tuple(
        (
            one.task,
            place(one.offer, one.nodes),
            machine(one.offer),
            rate(one.offer, one.nodes),
            _time(one),
            format_clock(one.start_h),
            format_usd(one.usd),
        )
        for one in plan.tasks[:MAX_ROWS]
    )
    columns = ("task", "where", "machine", "price", "time", _("starts at"), "cost")
    note = prices_from(one.offer for one in plan.tasks)
    if len(plan) > MAX_ROWS:
        more = _("and {count:,} more: plan.tasks").format(count=len(plan) - MAX_ROWS)
        note = "; ".join(filter(None, (more, note)))
    return Table(headline(plan) if title is None else title, columns, rows, note, heads=True)


def request_table(plan: Plan, title: str | None = None) -> Table:
    """Return a table of a single task's place and its alternatives."""
    (one,) = plan.tasks
    told = plan.alternatives_ or ()

    def row(kind: str, offer: Offer, nodes: int, *figures: str) -> tuple[str, ...]:
        return (kind, place(offer, nodes), rate(offer, nodes), *figures, machine(offer))

    rows = [row("chosen", one.offer, one.nodes, format_usd(plan.usd), "", _time(one))]
    for other in told:
        cost, more = format_usd(plan.usd + other.usd), difference(other.usd, plan.usd)
        time = format_clock(max(0.0, one.hours + other.hours))
        rows.append(row(other.kind, other.offer, other.nodes, cost, more, time))
    columns = (_("choice"), "where", "price", "cost", "more", "time", "machine")
    note = prices_from([one.offer, *(other.offer for other in told)])
    return Table(headline(plan) if title is None else title, columns, tuple(rows), note, heads=True)


def difference(usd: float, whole: float) -> str:
    """Format a cost difference in USD and as a share of the whole.

    Examples
    --------
    >>> difference(1.5, 10), difference(0, 10), difference(1.5, 0)
    ('+$1.50 (+15 %)', 'same', '+$1.50')
    """
    part = format_share(usd, whole)
    return format_usd_difference(usd) + (f" ({part})" if part and part != "same" else "")


def moves_table(plan: Plan) -> Table:
    """Return a table of transfers with price and time."""
    moved = [move for move in plan.moves if move.gb]
    rows = tuple(
        (
            move.source,
            move.target,
            format_size(move.gb),
            format_usd(move.usd),
            format_clock(move.hours),
            basis(move),
        )
        for move in moved[:MAX_ROWS]
    )
    columns = ("from", "to", "size", "cost", "time", _("known by"))
    more = f"and {len(moved) - MAX_ROWS:,} more: plan.moves" if len(moved) > MAX_ROWS else ""
    return Table(_("What moves"), columns, rows, more, heads=True)


def compared_table(plan: Plan) -> Table:
    """Return a table of the plan and of plans under other conditions."""
    rows = [(_("this plan"), format_usd(plan.usd), "", format_clock(plan.hours), "", _clouds(plan))]
    for one in plan.compared_ or ():
        if one.usd is None or one.hours is None:
            rows.append((one.condition, "", "", "", "", one.error))
            continue
        rows.append(
            (
                one.condition,
                format_usd(one.usd),
                difference(one.usd - plan.usd, plan.usd),
                format_clock(one.hours),
                format_time_difference(one.hours - plan.hours),
                one.where,
            )
        )
    columns = (_("the whole plan"), "cost", "more", "time", "longer", "where")
    return Table(_("Other plans (estimates)"), columns, tuple(rows), heads=True)


def _clouds(plan: Plan) -> str:
    return f"on {', '.join(plan.clouds)}"


def alternatives_table(plan: Plan) -> Table:
    """Return a table of each task's alternatives with the cost of the whole plan."""
    told = plan.alternatives_ or ()
    rows = tuple(
        (
            one.task,
            one.kind,
            place(one.offer, one.nodes),
            difference(one.usd, plan.usd),
            format_time_difference(one.hours),
            format_usd(plan.usd + one.usd),
            rate(one.offer, one.nodes),
        )
        for one in told
    )
    columns = ("task", "instead", "where", "more", "longer", _("plan costs"), "price")
    note = prices_from(one.offer for one in told)
    return Table(_("One task elsewhere (estimates)"), columns, rows, note, heads=True)


register_view(PlanView(to_text, to_html))


# -- Graph of a plan as SVG: tasks at their places and the transfers between them -----------------
#
# Tasks stand in columns by how many others come before them; each says its place in words, so that
# nothing rests on colour alone. Colours follow JupyterLab's theme, or the page's.


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
