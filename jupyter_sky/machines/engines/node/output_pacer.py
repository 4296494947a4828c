"""Pace of a cell's outputs: no faster than a notebook can show them."""

from __future__ import annotations

import time

MESSAGES_PER_SECOND = 2000.0
"""Displays and messages of widgets. A notebook relays about twice as many; a plain kernel shows
about half as many displays."""
MESSAGE_BURST = 2000
"""Messages that may go out at once, such as those of a large form of widgets."""
CHARACTERS_PER_SECOND = 16e6
"""Text. A notebook takes about as much on a busy machine, and a cell can print about a tenth."""
CHARACTER_BURST = 32_000_000
MIN_PAUSE_SECONDS = 0.005


class OutputPacer:
    """Token bucket: outputs beyond a burst wait.

    Without it an endless loop that displays something, or a process that floods its output, runs
    ahead of its notebook: the backlog fills the memory of the engine and of the controller, and
    after an interrupt the notebook would show for minutes what was sent before.

    Parameters
    ----------
    rate
        Amount per second.
    burst
        Amount that may go out at once.
    """

    def __init__(self, rate: float = MESSAGES_PER_SECOND, burst: float = MESSAGE_BURST) -> None:
        self.rate, self.burst = rate, burst
        self._excess, self._at = 0.0, time.monotonic()

    def wait(self, amount: float = 1.0) -> None:
        """Count an amount that was sent; wait while there is too much."""
        now = time.monotonic()
        self._excess = max(self._excess - (now - self._at) * self.rate, 0.0) + amount
        self._at = now
        pause = (self._excess - self.burst) / self.rate
        if pause > MIN_PAUSE_SECONDS:
            time.sleep(pause)
