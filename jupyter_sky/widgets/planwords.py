"""Times of a plan, as all that shows one writes them."""

from __future__ import annotations

from ..quantities import format_duration


def clock(hours: float) -> str:
    """Hours as a clock shows them, to the nearest second.

    Examples
    --------
    >>> clock(8.2), clock(0.0099)
    ('8:12:00', '0:36')
    """
    return format_duration(round(hours * 3600))
