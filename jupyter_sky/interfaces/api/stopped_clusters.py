"""Clusters stopped and started, as Python calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster_records import describe_place
from jupyter_sky.execution.clusters.stopped_clusters import (
    find_startable,
    find_stoppable,
    start_cluster,
    stop_cluster,
)
from jupyter_sky.execution.clusters.stopped_records import describe_stop, stop_cost
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import Ledger, format_rate, format_usd
from jupyter_sky.knowledge.ledger.report import short_path

if TYPE_CHECKING:
    from jupyter_sky.base.tables import Table


def stop(name: str, *, yes: bool = False) -> str:
    """Stop a cluster: its machines power off, their disks are kept, and cost.

    Variables on it are lost, files stay. It ends with the lease of its machines, also stopped.

    Parameters
    ----------
    name
        Its name.
    yes
        Do not ask.

    Returns
    -------
    str
        What it costs now, and until when.

    Raises
    ------
    SkyUsageError
        Its cloud cannot keep stopped machines, cells run on it, or there is nobody to ask.

    Examples
    --------
    >>> print(sky.stop("train"))  # doctest: +SKIP
    """
    from jupyter_sky.interfaces.api.confirmation import confirm

    session = _sessions.current()
    row = find_stoppable(session.clusters, name)
    told = _describe_stop(row)
    if not yes:
        question = _("Stop {name}? Its variables are lost; {told}. [y/N] ").format(
            name=name, told=told
        )
        unasked = SkyUsageError(
            _("stop {name}: {told}").format(name=name, told=told), hint=_("--yes agrees to it")
        )
        confirm(question, unasked, _("it goes on"))
        row = find_stoppable(session.clusters, name)  # a cell may have begun meanwhile
    stop_cluster(session.clusters, row)
    return _("stopped: {name}; {told}. jupyter sky start {name}, or down {name}").format(
        name=name, told=told
    )


def _describe_stop(row: ClusterRow) -> str:
    """Return in words what a cluster costs while it is stopped, and until when it is kept."""
    cost = stop_cost(row)
    ends = time.strftime("%Y-%m-%d %H:%M", time.localtime(cost.ends))
    return _(
        "its disk ({gib:g} GiB) goes on costing about {price} until it is started or ended; it "
        "ends for good at {ends}, by a process on this machine, else by the next notebook here"
    ).format(gib=cost.disk_gib, price=format_rate(cost.price), ends=ends)


def start(name: str, report: Callable[[str, str], None] = lambda stage, detail: None) -> Table:
    """Start a cluster that was stopped, with its files and without its variables.

    Parameters
    ----------
    name
        Its name.
    report
        Called with a stage and a detail, again and again while it comes up.

    Returns
    -------
    Table
        Its row of `status`.

    Raises
    ------
    SkyUsageError
        It is not stopped, or its lease has ended.
    SkyNoCapacity
        Its place has no such machine now; it stays stopped.

    Examples
    --------
    >>> sky.start("train")  # doctest: +SKIP
    """
    from jupyter_sky.interfaces.api.clusters import status

    session = _sessions.current()
    row = find_startable(session.clusters, name)
    start_cluster(session.clusters, row, report)
    return status(name)


def stopped_row(row: ClusterRow, ledger: Ledger) -> tuple[str, ...]:
    """Return the row of a stopped cluster: the price is that of its disks, once it is off."""
    cost, under_way = stop_cost(row), describe_stop(row)
    left = format_duration(max(0.0, cost.ends - time.time()))
    return (
        row.name,
        describe_place(row),
        format_rate(row.price if under_way else cost.price),
        format_usd(ledger.cluster_usd(row.name)),
        format_duration(time.time() - row.created),
        under_way or _("stopped: jupyter sky start {name}").format(name=row.name),
        _("ends in {left}").format(left=left),
        "",
        short_path(row.notebook),
    )
