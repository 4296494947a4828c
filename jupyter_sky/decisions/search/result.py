"""Result of a search: best configuration, tries and cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.measurement import Measurement
from jupyter_sky.decisions.search.space import Point, Space, too_small

if TYPE_CHECKING:
    from pandas import DataFrame

    from jupyter_sky.base.tables import Table


Target = Literal["cost", "time"]
LEAST_USD = 0.001
"""Least amount that four digits show well enough."""
REFUSAL_CHARACTERS = 200
"""Most of the words of a refusal that a table of tries shows."""


@dataclass(frozen=True, slots=True)
class Try:
    """One configuration tried.

    Attributes
    ----------
    number, index : int
        Its turn, from 1, and the point's place in the space.
    point : Point
        The configuration.
    value : float, optional
        USD or seconds, whichever is minimized; None when it failed.
    runs : tuple of Measurement
        Its runs, of which more than one are for their statistic.

    Examples
    --------
    >>> from jupyter_sky.decisions.search import Measurement, Space
    >>> point = Space.of({"A": {"nodes": [1, 2]}})[0]
    >>> Try(1, 0, point, 0.04, (Measurement(120.0, 0.04),)).seconds
    120.0
    """

    number: int
    index: int
    point: Point
    value: float | None
    runs: tuple[Measurement, ...]

    @property
    def seconds(self) -> float:
        """Time of all runs together."""
        return sum(run.seconds for run in self.runs)

    @property
    def usd(self) -> float | None:
        """Cost of all runs together, and of the machines before and after; None if not known."""
        if (billed := self.billed) is not None:
            return billed
        known = [run.usd for run in self.runs if run.usd is not None]
        return sum(known) if len(known) == len(self.runs) else None

    @property
    def billed(self) -> float | None:
        """What the machines cost from launch to end (USD); None where none were launched."""
        known = [run.billed for run in self.runs if run.billed is not None]
        return sum(known) if known else None

    @property
    def failure(self) -> str:
        """Kind of its last run's failure, see `measurement.Failure`; empty when that succeeded."""
        return "" if self.runs[-1].ok else self.runs[-1].failure

    @property
    def error(self) -> str:
        """Error messages of failed runs; empty without one."""
        return "; ".join(dict.fromkeys(run.error for run in self.runs if run.error))


@dataclass(frozen=True)
class SearchResult:
    """Tries of a search so far, or in all.

    Attributes
    ----------
    space : Space
        What was searched.
    minimize : str
        ``cost`` or ``time``.
    budget : int
        Tries that were allowed.
    tries : tuple of Try
        In the order in which they ended.
    stopped : str
        Why it ended; empty while it goes on.
    refused : tuple of Try
        Configurations whose machines could not be had; they are not among the tries.
    bounds : mapping
        By arm, the value that something untried there reaches with a chance of 1 in 10, as far as
        the optimizer has a model.
    running, waiting : tuple of Point
        Configurations that are under way, and those that wait for machines that were refused, or
        for what others give back of the budget.

    Examples
    --------
    >>> SearchResult(Space.of({"A": {"nodes": [1, 2]}}), "cost", budget=2).best is None
    True
    """

    space: Space
    minimize: Target
    budget: int
    tries: tuple[Try, ...] = ()
    stopped: str = ""
    refused: tuple[Try, ...] = ()
    bounds: Mapping[str, float] = field(default_factory=dict, compare=False)
    running: tuple[Point, ...] = field(default=(), compare=False)
    waiting: tuple[Point, ...] = field(default=(), compare=False)

    @property
    def best(self) -> Try | None:
        """The best try; None as long as none succeeded."""
        good = [one for one in self.tries if one.value is not None]
        return min(good, key=lambda one: one.value or 0.0, default=None)

    def best_in(self, arm: str) -> Try | None:
        """Return the best try of an arm."""
        good = [one for one in self.tries if one.value is not None and one.point.arm == arm]
        return min(good, key=lambda one: one.value or 0.0, default=None)

    @property
    def reference(self) -> Try | None:
        """What the workload would run on without a search: the cheapest machines that succeeded."""
        good = [one for one in self.tries if one.value is not None and one.point.price is not None]
        return min(good, key=lambda one: one.point.price or 0.0, default=None)

    @property
    def saved(self) -> float | None:
        """What each run on the best saves against the reference, USD or seconds."""
        best, reference = self.best, self.reference
        if best is None or reference is None:
            return None
        return (reference.value or 0.0) - (best.value or 0.0)

    @property
    def payback_runs(self) -> int | None:
        """Runs after which the search has paid back; None where it saves no money.

        Examples
        --------
        >>> space = Space.of({"A": {"nodes": [1, 2]}}, price=lambda arm, values: values["nodes"])
        >>> runs = (Measurement(30.0, 0.9, billed=1.0),), (Measurement(9.0, 0.5, billed=0.7),)
        >>> tries = [Try(n + 1, n, space[n], runs[n][0].usd, runs[n]) for n in (0, 1)]
        >>> SearchResult(space, "cost", 2, tuple(tries)).payback_runs
        5
        """
        if self.minimize != "cost" or not self.saved or self.saved <= 0 or self.usd is None:
            return None
        return math.ceil(self.usd / self.saved)

    @property
    def hopeless(self) -> tuple[Point, ...]:
        """Configurations left out, as one with as much memory or more has run out of it.

        Examples
        --------
        >>> space = Space.of({"A": {"vcpus": [2], "memory": [4, 8, 16]}})
        >>> full = Measurement(3.0, error="MemoryError", failure="memory")
        >>> failed = Try(1, 1, space[1], None, (full,))
        >>> [point["memory"] for point in SearchResult(space, "time", 3, (failed,)).hopeless]
        [4]
        """
        known = {str(one.point) for one in self.tries} | {str(point) for point in self.running}
        full = [one.point for one in self.tries if one.failure == "memory"]
        found = {index for point in full for index in too_small(self.space, point)}
        return tuple(self.space[i] for i in sorted(found) if str(self.space[i]) not in known)

    def estimator(self) -> MeasuredTimes:
        """Return what was measured as an estimator of tasks: ``task.set_time_estimator(...)``.

        Examples
        --------
        >>> task.set_time_estimator(found.estimator())  # doctest: +SKIP
        """
        return MeasuredTimes.of(self)

    @property
    def seconds(self) -> float:
        """Duration of all runs (seconds), failed ones too."""
        return sum(one.seconds for one in self.tries)

    @property
    def usd(self) -> float | None:
        """Cost of all runs (USD), failed ones too; None when any is not known."""
        spent = [*(one.usd for one in self.tries), *(one.billed or 0.0 for one in self.refused)]
        return None if any(usd is None for usd in spent) else sum(usd or 0.0 for usd in spent)

    @property
    def curve(self) -> np.ndarray:
        """Best value after each try; infinite until one succeeds."""
        values = [np.inf if one.value is None else one.value for one in self.tries]
        return np.minimum.accumulate(np.array(values, float)) if values else np.zeros(0)

    def regret(self, optimum: float | None = None) -> np.ndarray:
        """Return the regret of the best so far after each try (percent).

        Parameters
        ----------
        optimum
            The best value there is, when it is known; else the best that was found.
        """
        best = self.best
        if optimum is None:
            optimum = best.value if best and best.value is not None else np.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            return 100 * (self.curve / optimum - 1)

    def history(self) -> dict[str, float | None]:
        """Seconds by configuration, None for failures: what `Transfer` learns from.

        What was stopped before its end is left out: it would have succeeded, and later.

        Examples
        --------
        >>> SearchResult(Space.of({"A": {"nodes": [1]}}), "time", 1).history()
        {}
        """
        found: dict[str, float | None] = {}
        for one in self.tries:
            if one.failure == "stopped":
                continue
            good = [run.seconds for run in one.runs if run.ok]
            found[str(one.point)] = sum(good) / len(good) if good else None
        return found

    # -- showing -------------------------------------------------------------------------------

    def table(self) -> Table:
        """Every try with what it gave and what it cost, the best one marked."""
        from jupyter_sky.base.tables import Table

        best, rows = self.best, []
        for one in self.tries:
            rows.append(
                (
                    one.number,
                    str(one.point),
                    _seconds(one.seconds),
                    _usd(one.usd),
                    one.error[:80] or (_("best") if one is best else _("ok")),
                )
            )
        tried = {one.index for one in self.tries}
        waiting = {one.index: one for one in self.refused if one.index not in tried}
        for one in waiting.values():  # the last refusal of each that never ran
            why = _("not enough of the budget was left")
            if one.error:
                why = _("refused: {why}").format(why=one.error[:REFUSAL_CHARACTERS])
            rows.append(("", str(one.point), "", _usd(one.billed or 0.0), why))
        columns = (_("try"), _("configuration"), _("time"), _("cost"), _("result"))
        costs = self.minimize == "cost"
        title = _("Search for the least cost") if costs else _("Search for the least time")
        empty = _("nothing tried yet")
        return Table(title, columns, tuple(rows), note=self.summary, empty=empty)

    def to_pandas(self) -> DataFrame:
        """Return the tries as a pandas DataFrame, with a column for each parameter."""
        from pandas import DataFrame

        rows = [
            {
                "try": one.number,
                "arm": one.point.arm,
                **one.point.values,
                "usd_h": one.point.price,
                "seconds": one.seconds,
                "usd": one.usd,
                "value": one.value,
                "best": best,
                "error": one.error,
            }
            for one, best in zip(self.tries, self.curve.tolist(), strict=True)
        ]
        return DataFrame(rows)

    @property
    def summary(self) -> str:
        """Summarize the best configuration and the cost of the search in a line."""
        best, failed = self.best, sum(one.value is None for one in self.tries)
        found = _("nothing succeeded so far")
        if best is not None:
            amount = _usd(best.value) if self.minimize == "cost" else _seconds(best.value or 0.0)
            found = _("best: {point}, {amount}").format(point=best.point, amount=amount)
        tried = _("{count} of {budget} tries").format(count=len(self.tries), budget=self.budget)
        if failed:
            tried += _(", {count} failed").format(count=failed)
        if self.refused:
            tried += _(", {count} refused").format(count=len(self.refused))
        if hopeless := len(self.hopeless):
            tried += _(", {count} left out for lack of memory").format(count=hopeless)
        spent = _("the search took {time} and cost {amount}").format(
            time=_seconds(self.seconds), amount=_usd(self.usd)
        )
        return "; ".join(filter(None, [found, tried, spent, self.savings, self.stopped]))

    @property
    def savings(self) -> str:
        """Say what the best saves with each run, and when the search has paid back."""
        best, reference, saved = self.best, self.reference, self.saved
        if best is None or reference is None or saved is None:
            return ""
        if saved <= 0:
            alone = sum(one.value is not None for one in self.tries) < 2
            return "" if alone else _("it saves nothing: the cheapest machine is the best one")
        amount = _usd(saved) if self.minimize == "cost" else _seconds(saved)
        share = 100 * saved / (reference.value or 1.0)
        words = _("{amount} ({share:.0f} %) a run less than {point}").format(
            amount=amount, share=share, point=reference.point
        )
        if self.payback_runs is not None:
            words += _(": paid back after {count} runs").format(count=self.payback_runs)
        return words

    def __str__(self) -> str:
        return str(self.table())

    def _repr_html_(self) -> str:
        return self.curve_html() + self.table()._repr_html_()

    def _repr_pretty_(self, printer: object, cycle: bool) -> None:
        printer.text(str(self))  # type: ignore[attr-defined]

    def curve_html(self) -> str:
        """Draw the best value so far by try as a step curve; nothing where it never falls."""
        from jupyter_sky.base.tables import NO_MATHJAX_CLASSES

        curve = self.curve
        shown = np.isfinite(curve)
        if len(np.unique(curve[shown])) < 2:
            return ""
        top, low = float(curve[shown].max()), float(curve[shown].min())
        span = top - low
        wide, high = 420, 90
        step = wide / max(1, len(curve) - 1)
        path, before = [], None
        for place in np.flatnonzero(shown).tolist():
            x, y = place * step, 6 + (high - 12) * (1 - (float(curve[place]) - low) / span)
            path.append(f"{'L' if path else 'M'}{x:.1f} {(y if before is None else before):.1f}")
            path.append(f"L{x:.1f} {y:.1f}")
            before = y
        ends = [_usd(v) if self.minimize == "cost" else _seconds(v) for v in (top, low)]
        label = _("best {what} so far: from {first} to {last} in {count} tries").format(
            what=_("cost") if self.minimize == "cost" else _("time"),
            first=ends[0],
            last=ends[1],
            count=len(curve),
        )
        line = f'<path d="{"".join(path)}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        return (
            f'<svg role="img" aria-label="{label}" width="{wide}" height="{high}" '
            f'viewBox="-2 0 {wide + 4} {high}" style="display: block; opacity: 0.85">'
            f"<title>{label}</title>{line}</svg>"
            f'<div class="{NO_MATHJAX_CLASSES}" style="font-size: 0.92em; opacity: 0.85">'
            f"{label}</div>"
        )


def _usd(usd: float | None) -> str:
    if usd is None:
        return _("unknown")
    if 0 < usd < LEAST_USD:
        from jupyter_sky.knowledge.ledger.ledger import format_usd

        return format_usd(usd)
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 3600:.2f} h"


# -- Times that a search has measured, as an estimator of the tasks of a plan ---------------------

LABELS_EXAMPLE = "{'cpus': '4+'}"
SPEEDUP = 0.22
"""Fall of the logarithm of a time with each doubling of vCPUs, for machines that were not tried."""


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """Estimator of run times: those measured, and for other machines the mean of the nearest size.

    The mean is that of logarithms, and is scaled to the size of the machine.

    Attributes
    ----------
    hours : mapping
        Time by cloud and instance type; infinite where it failed.
    sizes : mapping
        vCPUs of those that succeeded.

    Examples
    --------
    >>> times = MeasuredTimes({("aws", "m5.large"): 2.0}, {("aws", "m5.large"): 2.0})
    >>> times(Offer("aws", "", "m5.large", 2, 8)), round(times(Offer("gcp", "", "n2", 4, 16)), 2)
    (2.0, 1.61)
    """

    hours: Mapping[tuple[str, str], float]
    sizes: Mapping[tuple[str, str], float]

    @classmethod
    def of(cls, found: SearchResult) -> MeasuredTimes:
        """Return the times of a search, on as many nodes as its best configuration has.

        Raises
        ------
        SkyUsageError
            No configuration that names its machine has succeeded.
        """
        best = found.best
        if best is None or best.point.offer is None:
            raise SkyUsageError(
                _("nothing was measured on machines that a plan knows"),
                hint=_("search over labels, such as {example}").format(example=LABELS_EXAMPLE),
            )
        hours, sizes = {}, {}
        for one in found.tries:
            offer = one.point.offer
            if offer is None or one.point.nodes != best.point.nodes:
                continue
            kind, good = (offer.cloud, offer.instance_type), [run for run in one.runs if run.ok]
            if good:
                hours[kind] = sum(run.seconds for run in good) / len(good) / 3600
                sizes[kind] = float(offer.vcpus)
            elif one.runs[-1].failure in ("crash", "memory"):
                hours[kind] = math.inf
        return cls(hours, sizes)

    def __call__(self, offer: Offer) -> float:
        """Return the hours on a machine; infinite on one on which it has failed."""
        kind = (offer.cloud, offer.instance_type)
        if kind in self.hours:
            return self.hours[kind]
        away = {each: self._doublings(each, offer) for each in self.sizes}
        nearest = min(map(abs, away.values()))
        logs = [
            math.log(self.hours[each]) - SPEEDUP * doublings
            for each, doublings in away.items()
            if abs(doublings) == nearest and self.hours[each] > 0
        ]
        return math.exp(sum(logs) / len(logs)) if logs else 0.0

    def _doublings(self, kind: tuple[str, str], offer: Offer) -> float:
        """Return the doublings of vCPUs from a machine that was tried to another."""
        return math.log2(max(offer.vcpus, 0.25) / max(self.sizes[kind], 0.25))
