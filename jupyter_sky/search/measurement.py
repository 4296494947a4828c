"""Measuring one configuration: whatever the measuring function does, an outcome comes back."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import SkyUsageError
from ..translation import _
from .space import Point

Measure = Callable[[Point], Any]
"""Runs the workload on a configuration; gives the seconds it took, or a `Measurement`."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One run of a workload on one configuration.

    Attributes
    ----------
    seconds : float
        Time that it took; of a failed run, up to its failure.
    usd : float, optional
        What it cost; unless given, seconds times the price of the configuration.
    error : str
        Why it failed; empty when it succeeded.

    Examples
    --------
    >>> Measurement(120.0, usd=0.04).ok, Measurement(3.0, error="out of memory").ok
    (True, False)
    """

    seconds: float
    usd: float | None = None
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the run succeeded."""
        return not self.error

    def priced(self, point: Point) -> Measurement:
        """Return the measurement with its cost, where the point's price is known."""
        if self.usd is not None or point.price is None:
            return self
        return Measurement(self.seconds, self.seconds / 3600 * point.price, self.error)


def run_measurement(measure: Measure, point: Point) -> Measurement:
    """Call a measuring function; what it raises, and numbers that are none, are failed runs."""
    begun = time.monotonic()
    try:
        found = measure(point)
    except Exception as error:
        taken = time.monotonic() - begun
        return Measurement(taken, error=f"{type(error).__name__}: {error}").priced(point)
    return parse_measurement(found, time.monotonic() - begun).priced(point)


def parse_measurement(found: Any, taken: float) -> Measurement:
    """Convert the value of a measuring function to a measurement; it ran `taken` seconds."""
    if not isinstance(found, Measurement):
        try:
            found = Measurement(float(found))
        except (TypeError, ValueError):
            return Measurement(taken, error=f"measured {found!r}, which is not a number of seconds")
    wrong = [
        f"measured {number} {unit}"
        for number, unit in ((found.seconds, "seconds"), (found.usd, "USD"))
        if number is not None and not (math.isfinite(number) and number >= 0)
    ]
    if not wrong:
        return found
    return Measurement(taken, error="; ".join(filter(None, [found.error, *wrong])))


class MeasurementWorkers:
    """Runs measurements, some at once, each with a limit of time.

    With one worker and no limit, a measurement runs in the caller's own thread: prints, debuggers
    and interrupts work as they do anywhere. Otherwise each has a thread. One that exceeds its
    limit counts as failed; its thread cannot be ended and is left to itself.

    Parameters
    ----------
    measure
        The measuring function.
    parallel : int
        How many may run at once.
    timeout : float, optional
        Seconds after which a run counts as failed.

    Raises
    ------
    SkyUsageError
        For a number below 1, or a time that is not above 0.
    """

    def __init__(self, measure: Measure, parallel: int = 1, timeout: float | None = None) -> None:
        if parallel < 1 or parallel != int(parallel):
            raise SkyUsageError(f"parallel={parallel}", hint=_("give a whole number, 1 or more"))
        if timeout is not None and not timeout > 0:
            raise SkyUsageError(f"timeout={timeout}", hint=_("give seconds above 0, or None"))
        self._measure, self._parallel, self._timeout = measure, parallel, timeout
        self._done: queue.SimpleQueue[tuple[int, Measurement]] = queue.SimpleQueue()
        self._running: dict[int, tuple[Point, float]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether any is running."""
        return bool(self._running)

    @property
    def has_capacity(self) -> bool:
        """Whether another may start."""
        return len(self._running) < self._parallel

    def start(self, number: int, point: Point) -> None:
        """Begin a run under a number of its own."""
        self._running[number] = (point, time.monotonic())
        if self._parallel == 1 and self._timeout is None:
            try:
                outcome = run_measurement(self._measure, point)
            except BaseException:
                del self._running[number]
                raise
            self._done.put((number, outcome))
            return
        name = f"sky-search-{number}"
        threading.Thread(target=self._run, args=(number, point), name=name, daemon=True).start()

    def _run(self, number: int, point: Point) -> None:
        try:
            outcome = run_measurement(self._measure, point)
        except BaseException as error:  # a SystemExit in the function must not hang the search
            outcome = Measurement(0.0, error=f"{type(error).__name__}: {error}")
        self._done.put((number, outcome))

    def next(self) -> tuple[int, Measurement]:
        """Wait for the run that ends first, or for the first whose time is up."""
        while True:
            try:
                number, outcome = self._done.get(timeout=self._wait_seconds())
            except queue.Empty:
                pass
            else:
                if self._running.pop(number, None) is not None:  # else its time was up before
                    return number, outcome
            if (late := self._find_timed_out()) is not None:
                return late

    def _wait_seconds(self) -> float | None:
        if self._timeout is None:
            return None
        first = min(begun for __, begun in self._running.values())
        return max(0.0, first + self._timeout - time.monotonic())

    def _find_timed_out(self) -> tuple[int, Measurement] | None:
        for number, (point, begun) in self._running.items():
            if self._timeout is not None and time.monotonic() - begun >= self._timeout:
                del self._running[number]
                why = f"no result within {self._timeout:g} s"
                return number, Measurement(self._timeout, error=why).priced(point)
        return None
