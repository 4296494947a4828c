"""Costs of clusters, cells and notebooks: arithmetic over the rows of the store.

Amounts are USD, prices USD/h of a whole cluster, times unix seconds. ``None`` means that nobody
knows the price; it makes every sum that contains it unknown, since a sum that leaves a part out
would be read as the whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal, TypeVar

from ..provider.facts import LONGEST_BILLING_UNIT
from ..store.store import ClusterRow, IntervalRow, RunRow, SpendRow, Store
from .billing import billed_seconds
from .money import exact_cost, exact_from_usd, exact_to_usd, sum_exact

_HOUR = 3600.0

_T = TypeVar("_T")
By = Literal["notebook", "cell", "cluster", "cloud", "day"]


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """Line of the ledger: the cost of one cluster, cell or other item.

    Attributes
    ----------
    what : str
        The notebook, cell, cluster, cloud or day.
    started, ended : float
        First and last moment that is billed, unix seconds.
    seconds : float
        Time billed between the two; clusters that were up together count each.
    price : float or None
        The last price in force, USD/h.
    usd : float or None
        The cost; None when a price is unknown.
    estimated : bool
        True while something still runs: it is billed up to now.
    source, date : str
        Where the prices come from, and of when they are.
    bounded : bool
        Whether nobody saw something in it end: it cost that much at the most.
    exact : int or None
        The cost as `jupyter_sky.ledger.money` counts it: lines add up however a bill is cut.
    """

    what: str
    started: float
    ended: float
    seconds: float
    price: float | None
    usd: float | None
    estimated: bool
    source: str
    date: str
    bounded: bool = False
    exact: int | None = None

    @property
    def mark(self) -> str:
        """Certainty of the cost in a word; empty for a certain one."""
        return "running, est." if self.estimated else "at most" if self.bounded else ""


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
    """USD for some seconds at a price in USD/h.

    Examples
    --------
    >>> cost(1.2, 1800)
    0.6
    """
    return None if price is None else price * max(0.0, seconds) / _HOUR


def billed_until(row: IntervalRow, now: float) -> float:
    """Return the end of an interval's billing; an open one ends now.

    A machine is billed in whole units of time, and no less than a least one, from its start to its
    end: the last interval of a cluster has what that adds, whatever its prices were before.
    """
    ended = max(row.started, now if row.ended is None else row.ended)
    if not row.is_last:
        return ended
    begun = row.started if row.begun is None else row.begun
    return max(ended, begun + billed_seconds(row.cloud, ended - begun))


def billed_span(
    row: IntervalRow, now: float, since: float = -math.inf, until: float = math.inf
) -> tuple[float, float]:
    """First and last moment of an interval that are billed between `since` and `until`."""
    start = max(row.started, since)
    return start, max(start, min(billed_until(row, now), until))


def intervals_billed_since(
    store: Store, since: float, now: float, notebook: str | None = None
) -> list[IntervalRow]:
    """Return the intervals that are billed after a time, though machines may have ended before."""
    rows = store.intervals(notebook=notebook, since=since - LONGEST_BILLING_UNIT)
    return [row for row in rows if row.ended is None or billed_until(row, now) > since]


def interval_seconds(
    row: IntervalRow, now: float, since: float = -math.inf, until: float = math.inf
) -> float:
    """Seconds of an interval that are billed between `since` and `until`; see `billed_until`."""
    start, end = billed_span(row, now, since, until)
    return end - start


def interval_line(
    row: IntervalRow, now: float, since: float = -math.inf, until: float = math.inf
) -> LedgerLine:
    """Return the cost of an interval between `since` and `until`; see `billed_until`."""
    start, end = billed_span(row, now, since, until)
    exact = exact_cost(row.price, start, end) if end > start else 0
    return LedgerLine(
        what=row.cluster,
        started=start,
        ended=end,
        seconds=end - start,
        price=row.price,
        usd=exact_to_usd(exact),
        estimated=row.ended is None,
        source=row.price_source,
        date=row.price_date,
        bounded=row.bounded,
        exact=exact,
    )


def run_usd(run: RunRow, now: float, intervals: Iterable[IntervalRow] = ()) -> float | None:
    """Return the cost of a run, see `run_exact_usd`.

    Examples
    --------
    >>> run_usd(run, now=run.started + 3600)  # at 0.526 USD/h  # doctest: +SKIP
    0.526
    """
    return exact_to_usd(run_exact_usd(run, now, intervals))


def run_exact_usd(run: RunRow, now: float, intervals: Iterable[IntervalRow] = ()) -> int | None:
    """Return the exact cost of a run: its duration without rounding to billing units.

    The `intervals` of its cluster tell when the price changed meanwhile. The price at which the
    run began stands for time that they do not cover.
    """
    ended = max(run.started, now if run.ended is None else run.ended)
    parts: list[int | None] = []
    uncovered = ended - run.started
    for row in intervals:
        start = max(row.started, run.started)
        end = ended if row.ended is None else min(row.ended, ended)
        if end > start:
            parts.append(exact_cost(row.price, start, end))
            uncovered -= end - start
    # Below a microsecond it is rounding of the clock, which must not make a cost unknown.
    if uncovered > 1e-6:
        parts.append(exact_cost(run.price, 0.0, uncovered))
    return sum_exact(parts)


def split_days(start: float, end: float) -> Iterator[tuple[str, float, float]]:
    """Cut a stretch of time at local midnights."""
    while True:
        day = datetime.fromtimestamp(start).date()
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time()).timestamp()
        yield day.isoformat(), start, min(end, midnight)
        if midnight >= end:
            return
        start = midnight


def merge_lines(what: str, lines: Iterable[LedgerLine]) -> LedgerLine:
    """Add lines up under one name."""
    ordered = sorted(lines, key=lambda line: line.ended)
    exact = sum_exact([line.exact for line in ordered])
    return LedgerLine(
        what=what,
        started=min(line.started for line in ordered),
        ended=ordered[-1].ended,
        seconds=sum(line.seconds for line in ordered),
        price=next((line.price for line in reversed(ordered) if line.seconds), None),
        usd=exact_to_usd(exact),
        estimated=any(line.estimated for line in ordered),
        source=", ".join(dict.fromkeys(line.source for line in ordered if line.source)),
        date=max(line.date for line in ordered),
        bounded=any(line.bounded for line in ordered),
        exact=exact,
    )


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
        what providers bill. A notebook pays for the clusters that it created and for its runs on
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
        return _group((row.cluster, line) for row, line in self._bills(now, since))

    def _by_cloud(self, now: float, since: float) -> dict[str, list[LedgerLine]]:
        return _group((row.cloud, line) for row, line in self._bills(now, since))

    def _by_day(self, now: float, since: float) -> dict[str, list[LedgerLine]]:
        return _group(
            (day, _line_part(line, start, end))
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
            yield run, _run_line(late, now, exact, clusters.get(run.cluster))


def _run_line(run: RunRow, now: float, exact: int | None, cluster: ClusterRow | None) -> LedgerLine:
    ended = max(run.started, now if run.ended is None else run.ended)
    return LedgerLine(
        what=run.run_id,
        started=run.started,
        ended=ended,
        seconds=ended - run.started,
        price=run.price,
        usd=exact_to_usd(exact),
        estimated=run.ended is None,
        source=cluster.price_source if cluster else "",
        date=cluster.price_date if cluster else "",
        exact=exact,
    )


def _line_part(line: LedgerLine, start: float, end: float) -> LedgerLine:
    if not line.seconds:
        return line
    exact = exact_cost(line.price, start, end)
    seconds = end - start
    return replace(
        line, started=start, ended=end, seconds=seconds, usd=exact_to_usd(exact), exact=exact
    )


def _group(pairs: Iterable[tuple[str, _T]]) -> dict[str, list[_T]]:
    groups: dict[str, list[_T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _now(now: float | None) -> float:
    return time.time() if now is None else now
