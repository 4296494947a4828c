"""Reports on bags: progress, expected end and cost, failures by their reasons, rows of jobs."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.store.pickles import open_pickle
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _, ngettext
from jupyter_sky.knowledge.ledger.ledger import format_usd
from jupyter_sky.workflows.bags.controller import MEASURED_JOBS
from jupyter_sky.workflows.bags.decisions.fleet_plan import BagView, forecast_view
from jupyter_sky.workflows.bags.decisions.job_forecast import ForecastRange
from jupyter_sky.workflows.bags.decisions.outlook import FleetView, view_bag
from jupyter_sky.workflows.bags.queue.application import BagCounts, BagSettings, End, JobState
from jupyter_sky.workflows.bags.queue.job_queue import JobQueue, RecordedBag

SHOWN_JOBS = 10
"""Rows of the table of a bag; the others are in its frame."""
_NUMBER = re.compile(r"(?<!code )(?:0x[0-9a-f]+|(?<!\d)\d[\d.]*)")
OWN_COLUMNS = ("state", "attempts", "losses", "seconds", "usd", "machine", "error")
"""Columns of a frame that are neither parameters nor results."""


@dataclass(frozen=True, slots=True)
class BagReport:
    """Progress of a bag at one moment.

    Attributes
    ----------
    name, settings
        Of the bag.
    counts
        Jobs in each state.
    reason, detail
        Why it has ended; None while it has not.
    is_carried_out
        Whether a process carries it out.
    elapsed
        Seconds since its begin, or that it took.
    usd
        Cost of its machines up to now.
    losses
        Attempts that were lost with their machines.
    seconds_left, usd_total
        Expected time until the end (s), and expected cost of all, each with the range that holds it
        in 8 of 10 cases; None while nothing is known.
    failures
        Reasons of failed jobs with their numbers, the most frequent first.
    warning
        What is to be known of the deadline; empty while it can be kept.
    usd_on_demand
        Cost of the work up to now on machines on demand, without losses; None where unknown.
    """

    name: str
    settings: BagSettings
    counts: BagCounts
    reason: End | None
    detail: str
    is_carried_out: bool
    elapsed: float
    usd: float
    losses: int
    seconds_left: ForecastRange | None
    usd_total: ForecastRange | None
    failures: tuple[tuple[str, int], ...]
    warning: str = ""
    usd_on_demand: float | None = None

    @property
    def states(self) -> dict[str, int]:
        """Number of jobs in each state that any of them has."""
        return self.counts.by_state()

    @property
    def headline(self) -> str:
        """Progress as one sentence."""
        counts = self.counts
        ended = counts.succeeded + counts.failed
        text = ngettext(
            "Bag {name}: {ended} of {total} job has ended",
            "Bag {name}: {ended} of {total} jobs have ended",
            counts.total,
        ).format(name=self.name, ended=ended, total=counts.total)
        parts = [text]
        if counts.failed:
            parts.append(_("{count} failed").format(count=counts.failed))
        if counts.skipped:
            parts.append(_("{count} not needed").format(count=counts.skipped))
        cost = format_usd(self.usd)
        if self.usd_on_demand:
            cost = _("{cost} (on demand: {usd})").format(
                cost=cost, usd=format_usd(self.usd_on_demand)
            )
        parts.append(f"{format_duration(self.elapsed)}, {cost}")
        return "; ".join([", ".join(parts), *filter(None, [self._outlook()])])

    def _outlook(self) -> str:
        """Return what is to come, or why nothing is, in words."""
        if self.reason is not None:
            text = _(_ENDS[self.reason])
            return f"{text} ({self.detail})" if self.detail else text
        if not self.is_carried_out:
            return _("nothing carries it out")
        if self.warning:
            return self.warning
        if self.seconds_left is None:
            return ""
        left, usd = self.seconds_left, self.usd_total
        return _("about {time} left ({soon} to {late}), {usd} in all").format(
            time=format_duration(left.mean),
            soon=format_duration(left.low),
            late=format_duration(left.high),
            usd=format_usd(usd.mean if usd else 0.0),
        )


_ENDS = {
    End.DONE: "",
    End.FAILED: "too many have failed for as many to succeed as are needed",
    End.ALL_FAIL: "stopped early, since all of the first jobs have failed",
    End.CANCELLED: "cancelled",
    End.BUDGET: "the budget is used up",
    End.DEADLINE: "the deadline has passed",
    End.NO_MACHINES: "no machine can be had",
}


def make_report(
    record: RecordedBag,
    jobs: JobQueue,
    is_carried_out: bool,
    now: float,
    usd: float,
    fleet: FleetView = FleetView(),  # noqa: B008  # it is frozen
) -> BagReport:
    """Return the report on a bag.

    Parameters
    ----------
    usd
        Cost of its machines up to now.
    fleet
        Its machines.
    """
    counts = jobs.counts(record.name)
    until = record.ended or now
    elapsed = max(0.0, until - record.begun) if record.begun else 0.0
    failed = jobs.rows(record.name, "state = 'failed'")
    left = total = None
    if record.reason is None and counts.open:
        view = _view(record, jobs, counts, fleet, elapsed, now)
        left, total = forecast(view, counts, elapsed, usd)
    return BagReport(
        record.name,
        record.settings,
        counts,
        record.reason,
        record.detail,
        is_carried_out,
        elapsed,
        usd,
        jobs.losses(record.name),
        left,
        total,
        count_reasons(row["reason"] for row in failed),
        record.warning,
        _usd_on_demand(record, jobs),
    )


def _view(
    record: RecordedBag,
    jobs: JobQueue,
    counts: BagCounts,
    fleet: FleetView,
    elapsed: float,
    now: float,
) -> BagView | None:
    newest = "state = 'succeeded' ORDER BY ended DESC LIMIT ?"
    seconds = [row["seconds"] for row in jobs.rows(record.name, newest, (MEASURED_JOBS,))]
    running = [now - row["begun"] for row in jobs.rows(record.name, "state = 'running'")]
    return view_bag(counts, record.settings, fleet, seconds, running, elapsed)


def forecast(
    view: BagView | None, counts: BagCounts, elapsed: float, usd: float
) -> tuple[ForecastRange | None, ForecastRange | None]:
    """Return the time until the end (s) and the cost of all that are to be expected.

    Where machines and run times are not known the rest goes on at the rate up to now; before the
    first job has ended nothing is said.

    Parameters
    ----------
    view
        What is known of machines and run times.
    elapsed, usd
        Time (s) and cost up to now.

    Examples
    --------
    >>> left, total = forecast(None, BagCounts(queued=30, succeeded=10), elapsed=60.0, usd=1.0)
    >>> left.mean, total.mean
    (180.0, 4.0)
    """
    expected = None if view is None else forecast_view(view)
    if expected is not None:
        hours, cost = expected.hours, expected.usd
        left = ForecastRange(*(each * 3600 for each in (hours.mean, hours.low, hours.high)))
        return left, ForecastRange(*(usd + each for each in (cost.mean, cost.low, cost.high)))
    ended = counts.succeeded + counts.failed
    if not ended or not elapsed:
        return None, None
    rest = counts.open / ended
    same = ForecastRange(*[rest * elapsed] * 3)
    return same, ForecastRange(*[usd * (1 + rest)] * 3)


def count_reasons(reasons: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Return reasons with the numbers of jobs that they ended, the most frequent first.

    Those that differ in numbers only are counted together, with ``#`` for what differs. The codes
    with which commands end are kept: they say why.

    Examples
    --------
    >>> count_reasons(["ValueError: seed 17 at 0x7f00", "ValueError: seed 4 at 0x7e00"])
    (('ValueError: seed # at #', 2),)
    >>> count_reasons(["-1 has no root", "the command ended with code 127: not found"])
    (('-1 has no root', 1), ('the command ended with code 127: not found', 1))
    """
    alike: dict[str, list[str]] = {}
    for reason in reasons:
        alike.setdefault(_NUMBER.sub("#", reason), []).append(reason)
    counted = Counter({shape: len(found) for shape, found in alike.items()}).most_common()
    return tuple(
        (alike[shape][0] if len(set(alike[shape])) == 1 else shape, count)
        for shape, count in counted
    )


def job_table(report: BagReport, jobs: JobQueue) -> Table:
    """Return the jobs that ended last, below the sentence on all."""
    rows = jobs.rows(
        report.name,
        "state IN ('succeeded', 'failed', 'running') "
        "ORDER BY state = 'running' DESC, ended DESC LIMIT ?",
        (SHOWN_JOBS,),
    )
    shown = []
    for row in rows:
        parameters = ", ".join(
            f"{name}={value}" for name, value in json.loads(row["parameters"]).items()
        )
        told = row["reason"] or ("" if row["summary"] == "null" else row["summary"])
        took = _clock(row, time.time())
        shown.append((row["number"], _shorten(parameters), _(row["state"]), took, _shorten(told)))
    columns = (_("job"), _("parameters"), _("state"), _("time"), _("result"))
    note = "; ".join(
        _("{count} times: {reason}").format(count=count, reason=reason)
        for reason, count in report.failures[:3]
    )
    empty = _("no job has begun")
    return Table(report.headline, columns, tuple(shown), note, empty)


def _clock(row: Any, now: float) -> str:
    is_running = row["state"] == JobState.RUNNING and row["begun"]
    seconds = now - row["begun"] if is_running else row["seconds"]
    return f"{seconds:.{2 if seconds < 10 else 0}f} s" if seconds < 60 else format_duration(seconds)


def _shorten(text: str, length: int = 60) -> str:
    return text if len(text) <= length else f"{text[: length - 3]}..."


def job_records(jobs: JobQueue, name: str) -> Iterator[dict[str, Any]]:
    """Yield a dict for each job: number, parameters, results, then what it took."""
    for row in jobs.rows(name):
        parameters = json.loads(row["parameters"])
        found = {"job": row["number"], **parameters}
        found |= spread_result(parameters, read_result(jobs, name, row))
        own = {key: row[key] for key in OWN_COLUMNS if key != "error"}
        yield found | own | {"error": row["reason"] if row["state"] == "failed" else ""}


def read_result(jobs: JobQueue, name: str, row: Any) -> Any:
    """Return the result of a job; None where it has none."""
    if row["state"] != JobState.SUCCEEDED:
        return None
    if row["summary"]:
        return json.loads(row["summary"])
    value = jobs.value(name, row["number"])
    return None if value is None else open_pickle(value)


def spread_result(parameters: Mapping[str, Any], result: Any) -> dict[str, Any]:
    """Return a result as columns: of a dict each value, of anything else one.

    Examples
    --------
    >>> spread_result({"lr": 0.1}, {"loss": 2.0, "lr": 0.05})
    {'loss': 2.0, 'result_lr': 0.05}
    >>> spread_result({"lr": 0.1}, 3)
    {'result': 3}
    """
    if result is None:
        return {}
    values = result if isinstance(result, Mapping) else {"result": result}
    taken = {*parameters, *OWN_COLUMNS, "job"}
    return {(f"result_{key}" if key in taken else str(key)): value for key, value in values.items()}


def _usd_on_demand(record: RecordedBag, jobs: JobQueue) -> float | None:
    """Return what the attempts up to now would have cost on machines on demand.

    None where they cost nothing, or the request is not one of spot machines.
    """
    from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
    from jupyter_sky.workflows.bags.decisions.outlook import cheapest_on_demand

    resources = parse_cell_line(record.settings.options).resources
    if not resources.spot or record.settings.slurm is not None:
        return None
    offer = cheapest_on_demand(resources)
    if offer is None or offer.price is None:
        return None
    groups = resources.nodes / record.settings.per_machine
    return jobs.worked_seconds(record.name) / 3600 * offer.price * groups
