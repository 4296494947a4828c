"""Times and sizes of a plan, as all that shows one writes them."""

from __future__ import annotations

from ..ledger.ledger import format_usd
from ..quantities import format_duration


def format_clock(hours: float) -> str:
    """Hours as a clock shows them, to the nearest second; what is shorter says so.

    Examples
    --------
    >>> clock(8.2), clock(0.0099), clock(0.00001), clock(0)
    ('8:12:00', '0:36', '<0:01', '0:00')
    """
    if 1e-6 < hours * 3600 < 0.5:
        return "<0:01"
    return format_duration(round(hours * 3600))


def format_size(gb: float) -> str:
    """GB in the unit that fits.

    Examples
    --------
    >>> size(150), size(0.25), size(20480), size(0)
    ('150 GB', '256 MB', '20 TB', '0 GB')
    """
    if gb >= 1000:
        return f"{gb / 1024:.3g} TB"
    return f"{gb:.3g} GB" if gb >= 1 or not gb else f"{gb * 1024:.3g} MB"


def format_usd_difference(usd: float) -> str:
    """How much dearer or cheaper, with its sign.

    Examples
    --------
    >>> format_usd_difference(1.5), format_usd_difference(-0.25), format_usd_difference(1e-9)
    ('+$1.50', '-$0.25', 'same')
    """
    if abs(usd) < 5e-7:
        return "same"
    return f"{'-' if usd < 0 else '+'}{format_usd(abs(usd))}"


def format_share(more: float, whole: float) -> str:
    """A difference as a share of the whole, with its sign; empty where there is no whole.

    Examples
    --------
    >>> share(1.5, 10), share(-0.25, 10), share(400, 10), share(1, 0), share(0.01, 10)
    ('+15 %', '-2 %', '+4,000 %', '', '+0.1 %')
    """
    if not whole > 0:
        return ""
    percent = 100 * more / whole
    if abs(more) < 5e-7:
        return "same"
    return f"{percent:+.1f} %" if abs(percent) < 0.95 else f"{percent:+,.0f} %"


def format_time_difference(hours: float) -> str:
    """How much longer or shorter, with its sign.

    Examples
    --------
    >>> format_time_difference(0.5), format_time_difference(-0.25), format_time_difference(0)
    ('+30:00', '-15:00', 'same')
    """
    if abs(hours) * 3600 < 0.5:
        return "same"
    return f"{'-' if hours < 0 else '+'}{format_clock(abs(hours))}"
