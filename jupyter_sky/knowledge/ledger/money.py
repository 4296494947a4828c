"""Exact amounts: integers, so that parts of a bill add up to the whole however it is cut.

A price counts in billionths of a USD/h and time in microseconds; their product is an exact amount.
It becomes a float only where it is shown.
"""

from __future__ import annotations

_PRICE, _TIME = 10**9, 10**6
_USD = 3600 * _PRICE * _TIME
"""Exact units that are a USD."""


def exact_cost(price: float | None, start: float, end: float) -> int | None:
    """Return what a stretch of time costs, as an exact amount; None where the price is unknown.

    Parameters
    ----------
    price
        USD/h.
    start, end
        Unix seconds; each counts as the nearest microsecond, so that stretches that meet share it.

    Examples
    --------
    >>> whole = exact_cost(0.1, 0.0, 3600.0)
    >>> whole == exact_cost(0.1, 0.0, 1234.5678) + exact_cost(0.1, 1234.5678, 3600.0)
    True
    >>> exact_to_usd(whole)
    0.1
    """
    if price is None:
        return None
    lasted = round(end * _TIME) - round(start * _TIME)
    return round(price * _PRICE) * max(0, lasted)


def exact_from_usd(usd: float | None) -> int | None:
    """Return an amount of USD as an exact one."""
    return None if usd is None else round(usd * _PRICE) * 3600 * _TIME


def exact_to_usd(exact: int | None) -> float | None:
    """Return an exact amount in USD."""
    return None if exact is None else exact / _USD


def sum_exact(amounts: list[int | None]) -> int | None:
    """Return the sum; None as soon as one is not known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if len(known) == len(amounts) else None
