"""Cost report at one moment, as `sky.cost()` and the Cost tab show it.

It is made at once from the rows of a store, and is plain values: it fits into JSON, CSV and text.
"""

from __future__ import annotations

import csv
import io
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, get_args

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.resources import format_elapsed, parse_duration
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog.price_origin import describe_origin
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.baseline import CLOUD, REGION
from jupyter_sky.knowledge.ledger.billing import UNBILLED_COSTS
from jupyter_sky.knowledge.ledger.budget import BudgetStatus
from jupyter_sky.knowledge.ledger.forecast import (
    ClusterSaving,
    CostForecast,
    CostSum,
    forecasts,
    local_day,
    rate,
    savings,
    spent_between,
    total_savings,
)
from jupyter_sky.knowledge.ledger.ledger import By, Ledger, format_rate, format_usd
from jupyter_sky.knowledge.ledger.lines import LedgerLine, intervals_billed_since

GROUPINGS: tuple[By, ...] = get_args(By)
MAX_LINES = 200
"""Lines of a table that are shown; a CSV file has them all."""
RUNS = 2000
"""Runs among which earlier ones of a cell are looked for."""
BASELINE_TEXT = (
    f"the cheapest machine on demand in {CLOUD} {REGION} that met the same request when the "
    "cluster was launched"
)


@dataclass(frozen=True, slots=True)
class CostReport:
    """The account at one moment.

    Attributes
    ----------
    at : float
        The moment, unix seconds.
    notebook : str or None
        Whose `notebook_usd` is, and whose cells are listed; None for all notebooks.
    by : str
        What `lines` are grouped by.
    since : float or None
        Since when they are billed; None for ever.
    lines : tuple of LedgerLine
        What was spent, the latest first.
    total : CostSum
        What providers bill for that time, all notebooks together.
    notebook_usd : CostSum or None
        What `notebook` has cost since it was first used.
    notebook_rate : float
        What its own clusters cost now, USD/h, as far as it is known.
    verdict : BudgetStatus
        The local day: spent, rate, budget.
    forecasts : tuple of Forecast
        What each cluster that is up will still cost.
    savings : tuple of Saving
        What each cluster has cost less than its default choice, since `since`.

    Examples
    --------
    >>> make_report(store, "a.ipynb").verdict.spent.usd  # doctest: +SKIP
    4.2
    """

    at: float
    notebook: str | None
    by: By
    since: float | None
    lines: tuple[LedgerLine, ...]
    total: CostSum
    notebook_usd: CostSum | None
    notebook_rate: float
    verdict: BudgetStatus
    forecasts: tuple[CostForecast, ...]
    savings: tuple[ClusterSaving, ...]

    @property
    def forecast(self) -> CostSum:
        """Remaining cost until all running work has ended."""
        total = CostSum()
        for forecast in self.forecasts:
            total += (
                CostSum(unknown=(forecast.cluster,))
                if forecast.usd is None
                else CostSum(forecast.usd)
            )
        return CostSum(total.usd, total.unknown, bool(total.usd))

    @property
    def saved(self) -> tuple[CostSum, CostSum]:
        """Savings by spot machines and by places."""
        return total_savings(self.savings)

    @property
    def sources(self) -> list[str]:
        """Sources and dates of the lines' prices."""
        priced = (line for line in self.lines if line.source)
        return list(dict.fromkeys(describe_origin(line.source, line.date).short for line in priced))

    @property
    def headline(self) -> list[tuple[str, str]]:
        """Title and total above the table."""
        day = self.verdict
        parts = [(_("today, all notebooks"), str(day.spent))]
        if self.notebook_usd is not None:
            parts.append((_("this notebook"), str(self.notebook_usd)))
        parts.append(("running", _rate(day.rate)))
        if self.forecasts:
            parts.append((_("expected until everything ends"), str(self.forecast)))
        if any(not saving.own for saving in self.savings):
            spot, placement = self.saved
            parts += [(_("saved by spot"), str(spot)), (_("saved by placement"), str(placement))]
        if day.budget.usd is not None:
            parts.append(("budget", day.text))
        return parts

    @property
    def notes(self) -> list[str]:
        """Notes on the figures: basis of estimates, unknown prices, baseline."""
        said = [f"{one.cluster}: {one.basis}" for one in self.forecasts if one.usd != 0]
        if said:
            said[0] = _("To come, estimated: {said}").format(said=said[0])
        compared = [one for one in self.savings if not one.own]
        if compared:
            said.append(_("Saved against {baseline_text}:").format(baseline_text=BASELINE_TEXT))
            said += [f"{one.cluster}: {one.against}" for one in compared[:10]]
        if self.verdict.rents:
            said.append(_("Not booked: {unbilled_costs}.").format(unbilled_costs=UNBILLED_COSTS))
        if unknown := self.verdict.rate.unknown:
            said.append(
                _("No price is known of {unknown}: sums leave that out.").format(
                    unknown=", ".join(unknown)
                )
            )
        if any(line.bounded for line in self.lines):
            said.append(
                _(
                    "At most: nobody saw it end, and its cloud no longer says when. It is "
                    "billed to the end of its lease, or to when it was first seen gone."
                )
            )
        moment = datetime.fromtimestamp(self.at).strftime("%Y-%m-%d %H:%M:%S")
        said.append(_("As of {moment}.").format(moment=moment))
        if self._has_estimate():
            said.append(_("est.: it still runs, or is expected."))
        return said

    def _has_estimate(self) -> bool:
        sums = [self.total, self.verdict.spent, self.notebook_usd or CostSum(), self.forecast]
        return any(amount.estimated for amount in (*sums, *self.saved)) or any(
            line.estimated and line.price != 0 for line in self.lines
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: USD or null for unknown, unix seconds."""
        day, (spot, placement) = self.verdict, self.saved
        shown = self.lines[:MAX_LINES]
        return {
            "version": 1,
            "at": self.at,
            "notebook": self.notebook,
            "by": self.by,
            "since": self.since,
            "total": asdict(self.total),
            "here": asdict(self.notebook_usd) | {"usd_h": self.notebook_rate}
            if self.notebook_usd
            else None,
            "today": asdict(day.spent),
            "rate": {"usd_h": day.rate.usd, "unknown": day.rate.unknown},
            "forecast": asdict(self.forecast),
            "forecasts": [asdict(item) for item in self.forecasts],
            "saved": {"spot": asdict(spot), "placement": asdict(placement)},
            "savings": [asdict(item) for item in self.savings[:MAX_LINES]],
            "default_choice": BASELINE_TEXT,
            "budget": budget_dict(day),
            "lines": [_line_dict(line) for line in shown],
            "more": len(self.lines) - len(shown),
        }

    @property
    def file_name(self) -> str:
        """Name of an exported file."""
        day = time.strftime("%Y-%m-%d", time.localtime(self.at))
        return f"sky-cost-by-{self.by}-{day}.csv"

    def to_csv(self) -> str:
        """Return all lines as CSV: times in ISO 8601, amounts in USD or ``unknown``."""
        out = io.StringIO()
        writer = csv.writer(out)
        head = "started ended seconds price_usd_h usd estimated price_source price_date".split()
        writer.writerow([self.by, *head])
        for line in self.lines:
            writer.writerow(
                [
                    _escape_formula(line.what),
                    _format_time(line.started),
                    _format_time(line.ended),
                    f"{line.seconds:.3f}",
                    _format_exact(line.price),
                    _format_exact(line.usd),
                    "yes" if line.estimated else _("at most") if line.bounded else "no",
                    _escape_formula(line.source),
                    line.date,
                ]
            )
        return out.getvalue()


def make_report(
    store: Store,
    notebook: str | None = None,
    by: By = "cell",
    since: float | None = None,
    now: float | None = None,
) -> CostReport:
    """Make the bill of a store.

    Parameters
    ----------
    notebook
        The notebook that asks: the cells are its own.
    by
        ``cell``, ``notebook``, ``cluster``, ``cloud`` or ``day``.
    since, now
        Unix seconds.
    """
    now = time.time() if now is None else now
    ledger = Ledger(store)
    lines = ledger.summary(by, since, now)
    if by == "cell" and notebook is not None:
        lines = [line for line in lines if line.what.startswith(f"{notebook} [")]
    begin = -float("inf") if since is None else since
    intervals = intervals_billed_since(store, begin, now)
    names = {row.cluster for row in intervals}
    clusters = [row for row in store.clusters(live_only=False) if row.name in names]
    running = store.runs(status="running", limit=None)
    earlier = store.runs(status="ok", limit=RUNS) if running else []
    return CostReport(
        at=now,
        notebook=notebook,
        by=by,
        since=since,
        lines=tuple(lines),
        total=spent_between(intervals, store.other_costs(since=begin), now, begin, float("inf")),
        notebook_usd=None if notebook is None else ledger.notebook_amount(notebook, now),
        notebook_rate=rate(row for row in intervals if row.notebook == notebook).usd,
        verdict=budget.assess(store, now),
        forecasts=tuple(forecasts(_latest(clusters), intervals, running, earlier, now)),
        savings=tuple(savings(clusters, intervals, now, begin)),
    )


_FORMULA_STARTS = (
    "SELECT count(*), count(ended), max(ended) FROM intervals",
    "SELECT count(*), count(ended), max(ended) FROM runs",
    "SELECT count(*), max(created), max(ended) FROM clusters",
    "SELECT count(*), total(usd) FROM spend",
    "SELECT name, value FROM settings ORDER BY name",
)


def report_signature(store: Store) -> tuple[object, ...]:
    """Return a value that changes whenever a bill changes other than by the passing of time."""
    return tuple(tuple(map(tuple, store.database.read(sql))) for sql in _FORMULA_STARTS)


def budget_dict(day: BudgetStatus) -> dict[str, Any]:
    """Return the budget as JSON has it."""
    return {
        "usd": day.budget.usd,
        "origin": day.budget.origin,
        "set_at": day.budget.at or None,
        "spent": asdict(day.spent),
        "share": day.share,
        "state": day.state,
        "text": day.text,
        "running": day.running,
        "resets": day.resets,
        "ends": day.depleted_at if day.state == "over" else None,
        "at": day.at,
    }


def parse_by(text: str) -> By:
    """Validate a grouping; raise SkyUsageError for an unknown one."""
    for by in GROUPINGS:
        if text == by:
            return by
    raise SkyUsageError(
        _("--by {text}: not known").format(text=text), hint=suggest(text, GROUPINGS)
    )


def parse_since(text: str | None, now: float | None = None) -> float | None:
    """Parse a day (``2026-11-01``), ``today``, an age (``12h``) or ``all`` to unix seconds."""
    if not text or text == "all":
        return None
    now = time.time() if now is None else now
    if text == "today":
        return local_day(now)[1]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return now - parse_duration(text, "--since")


def short_path(what: str) -> str:
    """Return a notebook's path without its folders: ``analysis.ipynb [7]``.

    Examples
    --------
    >>> short_path("/home/ada/analysis.ipynb [7]"), short_path("train")
    ('analysis.ipynb [7]', 'train')
    """
    return what.rpartition("/")[2] if what.startswith("/") else what


def text_row(line: LedgerLine) -> tuple[str, str, str, str, str]:
    """Format a line of a table: name, time, price, cost and source of the price."""
    return (
        short_path(line.what),
        format_elapsed(line.seconds),
        format_rate(line.price),
        format_usd(line.usd) + (f" ({line.mark})" if line.mark else ""),
        describe_origin(line.source, line.date).short,
    )


def _line_dict(line: LedgerLine) -> dict[str, Any]:
    origin = describe_origin(line.source, line.date)
    fields = asdict(line) | {
        "label": short_path(line.what),
        "origin": origin.short,
        "origin_detail": origin.detail,
    }
    del fields["exact"]  # more digits than a number has in JSON
    return fields


def _latest(clusters: list[ClusterRow]) -> list[ClusterRow]:
    """Return the latest cluster of each name."""
    return list({row.name: row for row in sorted(clusters, key=lambda row: row.created)}.values())


def _rate(amount: CostSum) -> str:
    known = f"{format_usd(amount.usd)}/h"
    if not amount.unknown:
        return known
    missing = f"unknown ({', '.join(amount.unknown)})"
    return f"{known} + {missing}" if amount.usd else missing


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")


def _format_exact(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.6f}"


def _escape_formula(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
