"""Dry run of a cell: a sentence, a small table, and folded details."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.interfaces.widgets.plan import (
    block,
    folded,
    footer,
    machine,
    old_prices,
    place,
    rate,
    request_table,
)
from jupyter_sky.interfaces.widgets.plan_format import format_clock
from jupyter_sky.knowledge.ledger.ledger import format_usd


@dataclass(frozen=True)
class DryRun:
    """Place and price of a cell that would run, as HTML in a notebook and as text.

    Attributes
    ----------
    plan : Plan
        Plan of the cell, with the next best places as its alternatives.
    copies : str
        Data that would be copied to the machine.
    notes : tuple of str
        Remarks on the place, such as a cluster that is up or a reason why it is unusable.
    """

    plan: Plan
    copies: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Place, price and cost of an hour of work."""
        (one,) = self.plan.tasks
        kind, asked = machine(one.offer), self.plan.name
        where = place(one.offer, one.nodes) + (f" ({kind})" if kind else "")
        ready = (
            _(", ready after {spin_up_hours}").format(spin_up_hours=format_clock(one.spin_up_hours))
            if one.spin_up_hours
            else ""
        )
        return _(
            "Dry run{words}: would run on {where} at {offer}: {usd} for an hour of "
            "work (est.){ready}"
        ).format(
            words=_(" of {asked}").format(asked=asked) if asked else "",
            where=where,
            offer=rate(one.offer, one.nodes),
            usd=format_usd(self.plan.usd),
            ready=ready,
        )

    @property
    def details(self) -> str:
        """Notes, data that would be copied, and that nothing was launched."""
        told = (
            *self.notes,
            _("would be copied: {copies}").format(copies=self.copies or "nothing"),
            _("nothing was launched"),
        )
        return "; ".join(told)

    def table(self) -> Table:
        """Return the chosen place and the next best ones."""
        return request_table(self.plan, "")

    def __str__(self) -> str:
        notes = (f"  {line}" for line in footer(self.plan))
        old = [*filter(None, [old_prices(self.plan)])]
        return "\n".join([*old, self.sentence, self.details, str(self.table()), *notes])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        notes = "".join(block(line) for line in footer(self.plan))
        old = block(text) if (text := old_prices(self.plan)) else ""
        head = old + block(self.sentence, "font-weight: 600") + block(self.details)
        return head + self.table()._repr_html_() + folded(_("Sources and assumptions"), notes)
