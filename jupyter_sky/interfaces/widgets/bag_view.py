"""View of a bag of jobs: progress, expected end and cost, failures by their reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.widgets.plan import block
from jupyter_sky.workflows.bags.bag_run import register_view

if TYPE_CHECKING:
    from jupyter_sky.workflows.bags.bag_run import BagRun

LOG_CHARACTERS = 20_000
"""Characters at the end of a job's output that the view shows."""


def describe_bag(bag: BagRun) -> dict[str, Any]:
    """Return a bag as its view shows it, in values of JSON.

    Returns
    -------
    dict
        ``name``; ``headline``, a sentence; ``states``, the number of jobs by state; ``total``;
        ``table`` of the jobs that ended last, as HTML; ``failures``, reasons with their numbers;
        ``events`` of machines; ``seconds_left`` and ``usd_total``, each with ``mean``, ``low`` and
        ``high``; ``usd_on_demand``, the cost of the work up to now on machines on demand, where
        known; ``warning``, of the deadline; ``over`` and ``carried_out``.
    """
    report = bag.report()
    return {
        "name": bag.name,
        "headline": report.headline,
        "states": report.states,
        "total": report.counts.total,
        "table": replace(bag.table(), title="", note="")._repr_html_(),  # both stand above it
        "failures": [{"reason": reason, "count": count} for reason, count in report.failures],
        "events": [{"at": at, "text": text} for at, text in bag.events()[-20:]],
        "usd": report.usd,
        "seconds_left": report.seconds_left and asdict(report.seconds_left),
        "usd_on_demand": report.usd_on_demand,
        "warning": report.warning,
        "usd_total": report.usd_total and asdict(report.usd_total),
        "over": report.reason is not None,
        "carried_out": report.is_carried_out,
    }


def describe_job(bag: BagRun, number: int) -> dict[str, Any]:
    """Return the end of what a job has printed.

    Raises
    ------
    SkyUsageError
        There is no such job.
    """
    return {"job": number, "log": bag.logs(number)[-LOG_CHARACTERS:]}


def act(bag: BagRun, verb: str, detach: bool = False) -> dict[str, Any]:
    """Cancel a bag, go on with it, or try its failed jobs again.

    Parameters
    ----------
    detach
        Go on in a process of its own.

    Raises
    ------
    SkyUsageError
        There is no such action.
    """
    actions: dict[str, Callable[[], Any]] = {
        "cancel": bag.cancel,
        "resume": bag.start_detached if detach else bag.start,
        "retry": lambda: bag.retry(detach=detach),
    }
    if verb not in actions:
        raise SkyUsageError(_("{verb}: not an action of bags").format(verb=verb))
    actions[verb]()
    return describe_bag(bag)


def make_view(bag: BagRun) -> Any:
    """Return a bag as a widget, which follows it until its end."""
    from jupyter_sky.interfaces.widgets.view import View

    answers = {
        "bag": lambda payload: describe_bag(bag),
        "job": lambda payload: describe_job(bag, int(payload.get("job", -1))),
        "act": lambda payload: act(bag, str(payload.get("verb", ""))),
    }
    return View("bag", answers, lambda: (to_html(bag), str(bag.table())), {"bag": bag.name})


def to_html(bag: BagRun) -> str:
    """Return a bag as HTML without scripts, for saved notebooks."""
    shown = describe_bag(bag)
    failed = "".join(block(f"{one['count']} x {one['reason']}") for one in shown["failures"][:5])
    return block(shown["headline"], "font-weight: 600") + failed + shown["table"]


register_view(make_view)
