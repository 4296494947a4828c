"""Spending, forecasts and savings: pure functions over rows of the store.

Pure functions over rows of the store. Amounts are USD, prices USD/h of a whole cluster, times unix
seconds. What is not known is named beside a sum, never counted as nothing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.store.store import ClusterRow, IntervalRow, RunRow, SpendRow
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.baseline import Baseline
from jupyter_sky.knowledge.ledger.billing import billed_seconds
from jupyter_sky.knowledge.ledger.ledger import CostSum, cost
from jupyter_sky.knowledge.ledger.lines import billed_span, interval_seconds
from jupyter_sky.knowledge.ledger.money import exact_cost, exact_from_usd, exact_to_usd

LATEST = 20
"""Number of earlier runs of a cell from which its duration is estimated."""


@dataclass(frozen=True, slots=True)
class CostForecast:
    """Remaining cost of a cluster, until its work and then its idle limit have ended.

    Attributes
    ----------
    cluster : str
    usd : float or None
        From now on; None when the price or the end is not known.
    ends : float or None
        When it is expected to be gone, unix seconds.
    basis : str
        What that rests on, in words.
    """

    cluster: str
    usd: float | None
    ends: float | None
    basis: str


@dataclass(frozen=True, slots=True)
class ClusterSaving:
    """Saving of a cluster against its baseline, see `Baseline`.

    Attributes
    ----------
    cluster : str
    spot : float or None
        By taking a spot machine instead of the same one on demand.
    placement : float or None
        By taking a machine on demand elsewhere, or another one, than the default choice.
    paid : float or None
        What it has cost.
    against : str
        The default choice, with price and date, or why there is none.
    own : bool
        Whether it is a machine of one's own without a price: nothing is counted as saved.
    estimated : bool
        Whether it still runs.
    """

    cluster: str
    spot: float | None
    placement: float | None
    paid: float | None
    against: str
    own: bool
    estimated: bool

    @property
    def usd(self) -> float | None:
        """Both together; None when one is not known."""
        known = self.spot is not None and self.placement is not None
        return self.spot + self.placement if known else None  # type: ignore[operator]


def local_day(now: float) -> tuple[str, float, float]:
    """Return the local day of a time: its name, and its two midnights (unix seconds).

    Days are 23 or 25 hours long where clocks are changed.
    """
    day = datetime.fromtimestamp(now).date()
    first, last = (
        datetime.combine(day + timedelta(days=more), datetime.min.time()).timestamp()
        for more in (0, 1)
    )
    return day.isoformat(), first, last


def spent_between(
    intervals: Iterable[IntervalRow],
    spend: Iterable[SpendRow],
    now: float,
    since: float,
    until: float,
) -> CostSum:
    """Return the amount billed between two times: machines and other costs."""
    total, unknown, unsure = 0, dict[str, None](), False
    for row in intervals:
        start, end = billed_span(row, now, since, until)
        if end <= start:
            continue
        unsure |= (row.ended is None or row.bounded) and row.price != 0
        exact = exact_cost(row.price, start, end)
        if exact is None:
            unknown[row.cluster] = None
        else:
            total += exact
    for item in spend:
        if not since <= item.at < until:
            continue
        exact = exact_from_usd(item.usd)
        if exact is None:
            unknown[item.cluster] = None
        else:
            total += exact
    return CostSum(exact_to_usd(total) or 0.0, tuple(unknown), unsure)


def rate(intervals: Iterable[IntervalRow]) -> CostSum:
    """Return the present cost by the hour: the open intervals."""
    running = [row for row in intervals if row.ended is None]
    unknown = tuple(dict.fromkeys(row.cluster for row in running if row.price is None))
    return CostSum(sum(row.price or 0.0 for row in running), unknown)


# -- what is to come -----------------------------------------------------------------------------


def forecasts(
    clusters: Iterable[ClusterRow],
    intervals: Iterable[IntervalRow],
    running: Sequence[RunRow],
    earlier: Iterable[RunRow],
    now: float,
) -> list[CostForecast]:
    """Forecast the remaining cost of each cluster that is up, see `forecast`.

    Parameters
    ----------
    running
        The runs that go on now.
    earlier
        Runs that have ended, the latest first.
    """
    opened = {row.cluster: row for row in intervals if row.ended is None}
    lasted: dict[str, list[float]] = {run.code: [] for run in running}
    for run in earlier:
        if run.status == "ok" and run.ended is not None and len(lasted.get(run.code, ())) < LATEST:
            lasted.get(run.code, []).append(run.ended - run.started)
    return [
        forecast(
            row,
            opened[row.name],
            [run for run in running if run.cluster == row.name],
            lasted,
            now,
        )
        for row in clusters
        if row.name in opened
    ]


def forecast(
    cluster: ClusterRow,
    interval: IntervalRow,
    running: Sequence[RunRow],
    lasted: Mapping[str, Sequence[float]],
    now: float,
) -> CostForecast:
    """Forecast a cluster's remaining cost: its cells to their end, then its idle limit.

    Of cells that run side by side the longest counts, those that wait come after it. A billing
    unit that was begun is paid in full.

    Parameters
    ----------
    lasted
        Seconds that earlier runs took, by their code.
    """
    left, words = 0.0, list[str]()
    for run in sorted(running, key=lambda run: run.started):
        queued = run.stage == "queued"
        elapsed = 0.0 if queued else now - run.started
        seconds, why = remaining(elapsed, lasted.get(run.code, ()), run.allowed)
        words.append(f"{run.label}: {why}")
        if seconds is None:
            return CostForecast(cluster.name, 0.0 if interval.price == 0 else None, None, words[-1])
        left = left + seconds if queued else max(left, seconds)
    limit = _("its idle limit of {idle}").format(idle=format_duration(cluster.idle))
    idle = f"then {limit}"
    if not running:
        idle = _("no cell runs: {limit} at most, counted from its last use").format(limit=limit)
    ends = max(now + left + cluster.idle, cluster.kept)
    if cluster.kept == ends:
        idle = _("then kept, as it was asked to be")
    begun = interval.started if interval.begun is None else interval.begun
    lasts, so_far = ends - begun, now - begun
    more = billed_seconds(interval.cloud, lasts) - billed_seconds(interval.cloud, so_far)
    usd = cost(interval.price, more)
    if usd is None:
        words.append(_("its price is not known"))
    return CostForecast(cluster.name, usd, ends, "; ".join([*words, idle]))


def remaining(
    elapsed: float, lasted: Sequence[float], limit: float | None
) -> tuple[float | None, str]:
    """Return the seconds that a run is expected to go on, and the basis of the estimate.

    The median of those earlier runs that were longer than this one is by now; else the time that
    it is allowed.

    Examples
    --------
    >>> remaining(60, [100, 120, 50], None)
    (50.0, '0:50 left, as 2 of 3 earlier runs took longer (est.)')
    >>> remaining(60.0, [], 300)
    (240.0, '4:00 left at the most, as it may take 5:00')
    >>> remaining(60, [], None)[0] is None
    True
    """
    longer = [seconds for seconds in lasted if seconds > elapsed]
    if longer:
        left = statistics.median(longer) - elapsed
        left = min(left, limit - elapsed) if limit is not None else left
        left = max(0.0, left)
        seen = (
            _("{longer_count} of {lasted_count}").format(
                longer_count=len(longer), lasted_count=len(lasted)
            )
            if len(longer) < len(lasted)
            else f"{len(lasted)}"
        )
        many = "runs" if len(lasted) != 1 else "run"
        took = _("took longer") if len(longer) < len(lasted) else "took"
        median = "" if len(longer) < len(lasted) else f" {format_duration(left + elapsed)}"
        return left, _("{left} left, as {seen} earlier {many} {took}{median} (est.)").format(
            left=format_duration(left), seen=seen, many=many, took=took, median=median
        )
    if limit is not None:
        left = max(0.0, limit - elapsed)
        allowed = format_duration(limit)
        return left, _("{left} left at the most, as it may take {allowed}").format(
            left=format_duration(left), allowed=allowed
        )
    if lasted:
        return None, _(
            "it has run longer than its {lasted_count} earlier runs: its end is not known"
        ).format(lasted_count=len(lasted))
    return None, _("it has not run before and has no --timeout: its end is not known")


# -- what was saved ------------------------------------------------------------------------------


def savings(
    clusters: Iterable[ClusterRow], intervals: Iterable[IntervalRow], now: float, since: float
) -> list[ClusterSaving]:
    """Return each cluster's saving against its baseline, for the time billed since then."""
    clusters_by_key = {(row.name, row.created): row for row in clusters}
    billed: dict[tuple[str, float], list[IntervalRow]] = {}
    for row in intervals:
        billed.setdefault((row.cluster, row.cluster_created), []).append(row)
    return [
        saving(clusters_by_key[key], rows, now, since)
        for key, rows in billed.items()
        if key in clusters_by_key and any(interval_seconds(row, now, since) for row in rows)
    ]


def saving(
    cluster: ClusterRow, intervals: Iterable[IntervalRow], now: float, since: float
) -> ClusterSaving:
    """Return one cluster's saving against its baseline."""
    billed = [(row, interval_seconds(row, now, since) / 3600) for row in intervals]
    hours = sum(each for __, each in billed)
    known = all(row.price is not None for row, each in billed if each)
    paid = sum((row.price or 0.0) * each for row, each in billed) if known else None
    going_on = any(row.ended is None for row, __ in billed)
    if find_facts(cluster.cloud).on_premises and not cluster.price:
        own = _("own machine: nothing is counted as saved")
        return ClusterSaving(cluster.name, None, None, paid, own, True, going_on)
    measure = Baseline.of(cluster)
    plain = None if measure.on_demand is None else measure.on_demand * hours
    if not cluster.spot and paid is not None:
        plain = paid  # what it costs on demand is what it cost
    usual = None if measure.default is None else measure.default * hours
    return ClusterSaving(
        cluster.name,
        spot=None if plain is None or paid is None else plain - paid,
        placement=None if usual is None or plain is None else usual - plain,
        paid=paid,
        against=measure.text,
        own=False,
        estimated=going_on,
    )


def total_savings(savings: Iterable[ClusterSaving]) -> tuple[CostSum, CostSum]:
    """Sum the savings by spot machines and by places."""
    spot, placement = CostSum(), CostSum()
    for saving in savings:
        if saving.own:
            continue
        missing = (saving.cluster,)
        part = (
            CostSum(unknown=missing)
            if saving.spot is None
            else CostSum(saving.spot, (), saving.estimated)
        )
        spot += part
        part = (
            CostSum(unknown=missing)
            if saving.placement is None
            else CostSum(saving.placement, (), saving.estimated)
        )
        placement += part
    return spot, placement
