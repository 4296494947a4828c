"""Running a search: asking, measuring, telling, until the budget or a reason ends it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SkyUsageError
from ..translation import _
from .log import SearchLog
from .measurement import Measure, Measurement, MeasurementWorkers
from .optimizer import Optimizer, Statistic, get_statistic
from .result import SearchResult, Target, Try
from .space import Space


@dataclass(frozen=True, slots=True)
class Stop:
    """Conditions to stop before the budget is used up; the first that holds.

    Attributes
    ----------
    target : float, optional
        Once the best is this or less.
    patience : int, optional
        After so many tries in a row without an improvement.
    gain : float, optional
        Once the optimizer expects to improve by less than this share, as 0.05 for 5 %. Only
        optimizers with a model say what they expect.
    usd : float, optional
        Once the tries that ended have cost this much. What is under way is still waited for.

    Examples
    --------
    >>> Stop(target=1.5, patience=5).patience
    5
    """

    target: float | None = None
    patience: int | None = None
    gain: float | None = None
    usd: float | None = None

    def __post_init__(self) -> None:
        for name in ("target", "patience", "gain", "usd"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SkyUsageError(
                    _("stop: {name}={value}").format(name=name, value=value),
                    hint=_("give a number above 0"),
                )

    def reason(self, result: SearchResult, optimizer: Optimizer) -> str:
        """Return the reason to stop now; empty to continue."""
        best, curve = result.best, result.curve
        if best is None or best.value is None:
            spent = self.usd is not None and (result.usd or 0.0) >= self.usd
            return f"stopped: ${self.usd:g} are spent" if spent else ""
        if self.target is not None and best.value <= self.target:
            return f"stopped: the target of {self.target:g} is reached"
        since = int((curve == curve[-1]).sum()) - 1
        if self.patience is not None and since >= self.patience:
            return f"stopped: {since} tries without an improvement"
        gain = getattr(optimizer, "expected_gain", None)
        if self.gain is not None and gain is not None and gain < self.gain:
            return f"stopped: an improvement of {100 * gain:.1f} % is expected"
        if self.usd is not None and (result.usd or 0.0) >= self.usd:
            return f"stopped: ${self.usd:g} are spent"
        return ""


class Search:
    """One search, from its first try to its last.

    Parameters
    ----------
    optimizer
        Chooses the points.
    measure
        Runs the workload on a point, see `Measure`.
    budget : int
        Configurations to try at most.
    minimize
        ``cost`` (USD) or ``time`` (s).
    parallel, timeout
        Runs at once, and seconds that each may take, see `MeasurementWorkers`.
    repeats, statistic
        Runs of each configuration, and what they amount to. A configuration with a failed run has
        failed.
    stop : Stop, optional
        Reasons to end early.
    log, header
        A file to write to and to go on from, and what says which search it is.
    watch
        Called with the result so far after each try.

    Examples
    --------
    >>> from jupyter_sky.search import FlatGP
    >>> space = Space.of({"A": {"nodes": [1, 2, 4]}})
    >>> found = Search(FlatGP(space, minimize="time"), lambda p: 8 / p.nodes, 3, "time").run()
    >>> found.best.point["nodes"], found.best.value
    (4, 2.0)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        measure: Measure,
        budget: int,
        minimize: Target = "cost",
        *,
        parallel: int = 1,
        timeout: float | None = None,
        repeats: int = 1,
        statistic: Statistic = "mean",
        stop: Stop | None = None,
        log: str | Path | None = None,
        header: Mapping[str, Any] | None = None,
        watch: Callable[[SearchResult], None] | None = None,
    ) -> None:
        for name, number in (("budget", budget), ("repeats", repeats)):
            if not isinstance(number, int | np.integer) or number < 1:
                raise SkyUsageError(f"{name}={number!r}", hint=_("give a whole number, 1 or more"))
        if minimize not in ("cost", "time"):
            raise SkyUsageError(f"minimize={minimize!r}", hint=_("give 'cost' or 'time'"))
        space: Space = optimizer.space
        self._optimizer, self._repeats, self._amount = optimizer, repeats, get_statistic(statistic)
        self._workers = MeasurementWorkers(measure, parallel, timeout)
        self._stop, self._watch = stop or Stop(), watch
        self._path = log
        self._header = {**(header or {}), "space": space.fingerprint, "minimize": minimize}
        self._header["repeats"] = repeats
        self._open: dict[int, tuple[int, list[Measurement]]] = {}  # tries without all their runs
        self._begun = 0
        self.result = SearchResult(space, minimize, int(budget))

    def run(self) -> SearchResult:
        """Search until the budget is used up, or there is a reason to stop."""
        log = SearchLog(self._path, self._header)
        try:
            self._replay(log)
            for number in list(self._open):  # begun by a search that was killed
                self._resume(number, log)
            while True:  # what is under way when there is a reason to stop is waited for
                while self._workers.has_capacity and not self._reason() and self._next(log):
                    pass
                if not self._workers.is_busy:
                    break
                self._await(log)
        finally:
            log.close()
        self.result = replace(self.result, stopped=self._reason() or self._end_reason())
        return self.result

    def _reason(self) -> str:
        return self._stop.reason(self.result, self._optimizer) if self.result.tries else ""

    def _end_reason(self) -> str:
        if len(self.result.tries) >= self.result.budget:
            return ""
        return "nothing was left to try" if self._optimizer.finished else "no more was asked for"

    # -- one try -------------------------------------------------------------------------------

    def _next(self, log: SearchLog) -> bool:
        if self._begun >= self.result.budget:
            return False
        index = self._optimizer.ask()
        if index is None:
            return False
        number = self._begin(index)
        log.ask(number, index)
        self._workers.start(number, self.result.space[index])
        return True

    def _begin(self, index: int) -> int:
        self._begun += 1
        self._open[self._begun] = (index, [])
        return self._begun

    def _resume(self, number: int, log: SearchLog) -> None:
        while not self._workers.has_capacity:
            self._await(log)
        self._workers.start(number, self.result.space[self._open[number][0]])

    def _await(self, log: SearchLog) -> None:
        number, run = self._workers.next()
        log.run(number, run)
        self._record_run(number, run)
        if number in self._open:
            self._workers.start(number, self.result.space[self._open[number][0]])
        elif self._watch is not None:
            self._watch(self.result)

    def _record_run(self, number: int, run: Measurement) -> None:
        """Take in a run; after a try's last one, tell the optimizer."""
        index, runs = self._open[number]
        runs.append(self._require_cost(run))
        if len(runs) < self._repeats and runs[-1].ok:
            return
        del self._open[number]
        value = None
        if all(run.ok for run in runs):
            value = self._amount(np.array([self._value(run) for run in runs]))
        self._optimizer.tell(index, value)
        tried = Try(number, index, self.result.space[index], value, tuple(runs))
        self.result = replace(self.result, tries=(*self.result.tries, tried))

    def _value(self, run: Measurement) -> float:
        return run.seconds if self.result.minimize == "time" else float(run.usd or 0.0)

    def _require_cost(self, run: Measurement) -> Measurement:
        """Treat a run without a cost as a failure when cost is minimized."""
        if self.result.minimize == "cost" and run.ok and run.usd is None:
            why = "its cost is not known: the configuration has no price, and none was measured"
            return Measurement(run.seconds, None, why)
        return run

    # -- going on ------------------------------------------------------------------------------

    def _replay(self, log: SearchLog) -> None:
        """Ask and tell the optimizer what the log says, so that it stands where it stood."""
        for number, event in log.replay():
            if isinstance(event, Measurement):
                if number in self._open:
                    self._record_run(number, event)
                continue
            asked = self._optimizer.ask()
            if asked != event:
                raise SkyUsageError(
                    _(
                        "{path}: try {number} was point {event}, and now {asked} is asked for"
                    ).format(path=log.path, number=number, event=event, asked=asked),
                    hint=_("the log is of another version or seed; give another file"),
                )
            self._begin(event)
