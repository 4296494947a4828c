"""Live view of a search: best so far, what each trial has cost, arms with bounds, what it saves."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from ..ledger.ledger import format_usd
from ..search.result import SearchResult, Target
from ..tables import Table
from ..translation import _
from .plan import block


def format_value(value: float | None, minimize: Target) -> str:
    """Return a cost or a time in words; a dash where there is none.

    Examples
    --------
    >>> format_value(12.34, "time"), format_value(0.5, "cost"), format_value(None, "cost")
    ('12.3 s', '$0.50', '–')
    """
    if value is None:
        return "–"
    return format_usd(value) if minimize == "cost" else f"{value:.1f} s"


def arms_table(found: SearchResult) -> Table:
    """Return the clouds of a search: how often each was tried, its best, and what it may reach."""
    rows = []
    for arm in found.space.arms:
        tried = [one for one in found.tries if one.point.arm == arm]
        best, refused = found.best_in(arm), sum(one.point.arm == arm for one in found.refused)
        rows.append(
            (
                arm,
                f"{len(tried)} / {len(found.space.members(arm))}",
                str(refused or ""),
                format_value(best.value if best else None, found.minimize),
                format_value(found.bounds.get(arm), found.minimize),
            )
        )
    columns = (_("cloud"), _("tried"), _("refused"), _("best"), _("1 in 10 reaches"))
    return Table("", columns, tuple(rows))


def to_html(found: SearchResult) -> str:
    """Return a search as HTML: its summary, its clouds, its trials."""
    return (
        block(found.summary, "font-weight: 600")
        + arms_table(found)._repr_html_()
        + found._repr_html_()
    )


def to_text(found: SearchResult) -> str:
    """Return a search as plain text."""
    return "\n\n".join([str(arms_table(found)), str(found.table())])


def live_view(shell: Any) -> Callable[[SearchResult], None]:
    """Return a function that shows a search in the output of the cell, each time anew."""
    from IPython.display import display

    if shell is None:
        return lambda found: print(found.summary, flush=True)
    begun = _("searching: the first trials are being launched")
    data = {"text/plain": begun, "text/html": f"<div>{escape(begun)}</div>"}
    shown = display(data, raw=True, display_id=True)

    def show(found: SearchResult) -> None:
        data = {"text/plain": to_text(found), "text/html": to_html(found)}
        shown.update(data, raw=True)  # type: ignore[union-attr]

    return show
