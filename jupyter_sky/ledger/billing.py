"""By which steps clouds bill a machine's time, for plans and for the ledger."""

from __future__ import annotations

import math

from ..geography import ON_PREMISES
from ..provider.facts import BUILT_IN
from ..provider.register import find_facts

BILLING_RULES: dict[str, tuple[float, float]] = {
    name: facts.billing for name, facts in BUILT_IN.items() if any(facts.billing)
}
"""Step and minimum of billed time on the built-in clouds, seconds; see `billing_rule`."""

LONGEST_UNIT = max(least for pair in BILLING_RULES.values() for least in pair)
"""A machine that ended longer ago than this is not billed any more, seconds."""


DISK_USD_PER_GIB_MONTH = 0.10
"""Assumed for a disk of a size that was asked for: near what the large clouds take for SSDs."""
MONTH_HOURS = 730.5
UNBILLED_COSTS = (
    "boot disks of no size that was asked for, public IPv4 addresses, traffic between nodes and "
    "what cells send elsewhere"
)
"""Costs of rented machines that neither plans nor the ledger know."""


def billing_rule(cloud: str) -> tuple[float, float]:
    """Return the step and the minimum of billed time of a cloud, seconds.

    Examples
    --------
    >>> billing_rule("verda"), billing_rule("local")
    ((600.0, 600.0), (0.0, 0.0))
    """
    return find_facts(cloud).billing


def disk_usd_h(gib: float) -> float:
    """USD/h for a disk of a rented machine, for plans and for the ledger.

    Examples
    --------
    >>> round(disk_usd_h(500), 4)
    0.0684
    """
    return gib * DISK_USD_PER_GIB_MONTH / MONTH_HOURS


def cluster_price(price: float | None, cloud: str, nodes: int, disk_gib: float) -> float | None:
    """USD/h of all nodes with their disks; None where the price of a machine is not known.

    Examples
    --------
    >>> cluster_price(1.0, "aws", 2, 730.5), cluster_price(0.0, "local", 1, 500)
    (2.2, 0.0)
    """
    if price is None:
        return None
    return (price + (0.0 if cloud in ON_PREMISES else disk_usd_h(disk_gib))) * nodes


def billed_seconds(cloud: str, seconds: float) -> float:
    """Seconds that are paid for, rounded up to the billing unit.

    Examples
    --------
    >>> billed_seconds("aws", 12.4), billed_seconds("verda", 700), billed_seconds("local", 0.5)
    (60.0, 1200.0, 0.5)
    """
    unit, least = billing_rule(cloud)
    if not unit or seconds <= 0:
        return seconds
    # a stretch of exactly so many units must not be billed one more for the sake of rounding
    return max(math.ceil(seconds / unit - 1e-6) * unit, least)


def billed_seconds_sql(cloud: str, seconds: str) -> str:
    """Return `billed_seconds` as an SQL expression over expressions for cloud and seconds.

    Examples
    --------
    >>> billed_seconds_sql("cloud", "s")[:47]
    "CASE WHEN s <= 0 THEN s WHEN cloud = 'aws' THEN"
    """
    rules = (
        f"WHEN {cloud} = '{name}' "
        f"THEN max(CAST({seconds} / {unit} + 0.999999 AS INTEGER) * {unit}, {least})"
        for name, (unit, least) in BILLING_RULES.items()
    )
    return f"CASE WHEN {seconds} <= 0 THEN {seconds} {' '.join(rules)} ELSE {seconds} END"
