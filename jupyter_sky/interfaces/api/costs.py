"""Costs as Python calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_sky.execution.sessions import session as _sessions
from jupyter_sky.knowledge.ledger.ledger import By
from jupyter_sky.knowledge.ledger.report import parse_by, parse_since

if TYPE_CHECKING:
    from jupyter_sky.interfaces.widgets.cost import Cost
    from jupyter_sky.knowledge.ledger.report import CostReport


def cost(by: By = "cell", since: str | None = None) -> Cost:
    """Return past, present and coming costs, and savings; live in a notebook.

    Savings are counted against the default choice: the cheapest machine on demand in AWS us-east-1
    that met the same request when the cluster was launched: see `knowledge.ledger.baseline`.
    The forecast lasts until the running cells have ended, by their earlier runs or their
    ``--timeout``, and then until the idle limits. Estimates are marked.

    Parameters
    ----------
    by
        ``cell`` (of this notebook), ``cluster``, ``notebook``, ``cloud`` or ``day``.
    since
        A day (``2026-11-01``), ``today`` or a time ago (``12h``); all there is unless given.

    Returns
    -------
    Cost
        A table to look at, of which ``to_csv(path)`` and ``to_pandas()`` give all lines.

    Examples
    --------
    >>> sky.cost("day", since="30d").to_csv("costs.csv")  # doctest: +SKIP
    """
    return _cost(parse_by(by), since or "all")


def _cost(by: By, since: str, compact: bool = False) -> Cost:
    from jupyter_sky.interfaces.widgets.cost import Cost
    from jupyter_sky.knowledge.ledger.report import make_report, report_signature

    session = _sessions.current()
    session.clusters.records.reconcile()  # what has ended meanwhile is billed to its end
    notebook = None if session.everywhere else session.notebook

    def read(by: By, since: str) -> CostReport:
        return make_report(session.store, notebook, by, parse_since(since))

    def set_budget(usd: float | None) -> None:
        session.clusters.budget_monitor.set_budget(usd, "sky.cost()")

    return Cost(read, set_budget, lambda: report_signature(session.store), by, since, compact)


def meter() -> Cost:
    """Return the figures of `cost` alone, in one line, live until it is closed.

    Returns
    -------
    Cost
        A widget, live until its ``close()`` is called.

    Examples
    --------
    >>> meter = sky.meter()  # doctest: +SKIP
    >>> meter.close()  # doctest: +SKIP
    """
    return _cost("cell", "all", compact=True)
