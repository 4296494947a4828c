"""Reservations of the day's budget: money for launches that are under way and bill little yet.

A launch costs at least the time that it boots, the least time that its cloud bills, and the grace
for which clusters go on once the budget is passed, all at the price of all nodes. That much has to
be left of the day, beside what other launches have reserved, or it does not begin. The look and the
note of the launch are one transaction: of two notebooks with money for one, one launches.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyBudget, SkyStoreError
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.store.store import ClusterRow, Store
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger import budget
from jupyter_sky.knowledge.ledger.billing import billed_seconds, billing_rule
from jupyter_sky.knowledge.ledger.budget import BudgetStatus
from jupyter_sky.knowledge.ledger.ledger import cost, format_rate, format_usd

BOOT_SECONDS = 120.0
"""Assumed from a launch to a machine that answers, where the tracker has timed none."""
RESERVATION_KEY = "reserved_usd"
"""Key of the reservation in ``connection`` of a starting cluster's row."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The part of the day's budget that a launch still holds.

    Attributes
    ----------
    cluster, notebook : str
        Of the launch.
    usd : float
        What it has reserved, without what it has been billed by now.
    """

    cluster: str
    notebook: str
    usd: float

    def __str__(self) -> str:
        return _("{cluster} of {notebook} ({usd})").format(
            cluster=self.cluster, notebook=self.notebook, usd=format_usd(self.usd)
        )


def minimum_billed_seconds(cloud: str, boot: float | None = None) -> float:
    """Return the seconds that the shortest useful life of a cluster is billed.

    Parameters
    ----------
    boot
        Seconds until its machines answer; assumed unless given.

    Examples
    --------
    >>> minimum_billed_seconds("aws", boot=40.0), minimum_billed_seconds("ssh")
    (130.0, 30.0)
    """
    if boot is None:
        boot = 0.0 if find_facts(cloud).on_premises else BOOT_SECONDS
    __, least = billing_rule(cloud)
    return billed_seconds(cloud, boot + least + budget.GRACE_SECONDS)


def boot_seconds(cloud: str) -> float:
    """Return the time that launches on a cloud take, as far as it is known here, seconds."""
    if find_facts(cloud).on_premises:
        return 0.0
    from jupyter_sky.knowledge import tracker

    tallies = []
    with suppress(SkyStoreError):
        known = tracker.knowledge().tallies
        tallies = [tally for place, tally in known.items() if place.cloud == cloud]
    timed = sum(tally.timed for tally in tallies)
    return sum(tally.launch_seconds for tally in tallies) / timed if timed > 0 else BOOT_SECONDS


def reserved(store: Store, now: float) -> list[Reservation]:
    """Return what launches that are under way have reserved and not been billed yet."""
    found = []
    for row in store.starting_clusters():
        usd = row.connection.get(RESERVATION_KEY)
        if not isinstance(usd, int | float):
            continue
        billed = sum(
            cost(one.price, now - one.started) or 0.0
            for one in store.intervals(row.name)
            if one.cluster_created == row.created
        )
        if usd > billed:
            found.append(Reservation(row.name, row.notebook, usd - billed))
    return found


def reserve(store: Store, row: ClusterRow, now: float | None = None) -> ClusterRow:
    """Note a launch and reserve what it costs at the least, in one transaction.

    Parameters
    ----------
    row
        The cluster as it begins to start. What has no price is noted and reserves nothing: the
        budget cannot see it.

    Returns
    -------
    ClusterRow
        The row as it was written.

    Raises
    ------
    SkyBudget
        Not that much is left of the day's budget; nothing was noted.
    SkyStoreError
        A cluster of this name is up or starting, or the store cannot be written now.
    """
    if not row.price:
        store.save_cluster(row, durable=row.price != 0)
        return row
    now = time.time() if now is None else now
    seconds = minimum_billed_seconds(row.cloud, boot_seconds(row.cloud))
    usd = cost(row.price, seconds) or 0.0
    row = replace(row, connection=row.connection | {RESERVATION_KEY: usd})

    def check() -> None:
        verdict = budget.assess(store, now)
        if verdict.budget.usd is None:
            return
        others = reserved(store, now)
        if usd > verdict.budget.usd - verdict.spent.usd - sum(other.usd for other in others):
            raise reservation_error(verdict, row, seconds, others)

    store.insert_launch(row, check)
    return row


def reservation_error(
    verdict: BudgetStatus, row: ClusterRow, seconds: float, others: list[Reservation]
) -> SkyBudget:
    """Return the error for a launch for which not enough is left."""
    most, usd = verdict.budget.usd or 0.0, cost(row.price, seconds) or 0.0
    left = max(0.0, most - verdict.spent.usd - sum(other.usd for other in others))
    words = _("{name} was not started").format(name=row.name)
    if verdict.state == "over":
        return budget.budget_error(verdict, words)
    taken = _("{usd} is spent").format(usd=format_usd(verdict.spent.usd))
    if others:
        taken += _(", reserved by {str}").format(str=", ".join(map(str, others)))
    need = most - left + usd
    return SkyBudget(
        _(
            "{words}: to boot, and to end again, it needs {usd} ({seconds} at "
            "{price}), and {left} of today's budget of ${most:,.2f} is left "
            "({taken})"
        ).format(
            words=words,
            usd=format_usd(usd),
            seconds=format_duration(seconds),
            price=format_rate(row.price),
            left=format_usd(left),
            most=most,
            taken=taken,
        ),
        hint=_(
            "raise it: %config Sky.budget_usd_day = {need}, or in the Cost tab of "
            "the Sky panel; or ask for a cheaper machine; machines of your own "
            "cost nothing: --cloud local; the next day begins at midnight"
        ).format(need=budget.round_up(need * 1.2)),
    )
