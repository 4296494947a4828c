"""Pace of a cell's displays and widget messages: no faster than a notebook can show them."""

from __future__ import annotations

import time

from ..wire.messages import COUNTED_TYPES

PACED_TYPES = COUNTED_TYPES - {"stream", "error"}
"""Text is not paced: it travels in large pieces."""
RATE_PER_SECOND = 2000.0
"""A notebook relays about twice as many; a plain kernel shows about half as many displays."""
BURST = 2000
"""Messages that may go out at once, such as those of a large form of widgets."""
MIN_PAUSE_SECONDS = 0.005


class OutputPacer:
    """Token bucket: messages beyond a burst wait.

    Without it an endless loop that displays something runs ahead of its notebook: after an
    interrupt the notebook would show for minutes what was displayed before.

    Parameters
    ----------
    rate
        Messages per second.
    burst
        Messages that may go out at once.
    """

    def __init__(self, rate: float = RATE_PER_SECOND, burst: int = BURST) -> None:
        self.rate, self.burst = rate, burst
        self._excess, self._at = 0.0, time.monotonic()

    def wait(self, kind: str) -> None:
        """Count a message of a type that was sent; wait while there are too many."""
        if kind not in PACED_TYPES:
            return
        now = time.monotonic()
        self._excess = max(self._excess - (now - self._at) * self.rate, 0.0) + 1
        self._at = now
        pause = (self._excess - self.burst) / self.rate
        if pause > MIN_PAUSE_SECONDS:
            time.sleep(pause)
