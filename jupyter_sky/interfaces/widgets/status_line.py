"""Status line above a cell's outputs: stage, time, place and cost."""

from __future__ import annotations

import time
from html import escape
from typing import Any

from jupyter_sky.base.requests.resources import format_run_time
from jupyter_sky.base.tables import NO_MATHJAX_CLASSES
from jupyter_sky.base.translation import _
from jupyter_sky.execution.display import RunStatus
from jupyter_sky.knowledge.ledger.ledger import format_usd

# JupyterLab sets the variables; the fallbacks have contrast on white and on black alike.
_WAITING = "var(--jp-ui-font-color2, #808080)"
_ACTIVE = "var(--jp-brand-color1, #1e88e5)"
_GOOD = "var(--jp-success-color1, #3c9a40)"
_WARNING = "var(--jp-warn-color1, #d17a00)"
_BAD = "var(--jp-error-color1, #e53935)"
_COLOURS: dict[str, str] = {
    "running": _ACTIVE,
    "done": _GOOD,
    "failed": _BAD,
    "interrupting": _WARNING,
    "interrupted": _WARNING,
    "cancelled": _WARNING,
}

_LINE = (
    "color: var(--jp-ui-font-color1, inherit); "
    "font-family: var(--jp-ui-font-family, system-ui, sans-serif); "
    "font-size: var(--jp-ui-font-size1, 13px); font-variant-numeric: tabular-nums; "
    "line-height: 1.6; padding: 1px 0 1px 8px; margin: 0 0 2px; "
    "border-left: 2px solid rgba(128, 128, 128, 0.35)"
)
CARD_MIME = "application/vnd.jupyter-sky.run+json"
"""MIME type of a running cell's card, which only our JupyterLab extension draws."""
_QUIET = "opacity: 0.72"
_NOTE = "font-size: 0.92em; opacity: 0.85"


def to_text(status: RunStatus) -> str:
    """Return the status as plain text, notes on lines of their own.

    Examples
    --------
    >>> print(to_text(RunStatus("done", 72, "train", "this machine", 0.0, 0.0, 0.41)))
    ☁ done 1:12 · $0.00 this cell · $0.41 this notebook · train on this machine $0.00/h
    """
    took = format_run_time(status.seconds, status.boot)
    line = " · ".join([f"☁ {status.stage} {took}", *_facts(status)])
    return "\n".join([line, *(f"  {note}" for note in _notes(status))])


def to_html(status: RunStatus) -> str:
    """Return the status as HTML for light and dark themes, legible without styles."""
    colour = _COLOURS.get(status.stage, _WAITING)
    # in a notebook that is not trusted, JupyterLab removes variables and keeps plain colours
    plain = colour.partition(", ")[2].rstrip(")")
    facts = "".join(f" · {escape(fact)}" for fact in _facts(status))
    notes = "".join(f'<div style="{_NOTE}">{escape(note)}</div>' for note in _notes(status))
    # A screen reader announces the end of the cell, not every second before.
    live = "polite" if status.is_final else "off"
    source = (
        _(' title="price from {price_from}"').format(price_from=escape(status.price_from))
        if status.price_from
        else ""
    )
    return (
        f'<div class="{NO_MATHJAX_CLASSES}" role="status" aria-live="{live}" style="{_LINE}">'
        f'<span aria-hidden="true" style="color: {plain}; color: {colour}">●</span> '
        f"<b>{escape(status.stage)}</b> {format_run_time(status.seconds, status.boot)}"
        f'<span style="{_QUIET}"{source}>{facts}</span>{notes}</div>'
    )


def mimebundle(status: RunStatus) -> dict[str, Any]:
    """Return all formats, for ``display(..., raw=True)``.

    JupyterLab draws the card of a live run; a final status is HTML and text alone, so that a saved
    notebook needs no extension.
    """
    static = {"text/html": to_html(status), "text/plain": to_text(status)}
    return (
        static if status.is_final or not status.run_id else {CARD_MIME: to_card(status), **static}
    )


def to_card(status: RunStatus) -> dict[str, Any]:
    """Return the status as data for ``static/card.js``, which counts on by itself."""
    return {
        "version": 1,
        "run_id": status.run_id,
        "stage": status.stage,
        "seconds": round(status.seconds, 1),
        "boot": round(status.boot, 1),
        "at": round(time.time(), 1),
        "cluster": status.cluster,
        "place": status.place,
        "price": status.price,
        "price_from": status.price_from,
        "cell_usd": status.cell_usd,
        "notebook_usd": status.notebook_usd,
        "detail": status.detail,
        "notes": list(_notes(status)),
        "warning": status.warning,
    }


def output_metadata(status: RunStatus) -> dict[str, Any]:
    """Return the output's metadata: the run id, which a reopened notebook follows."""
    return {"jupyter_sky": {"run_id": status.run_id}} if status.run_id else {}


def _notes(status: RunStatus) -> tuple[str, ...]:
    """Return the sentences below the line."""
    return (*status.notes, status.warning) if status.warning else status.notes


def _facts(status: RunStatus) -> list[str]:
    """Return the parts after stage and time; unknown ones are left out."""
    costs = [(status.cell_usd, _("this cell")), (status.notebook_usd, _("this notebook"))]
    spent = [f"{format_usd(usd)} {whose}" for usd, whose in costs if usd is not None]
    where = " on ".join(part for part in (status.cluster, status.place) if part)
    price = _("price unknown") if status.price is None else f"{format_usd(status.price)}/h"
    return [*filter(None, [status.detail]), *spent, *([f"{where} {price}"] if where else [])]
