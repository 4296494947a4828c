"""Lines of the ledger: intervals and runs as they are billed.

Amounts are USD, prices USD/h of a whole cluster, times unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from jupyter_sky.base.clouds.cloud_facts import LONGEST_BILLING_UNIT
from jupyter_sky.base.store.store import ClusterRow, IntervalRow, RunRow, SpendRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.billing import billed_seconds
from jupyter_sky.knowledge.ledger.money import exact_cost, exact_to_usd, sum_exact


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
        Whether an end in it was not observed: the cost is an upper bound.
    exact : int or None
        The cost as `knowledge.ledger.money` counts it: lines add up however a bill is cut.
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
        return _("running, est.") if self.estimated else _("at most") if self.bounded else ""


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
    """Return first and last moment of an interval that are billed between `since` and `until`."""
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
    """Return the seconds of an interval billed between `since` and `until`; see `billed_until`."""
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


def split_surcharge(
    row: IntervalRow | SpendRow, line: LedgerLine
) -> Iterator[tuple[str, LedgerLine]]:
    """Split a line of a cluster into its machines and what a managed service takes beside them.

    Yields
    ------
    tuple of str and LedgerLine
        Name of the part, and its line; the parts add up to the whole.
    """
    share = row.surcharge_share if isinstance(row, IntervalRow) else 0.0
    if not share or line.exact is None or line.price is None:
        yield row.cluster, line
        return
    parts = {row.cluster: line.exact - round(line.exact * share)}
    name = _("{cluster}, surcharge of {service}").format(cluster=row.cluster, service=row.cloud)
    parts[name] = round(line.exact * share)
    for part, exact in parts.items():
        price = line.price * (share if part == name else 1 - share)
        yield part, replace(line, what=part, price=price, usd=exact_to_usd(exact), exact=exact)


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


def run_line(run: RunRow, now: float, exact: int | None, cluster: ClusterRow | None) -> LedgerLine:
    """Return the cost of a run; `exact` is what `run_exact_usd` gives."""
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


def line_part(line: LedgerLine, start: float, end: float) -> LedgerLine:
    """Return the part of a line between two times."""
    if not line.seconds:
        return line
    exact = exact_cost(line.price, start, end)
    seconds = end - start
    return replace(
        line, started=start, ended=end, seconds=seconds, usd=exact_to_usd(exact), exact=exact
    )
