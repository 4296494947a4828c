"""Parts in flight and parts that wait for another attempt."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from jupyter_sky.machines.storage.stores.object_transfer import ObjectTransfer
from jupyter_sky.machines.storage.stores.part_worker import Limits
from jupyter_sky.machines.storage.stores.store import Checksums, Upload

# -- Number of parts in flight: more while that helps, half when a store asks for less ------------

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


# -- Parts in flight and parts that wait for another attempt --------------------------------------


@dataclass
class Flight:
    """A part on its way.

    Attributes
    ----------
    transfer : ObjectTransfer
        Its object.
    upload : Upload
        Where it goes; another one once the object began anew.
    part : int
        Its number.
    size : int
        Bytes.
    attempt : int
        Attempts so far.
    sums : Checksums or None
        Of the bytes that were read at the last attempt.
    """

    transfer: ObjectTransfer
    upload: Upload
    part: int
    size: int
    attempt: int = 0
    sums: Checksums | None = None

    @property
    def is_current(self) -> bool:
        """Whether its object still goes to the same upload."""
        return self.upload is self.transfer.upload


@dataclass
class Flights:
    """All parts in flight: those that a worker carries, and as many that wait in its queue.

    A thread that has carried a part takes the next one at once, not only after the decision about
    the former. Parts that wait take no memory; the worker keeps to `limits`.

    Attributes
    ----------
    memory : int
        Bytes that are carried at once.
    parallelism : Parallelism
        Number that is carried at once.
    """

    memory: int
    parallelism: Parallelism = field(default_factory=Parallelism)
    _flying: dict[int, Flight] = field(default_factory=dict)
    _delayed: list[tuple[float, int, Flight]] = field(default_factory=list)
    _bytes: int = 0
    _number: int = 0

    def __len__(self) -> int:
        return len(self._flying)

    @property
    def has_delayed(self) -> bool:
        """Whether parts wait for another attempt."""
        return bool(self._delayed)

    def has_room(self, size: int) -> bool:
        """Whether a part of `size` may start; a single one always may.

        Where only one is carried at once, none waits: they end in their order.
        """
        if not self._flying:
            return True
        carried = min(self.parallelism.limit, self.memory // max(1, size))
        return carried > 1 and len(self) < 2 * carried and self._bytes + size <= 2 * self.memory

    @property
    def limits(self) -> Limits:
        """Limits of the worker."""
        return Limits(self.parallelism.limit, self.memory)

    def start(self, flight: Flight) -> int:
        """Count a part as in flight and return its number."""
        self._number += 1
        flight.attempt += 1
        self._flying[self._number] = flight
        self._bytes += flight.size
        return self._number

    def land(self, number: int) -> Flight:
        """Return the part of this number, which is not in flight any more."""
        flight = self._flying.pop(number)
        self._bytes -= flight.size
        return flight

    def delay(self, flight: Flight, until: float) -> None:
        """Let a part wait for another attempt."""
        self._number += 1
        heapq.heappush(self._delayed, (until, self._number, flight))

    def due(self, now: float) -> Iterator[Flight]:
        """Yield parts whose wait is over while there is room."""
        while self._delayed and self._delayed[0][0] <= now:
            if not self.has_room(self._delayed[0][2].size):
                return
            flight = heapq.heappop(self._delayed)[2]
            if flight.is_current:
                yield flight

    def patience(self, now: float, most: float) -> float:
        """Return the seconds until a wait is over, up to `most`."""
        until = self._delayed[0][0] - now if self._delayed else most
        return min(most, max(0.0, until))
