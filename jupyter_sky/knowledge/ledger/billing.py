"""Steps in which clouds bill a machine's time, for plans and for the ledger."""

from __future__ import annotations

import math
from collections.abc import Iterable

from jupyter_sky.base.clouds.register import find_facts

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
    """Return USD/h for a disk of a rented machine, for plans and for the ledger.

    Examples
    --------
    >>> round(disk_usd_h(500), 4)
    0.0684
    """
    return gib * DISK_USD_PER_GIB_MONTH / MONTH_HOURS


def cluster_price(price: float | None, cloud: str, nodes: int, disk_gib: float) -> float | None:
    """Return USD/h of all nodes with disks; None where the price of a machine is not known.

    Examples
    --------
    >>> cluster_price(1.0, "aws", 2, 730.5), cluster_price(0.0, "local", 1, 500)
    (2.2, 0.0)
    """
    if price is None:
        return None
    return (price + (0.0 if find_facts(cloud).on_premises else disk_usd_h(disk_gib))) * nodes


def billed_seconds(cloud: str, seconds: float) -> float:
    """Return seconds that are paid for, rounded up to the billing unit.

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


def billed_seconds_sql(cloud: str, seconds: str, names: Iterable[str]) -> str:
    """Return `billed_seconds` as an SQL expression over expressions for cloud and seconds.

    Parameters
    ----------
    names
        Clouds that occur.

    Examples
    --------
    >>> billed_seconds_sql("cloud", "s", ["aws"])[:47]
    "CASE WHEN s <= 0 THEN s WHEN cloud = 'aws' THEN"
    """
    rules = [f"WHEN {seconds} <= 0 THEN {seconds}"]
    for name in names:
        unit, least = billing_rule(name)
        steps = f"CAST({seconds} / {unit} + 0.999999 AS INTEGER) * {unit}"
        if unit:
            quoted = name.replace("'", "''")
            rules.append(f"WHEN {cloud} = '{quoted}' THEN max({steps}, {least})")
    return f"CASE {' '.join(rules)} ELSE {seconds} END"
