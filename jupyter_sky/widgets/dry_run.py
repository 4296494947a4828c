"""What a cell would do, in a sentence and a small table; the rest is folded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..ledger.ledger import format_usd
from ..optimizer.plan import Plan
from ..tables import Table
from .plan import block, folded, footer, machine, place, rate, request_table, scrollable_table
from .plan_format import format_clock


@dataclass(frozen=True)
class DryRun:
    """Where a cell would run and at what price; shows itself in a notebook and as text.

    Attributes
    ----------
    plan : Plan
        Where, with the next places as its alternatives.
    copies : str
        What would be copied there.
    notes : tuple of str
        More about that place: the cluster that is up, or why it cannot be used yet.
    """

    plan: Plan
    copies: str = ""
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Where, at what price, and what that comes to."""
        (one,) = self.plan.tasks
        kind, asked = machine(one.offer), self.plan.name
        where = place(one.offer, one.nodes) + (f" ({kind})" if kind else "")
        ready = f", ready after {format_clock(one.spin_up_hours)}" if one.spin_up_hours else ""
        return (
            f"Dry run{f' of {asked}' if asked else ''}: would run on {where} "
            f"at {rate(one.offer, one.nodes)}: {format_usd(self.plan.usd)} for an hour of work "
            f"(est.){ready}"
        )

    @property
    def details(self) -> str:
        """What is to be known of the place, what would move, and that nothing has."""
        told = (*self.notes, f"would be copied: {self.copies or 'nothing'}", "nothing was launched")
        return "; ".join(told)

    def table(self) -> Table:
        """The place and the next ones."""
        return request_table(self.plan, "")

    def __str__(self) -> str:
        notes = (f"  {line}" for line in footer(self.plan))
        return "\n".join([self.sentence, self.details, str(self.table()), *notes])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        notes = "".join(block(line) for line in footer(self.plan))
        head = block(self.sentence, "font-weight: 600") + block(self.details)
        return head + scrollable_table(self.table()) + folded("what it rests on", notes)
