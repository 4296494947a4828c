"""Spot or on demand, or waiting, for a job that must not be late.

`DeadlineProgram` is a Markov decision process over work left, time left, and how long the place has
been up or down; it is solved backwards in time. With the change-over *d*, the costs of a tick *c_s*
and *c_o*, and the chances *P* that the place is in each state a tick later::

    Spot(w, t)  = c_s + E[Spot(w - 1, t - 1) if up, else Idle(w, t - 1)]
    Demand(w, t) = min(c_o + E[Demand(w - 1, t - 1)], change to spot)
    Idle(w, t)  = min(E[Idle(w, t - 1)], change to spot, change to demand)
    change to spot   = d c_s + P(up for d) Spot(w, t - d) + P(lost) Idle(w, t - d)
    change to demand = d c_o + E[Demand(w, t - d)]

Whatever may leave the job without a machine needs a net: afterwards there must be time to change to
a machine on demand and to finish on it. `UniformProgress` is the policy of Wu et al., "Can't Be
Late" (NSDI 2024); `Greedy` waits for spot machines as long as it can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Protocol

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation

SAMPLE = 195 / 3600
"""Hours between two samples of the trace that the hazards were fitted to."""
AGES = (0.0, 1 / 6, 1.0, 4.0)
"""Hours at which the classes of age begin."""
LOSSES = (0.070, 0.056, 0.016, 0.005)
"""Chance that a place that is up goes down within a sample, by its class of age."""
RETURNS = (0.067, 0.050, 0.017, 0.010)
"""Chance that a place that is down comes back within a sample, by its class of age."""
FACTOR_STEP = 1.25
"""Ratio of two factors of hazards that are told apart."""
IMPOSSIBLE = 1e9
"""USD of a choice that could make a job late: infinity would be no number times no chance."""
PSEUDO_EVENTS = 3.0
"""Weight of the fitted hazards beside what is seen."""


class Machine(Enum):
    """Kind of machine that a job runs on."""

    NONE = "none"
    SPOT = "spot"
    ON_DEMAND = "on-demand"


CHOICES = (Machine.NONE, Machine.SPOT, Machine.ON_DEMAND)


@dataclass(frozen=True, slots=True)
class DeadlineJob:
    """Job with a deadline.

    Attributes
    ----------
    work, deadline : float
        Hours of work, and from the start to the deadline.
    change : float
        Hours that pass without progress whenever a machine is taken.
    spot_price, price : float
        USD/h of a spot machine and of one on demand.

    Raises
    ------
    SkyUsageError
        The job cannot end in time even on demand.
    """

    work: float
    deadline: float
    change: float
    spot_price: float
    price: float

    def __post_init__(self) -> None:
        validation.check_number(self.work, "work (hours)", above=0)
        validation.check_number(self.change, "change (hours)")
        if self.deadline < self.work + self.change:
            raise SkyUsageError(
                _(
                    "{work:g} h of work and {change:g} h to start a machine do not fit in "
                    "{deadline:g} h"
                ).format(work=self.work, change=self.change, deadline=self.deadline),
                hint=_("a later deadline, or a faster machine"),
            )


@dataclass(frozen=True, slots=True)
class Moment:
    """State of a job when its policy is asked.

    Attributes
    ----------
    elapsed, remaining : float
        Hours since the start, and of work left.
    machine : Machine
        What it runs on; a spot machine that has been lost is none.
    is_up : bool
        Whether a spot machine can be had.
    age : float
        Hours for which it could be had, or could not; counted from the first look.
    losses, returns : tuple of int
        Changes seen so far by the class of age in which they came.
    up, down : tuple of float
        Hours seen so far in each class of age.
    """

    elapsed: float
    remaining: float
    machine: Machine
    is_up: bool
    age: float = 0.0
    losses: tuple[int, ...] = (0,) * len(AGES)
    returns: tuple[int, ...] = (0,) * len(AGES)
    up: tuple[float, ...] = (0.0,) * len(AGES)
    down: tuple[float, ...] = (0.0,) * len(AGES)


class DeadlinePolicy(Protocol):
    """Choice of the machine for the next step; a class of one's own needs this method only."""

    def choose(self, job: DeadlineJob, moment: Moment) -> Machine:
        """Return the machine for the next step."""
        ...


def must_run(job: DeadlineJob, moment: Moment, step: float) -> bool:
    """Return whether a job would be late if it had no machine on demand after another step."""
    changing = 0.0 if moment.machine is Machine.ON_DEMAND else job.change
    left = job.deadline - moment.elapsed
    return left - step < moment.remaining + max(changing, job.change)


@dataclass(frozen=True)
class Greedy:
    """Spot machines while they are there, on demand only when the deadline demands it.

    Attributes
    ----------
    step : float
        Hours between two choices.
    """

    step: float = SAMPLE

    def choose(self, job: DeadlineJob, moment: Moment) -> Machine:
        """Return the machine for the next step."""
        if must_run(job, moment, self.step):
            return Machine.ON_DEMAND
        return Machine.SPOT if moment.is_up else Machine.NONE


@dataclass(frozen=True)
class UniformProgress:
    """Progress in proportion to time: on demand when behind, spot whenever there is one.

    Wu et al., "Can't Be Late" (NSDI 2024), section 4: uniform progress, taking risks, hysteresis of
    two change-overs, and the net of two change-overs.

    Attributes
    ----------
    step : float
        Hours between two choices.
    """

    step: float = SAMPLE

    def choose(self, job: DeadlineJob, moment: Moment) -> Machine:
        """Return the machine for the next step."""
        left = job.deadline - moment.elapsed
        is_idle = moment.machine is not Machine.SPOT
        if is_idle and left < moment.remaining + 2 * job.change:
            return Machine.ON_DEMAND
        if must_run(job, moment, self.step):
            return Machine.ON_DEMAND
        if moment.machine is Machine.ON_DEMAND:
            is_ahead = self._lead(job, moment, moment.elapsed + 2 * job.change) >= 0
            return Machine.SPOT if moment.is_up and is_ahead else Machine.ON_DEMAND
        if moment.is_up:
            return Machine.SPOT
        is_behind = self._lead(job, moment, moment.elapsed) < 0
        return Machine.ON_DEMAND if is_behind else Machine.NONE

    def _lead(self, job: DeadlineJob, moment: Moment, at: float) -> float:
        return job.work - moment.remaining - at * job.work / job.deadline


@dataclass(frozen=True)
class DeadlineProgram:
    """Least expected cost by dynamic programming, with hazards that are learnt on the way.

    Attributes
    ----------
    tick : float
        Hours of one step of the tables.
    step : float
        Hours between two choices.
    """

    tick: float = 2 * SAMPLE
    step: float = SAMPLE

    def choose(self, job: DeadlineJob, moment: Moment) -> Machine:
        """Return the machine for the next step."""
        if must_run(job, moment, self.step):
            return Machine.ON_DEMAND
        if moment.machine is Machine.SPOT and moment.is_up:
            return Machine.SPOT
        losses = hazard_factor(moment.losses, moment.up, LOSSES)
        returns = hazard_factor(moment.returns, moment.down, RETURNS)
        tables = _solve(job, _rounded(losses), _rounded(returns), self.tick)
        return tables.choose(moment, job.deadline - moment.elapsed)


def _rounded(factor: float) -> float:
    """Return the nearest power of `FACTOR_STEP`: tables are computed once for each."""
    return FACTOR_STEP ** round(math.log(factor, FACTOR_STEP))


def hazard_factor(events: Sequence[int], hours: Sequence[float], chances: Sequence[float]) -> float:
    """Return how many times as often as fitted a change comes: mean of a gamma posterior.

    Examples
    --------
    >>> hazard_factor((3, 0, 0, 0), (0.0, 0.0, 0.0, 0.0), LOSSES)
    2.0
    """
    expected = sum(time / SAMPLE * chance for time, chance in zip(hours, chances, strict=True))
    return (PSEUDO_EVENTS + sum(events)) / (PSEUDO_EVENTS + expected)


def age_class(age: float) -> int:
    """Return the class of an age (hours)."""
    return int(np.searchsorted(AGES, age + 1e-9, side="right")) - 1


@dataclass(frozen=True, eq=False)
class _Tables:
    """Best choices by ticks of time left, ticks of work left and state of the place.

    Attributes
    ----------
    idle : array of int
        Index into `CHOICES`, without a machine.
    leaves : array of bool
        Whether to leave a machine on demand for a spot machine.
    """

    tick: float
    idle: np.ndarray
    leaves: np.ndarray

    def choose(self, moment: Moment, left: float) -> Machine:
        """Return the machine of least expected cost."""
        t = min(int(left / self.tick + 1e-9), len(self.idle) - 1)
        w = min(math.ceil(moment.remaining / self.tick - 1e-9), self.idle.shape[1] - 1)
        at = (t, w, age_class(moment.age) + (0 if moment.is_up else len(AGES)))
        if moment.machine is Machine.ON_DEMAND:
            return Machine.SPOT if self.leaves[at] else Machine.ON_DEMAND
        return CHOICES[self.idle[at]]


def _chances(losses: float, returns: float, tick: float) -> np.ndarray:
    """Return the chances of each state of the place a tick later; up first, then down."""
    n = len(AGES)
    widths = [*np.diff(AGES), math.inf]
    ageing = [min(1.0, tick / width) for width in widths]
    found = np.zeros((2 * n, 2 * n))
    for here, there, chances, factor in ((0, n, LOSSES, losses), (n, 0, RETURNS, returns)):
        for k, hazard in enumerate(_scaled(chances, factor, tick)):
            older = min(k + 1, n - 1)
            found[here + k, there] += hazard
            found[here + k, here + k] += (1 - hazard) * (1 - ageing[k])
            found[here + k, here + older] += (1 - hazard) * ageing[k]
    return found


def _scaled(chances: Sequence[float], factor: float, tick: float) -> list[float]:
    rates = (-math.log1p(-chance) * factor / SAMPLE for chance in chances)
    return [-math.expm1(-rate * tick) for rate in rates]


@lru_cache(maxsize=256)
def _solve(job: DeadlineJob, losses: float, returns: float, tick: float) -> _Tables:
    """Compute the choices of a job backwards from its deadline.

    Parameters
    ----------
    losses, returns
        How many times as often as fitted the place goes down and comes back.
    """
    n = len(AGES)
    times = int(job.deadline / tick + 1e-9)
    work = np.arange(math.ceil(job.work / tick - 1e-9) + 1)
    change = max(1, math.ceil(job.change / tick - 1e-9))
    chances = _chances(losses, returns, tick)
    later = np.linalg.matrix_power(chances, change)
    kept = np.linalg.matrix_power(chances[:n, :n], change)  # up all the time, by the class then
    lost = 1 - kept.sum(axis=1)
    spot_cost, cost = job.spot_price * tick, job.price * tick
    shape = (len(work), 2 * n)
    idle, demand = (np.full((times + 1, *shape), IMPOSSIBLE) for _table in range(2))
    spot = np.full((times + 1, len(work), n), IMPOSSIBLE)
    choices, leaves = np.zeros((times + 1, *shape), np.int8), np.zeros((times + 1, *shape), bool)
    idle[0, 0] = demand[0, 0] = spot[0, 0] = 0.0
    for t in range(1, times + 1):
        then = t - change
        has_net = (work + change <= t - 1)[:, None]
        stay, to_spot, to_demand = (np.full(shape, IMPOSSIBLE) for _choice in range(3))
        if then >= 0:
            moved = change * spot_cost + spot[then] @ kept.T + lost * idle[then, :, n : n + 1]
            to_spot[:, :n] = np.where((work + change <= then)[:, None], moved, IMPOSSIBLE)
            to_demand = change * cost + demand[then] @ later.T
        stay[1:] = cost + demand[t - 1, :-1] @ chances.T
        wait = np.where(has_net, idle[t - 1] @ chances.T, IMPOSSIBLE)
        running = spot_cost + spot[t - 1, :-1] @ chances[:n, :n].T
        running += idle[t - 1, 1:, n:] @ chances[:n, n:].T
        leaves[t] = to_spot < stay
        demand[t] = np.minimum(stay, to_spot)
        choices[t] = np.argmin((wait, to_spot, to_demand), axis=0)
        idle[t] = np.minimum(np.minimum(wait, to_spot), to_demand)
        spot[t, 1:] = np.where(has_net[1:], running, to_demand[1:, :n])
        idle[t, 0] = demand[t, 0] = spot[t, 0] = 0.0
    return _Tables(tick, choices, leaves)
