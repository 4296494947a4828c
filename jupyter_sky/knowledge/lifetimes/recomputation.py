"""The hook of placement: how much longer, and dearer, work becomes because machines are lost.

A plan asks this of thousands of offers at once, so lifetimes come as `Lives`, columns of hazards,
and the answers are closed forms and short sums: no scipy, a few microseconds for each offer. For
one cluster and any lifetime model, `turnaround` gives the exact figures.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.models import Exponential, FloorHyperbolic

Floats = np.ndarray

DAY_HOURS = 24.0
MIN_PROBABILITY = 1e-12
"""Losses per hour that count."""
ROUNDS = 14
"""Rounds of attempts that are followed on clusters; each has twice the attempts of the last."""
MAX_SAVES = 200
"""Saves that are followed one by one; a longer run goes on as it did at the end of these."""

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)
_POINTS, _WEIGHTS = (_NODES + 1) / 2, _WEIGHTS / 2
_FEW_NODES, _FEW_WEIGHTS = np.polynomial.legendre.leggauss(8)
_FEW_POINTS, _FEW_WEIGHTS = (_FEW_NODES + 1) / 2, _FEW_WEIGHTS / 2


@dataclass(frozen=True, slots=True, eq=False)
class Lives:
    """Lifetimes of many kinds of machines: hazards ``floor + early / (1 + age / scale)``.

    Attributes
    ----------
    floor, early : array of float
        Preemptions per hour, see `FloorHyperbolic`; exponential where `early` is 0.
    scale : float
        Hours in which the early part falls by half.
    nodes : array of float
        How many such machines work together.

    Examples
    --------
    >>> lives = Lives.of([Exponential(0.1), FloorHyperbolic(0.005, 0.41, 0.3)])
    >>> lives.hours_per_loss().round(1).tolist()
    [10.0, 30.9]
    """

    floor: Floats
    early: Floats
    scale: float = 1.0
    nodes: Floats | float = 1.0

    @classmethod
    def of(cls, models: list[Exponential | FloorHyperbolic], nodes: float = 1.0) -> Lives:
        """Of models without a cap, those that are not exponential of one scale."""
        shaped = [one for one in models if isinstance(one, FloorHyperbolic)]
        if len({one.scale for one in shaped}) > 1 or any(one.cap < math.inf for one in models):
            raise SkyUsageError(
                _("lifetimes with caps, or of several scales"), hint=_("use turnaround")
            )
        return cls(
            np.array([one.rate if isinstance(one, Exponential) else one.floor for one in models]),
            np.array([0.0 if isinstance(one, Exponential) else one.early for one in models]),
            shaped[0].scale if shaped else 1.0,
            np.full(len(models), nodes),
        )

    def take(self, which: np.ndarray) -> Lives:
        """Select kinds by a mask."""
        nodes = np.broadcast_to(self.nodes, self.floor.shape)
        return Lives(self.floor[which], self.early[which], self.scale, nodes[which])

    def cumulative_hazard(self, age: Floats) -> Floats:
        """Cumulative hazard of one machine of each kind (along the last axis but one of many)."""
        shape = (slice(None), *[None] * (np.ndim(age) - 1))
        late = self.floor[shape] * age
        return late + self.early[shape] * self.scale * np.log1p(age / self.scale)

    def hours_per_loss(self, within: float = DAY_HOURS) -> Floats:
        """Hours that machines run for each that is lost, in their first `within` hours.

        Of an exponential lifetime it is the mean. A mean of all of a life would rest on ages that
        nobody has seen.
        """
        hours = np.full(len(self.floor), within)
        lived, through = _attempt(self, hours, np.zeros(len(hours)), 1.0)
        return lived / np.maximum(1 - through, 1e-300)


Recompute = Callable[[Floats, Lives, Floats], Floats]
"""From hours without interruption, lifetimes, and hours from a loss to the next attempt, to how
many times over the work is paid for."""


def expected_runs(hours: Floats, lives: Lives, restart: Floats) -> Floats:
    """Return how many times over the work is paid for where machines are preempted.

    A task that keeps nothing of what it has done starts again from the beginning, on a new machine
    in place of the one that was lost, beside those that are left and have aged.

    Exact for one machine, and for machines that do not age. For clusters the ages at each attempt
    are taken at their mean: within 7 % of `turnaround` as long as the work is not done more than
    three times over.

    Parameters
    ----------
    hours, restart
        Of the run without interruption, and from a loss to the next attempt.
    lives
        Of the machines, as many as `hours`.

    Returns
    -------
    array of float
        Expected hours of work over those without interruption, 1 or more.

    Examples
    --------
    >>> lives = Lives.of([Exponential(0.1)] * 2)
    >>> expected_runs(np.array([4.0, 0.5]), lives, np.zeros(2)).round(3).tolist()
    [1.23, 1.025]
    """
    hours, restart = np.asarray(hours, float), np.asarray(restart, float)
    runs = np.ones(len(hours))
    asked = np.flatnonzero(np.isfinite(hours) & (hours > 0))
    if len(asked):
        # below that nothing happens in the life of a cloud, and numbers lose their digits
        floor, early = (
            np.where(one < MIN_PROBABILITY, 0.0, one) for one in (lives.floor, lives.early)
        )
        lives = replace(lives, floor=floor, early=early)
        taken = _hours(lives.take(asked), hours[asked], restart[asked])
        runs[asked] = np.maximum(taken / hours[asked], 1.0)
    return runs


def checkpointed(every: float, cost: float = 0.0) -> Recompute:
    """Return a hook for tasks that save their state: only work since the last save is lost.

    Exact for one machine, which ages over the saves; of clusters, the losses of each machine add.

    Parameters
    ----------
    every, cost
        Hours of work between two saves at most, and hours that a save takes.

    Returns
    -------
    Recompute
        From hours, lifetimes and restart times to expected hours.

    Examples
    --------
    >>> hook, lives = checkpointed(0.5), Lives.of([Exponential(1 / 31.7)])
    >>> hook(np.array([10.0]), lives, np.array([0.0])).round(3).tolist()
    [1.008]
    """
    if not (every > 0 and 0 <= cost < math.inf):
        raise SkyUsageError(
            _("checkpointed({every!r}, {cost!r})").format(every=every, cost=cost),
            hint=_("hours between saves above 0, cost from 0"),
        )

    def runs(hours: Floats, lives: Lives, restart: Floats) -> Floats:
        found = expected_runs(hours, lives, restart)
        asked = np.flatnonzero(np.isfinite(hours) & (hours > every))
        if len(asked):
            some, work = lives.take(asked), np.asarray(hours, float)[asked]
            pieces = np.ceil(work / every - 1e-9)
            each = (work + (pieces - 1) * cost) / pieces
            taken = _saved_hours(some, each, pieces, np.asarray(restart, float)[asked])
            lost = taken / (pieces * each) - 1
            found[asked] = (1 + np.maximum(lost, 0) * some.nodes) * pieces * each / work
        return found

    return runs


def _attempt(lives: Lives, hours: Floats, age: Floats, nodes: Floats | float) -> tuple:
    """Return an attempt's expected hours, one machine new, others of an age; P(success)."""
    others = np.broadcast_to(nodes, hours.shape) - 1.0
    top = np.log1p(hours / lives.scale)  # steps that are fine where hazards fall
    at = lives.scale * np.expm1(top[:, None] * _POINTS)
    times = np.hstack([at, hours[:, None]])
    spent = lives.cumulative_hazard(times)
    if others.any() and age.any():
        spent += others[:, None] * (
            lives.cumulative_hazard(age[:, None] + times) - lives.cumulative_hazard(age)[:, None]
        )
    else:
        spent *= 1 + others[:, None]
    alive = np.exp(-spent)
    lived = (alive[:, :-1] * (lives.scale + at)) @ _WEIGHTS * top
    return np.minimum(lived, hours), alive[:, -1]


def _hours(lives: Lives, hours: Floats, restart: Floats) -> Floats:
    """Return the expected hours until a run succeeds, over attempts with aging machines."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        rate = lives.floor * lives.nodes
        lost = np.expm1(rate * hours)  # exact where machines do not age
        total = np.where(rate > 0, (1 / rate + restart) * lost, hours)
    aging = np.flatnonzero(lives.early > 0)
    if len(aging):
        total[aging] = _aging_hours(lives.take(aging), hours[aging], restart[aging])
    return total


def _aging_hours(lives: Lives, hours: Floats, restart: Floats) -> Floats:
    age, still = np.zeros(len(hours)), np.ones(len(hours))
    total, many = np.zeros(len(hours)), np.arange(len(hours))
    for attempts in (2.0**k for k in range(ROUNDS)):
        lived, through = _attempt(lives, hours, age, lives.nodes)
        fails, each = 1 - through, lived + (1 - through) * restart
        alone = (np.asarray(lives.nodes) == 1) | (still < 1e-7)  # nothing changes any more
        last = alone | (attempts == 2.0 ** (ROUNDS - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            ever = np.where(through > 0, each / through, math.inf)
            left = fails**attempts
            total[many] += still * np.where(last, ever, ever * (1 - left))
            # not those of the wait for a new machine: with ages at their mean, a longer wait would
            # at times come out as a gain
            cut = np.where(fails > 1e-12, (lived - through * hours) / fails, 0.0)
        go = np.flatnonzero(~last)
        if not len(go):
            break
        many, still, age = many[go], (still * left)[go], (age + attempts * cut)[go]
        lives, hours, restart = lives.take(go), hours[go], restart[go]
    return total


def _saved_hours(lives: Lives, each: Floats, pieces: Floats, restart: Floats) -> Floats:
    """Return the expected hours of pieces on one machine, which is new after each loss.

    With V(k) of k pieces on a new machine, S the survival at the ends of pieces and f its falls,
    ``V(k) = (hours lived to k pieces) + sum over j < k of f(j) (restart + V(k - j))``: piece j is
    cut off, and k - j pieces are left.
    """
    count = int(min(pieces.max(), MAX_SAVES))
    ends = each[:, None] * np.arange(count + 1)
    inside = ends[:, :-1, None] + each[:, None, None] * _FEW_POINTS
    lived = np.exp(-lives.cumulative_hazard(inside)) @ _FEW_WEIGHTS * each[:, None]
    alive = np.exp(-lives.cumulative_hazard(ends))
    falls, lived = -np.diff(alive, axis=1), np.cumsum(lived, axis=1)
    hours = np.zeros((len(each), count + 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        for k in range(1, count + 1):
            again = np.einsum("ij,ij->i", falls[:, 1:k], hours[:, k - 1 : 0 : -1])
            whole = lived[:, k - 1] + (1 - alive[:, k]) * restart + again
            hours[:, k] = np.where(alive[:, 1] > 0, whole / alive[:, 1], math.inf)
    rows, at = np.arange(len(each)), np.minimum(pieces, count).astype(int)
    beyond = np.maximum(pieces - count, 0)
    grows = hours[rows, at] - hours[rows, at - 1]
    return hours[rows, at] + np.where(beyond > 0, beyond * grows, 0.0)
