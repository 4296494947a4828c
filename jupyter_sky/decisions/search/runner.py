"""Running a search: asking, measuring, telling, until the budget or a reason ends it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.limits import (
    SearchLimits,
    censored_value,
    share_of_budget,
    winning_seconds,
)
from jupyter_sky.decisions.search.measurement import (
    Measurement,
    MeasurementWorkers,
    Trial,
    TrialRunner,
)
from jupyter_sky.decisions.search.optimizer import Optimizer, Statistic, get_statistic
from jupyter_sky.decisions.search.result import SearchResult, Target, Try
from jupyter_sky.decisions.search.space import Point, Space, too_small


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
            return _("stopped: ${usd:g} are spent").format(usd=self.usd) if spent else ""
        if self.target is not None and best.value <= self.target:
            return _("stopped: the target of {target:g} is reached").format(target=self.target)
        since = int((curve == curve[-1]).sum()) - 1
        if self.patience is not None and since >= self.patience:
            return _("stopped: {count} tries without an improvement").format(count=since)
        gain = getattr(optimizer, "expected_gain", None)
        if self.gain is not None and gain is not None and gain < self.gain:
            return _("stopped: an improvement of {share:.1f} % is expected").format(
                share=100 * gain
            )
        if self.usd is not None and (result.usd or 0.0) >= self.usd:
            return _("stopped: ${usd:g} are spent").format(usd=self.usd)
        return ""


class Search:
    """One search, from its first try to its last.

    Parameters
    ----------
    optimizer
        Chooses the points.
    runner
        Runs the workload on a point, see `TrialRunner`; `FunctionRunner` calls a function.
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
    limits : SearchLimits, optional
        What it may cost, and how long it may last.
    log, header
        A file to write to and to go on from, and what says which search it is.
    watch
        Called with the result so far after each try, and when tries beside it have begun.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import FlatGP
    >>> from jupyter_sky.decisions.search.measurement import FunctionRunner
    >>> space = Space.of({"A": {"nodes": [1, 2, 4]}})
    >>> runner = FunctionRunner(lambda point: 8 / point.nodes)
    >>> found = Search(FlatGP(space, minimize="time"), runner, 3, "time").run()
    >>> found.best.point["nodes"], found.best.value
    (4, 2.0)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        runner: TrialRunner,
        budget: int,
        minimize: Target = "cost",
        *,
        parallel: int = 1,
        timeout: float | None = None,
        repeats: int = 1,
        statistic: Statistic = "mean",
        stop: Stop | None = None,
        limits: SearchLimits | None = None,
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
        self._runner = runner
        self._workers = MeasurementWorkers(runner, parallel, timeout)
        self._is_bounded = repeats == 1 or statistic == "mean"
        self._stop, self._watch = stop or Stop(), watch
        self._limits, self._ends = limits or SearchLimits(), float("inf")
        self._path = log
        self._header = {**(header or {}), "space": space.fingerprint, "minimize": minimize}
        self._header["repeats"] = repeats
        self._open: dict[int, tuple[int, list[Measurement]]] = {}  # tries without all their runs
        self._due: dict[int, float] = {}  # open tries that do not run: when they can
        self._begun = 0
        self._is_short = False
        self.result = SearchResult(space, minimize, int(budget))

    def run(self) -> SearchResult:
        """Search until the budget is used up, or there is a reason to stop.

        Raises
        ------
        SkyError
            Of the runner, if nothing has succeeded before it.
        """
        self._ends = time.monotonic() + (self._limits.seconds or float("inf"))
        log = SearchLog(self._path, self._header)
        try:
            self._replay(log)
            self._due = dict.fromkeys(self._open, 0.0)  # begun by a search that was killed
            while True:  # what is under way when there is a reason to stop is waited for
                while self._workers.has_capacity and (self._start_due() or self._next(log)):
                    pass
                if self._workers.is_busy:
                    self._show()
                    self._await(log)
                elif not self._wait_for_machines(log):
                    break
        finally:
            self._workers.close()
            log.close()
        if self._workers.failure is not None and self.result.best is None:
            raise self._workers.failure
        why = self._reason() or self._end_reason()
        self.result = replace(self.result, stopped=why, running=(), waiting=())
        return self.result

    def _reason(self) -> str:
        if self._workers.failure is not None:
            return _("stopped: {error}").format(error=self._workers.failure.message)
        if time.monotonic() >= self._ends:
            return _("stopped: the deadline has passed")
        if self._limits.usd is not None and self._spent() >= self._limits.usd:
            return _("stopped: ${usd:g} are spent").format(usd=self._limits.usd)
        return self._stop.reason(self.result, self._optimizer) if self.result.tries else ""

    def _end_reason(self) -> str:
        if len(self.result.tries) >= self.result.budget:
            return ""
        if self._is_short:
            return _("stopped: what is left of ${usd:g} is not enough for another try").format(
                usd=self._limits.usd
            )
        is_over = self._optimizer.finished
        return _("nothing was left to try") if is_over else _("no more was asked for")

    # -- one try -------------------------------------------------------------------------------

    def _next(self, log: SearchLog) -> bool:
        """Ask for a point and begin its try; return False where none can begin now."""
        is_full = len(self.result.tries) + len(self._open) >= self.result.budget
        is_held = any(at <= time.monotonic() for at in self._due.values())
        if is_full or is_held or self._reason():
            return False
        index = self._optimizer.ask()
        if index is None:
            return False
        number = self._begin(index)
        log.ask(number, index)
        if not self._start(number):
            self._due[number] = time.monotonic()
            if not self._workers.is_busy:  # nobody gives money back
                self._is_short = True
                self._drop(number, log)
                return True
            return False
        return True

    def _begin(self, index: int) -> int:
        self._begun += 1
        self._open[self._begun] = (index, [])
        return self._begun

    def _start_due(self) -> bool:
        """Start a run of a try that has waited for long enough, if there is one."""
        for number, at in list(self._due.items()):
            # one of a killed search is gone on with; one that was refused is no longer asked for
            if at <= time.monotonic() and (not at or not self._reason()) and self._start(number):
                return True
        return False

    def _start(self, number: int) -> bool:
        """Start the next run of a try; return False where it may cost more than is left."""
        index, runs = self._open[number]
        point = self.result.space[index]
        promised = sum(trial.usd or 0.0 for trial in self._workers.trials)
        left = None if self._limits.usd is None else self._limits.usd - self._spent() - promised
        least = self._runner.least_usd(point)
        free = min(
            self._workers.parallel - len(self._workers.trials),
            self.result.budget - len(self.result.tries) - len(self._workers.trials),
        )
        usd = share_of_budget(left, free, least)
        if usd is not None and (usd < least or usd <= 0):
            return False
        self._due.pop(number, None)
        trial = Trial(
            number,
            point,
            len(runs) + 1 >= self._repeats,
            partial(self._winning_seconds, point, tuple(runs)),
            usd,
            None if self._ends == float("inf") else self._ends,
        )
        self._workers.start(trial)
        return True

    def _winning_seconds(self, point: Point, runs: tuple[Measurement, ...]) -> float | None:
        best = self.result.best
        if best is None or not self._is_bounded:
            return None
        return winning_seconds(best.value, self.result.minimize, point, runs, self._repeats)

    def _spent(self) -> float:
        """Return what all runs have cost so far, USD."""
        under_way = (
            run.billed or run.usd or 0.0 for __, runs in self._open.values() for run in runs
        )
        return (self.result.usd or 0.0) + sum(under_way)

    def _await(self, log: SearchLog) -> None:
        number, run = self._workers.next()
        log.run(number, run)
        self._record_run(number, run)
        if run.failure == "refused" and not run.ok:
            self._due[number] = time.monotonic() + run.wait
        elif number in self._open and not self._start(number):
            self._drop(number, log)
        if self._watch is not None:
            bounds = getattr(self._optimizer, "arm_bounds", dict)()
            self.result = replace(self.result, bounds=bounds, **self._under_way())
            self._watch(self.result)

    def _show(self) -> None:
        """Tell the watcher of runs that have begun beside this thread, and of those that wait."""
        now, shown = self._under_way(), self.result
        if self._watch is not None and any(now.values()) and now["running"] != shown.running:
            self.result = replace(shown, **now)
            self._watch(self.result)

    def _under_way(self) -> dict[str, tuple[Point, ...]]:
        waiting = tuple(self.result.space[self._open[number][0]] for number in self._due)
        return {"running": self._workers.points, "waiting": waiting}

    def _wait_for_machines(self, log: SearchLog) -> bool:
        """Wait until a refused machine can be asked for again; return False where none is."""
        if not self._due:
            return False
        now, first = time.monotonic(), min(self._due.values())
        is_ending = self._reason() or first > min(self._ends, now + self._limits.refusal_seconds)
        if is_ending or first <= now:  # those that are due cannot be paid for
            self._is_short |= first <= now
            for number in list(self._due):
                self._drop(number, log)
            return not self._reason()
        time.sleep(first - now)
        return True

    def _drop(self, number: int, log: SearchLog) -> None:
        """Give up a try that has no value: another configuration may be tried in its place."""
        log.drop(number)
        self._record_drop(number)

    def _record_drop(self, number: int) -> None:
        index, runs = self._open.pop(number)
        self._due.pop(number, None)
        if runs:  # what it has cost stays
            self._keep_refused(number, index, runs)
        self._optimizer.exclude(index)

    def _keep_refused(self, number: int, index: int, runs: list[Measurement]) -> None:
        tried = Try(number, index, self.result.space[index], None, tuple(runs))
        self.result = replace(self.result, refused=(*self.result.refused, tried))

    def _record_run(self, number: int, run: Measurement) -> None:
        """Take in a run; after a try's last one, tell the optimizer."""
        index, runs = self._open[number]
        if run.failure == "refused" and not run.ok:
            self._keep_refused(number, index, [run])
            return
        runs.append(self._require_cost(run))
        if len(runs) < self._repeats and runs[-1].ok:
            return
        del self._open[number]
        value = None
        if all(run.ok for run in runs):
            value = self._amount(np.array([self._value(run) for run in runs]))
        told = value
        if runs[-1].failure == "stopped" and not runs[-1].ok:
            told = censored_value(runs, self.result.minimize)
        self._optimizer.tell(index, told)
        tried = Try(number, index, self.result.space[index], value, tuple(runs))
        self.result = replace(self.result, tries=(*self.result.tries, tried))
        if tried.failure == "memory":
            self._exclude_smaller(tried.point)

    def _exclude_smaller(self, failed: Point) -> None:
        """Leave out what would run out of memory as well, unless it runs or has run."""
        tried = {one.index for one in self.result.tries} | {
            index for index, __ in self._open.values()
        }
        for index in too_small(self.result.space, failed):
            if index not in tried:
                self._optimizer.exclude(index)

    def _value(self, run: Measurement) -> float:
        return run.expected_seconds if self.result.minimize == "time" else float(run.usd or 0.0)

    def _require_cost(self, run: Measurement) -> Measurement:
        """Treat a run without a cost as a failure when cost is minimized."""
        if self.result.minimize == "cost" and run.ok and run.usd is None:
            why = "its cost is not known: the configuration has no price, and none was measured"
            return replace(run, error=why)
        return run

    # -- going on ------------------------------------------------------------------------------

    def _replay(self, log: SearchLog) -> None:
        """Ask and tell the optimizer what the log says, so that it stands where it stood."""
        for number, event in log.replay():
            if isinstance(event, Measurement):
                if number in self._open:
                    self._record_run(number, event)
                continue
            if isinstance(event, Dropped):
                self._record_drop(number)
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


# -- The log of a search, one line of JSON for each event: what it takes to go on later -----------

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Dropped:
    """End of a try without a value: its machine was refused, or cannot be paid for."""


class SearchLog:
    """Events of a search, in a file or nowhere.

    The first line says which search it is; then come ``ask`` lines, before a point is measured,
    and ``run`` lines, after. A search that is killed between the two measures the point again.

    Parameters
    ----------
    path
        The file, made when it does not exist; None to keep nothing.
    header
        What must be the same for the search to go on.

    Raises
    ------
    SkyUsageError
        When the file holds another search, or no search, or cannot be written.
    """

    def __init__(self, path: str | Path | None, header: Mapping[str, Any]) -> None:
        self.path = None if path is None else Path(path)
        self.events: list[dict[str, Any]] = []
        self._file = None
        if self.path is None:
            return
        wanted = {"search": _VERSION, **json.loads(json.dumps(header, default=str))}
        try:
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            lines = self._whole_lines(text)
            self._check(lines, wanted)
            self.events = lines[1:]
            self._file = self.path.open("w", encoding="utf-8")  # without a line cut short
            for line in lines or [wanted]:
                self._write(line)
        except (OSError, UnicodeDecodeError) as error:
            raise SkyUsageError(
                _("log={path!r}: {error}").format(path=str(self.path), error=error),
                hint=_("give the path of a file in a folder"),
            ) from None

    def _whole_lines(self, text: str) -> list[dict[str, Any]]:
        """Return the lines, without a last one that was cut when its writer was killed."""
        lines = []
        for number, line in enumerate(text.splitlines()):
            try:
                lines.append(json.loads(line))
                if not isinstance(lines[-1], dict):
                    raise ValueError("not an event")
            except ValueError:
                if number and number == len(text.splitlines()) - 1:
                    break
                raise SkyUsageError(
                    _("{path}, line {number} is not of a search").format(
                        path=self.path, number=number + 1
                    ),
                    hint=_("give the log of a search, or a path where there is no file yet"),
                ) from None
        return lines

    def _check(self, lines: list[dict[str, Any]], wanted: dict[str, Any]) -> None:
        if not lines:
            return
        found = lines[0]
        differ = [key for key in wanted | found if found.get(key) != wanted.get(key)]
        if differ:
            words = [f"{key} {found.get(key)!r}, not {wanted.get(key)!r}" for key in differ]
            raise SkyUsageError(
                _("{path} is the log of another search: {words}").format(
                    path=self.path, words="; ".join(words)
                ),
                hint=_("ask for the same search, or give another file"),
            )

    def _write(self, event: Mapping[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(event) + "\n")
            self._file.flush()

    def ask(self, number: int, index: int) -> None:
        """Note that a try begins."""
        self._write({"ask": number, "point": index})

    def run(self, number: int, run: Measurement) -> None:
        """Note one run of a try."""
        self._write({"run": number, **asdict(run)})

    def drop(self, number: int) -> None:
        """Note that a try has ended without a value."""
        self._write({"drop": number})

    def replay(self) -> Iterator[tuple[int, int | Measurement | Dropped]]:
        """Yield the events of the file in order.

        A try that began is its number and point, a run its number and measurement.
        """
        for event in self.events:
            try:
                if "ask" in event:
                    yield int(event["ask"]), int(event["point"])
                elif "drop" in event:
                    yield int(event["drop"]), Dropped()
                else:
                    given = dict(event)
                    yield int(given.pop("run")), Measurement(**given)
            except (KeyError, TypeError, ValueError):
                raise SkyUsageError(
                    _("{path}: {event} is no event of a search").format(
                        path=self.path, event=event
                    ),
                    hint=_("give another file and begin anew"),
                ) from None

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
