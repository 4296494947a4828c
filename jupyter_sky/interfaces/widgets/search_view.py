"""Live view of a search: best so far, what each trial has cost, arms with bounds, what it saves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.result import SearchResult, Target
from jupyter_sky.interfaces.widgets.plan import block
from jupyter_sky.knowledge.ledger.ledger import format_usd

MIME = "application/vnd.jupyter-sky.view+json"
"""As of `view.View`, which brings anywidget."""
LEFT_OUT = 5
"""Configurations without enough memory that are named; of others the number is told."""


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


def running_words(found: SearchResult) -> str:
    """Say which configurations are under way, and which wait; empty when none does."""
    running, waiting = ("; ".join(map(str, each)) for each in (found.running, found.waiting))
    parts = [_("running: {points}").format(points=running)] if running else []
    if waiting:
        words = _("waiting for machines that were refused, or for the budget: {points}")
        parts.append(words.format(points=waiting))
    return "\n".join(parts)


def left_out_words(found: SearchResult) -> str:
    """Say which configurations a lack of memory rules out; empty when it rules out none."""
    points = found.hopeless
    if not points:
        return ""
    words = _("left out, as a try with as much memory or more has run out of it: {points}").format(
        points="; ".join(map(str, points[:LEFT_OUT]))
    )
    if (more := len(points) - LEFT_OUT) > 0:
        words += _(" and {count} more").format(count=more)
    return words


def to_html(found: SearchResult, trials: bool = True) -> str:
    """Return a search as HTML: summary, clouds, what runs, what is left out, trials if wanted."""
    parts = [block(found.summary, "font-weight: 600"), arms_table(found)._repr_html_()]
    words = [*running_words(found).splitlines(), left_out_words(found)]
    parts += [block(each) for each in words]
    if trials:  # the summary stands above
        parts += [found.curve_html(), replace(found.table(), note="")._repr_html_()]
    return "".join(parts)


def to_text(found: SearchResult, trials: bool = True) -> str:
    """Return a search as plain text."""
    table = str(found.table()) if trials else found.summary
    words = running_words(found), left_out_words(found)
    return "\n\n".join(filter(None, [str(arms_table(found)), *words, table]))


class LiveView:
    """A search in the output of its cell, shown anew after each trial.

    Parameters
    ----------
    shell
        Of the notebook; without one its summary is printed.
    """

    def __init__(self, shell: Any) -> None:
        self._is_printed = shell is None
        self._shown: Any = None

    def __call__(self, found: SearchResult, line: str = "", trials: bool = True) -> None:
        """Show what is known.

        Parameters
        ----------
        line
            With the best machines, once the search is over: JupyterLab has a button that writes it
            into the cell.
        trials
            Whether to list the trials: not once the result itself is shown below.
        """
        from IPython.display import display

        if self._is_printed:
            print(found.summary, flush=True)
            return
        data: dict[str, Any] = {
            "text/plain": to_text(found, trials),
            "text/html": to_html(found, trials),
        }
        if line:
            data[MIME] = {"version": 1, "view": "search", "state": {"line": line}}
        if self._shown is None:  # not before the first trial has begun: what is wrong is said first
            self._shown = display(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)
