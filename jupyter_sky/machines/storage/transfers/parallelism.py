"""Number of parts in flight: more while that helps, half when a store asks for less."""

from __future__ import annotations

from dataclasses import dataclass, field

WINDOW = 1.0
"""Seconds over which a rate is measured."""

GROWTH = 1.1
"""Factor by which the rate must have grown for the number to double again."""


@dataclass
class Parallelism:
    """Doubles while the rate grows, takes the last doubling back when it did not help.

    After a refusal it halves, and then grows by one in each window.

    Attributes
    ----------
    limit : int
        Parts in flight now allowed.
    maximum : int
        Never more.
    """

    limit: int = 4
    maximum: int = 64
    _is_growing: bool = True
    _best: float = 0.0
    _bytes: int = 0
    _since: float = field(default=-1.0)
    _halved: float = field(default=float("-inf"))

    def on_bytes(self, count: int, now: float) -> None:
        """Take in that bytes have arrived, at a time in seconds."""
        if self._since < 0:
            self._since = now
        self._bytes += count
        elapsed = now - self._since
        if elapsed < WINDOW:
            return
        rate = self._bytes / elapsed
        self._bytes, self._since = 0, now
        if self._halved > 0:
            self.limit = min(self.limit + 1, self.maximum)
        elif self._is_growing:
            self._is_growing = rate > self._best * GROWTH
            doubled = self.limit * 2 if self._is_growing else max(4, self.limit // 2)
            self._best, self.limit = max(rate, self._best), min(doubled, self.maximum)

    def on_busy(self, now: float) -> None:
        """Take in that the store asked for fewer requests."""
        if now - self._halved >= WINDOW:  # one storm refuses all that is in flight
            self._halved = now
            self.limit = max(1, self.limit // 2)
