"""Progress and result of a transfer, as values."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic

WINDOW = 10.0
"""Seconds over which the rate is taken."""


@dataclass(frozen=True, slots=True)
class Progress:
    """State of a transfer at one moment.

    Attributes
    ----------
    bytes_done, bytes_total : int
        Bytes that the target has, and will have.
    objects_done, objects_total : int
        Objects that are published, and that are to be.
    rate : float
        Bytes per second over the last 10 s.
    seconds_left : float
        At this rate; infinite before the first byte.
    bytes_sent : int
        Bytes that were sent by now, those in vain included.
    bytes_resumed : int
        Bytes that an earlier transfer had sent.
    requests_written, requests_read : int
        Requests for parts and objects by now, the failed ones included.
    usd : float
        Cost so far.
    """

    bytes_done: int
    bytes_total: int
    objects_done: int
    objects_total: int
    rate: float
    seconds_left: float
    bytes_sent: int
    bytes_resumed: int
    requests_written: int
    requests_read: int
    usd: float

    def __str__(self) -> str:
        """One line for a card."""
        done, total = format_size(self.bytes_done), format_size(self.bytes_total)
        share = f"{done} of {total}, {self.objects_done:,} of {self.objects_total:,} objects"
        left = "" if self.seconds_left == float("inf") else f", {self.seconds_left:.0f} s left"
        usd = f", ${self.usd:.2f}" if self.usd else ""
        rate = f", {format_size(self.rate)}/s" if self.rate else ""  # none before a second report
        return f"{share}{rate}{left}{usd}"


@dataclass
class Counters:
    """Counts of a transfer that is going on."""

    bytes_done: int = 0
    bytes_total: int = 0
    objects_done: int = 0
    objects_total: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    bytes_resumed: int = 0
    requests_written: int = 0
    requests_read: int = 0
    _samples: deque[tuple[float, int]] = field(default_factory=deque)

    @property
    def traffic(self) -> TransferTraffic:
        """Requests for parts, and their bytes."""
        return TransferTraffic(
            Traffic(reads=self.requests_read),
            Traffic(writes=self.requests_written, sent=self.bytes_sent),
            self.bytes_received,
        )

    def rate(self, now: float) -> float:
        """Return bytes per second over the last 10 s, and note the state at `now`."""
        self._samples.append((now, self.bytes_done - self.bytes_resumed))
        while now - self._samples[0][0] > WINDOW and len(self._samples) > 2:
            self._samples.popleft()
        (then, before), (_, done) = self._samples[0], self._samples[-1]
        return (done - before) / (now - then) if now > then else 0.0

    def progress(self, now: float, usd: float) -> Progress:
        """Return the state as a value."""
        rate = self.rate(now)
        left = (self.bytes_total - self.bytes_done) / rate if rate > 0 else float("inf")
        return Progress(
            self.bytes_done,
            self.bytes_total,
            self.objects_done,
            self.objects_total,
            rate,
            left,
            self.bytes_sent,
            self.bytes_resumed,
            self.requests_written,
            self.requests_read,
            usd,
        )
