"""By which steps clouds bill a machine's time, for plans and for the ledger."""

from __future__ import annotations

import math

BILLING: dict[str, tuple[float, float]] = {
    "aws": (1.0, 60.0),
    "azure": (1.0, 0.0),
    "gcp": (1.0, 60.0),
    "hyperstack": (60.0, 60.0),
    "lambda": (60.0, 60.0),
    "nebius": (1.0, 0.0),
    "runpod": (1.0, 0.0),
    "vast": (1.0, 0.0),
    "verda": (600.0, 600.0),
}
"""Seconds that a machine is billed in steps of, and at least, by the clouds' pricing pages."""

LONGEST_UNIT = max(least for pair in BILLING.values() for least in pair)
"""A machine that ended longer ago than this is not billed any more, seconds."""


def billed_seconds(cloud: str, seconds: float) -> float:
    """Seconds that are paid for, rounded up to the billing unit.

    Examples
    --------
    >>> billed_seconds("aws", 12.4), billed_seconds("verda", 700), billed_seconds("local", 0.5)
    (60.0, 1200.0, 0.5)
    """
    unit, least = BILLING.get(cloud, (0.0, 0.0))
    if not unit or seconds <= 0:
        return seconds
    # a stretch of exactly so many units must not be billed one more for the sake of rounding
    return max(math.ceil(seconds / unit - 1e-6) * unit, least)


def billed_sql(cloud: str, seconds: str) -> str:
    """The same as an expression of SQL, over expressions for the cloud and the seconds.

    Examples
    --------
    >>> billed_sql("cloud", "s").startswith("CASE WHEN s <= 0 THEN s WHEN cloud = 'aws' THEN")
    True
    """
    rules = (
        f"WHEN {cloud} = '{name}' "
        f"THEN max(CAST({seconds} / {unit} + 0.999999 AS INTEGER) * {unit}, {least})"
        for name, (unit, least) in BILLING.items()
    )
    return f"CASE WHEN {seconds} <= 0 THEN {seconds} {' '.join(rules)} ELSE {seconds} END"
