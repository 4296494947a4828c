"""Checkpoint schedules by dynamic programming over remaining work and machine age.

State: *w* remaining work and *a* age of the machine, both in steps. Decision: *k*, the work until
the next checkpoint, which takes the time ``L = k + C`` (``k`` alone when it ends the job). With
the survival *S*, its integral *I*, the restart time *R* and ``p = S(a + L) / S(a)``::

    V(0, a) = 0
    V(w, a) = min over k of (I(a + L) - I(a)) / S(a) + (1 - p) (R + V(w, 0)) + p V(w - k, a + L)
    V(w, 0) = min over k of (I(L) + (1 - p) R + p V(w - k, L)) / p

A preemption loses what was done since the last checkpoint; work goes on on a new machine. With
``G(w, a) = S(a) V(w, a)`` the minimum runs over ``I(j) - S(j) (R + V(w, 0)) + G(w - k, j)`` at
``j = a + L``, which does not depend on the age: one vector operation for each *w*.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model

UNCAPPED_AGES = 24.0
"""Hours of age that are told apart where the provider sets no cap; older ones count as that."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Best choice for any remaining work at any age, with its expected duration.

    Attributes
    ----------
    step : float
        Hours of one step of work and age.
    cost, restart : float
        Hours that a checkpoint takes, and that pass from a preemption to the next machine's start.
    choices : array of int
        Steps of work to the next checkpoint, by remaining steps and age in steps.
    hours : array of float
        Expected hours to the end of the job, likewise.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import FloorHyperbolic, plan_checkpoints
    >>> model = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)
    >>> round(plan_checkpoints(model, 1.0, cost=1 / 60).expected(), 2)
    1.06
    """

    step: float
    cost: float
    restart: float
    choices: np.ndarray
    hours: np.ndarray

    @property
    def work(self) -> float:
        """Hours of work of the whole job."""
        return (len(self.hours) - 1) * self.step

    def next(self, remaining: float, age: float) -> float:
        """Hours of work until the next checkpoint, or to the end of the job."""
        work, old = self._state(remaining, age)
        return min(float(self.choices[work, old]) * self.step, float(remaining))

    def expected(self, age: float = 0.0, remaining: float | None = None) -> float:
        """Return the expected hours to the end, on a machine of an age."""
        return float(self.hours[self._state(self.work if remaining is None else remaining, age)])

    def overhead(self, age: float = 0.0) -> float:
        """Return the expected time beyond the work itself, as a share of the work."""
        return self.expected(age) / self.work - 1

    def intervals(self, age: float = 0.0) -> list[float]:
        """Hours of work between checkpoints, as long as the machine lives."""
        found, (work, old) = [], self._state(self.work, age)
        last = self.choices.shape[1] - 1
        while work > 0:
            chosen = int(self.choices[work, old])
            found.append(chosen * self.step)
            work -= chosen
            old = min(last, round(old + chosen + self.cost / self.step))
        return found

    def _state(self, remaining: float, age: float) -> tuple[int, int]:
        remaining, age = (
            validation.check_number(remaining, "remaining (hours)"),
            validation.check_number(age, "age"),
        )
        work = math.ceil(remaining / self.step - 1e-6)
        if work >= len(self.hours):
            raise SkyUsageError(
                _("{remaining:g} h remain of a job of {work:g} h").format(
                    remaining=remaining, work=self.work
                ),
                hint=_("plan a longer job"),
            )
        return work, min(round(age / self.step), self.hours.shape[1] - 1)


@dataclass(frozen=True, eq=False)
class SurvivalGrid:
    """Survival and its integral at the ages that a job can pass, from 1 at age 0.

    Integrals are counted backwards from the last age (so they are negative): differences stay
    precise where hardly a machine is alive. `late` and `late_integral` stand a broken part of a
    step later, for checkpoints whose cost is no whole number of steps.
    """

    work: int
    ages: int
    step: float
    shift: int
    part: float
    survival: np.ndarray
    integral: np.ndarray
    late: np.ndarray
    late_integral: np.ndarray


def make_grid(model: Model, work: float, cost: float, step: float) -> SurvivalGrid:
    """Tabulate a model for a job; the step is stretched to divide the work (hours)."""
    steps = max(1, round(work / step))
    step = work / steps
    cap = getattr(model, "cap", math.inf)
    ages = math.ceil(round((cap if cap < math.inf else UNCAPPED_AGES) / step, 6))
    shift, part = divmod(cost / step, 1)
    at = np.arange(ages + steps + math.ceil(cost / step) + 2) * step
    first = float(model.survival(0.0))  # below 1 for equation (1) as written
    survival, integral = _tables(model, at, first)
    late, late_integral = _tables(model, at + part * step, first)
    late_integral += model.areas(np.array([at[-1], at[-1] + part * step]))[0] / first
    return SurvivalGrid(
        steps, ages, step, int(shift), part, survival, integral, late, late_integral
    )


def _tables(model: Model, at: np.ndarray, first: float) -> tuple[np.ndarray, np.ndarray]:
    """Survival at some ages, and its integral from there to the last of them, negative."""
    survival = np.clip(np.asarray(model.survival(at), float) / first, 0.0, 1.0)
    tail = np.cumsum(model.areas(at)[::-1])[::-1] / first
    return survival, -np.append(tail, 0.0)


def solve_schedule(
    grid: SurvivalGrid, cost: float, restart: float, chosen: np.ndarray | None
) -> Schedule:
    """Tables of the best choices, or of the given ones (steps, by remaining work and age)."""
    work, ages = grid.work, grid.ages
    columns = len(grid.survival)
    saved = np.zeros((work + 1, columns))  # G, at ages one broken part of a step later
    choices = np.zeros((work + 1, ages + 1), np.int32)
    hours = np.zeros((work + 1, ages + 1))
    for left in range(1, work + 1):
        at = None if chosen is None else chosen[left]
        again = restart + _from_new(grid, saved, left, restart, at)
        best, chosen_here = _for_all_ages(grid, saved, left, again, at)
        alive = grid.survival[: ages + 1]
        gain = best - grid.integral[: ages + 1] + alive * again
        hours[left] = np.where(alive > 0, gain / np.where(alive > 0, alive, 1.0), again)
        choices[left] = np.where(alive > 0, chosen_here, chosen_here[0])
        saved[left] = _expected_remaining(grid, hours[left])
    return Schedule(grid.step, cost, restart, choices, hours)


def _from_new(
    grid: SurvivalGrid,
    saved: np.ndarray,
    left: int,
    restart: float,
    chosen: np.ndarray | None,
) -> float:
    """``V(w, 0)``, which stands on both sides of its equation."""
    k = np.arange(1, left) if chosen is None or chosen[0] < left else np.arange(0)
    k = k if chosen is None else k[k == chosen[0]]
    values = []
    if len(k):
        j = k + grid.shift
        alive = grid.late[j]
        spent = grid.late_integral[j] - grid.integral[0]
        spent += (1 - alive) * restart + saved[left - k, j]
        values.append(np.min(np.where(alive > 0, spent / np.maximum(alive, 1e-300), np.inf)))
    if chosen is None or chosen[0] >= left:
        alive = grid.survival[left]
        ended = grid.integral[left] - grid.integral[0] + (1 - alive) * restart
        values.append(ended / alive if alive > 0 else math.inf)
    found = float(min(values))
    if not found < math.inf:
        raise SkyUsageError(
            _("no machine lives long enough for {left:g} h of work under this policy").format(
                left=left * grid.step
            ),
            hint=_("checkpoint more often, or take machines that live longer"),
        )
    return found


def _for_all_ages(
    grid: SurvivalGrid,
    saved: np.ndarray,
    left: int,
    again: float,
    chosen: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the least ``I - S (R + V(w, 0)) + G`` over choices and the choice, by age."""
    ages, shift = grid.ages, grid.shift
    base = grid.late_integral - grid.late * again
    end = grid.integral - grid.survival * again
    to_end = end[left : left + ages + 1]
    if chosen is not None:
        k = np.minimum(chosen, left)
        j = np.arange(ages + 1) + k + shift
        j = np.minimum(j, len(base) - 1)
        return np.where(k == left, to_end, base[j] + saved[left - k, j]), k
    if left == 1:
        return to_end, np.ones(ages + 1, np.int32)
    # row k-1 holds G(left - k) from column k + shift on: up one row and right one column each
    row, item = saved.strides
    view = np.lib.stride_tricks.as_strided(
        saved[left - 1, 1 + shift :], (left - 1, ages + 1), (item - row, item), writeable=False
    )
    slide = np.lib.stride_tricks.sliding_window_view(base, ages + 1)
    sums = view + slide[1 + shift : left + shift]
    pick = sums.argmin(axis=0)
    best = sums[pick, np.arange(ages + 1)]
    ending = to_end <= best
    return np.where(ending, to_end, best), np.where(ending, left, pick + 1)


def _expected_remaining(grid: SurvivalGrid, hours: np.ndarray) -> np.ndarray:
    """``G = S V`` of one remaining work; beyond the last age V stays what it is there."""
    value = np.concatenate([hours, np.full(len(grid.survival) - len(hours), hours[-1])])
    beyond = np.append(value[1:], value[-1])
    return grid.late * ((1 - grid.part) * value + grid.part * beyond)


def tabulate_policy(
    policy: Callable[[np.ndarray, np.ndarray], np.ndarray] | Schedule | float, grid: SurvivalGrid
) -> np.ndarray:
    """Choices in steps, for each remaining work and age."""
    work, ages = np.arange(grid.work + 1), np.arange(grid.ages + 1)
    if isinstance(policy, Schedule):
        if len(policy.hours) <= grid.work or not math.isclose(policy.step, grid.step, rel_tol=1e-6):
            raise SkyUsageError(
                _(
                    "a schedule for {work:g} h in steps of {step:.4g} h does not fit "
                    "{work2:g} h in steps of {step2:.4g} h"
                ).format(
                    work=policy.work, step=policy.step, work2=grid.work * grid.step, step2=grid.step
                ),
                hint=_("plan it with the same work and step"),
            )
        columns = np.minimum(ages, policy.choices.shape[1] - 1)
        found = policy.choices[: grid.work + 1][:, columns]
    elif callable(policy):
        remaining, age = np.meshgrid(work * grid.step, ages * grid.step, indexing="ij")
        found = np.rint(np.asarray(policy(remaining, age)) / grid.step)
    else:
        validation.check_number(policy, "interval (hours)", above=0)
        found = np.full((len(work), len(ages)), max(1.0, np.rint(policy / grid.step)))
    return np.clip(found, 1, np.maximum(work, 1)[:, None]).astype(int)
