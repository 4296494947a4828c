"""Measuring one configuration: whatever the measuring function does, an outcome comes back."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.space import Point

Measure = Callable[[Point], Any]
"""Runs the workload on a configuration; gives the seconds it took, or a `Measurement`."""


Failure = Literal["crash", "memory", "stopped", "refused"]
"""Why a run has no value: its own error; too little memory; it was stopped, as it could no longer
win or would have cost too much; its machine could not be had, which says nothing of it."""


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
    failure : str
        Kind of a failure; of no account when it succeeded.
    billed : float, optional
        USD of the machines, from their launch to their end, where that is known: booked with the
        run after which they end.
    wait : float
        Of a refusal, seconds after which the machine can be asked for again.
    redone : float
        How many times over such a run is computed on average, as machines are lost: of spot
        machines more than 1. Its cost has that in it; its seconds are those that it took.

    Examples
    --------
    >>> Measurement(120.0, usd=0.04).ok, Measurement(3.0, error="out of memory").ok
    (True, False)
    """

    seconds: float
    usd: float | None = None
    error: str = ""
    failure: Failure = "crash"
    billed: float | None = None
    wait: float = 0.0
    redone: float = 1.0

    @property
    def expected_seconds(self) -> float:
        """Time that such a run takes on average, lost machines and all.

        Examples
        --------
        >>> Measurement(100.0, redone=1.25).expected_seconds
        125.0
        """
        return self.seconds * self.redone

    @property
    def ok(self) -> bool:
        """Whether the run succeeded."""
        return not self.error

    def priced(self, point: Point) -> Measurement:
        """Return the measurement with its cost, where the point's price is known."""
        if self.usd is not None or point.price is None:
            return self
        return replace(self, usd=self.seconds / 3600 * point.price)


@dataclass(frozen=True, slots=True)
class Trial:
    """One run that a search asks for.

    Attributes
    ----------
    number : int
        Number of its try; repeats of a configuration have one number.
    point : Point
        The configuration.
    is_last : bool
        Whether no other run of the try follows if this one succeeds.
    winning_seconds : callable
        Returns the seconds after which it can no longer win, as far as is known now; None for no
        limit. Asked again and again: others that end meanwhile lower it.
    usd : float, optional
        Most that it may cost (USD).
    ends : float, optional
        Time at which it must have ended, on the clock of `time.monotonic`.
    """

    number: int
    point: Point
    is_last: bool = True
    winning_seconds: Callable[[], float | None] = lambda: None
    usd: float | None = None
    ends: float | None = None


class TrialRunner(Protocol):
    """Carries out the runs of a search; several at once, each in a thread of its own."""

    def least_usd(self, point: Point) -> float:
        """Return what a run costs at least, however soon it ends (USD)."""
        ...

    def run(self, trial: Trial) -> Measurement:
        """Run the workload; what goes wrong is a failed measurement.

        Raises
        ------
        SkyError
            For what no other configuration would mend: the search ends.
        """
        ...

    def close(self) -> None:
        """Stop what runs and leave nothing behind."""
        ...


class FunctionRunner:
    """Runs of a measuring function.

    Parameters
    ----------
    measure
        The function.
    """

    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def least_usd(self, point: Point) -> float:
        """Return 0: nothing is known of the function."""
        return 0.0

    def run(self, trial: Trial) -> Measurement:
        """Call the function."""
        return run_measurement(self._measure, trial.point)

    def close(self) -> None:
        """Do nothing: a function that runs cannot be stopped."""


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
    runner
        Carries the runs out.
    parallel : int
        How many may run at once.
    timeout : float, optional
        Seconds after which a run counts as failed.

    Attributes
    ----------
    failure : SkyError, optional
        Why no other run can succeed either; None as long as that is not known.

    Raises
    ------
    SkyUsageError
        For a number below 1, or a time that is not above 0.
    """

    failure: SkyError | None = None

    def __init__(
        self, runner: TrialRunner, parallel: int = 1, timeout: float | None = None
    ) -> None:
        if parallel < 1 or parallel != int(parallel):
            raise SkyUsageError(f"parallel={parallel}", hint=_("give a whole number, 1 or more"))
        if timeout is not None and not timeout > 0:
            raise SkyUsageError(f"timeout={timeout}", hint=_("give seconds above 0, or None"))
        self._runner, self.parallel, self._timeout = runner, parallel, timeout
        self._is_inline = parallel == 1 and timeout is None and isinstance(runner, FunctionRunner)
        self._done: queue.SimpleQueue[tuple[int, Measurement]] = queue.SimpleQueue()
        self._running: dict[int, tuple[Trial, float]] = {}
        self._threads: list[threading.Thread] = []

    @property
    def trials(self) -> list[Trial]:
        """Runs that have not ended."""
        return [trial for trial, __ in self._running.values()]

    @property
    def points(self) -> tuple[Point, ...]:
        """Configurations of the runs that go on beside the caller's thread."""
        return () if self._is_inline else tuple(trial.point for trial in self.trials)

    @property
    def is_busy(self) -> bool:
        """Whether any is running."""
        return bool(self._running)

    @property
    def has_capacity(self) -> bool:
        """Whether another may start."""
        return len(self._running) < self.parallel

    def start(self, trial: Trial) -> None:
        """Begin a run; its number is none of those that are running."""
        self._running[trial.number] = (trial, time.monotonic())
        if self._is_inline:
            try:
                outcome = self._runner.run(trial)
            except BaseException:
                del self._running[trial.number]
                raise
            self._done.put((trial.number, outcome))
            return
        name = f"sky-search-{trial.number}"
        thread = threading.Thread(target=self._run, args=(trial,), name=name, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _run(self, trial: Trial) -> None:
        try:
            outcome = self._runner.run(trial)
        except SkyError as error:  # that is no verdict on its configuration
            self.failure = error
            outcome = Measurement(0.0, error=error.message, failure="refused")
        except BaseException as error:  # a SystemExit in the function must not hang the search
            outcome = Measurement(0.0, error=f"{type(error).__name__}: {error}")
        self._done.put((trial.number, outcome))

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

    def close(self) -> None:
        """End what runs, as far as that can be ended."""
        self._runner.close()
        if not isinstance(self._runner, FunctionRunner):  # those cannot be stopped
            for thread in self._threads:
                thread.join()

    def _wait_seconds(self) -> float | None:
        if self._timeout is None:
            return None
        first = min(begun for __, begun in self._running.values())
        return max(0.0, first + self._timeout - time.monotonic())

    def _find_timed_out(self) -> tuple[int, Measurement] | None:
        for number, (trial, begun) in self._running.items():
            if self._timeout is not None and time.monotonic() - begun >= self._timeout:
                del self._running[number]
                why = f"no result within {self._timeout:g} s"
                return number, Measurement(self._timeout, error=why).priced(trial.point)
        return None
