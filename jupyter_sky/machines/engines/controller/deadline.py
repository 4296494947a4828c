"""Deadline at which a cluster ends because the day's budget is spent, in use or not.

Notebooks and servers say how much longer it lasts, again and again, while any of them lives. The
controller counts on its own clock, which includes suspension and cannot be set.
"""

from __future__ import annotations

import time

BUDGET_SPENT_REASON = "the day's budget is spent"
"""Recorded reason of the end of a cluster."""


class Deadline:
    """Optional time of this machine's clock.

    Examples
    --------
    >>> deadline = Deadline()
    >>> deadline.is_over()
    False
    >>> deadline.set(0.0)
    >>> deadline.is_over()
    True
    """

    def __init__(self) -> None:
        self._at: float | None = None

    def set(self, seconds: float | None) -> None:
        """Set the deadline to `seconds` from now; None removes it."""
        self._at = None if seconds is None else _clock() + float(seconds)

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None without a deadline."""
        return None if self._at is None else self._at - _clock()

    def is_over(self) -> bool:
        """Whether it has passed."""
        return self._at is not None and _clock() >= self._at


def _clock() -> float:
    """Return seconds since boot, including suspension where the platform reports it."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
