"""Limits of a search that rents machines: what it may cost, how long it may last, what cannot win.

Pure functions of what was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.decisions.search.measurement import Measurement
from jupyter_sky.decisions.search.result import Target
from jupyter_sky.decisions.search.space import Point

CENSORED = 1.25
"""A run that was stopped is believed to take a quarter longer than it had taken by then."""


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of a search.

    Attributes
    ----------
    usd : float, optional
        Most that all machines together may cost, those of failed runs too (USD).
    seconds : float, optional
        Time after which no run goes on.
    refusal_seconds : float
        Longest wait for configurations whose machines were refused, once nothing else is left.

    Examples
    --------
    >>> SearchLimits(usd=5.0).seconds is None
    True
    """

    usd: float | None = None
    seconds: float | None = None
    refusal_seconds: float = 900.0

    def __post_init__(self) -> None:
        for name, value in (("budget", self.usd), ("deadline", self.seconds)):
            if value is not None and not 0 < value < float("inf"):
                raise SkyUsageError(
                    f"{name}={value}", hint=_("give a number above 0, or None for no limit")
                )


def winning_seconds(
    best: float | None, minimize: Target, point: Point, runs: Sequence[Measurement], repeats: int
) -> float | None:
    """Return the seconds after which a run can no longer win; None for no limit.

    The mean of the repeats of a configuration must stay below the best; of others of their
    statistics less is known, and they are not limited.

    Parameters
    ----------
    best
        Least value so far, USD or seconds; None before there is one.
    point
        The configuration.
    runs
        Its runs that have ended.
    repeats
        Runs of each configuration.

    Examples
    --------
    >>> point = Point("aws", {"nodes": 2}, price=3.6)
    >>> winning_seconds(0.05, "cost", point, [], 1), winning_seconds(12.0, "time", point, [], 1)
    (50.0, 12.0)
    """
    if best is None:
        return None
    if minimize == "time":
        return max(0.0, best * repeats - sum(run.expected_seconds for run in runs))
    if not point.price:
        return None
    left = best * repeats - sum(run.usd or 0.0 for run in runs)
    return max(0.0, left / point.price * 3600)


def share_of_budget(left: float | None, free: int, least: float) -> float | None:
    """Return the USD that one more run may cost; less than `least` where it should not begin.

    What is left is shared by the runs that can begin now, unless the share of each would be too
    small: then one run has it all.

    Parameters
    ----------
    left
        USD that are neither spent nor promised; None for no limit.
    free
        Runs that can begin now.
    least
        What the run costs at least.

    Examples
    --------
    >>> share_of_budget(4.0, 4, 0.5), share_of_budget(0.6, 4, 0.5), share_of_budget(0.4, 4, 0.5)
    (1.0, 0.6, 0.4)
    """
    if left is None:
        return None
    share = left / max(1, free)
    return share if share >= least else left


def censored_value(runs: Sequence[Measurement], minimize: Target) -> float | None:
    """Return what an optimizer is told of a try whose last run was stopped; None if nothing.

    The true value is above what was reached: to call it a failure would tell of a crash, and to
    leave it out that nothing is known.

    Examples
    --------
    >>> censored_value([Measurement(8.0, 0.1, "stopped", "stopped")], "time")
    10.0
    """
    reached = [run.expected_seconds if minimize == "time" else run.usd for run in runs]
    if any(value is None for value in reached):
        return None
    return CENSORED * float(np.mean([value for value in reached if value is not None]))
