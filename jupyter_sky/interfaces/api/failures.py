"""Failures across clouds, in the clouds' own words, with the page of their console."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    from jupyter_sky.knowledge.tracker.observations import Observation

SHOWN = 50
_PAGES = {"quota": "quota_page", "permission": "permission_page"}


def failures(cloud: str | None = None, *, limit: int = SHOWN) -> Table:
    """List refused launches and lost machines of all clouds, the latest first.

    Parameters
    ----------
    cloud
        Name of one cloud; all of them unless given.
    limit
        Most rows.

    Returns
    -------
    Table
        A row for each: when, where, what, why in the cloud's own words, and the page of its
        console.

    Examples
    --------
    >>> sky.failures("aws")  # doctest: +SKIP
    """
    from jupyter_sky.knowledge import tracker

    now = time.time()
    seen = [each for each in tracker.current().observations() if is_failure(each)]
    seen = [each for each in seen if cloud in (None, each.place.cloud)]
    rows = tuple(_row(each, now) for each in reversed(seen[-limit:]))
    columns = ("when", "where", "what", "why", "console")
    empty = _("nothing has been refused, and no machine was lost")
    return Table(_("Failures"), columns, rows, empty=empty)


def is_failure(seen: Observation) -> bool:
    """Return whether an observation is a refusal or a loss."""
    return seen.kind in ("refused", "preempted") and seen.events == 1


def _row(seen: Observation, now: float) -> tuple[object, ...]:
    ago = _("{ago} ago").format(ago=format_duration(max(0.0, now - seen.at)))
    what = seen.cause or seen.kind
    if seen.kind == "preempted" and seen.seconds:
        what = _("preempted after {age}").format(age=format_duration(seen.seconds))
    address = console_address(seen.place.cloud, seen.place.region, seen.cause)
    return (ago, str(seen.place), what, seen.why, address)


def console_address(cloud: str, region: str = "", cause: str = "") -> str:
    """Return the page of a cloud's console that shows machines, quotas or permissions.

    Examples
    --------
    >>> console_address("gcp", "us-central1", "quota")
    'https://console.cloud.google.com/iam-admin/quotas'
    """
    facts = find_facts(cloud)
    page = getattr(facts, _PAGES.get(cause, ""), "") or facts.console_page
    return page.format(region=quote(region or "us-east-1"))
