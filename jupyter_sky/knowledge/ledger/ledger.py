"""Costs of clusters, cells and notebooks: arithmetic over the rows of the store.

Amounts are USD, prices USD/h of a whole cluster, times unix seconds. ``None`` means an unknown
price; it makes every sum that contains it unknown, since a sum that leaves a part out
would be read as the whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from jupyter_sky.base.store.store import IntervalRow, RunRow, SpendRow, Store
from jupyter_sky.knowledge.ledger.lines import (
    LedgerLine,
    interval_line,
    intervals_billed_since,
    line_part,
    merge_lines,
    run_exact_usd,
    run_line,
    run_usd,
    split_days,
    split_surcharge,
)
from jupyter_sky.knowledge.ledger.money import exact_from_usd, exact_to_usd, sum_exact

_HOUR = 3600.0

_T = TypeVar("_T")
By = Literal["notebook", "cell", "cluster", "cloud", "day"]


@dataclass(frozen=True, slots=True)
class CostSum:
    """A sum of which parts may not be known.

    Attributes
    ----------
    usd : float
        What is known of it.
    unknown : tuple of str
        Names of the clusters whose part is not known.
    estimated : bool
        Whether something in it still runs, is yet to come, or was not seen to end.

    Examples
    --------
    >>> str(CostSum(1.2, ("rack",))), str(CostSum(0.0, ("rack",)))
    ('$1.20 + unknown (rack)', 'unknown (rack)')
    >>> str(CostSum(0.5, estimated=True))
    '$0.50 est.'
    """

    usd: float = 0.0
    unknown: tuple[str, ...] = ()
    estimated: bool = False

    def __add__(self, other: CostSum) -> CostSum:
        unknown = tuple(dict.fromkeys(self.unknown + other.unknown))
        return CostSum(self.usd + other.usd, unknown, self.estimated or other.estimated)

    def __str__(self) -> str:
        known = f"{format_usd(self.usd)}{' est.' if self.estimated else ''}"
        if not self.unknown:
            return known
        missing = f"unknown ({', '.join(self.unknown)})"
        return f"{known} + {missing}" if self.usd else missing


def format_usd(usd: float | None) -> str:
    """Return an amount as the status line shows it; ``$0.00`` is exactly nothing.

    Examples
    --------
    >>> format_usd(1.239), format_usd(0.00042), format_usd(0), format_usd(None)
    ('$1.24', '$0.00042', '$0.00', 'unknown')
    """
    if usd is None:
        return "unknown"
    sign, size = ("-" if usd < 0 else ""), abs(usd)
    if size >= 0.00995 or size == 0:
        return f"{sign}${size:,.2f}"
    if size < 1e-6:
        return f"{sign}<$0.000001"
    digits = 1 - math.floor(math.log10(size))  # two significant ones
    return f"{sign}${size:.{digits}f}".rstrip("0")


def format_rate(price: float | None) -> str:
    """Return a price by the hour, as the tables show it.

    Examples
    --------
    >>> format_rate(1.006), format_rate(None)
    ('$1.01/h', 'unknown')
    """
    return "unknown" if price is None else f"{format_usd(price)}/h"


def sum_usd(amounts: Iterable[float | None]) -> float | None:
    """Sum amounts; the sum is None as soon as one part is.

    Examples
    --------
    >>> sum_usd([0.25, 0.5]), sum_usd([0.25, None]), sum_usd([])
    (0.75, None, 0.0)
    """
    total = 0.0
    for amount in amounts:
        if amount is None:
            return None
        total += amount
    return total


def cost(price: float | None, seconds: float) -> float | None:
    """Return USD for some seconds at a price in USD/h.

    Examples
    --------
    >>> cost(1.2, 1800)
    0.6
    """
    return None if price is None else price * max(0.0, seconds) / _HOUR


class Ledger:
    """The bill of one store.

    Examples
    --------
    >>> ledger = Ledger(store)  # doctest: +SKIP
    >>> [(line.what, format_usd(line.usd)) for line in ledger.summary("cluster")]  # doctest: +SKIP
    [('train-3f2a', '$0.41')]
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def run_usd(self, run: RunRow, now: float | None = None) -> float | None:
        """Return the cost of a run, up to now while it goes on; None when the price is unknown."""
        return run_usd(run, _now(now), self._store.intervals(run.cluster))

    def cluster_usd(self, name: str, now: float | None = None) -> float | None:
        """Return the cost of the latest cluster of this name, from its launch up to now."""
        cluster = self._store.cluster(name)
        if cluster is None:
            return 0.0
        lines = [
            interval_line(row, _now(now)).exact
            for row in self._store.intervals(name)
            if row.cluster_created == cluster.created
        ]
        spend = self._store.other_costs(name)
        extra = [exact_from_usd(row.usd) for row in spend if row.at >= cluster.created]
        return exact_to_usd(sum_exact([*lines, *extra]))

    def notebook_usd(self, notebook: str, now: float | None = None) -> float | None:
        """Return the cost of a notebook: see `summary`."""
        lines = self._by_notebook(_now(now), -math.inf, notebook).get(notebook, [])
        return exact_to_usd(sum_exact([line.exact for line in lines]))

    def notebook_amount(self, notebook: str, now: float | None = None) -> CostSum:
        """Return the known cost of a notebook, and the clusters of unknown cost."""
        lines = self._by_notebook(_now(now), -math.inf, notebook).get(notebook, [])
        return CostSum(
            exact_to_usd(sum(line.exact or 0 for line in lines)) or 0.0,
            tuple(dict.fromkeys(line.what for line in lines if line.exact is None)),
            any((line.estimated or line.bounded) and line.price != 0 for line in lines),
        )

    def summary(
        self, by: By = "notebook", since: float | None = None, now: float | None = None
    ) -> list[LedgerLine]:
        """Return the costs since a time, the latest first.

        Clusters, clouds and days are billed from launch to end, idle time included, and add up to
        what providers bill. What a managed service takes beside its machines has a line of its own
        among clusters. A notebook pays for the clusters that it created and for its runs on
        clusters of others, so notebooks that share a cluster add up to more. A cell pays for the
        time that it ran.
        """
        now, since = _now(now), -math.inf if since is None else since
        groupings = {
            "notebook": self._by_notebook,
            "cell": self._by_cell,
            "cluster": self._by_cluster,
            "cloud": self._by_cloud,
            "day": self._by_day,
        }
        groups = groupings[by](now, since)
        lines = [merge_lines(key.split("\n")[0], found) for key, found in groups.items()]
        return sorted(lines, key=lambda line: line.ended, reverse=True)

    def _bills(
        self, now: float, since: float, notebook: str | None = None
    ) -> Iterator[tuple[IntervalRow | SpendRow, LedgerLine]]:
        for row in intervals_billed_since(self._store, since, now, notebook):
            yield row, interval_line(row, now, since)
        for row in self._store.other_costs(notebook=notebook, since=since):
            exact = exact_from_usd(row.usd)
            about = (row.what, row.at, row.at, 0.0, None, row.usd, False, "", "")
            yield row, LedgerLine(*about, exact=exact)

    def _by_cluster(self, now: float, since: float) -> dict[str, list[LedgerLine]]:
        return _group(
            (name, part)
            for row, line in self._bills(now, since)
            for name, part in split_surcharge(row, line)
        )

    def _by_cloud(self, now: float, since: float) -> dict[str, list[LedgerLine]]:
        return _group((row.cloud, line) for row, line in self._bills(now, since))

    def _by_day(self, now: float, since: float) -> dict[str, list[LedgerLine]]:
        return _group(
            (day, line_part(line, start, end))
            for _, line in self._bills(now, since)
            for day, start, end in split_days(line.started, line.ended)
        )

    def _by_notebook(
        self, now: float, since: float, notebook: str | None = None
    ) -> dict[str, list[LedgerLine]]:
        own = [(row.notebook, line) for row, line in self._bills(now, since, notebook)]
        guests = self._store.runs(notebook, guests_only=True, limit=None, since=since)
        return _group(own + [(run.notebook, line) for run, line in self._timed(guests, now, since)])

    def _by_cell(self, now: float, since: float) -> dict[str, list[LedgerLine]]:
        # Execution counts start again with every kernel: the session keeps those cells apart.
        return _group(
            (f"{run.notebook} [{run.name or run.cell}]\n{run.session}", line)
            for run, line in self._timed(self._store.runs(limit=None, since=since), now, since)
        )

    def _timed(
        self, runs: list[RunRow], now: float, since: float
    ) -> Iterator[tuple[RunRow, LedgerLine]]:
        if not runs:
            return
        recent = self._store.intervals(since=min(run.started for run in runs))
        intervals = _group((row.cluster, row) for row in recent)
        clusters = {row.name: row for row in self._store.clusters(live_only=False)}
        for run in runs:
            late = run if run.started >= since else replace(run, started=since)
            exact = run_exact_usd(late, now, intervals.get(run.cluster, ()))
            yield run, run_line(late, now, exact, clusters.get(run.cluster))


def _group(pairs: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _now(now: float | None) -> float:
    return time.time() if now is None else now
