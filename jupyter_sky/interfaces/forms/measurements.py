"""Measurements of own runs: time, price, failures and waiting by application and cloud."""

from __future__ import annotations

import re
import statistics
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.resources import format_run_time
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import format_usd

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import RunRow
    from jupyter_sky.knowledge.tracker.transfer_rates import TransferRate

_ENDED = ("ok", "error", "lost")
_NUMBER = re.compile(r"_\d+$")


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times and costs of runs of an application on machines of one kind.

    Attributes
    ----------
    application
        Name of the runs, else the command or the line of the cell that tells something.
    cloud, instance_type
        Where they ran; both empty for clusters that are no longer known.
    runs, failed, lost
        Numbers of runs: all that have ended, with an error, with their machine.
    seconds
        Median time of those that have succeeded; None without one.
    waited
        Median seconds from their begin until they were sent to their machine.
    usd, price
        Median cost of those that have succeeded, and USD/h of their cluster; None where it is not
        known.
    latest
        Unix time at which the latest one ended.
    """

    application: str
    cloud: str
    instance_type: str
    runs: int
    failed: int
    lost: int
    seconds: float | None
    waited: float
    usd: float | None
    price: float | None
    latest: float


def measure(
    runs: Iterable[RunRow], places: Mapping[str, tuple[str, str]], *, together: bool = False
) -> list[Measurement]:
    """Sum runs up by application and machine, the most frequent first.

    Parameters
    ----------
    runs
        Runs that have ended; others are left out.
    places
        Cloud and instance type of each cluster, by name.
    together
        Sum up by machine alone; the application is empty then.
    """
    from jupyter_sky.knowledge.ledger.lines import run_usd

    groups: dict[tuple[str, str, str], list[RunRow]] = defaultdict(list)
    ended = [run for run in runs if run.nodes and run.status in _ENDED]
    names = {run.name for run in ended if run.name}
    for run in ended:
        cloud, machine = places.get(run.cluster, ("", ""))
        groups["" if together else find_application(run, names), cloud, machine].append(run)
    found = []
    for (application, cloud, machine), group in groups.items():
        good = [run for run in group if run.status == "ok" and run.ended is not None]
        costs = [usd for run in good if (usd := run_usd(run, time.time())) is not None]
        prices = [run.price for run in good if run.price is not None]
        times = [run.ended - run.started for run in good if run.ended is not None]
        found.append(
            Measurement(
                application,
                cloud,
                machine,
                len(group),
                sum(run.status == "error" for run in group),
                sum(run.status == "lost" for run in group),
                statistics.median(times) if times else None,
                statistics.median(run.waited for run in group),
                statistics.median(costs) if costs else None,
                statistics.median(prices) if prices else None,
                max(run.ended or run.started for run in group),
            )
        )
    return sorted(found, key=lambda one: (-one.runs, one.application, one.cloud))


def find_application(run: RunRow, names: Collection[str]) -> str:
    """Return the application of a run: ``train`` for ``train_2``, where there is a ``train``.

    ``launch`` and ``bench`` number runs of the same name.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> runs = [SimpleNamespace(name=name) for name in ("train", "train_2", "phase_2")]
    >>> [find_application(run, {"train", "train_2", "phase_2"}) for run in runs]
    ['train', 'train', 'phase_2']
    """
    from jupyter_sky.interfaces.forms.run_queue import title

    if not run.name:
        return title(run)
    stem = _NUMBER.sub("", run.name)
    return stem if stem in names else run.name


def measurements(application: str | None = None) -> Table:
    """Show time, price, failures and waiting of own runs, and the rates of transfers.

    Parameters
    ----------
    application
        Name of the runs; all of them unless given.

    Returns
    -------
    Table
        A row for each application and kind of machine; rates of transfers stand in the note.

    Examples
    --------
    >>> sky.measurements("train")  # doctest: +SKIP
    """
    from jupyter_sky.knowledge import tracker

    store = _sessions.current().store
    places = {row.name: (row.cloud, row.instance_type) for row in store.clusters(False)}
    found = measure(store.runs(limit=10_000), places)
    rows = tuple(_row(one) for one in found if application in (None, one.application))
    rates = list(_rates(tracker.current().transfer_rates(time.time()).rates))
    note = _("transfers: {rates}").format(rates=", ".join(rates)) if rates else ""
    names = "application,cloud,machine,runs,failed,lost,time,waited,cost".split(",")
    empty = _("no run has ended yet")
    return Table(_("Measurements"), tuple(names), rows, note, empty=empty)


def _row(one: Measurement) -> tuple[object, ...]:
    took = "" if one.seconds is None else format_run_time(one.seconds)
    usd = "" if one.usd is None else format_usd(one.usd)
    waited = format_run_time(one.waited)
    counts = (one.runs, one.failed or "", one.lost or "")
    return (one.application, one.cloud, one.instance_type, *counts, took, waited, usd)


def _rates(rates: Iterable[TransferRate]) -> Iterable[str]:
    for rate in rates:
        yield _("{source} to {target} {speed} Gbit/s ({count})").format(
            source=rate.source,
            target=rate.target,
            speed=f"{rate.gbit_s:.2g}",
            count=rate.count,
        )
