"""Copies of jobs that take long: when a second run on an idle machine pays.

With T the run time, a job that has run for e hours and a copy that begins now on a machine which
is up in B hours race; the first to end counts. Their expected times are sums over the
distribution of run times::

    rest  = E[T - e | T > e]
    fresh = B + E[T]
    race  = E[min(T - e | T > e, B + T')],   T' independent of T

The copy costs `race` machine hours, and the original ends ``rest - race`` hours sooner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.workflows.bags.decisions.run_times import RunTimes

FACTOR = 1.5
"""Multiple of the median run time below which a job is no straggler."""


@dataclass(frozen=True)
class Race:
    """Expected times of a job that has run for long, and of a copy of it.

    Attributes
    ----------
    rest : float
        Hours until the job ends alone.
    fresh : float
        Hours until a copy would end alone.
    race : float
        Hours until the first of both ends.
    pays : bool
        Whether to start the copy.

    Examples
    --------
    >>> Race(rest=1.0, fresh=0.3, race=0.25, pays=True).saved
    0.75
    """

    rest: float
    fresh: float
    race: float
    pays: bool

    @property
    def saved(self) -> float:
        """Hours by which the copy makes the end come sooner."""
        return self.rest - self.race


def consider_copy(
    elapsed: float,
    run_times: RunTimes,
    *,
    boot: float = 0.0,
    price: float = 0.0,
    value: float = 0.0,
    slow_share: float = 1.0,
) -> Race:
    """Return whether a copy of a running job is worth its machine.

    It is for machines that have nothing else to do, for jobs that may run twice.

    Parameters
    ----------
    elapsed
        Hours for which the job has run.
    run_times
        Run times of the bag's jobs.
    boot
        Hours until the copy's machine is up; 0 where one is idle.
    price
        USD/h of the copy's group.
    value
        USD that an hour sooner is worth; 0 where only the cost counts.
    slow_share
        Chance that the machine is what makes the job slow, so that a copy runs as other jobs do;
        else the job itself is long, and the copy takes as long as it. 1 for jobs that are alike.

    Returns
    -------
    Race
        Expected times and the decision: a straggler, whose copy is expected to end first, and to
        save at least the machine hours or the money that it costs.

    Examples
    --------
    >>> times = RunTimes((0.9, 1.0, 1.1, 6.0), (5.0, 5.0, 5.0, 1.0))
    >>> consider_copy(0.5, times).pays, consider_copy(2.0, times).pays
    (False, True)
    """
    validation.check_number(elapsed, "hours that the job has run")
    later = run_times.beyond(elapsed)
    rests = np.asarray(later.hours) - elapsed
    rest_weights = np.asarray(later.weights) / sum(later.weights)
    runs = np.asarray(run_times.hours) + boot
    run_weights = np.asarray(run_times.weights) / sum(run_times.weights)
    rest, fresh = float(rests @ rest_weights), float(runs @ run_weights)
    race = float(rest_weights @ np.minimum(rests[:, None], runs[None, :]) @ run_weights)
    race = slow_share * race + (1 - slow_share) * rest
    is_straggler = elapsed > FACTOR * run_times.median and rest > fresh
    # the original's machine is free sooner by what is saved, the copy's is used until then
    gain = (rest - race) * (price + value) - race * price
    return Race(rest, fresh, race, is_straggler and (gain > 0 or rest - race > race))
