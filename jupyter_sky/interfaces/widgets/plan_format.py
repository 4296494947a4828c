"""Formats of times, sizes and differences of a plan."""

from __future__ import annotations

from jupyter_sky.base.requests.quantities import format_duration
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.ledger.ledger import format_usd


def format_clock(hours: float) -> str:
    """Format hours as a clock, to the nearest second; less than half a second as ``<0:01``.

    Examples
    --------
    >>> [format_clock(hours) for hours in (8.2, 0.0099, 0.00001, 0)]
    ['8:12:00', '0:36', '<0:01', '0:00']
    """
    if 1e-6 < hours * 3600 < 0.5:
        return "<0:01"
    return format_duration(round(hours * 3600))


def format_size(gb: float) -> str:
    """Format GB in the unit that fits.

    Examples
    --------
    >>> [format_size(gb) for gb in (150, 0.25, 20480, 0)]
    ['150 GB', '256 MB', '20 TB', '0 GB']
    """
    if gb >= 1000:
        return _("{gb:.3g} TB").format(gb=gb / 1024)
    return (
        _("{gb:.3g} GB").format(gb=gb)
        if gb >= 1 or not gb
        else _("{gb:.3g} MB").format(gb=gb * 1024)
    )


def format_usd_difference(usd: float) -> str:
    """Format a cost difference [USD] with its sign.

    Examples
    --------
    >>> format_usd_difference(1.5), format_usd_difference(-0.25), format_usd_difference(1e-9)
    ('+$1.50', '-$0.25', 'same')
    """
    if abs(usd) < 5e-7:
        return "same"
    return f"{'-' if usd < 0 else '+'}{format_usd(abs(usd))}"


def format_share(more: float, whole: float) -> str:
    """Format a difference as a share of the whole; empty if the whole is not positive.

    Examples
    --------
    >>> format_share(1.5, 10), format_share(-0.25, 10), format_share(400, 10)
    ('+15 %', '-2 %', '+4,000 %')
    >>> format_share(1, 0), format_share(0.01, 10)
    ('', '+0.1 %')
    """
    if not whole > 0:
        return ""
    percent = 100 * more / whole
    if abs(more) < 5e-7:
        return "same"
    return f"{percent:+.1f} %" if abs(percent) < 0.95 else f"{percent:+,.0f} %"


def format_time_difference(hours: float) -> str:
    """Format a time difference [h] with its sign.

    Examples
    --------
    >>> format_time_difference(0.5), format_time_difference(-0.25), format_time_difference(0)
    ('+30:00', '-15:00', 'same')
    """
    if abs(hours) * 3600 < 0.5:
        return "same"
    return f"{'-' if hours < 0 else '+'}{format_clock(abs(hours))}"
