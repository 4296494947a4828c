"""Times between saves: fixed, or of least expected loss by the lifetime of spot machines.

With a notice that is long enough for a save, a loss costs the save alone. Only the share of losses
that comes without one has to be insured against: the hazard of the schedule is thinned by it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import parse_duration
from jupyter_sky.base.translation import _

CHEAP_SECONDS = 0.2
"""Saves that take less are made once in `CHEAP_INTERVAL`."""
CHEAP_INTERVAL = 60.0
FIRST_INTERVAL = 300.0
"""Seconds to the first save, which measures the cost of the others."""
NOTICE_MARGIN = 8.0
"""Seconds of a notice that are left for what else ends with the machine."""
COST_STEP = math.sqrt(2.0)
"""Ratio of two costs that are told apart: a schedule is computed once for each."""
LIFETIME_SECONDS = 3600 * 17.5
"""Mean life of the machines of `preemption.reference`, for Young's rule where numpy is missing."""
WEIGHT = 0.5
"""Weight of the newest save in the mean of costs."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Rule for the time of the next save.

    Attributes
    ----------
    every : float
        Seconds between two saves; 0 for those of least expected loss.
    notice_share : float
        Share of losses with a notice.
    notice_seconds : float
        Time from a notice to the loss: one in which a save does not fit is none.
    restart : float
        Seconds from a loss until the work goes on elsewhere.

    Examples
    --------
    >>> Pace(every=600.0).interval(cost=3.0, remaining=7200.0, age=0.0)
    600.0
    >>> Pace().interval(cost=0.01, remaining=7200.0, age=0.0)
    60.0
    >>> Pace(notice_share=1.0).interval(cost=60.0, remaining=7200.0, age=0.0)
    7200.0
    >>> Pace(notice_share=1.0, notice_seconds=30.0).interval(60.0, 7200.0, 0.0) < 7200
    True
    """

    every: float = 0.0
    notice_share: float = 0.0
    notice_seconds: float = math.inf
    restart: float = 300.0

    def interval(self, cost: float, remaining: float, age: float) -> float:
        """Return the seconds of work until the next save.

        Parameters
        ----------
        cost
            Seconds that a save takes.
        remaining
            Seconds of work left.
        age
            Seconds for which the machine has lived.
        """
        if self.every:
            return self.every
        if cost < CHEAP_SECONDS:
            return CHEAP_INTERVAL
        if remaining <= 0:
            return math.inf
        unsaved = 1.0 if cost + NOTICE_MARGIN > self.notice_seconds else 1 - self.notice_share
        if unsaved <= 0:
            return remaining
        rounded = COST_STEP ** round(math.log(cost, COST_STEP))
        try:
            return self._plan(rounded, remaining, age, unsaved)
        except ImportError:  # a machine without numpy
            lifetime = LIFETIME_SECONDS / unsaved
            return min(remaining, math.sqrt(2 * rounded * lifetime))

    def _plan(self, cost: float, remaining: float, age: float, unsaved: float) -> float:
        from jupyter_sky.knowledge.lifetimes.checkpoints import next_checkpoint
        from jupyter_sky.knowledge.lifetimes.reference_model import reference

        model = reference().base.times(unsaved)
        age = min(age / 3600, 23.0)  # the model's machines do not outlive a day
        hours = next_checkpoint(
            remaining / 3600, age, cost / 3600, model, round(self.restart / 60) / 60
        )
        return 3600 * hours


def parse_every(every: str | float) -> float:
    """Return the seconds between saves that a user asks for; 0 for ``auto``.

    Raises
    ------
    SkyUsageError
        It is no duration.

    Examples
    --------
    >>> parse_every("10m"), parse_every(30), parse_every("auto")
    (600.0, 30.0, 0.0)
    """
    if every == "auto":
        return 0.0
    seconds = parse_duration(every, "every") if isinstance(every, str) else float(every)
    if not 0 < seconds < math.inf:
        raise SkyUsageError(
            _("every={every!r}: saves need some time between them").format(every=every),
            hint=_('seconds, a duration such as "10m", or "auto"'),
        )
    return seconds


def mean_cost(before: float | None, newest: float) -> float:
    """Return the moving mean of what saves take (seconds).

    Examples
    --------
    >>> mean_cost(None, 2.0), mean_cost(2.0, 4.0)
    (2.0, 3.0)
    """
    return newest if before is None else before + WEIGHT * (newest - before)


def remaining_seconds(worked: float, begun_at: float, done: float, total: float) -> float:
    """Return the seconds of work left at the speed so far; as much again where nothing is known.

    Parameters
    ----------
    worked
        Seconds of work on this machine.
    begun_at, done, total
        Progress at the begin on this machine, now and at the end.

    Examples
    --------
    >>> remaining_seconds(60.0, 2.0, 4.0, 10.0), remaining_seconds(60.0, 0.0, 0.0, 0.0)
    (180.0, 60.0)
    """
    if done <= begun_at or total <= begun_at:
        return worked
    return worked * max(0.0, total - done) / (done - begun_at)


def is_worth_saving(cost: float | None, left: float | None) -> bool:
    """Return whether a save that is begun now is complete before a machine ends.

    Parameters
    ----------
    cost
        Seconds that saves take; None before the first.
    left
        Seconds until the machine ends; None where that is not told.
    """
    return cost is None or left is None or cost <= left
