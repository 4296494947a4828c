"""Runs of all notebooks and shells: listed, and stopped from a shell."""

from __future__ import annotations

import ast
import math
import time
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError, SkyUsageError, suggest
from jupyter_sky.base.requests.resources import format_duration, format_run_time
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import format_usd

if TYPE_CHECKING:
    from jupyter_sky.base.store.store import RunRow

RECENT_SECONDS = 86_400.0
"""Age of the end of a run that is still listed."""
STOP_SECONDS = 15.0
"""Longest wait for the process that watches a run to stop it."""
_SHOWN_CHARACTERS = 60
STOPPED_BY = "with `jupyter sky cancel`"


def queue(cluster: str | None = None, everything: bool = False) -> Table:
    """List the runs that go on or wait, and those that have ended within a day.

    Parameters
    ----------
    cluster
        Name of one cluster; all of them unless given.
    everything
        List also those that ended before.

    Raises
    ------
    SkyUsageError
        There has been no cluster of that name.
    """
    from jupyter_sky.knowledge.ledger.lines import run_usd

    session, now = _sessions.current(), time.time()
    if cluster is not None and session.store.cluster(cluster) is None:
        names = [row.name for row in session.store.clusters()]
        raise SkyUsageError(
            _("there is no cluster {cluster!r}").format(cluster=cluster),
            hint=suggest(cluster, names),
        )
    since = -math.inf if everything else now - RECENT_SECONDS
    found = session.store.runs(cluster=cluster, limit=1000, unsent=True, since=since)
    rows = []
    for run in found:
        took = format_run_time((run.ended or now) - run.started, run.waited)
        usd = run_usd(run, now) if run.nodes else 0.0
        spent = _("unknown") if usd is None else format_usd(usd)
        ago = _("{ago} ago").format(ago=format_duration(now - run.started))
        rows.append((run.label, title(run), run.cluster, state(run, now), ago, took, spent))
    names = "run,code,cluster,state,begun,took,cost".split(",")
    return Table(_("Runs"), tuple(names), tuple(rows), empty=_("nothing runs and nothing waits"))


def state(run: RunRow, now: float | None = None) -> str:
    """Return the state of a run in a word."""
    if run.ended is not None:
        return {"ok": "done", "error": "failed"}.get(run.status, run.status)
    if not run.nodes and not run.is_monitored(now):
        return "lost"
    return run.stage


def title(run: RunRow) -> str:
    """Return the command of a run, or the last line that is kept of its cell."""
    return code_title(run.code)


def code_title(code: str) -> str:
    r"""Return the title of runs of some code, as it is kept with them.

    Examples
    --------
    >>> code_title("'python train.py'\n\ndef f(): ..."), code_title("import os\nfit(X)")
    ('python train.py', 'fit(X)')
    """
    lines = [line for line in code.splitlines() if line.strip()] or [""]
    try:
        told = ast.literal_eval(lines[0])
        first = told if isinstance(told, str) else lines[-1]
    except (ValueError, SyntaxError):
        first = lines[-1]
    return first if len(first) <= _SHOWN_CHARACTERS else f"{first[: _SHOWN_CHARACTERS - 1]}…"


def stop_run(which: str) -> str:
    """Stop a run of any notebook or shell; return what has become of it.

    The process that watches it is asked; where there is none, the cluster is.

    Parameters
    ----------
    which
        Its name, the number of its cell, or its id.

    Raises
    ------
    SkyUsageError
        There is none, or it has ended.
    """
    session = _sessions.current()
    row = _find(which)
    if row.ended is not None:
        raise SkyUsageError(
            _("{label} has ended already: {state}").format(label=row.label, state=state(row))
        )
    session.store.request_stop(row.run_id, STOPPED_BY)
    if row.is_monitored() and _ends_within(row, STOP_SECONDS):
        return _("{label} was cancelled").format(label=row.label)
    if not row.nodes:
        session.store.close_run_at_heartbeat(row.run_id, "cancelled")
        return _("{label} was cancelled before it had a cluster").format(label=row.label)
    from jupyter_sky.execution.cells.earlier_run import EarlierRun

    run = EarlierRun(session, row)
    run.cancel()
    deadline = time.monotonic() + STOP_SECONDS
    while not run.done():
        if warning := run.warning:
            return warning
        if time.monotonic() > deadline:
            raise SkyError(
                _("{label} does not stop").format(label=row.label),
                hint=_("jupyter sky down {cluster} ends its cluster").format(cluster=row.cluster),
            )
        time.sleep(0.1)
    if not row.is_monitored():
        session.store.close_run_at_heartbeat(row.run_id, "cancelled")
    return _("{label} was cancelled").format(label=row.label)


def _find(which: str) -> RunRow:
    """Return the newest run of a name, number or id; one that goes on before one that has ended."""
    rows = _sessions.current().store.runs(limit=1000, unsent=True)
    found = [row for row in rows if which in (row.name, row.run_id, str(row.cell))]
    if not found:
        names = [row.name or str(row.cell) for row in rows[:20]]
        raise SkyUsageError(
            _("there is no run {which!r}").format(which=which),
            hint=suggest(which, dict.fromkeys(names)),
        )
    return min(found, key=lambda row: (row.ended is not None, -row.started))


def _ends_within(row: RunRow, seconds: float) -> bool:
    store, deadline = _sessions.current().store, time.monotonic() + seconds
    while time.monotonic() < deadline:
        now = store.run(row.run_id)
        if now is None or now.ended is not None:
            return True
        time.sleep(0.1)
    return False
