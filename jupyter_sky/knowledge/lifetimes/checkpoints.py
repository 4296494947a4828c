"""Checkpoint times: the best schedule, the classic rule, and the value of a policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model

MINUTE = 1 / 60
MAX_STEPS = 2000
"""Steps of work that a schedule may have: its tables take 8 bytes for each step and age, twice."""


def plan_checkpoints(
    model: Model,
    work: float,
    cost: float,
    restart: float = 0.0,
    step: float = MINUTE,
) -> Schedule:
    """Return the schedule of least expected duration; results are cached.

    Parameters
    ----------
    model
        Lifetime of the machines.
    work
        Hours of work of the job.
    cost
        Hours that one checkpoint takes, above 0.
    restart
        Hours from a preemption until a new machine goes on.
    step
        Hours of the grid; `work` is a whole number of steps, which are made a little smaller or
        larger for it.

    Returns
    -------
    Schedule
        The choice for any remaining work at any age.

    Raises
    ------
    SkyUsageError
        For times that make no sense, a job of more than `MAX_STEPS` steps, or machines that do not
        even live for a step and a checkpoint.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import FloorHyperbolic
    >>> plan = plan_checkpoints(FloorHyperbolic(0.005, 0.41, 0.3, 24.0), 1.0, cost=1 / 60)
    >>> [round(60 * hours) for hours in plan.intervals()]
    [26, 34]
    """
    return _planned(model, *_checked(work, cost, restart, step))


def evaluate(
    policy: Callable[[np.ndarray, np.ndarray], np.ndarray] | Schedule | float,
    model: Model,
    work: float,
    cost: float,
    restart: float = 0.0,
    step: float = MINUTE,
) -> Schedule:
    """Return the exact expected duration of a policy under a lifetime model.

    Parameters
    ----------
    policy
        A schedule (planned with whatever model), hours between checkpoints, or a function from
        arrays of remaining hours and ages in hours to hours of work until the next checkpoint.

    The other parameters are those of `plan_checkpoints`.

    Returns
    -------
    Schedule
        The policy's choices with their expected hours.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> never = evaluate(1.0, Exponential(0.1), 1.0, cost=1 / 60)
    >>> round(never.expected(), 4)  # (exp(0.1) - 1) / 0.1
    1.0517
    """
    work, cost, restart, step = _checked(work, cost, restart, step)
    grid = make_grid(model, work, cost, step)
    return solve_schedule(grid, cost, restart, tabulate_policy(policy, grid))


def young_daly(cost: float, lifetime: float) -> float:
    """Return Young's (1974) first-order interval, ``sqrt(2 C MTTF)``.

    Right for machines that do not age and intervals far below their mean life.

    Parameters
    ----------
    cost
        Hours that one checkpoint takes.
    lifetime
        Mean hours between failures.

    Returns
    -------
    float
        Hours of work between checkpoints.

    Examples
    --------
    >>> round(60 * young_daly(1 / 60, 5.5))
    26
    """
    cost = validation.check_number(cost, "checkpoint cost (hours)", above=0)
    return math.sqrt(2 * cost * validation.check_number(lifetime, "mean lifetime (hours)", above=0))


def best_interval(
    model: Model, work: float, cost: float, restart: float = 0.0, step: float = MINUTE
) -> float:
    """Return the best constant interval between checkpoints on a new machine (hours).

    Tries each whole number of steps: seconds for 240 of them.

    Parameters
    ----------
    model
        Lifetime of the machine.
    work
        Hours of work of the job.
    cost, restart
        Hours that a checkpoint takes, and from a preemption until a new machine goes on.
    step
        Hours of the grid.

    Returns
    -------
    float
        Hours of work between checkpoints.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> best_interval(Exponential(0.2), 2.0, cost=0.05, step=0.25)
    0.75
    """
    work, cost, restart, step = _checked(work, cost, restart, step)
    grid = make_grid(model, work, cost, step)
    found = [
        solve_schedule(grid, cost, restart, tabulate_policy(k * grid.step, grid)).hours[-1, 0]
        for k in range(1, grid.work + 1)
    ]
    return (int(np.argmin(found)) + 1) * grid.step


def next_checkpoint(
    remaining: float,
    age: float,
    cost: float,
    model: Model | None = None,
    restart: float = 0.0,
) -> float:
    """Hours of work that a running job should do before its next checkpoint.

    Schedules are kept, so that only the first question of a kind takes a second; jobs of more than
    8 h are planned in steps of more than a minute.

    Parameters
    ----------
    remaining
        Hours of work left.
    age
        Hours that the machine has lived.
    cost
        Hours that one checkpoint takes.
    model
        Lifetime of the machine; Google's preemptible machines of 2019 unless given.

    Returns
    -------
    float
        `remaining` when the job should run to its end without another.

    Examples
    --------
    >>> 0.2 < next_checkpoint(remaining=4.0, age=0.0, cost=1 / 60) < 0.8
    True
    >>> next_checkpoint(remaining=0.0, age=3.0, cost=1 / 60)
    0.0
    """
    from jupyter_sky.knowledge.lifetimes.reference_model import reference

    left = validation.check_number(remaining, "remaining (hours)")
    validation.check_number(age, "age (hours)")
    if left == 0:
        return 0.0
    step = MINUTE
    while left / step > 480:
        step *= 2
    whole = 240 if left / step <= 240 else 480
    plan = plan_checkpoints(model or reference().base, whole * step, cost, restart, step)
    return plan.next(left, age)


def _checked(
    work: float, cost: float, restart: float, step: float
) -> tuple[float, float, float, float]:
    work = validation.check_number(work, "work (hours)", above=0)
    cost = validation.check_number(cost, "checkpoint cost (hours)", above=0)
    restart = validation.check_number(restart, "restart (hours)")
    step = validation.check_number(step, "step (hours)", above=0)
    if work / step > MAX_STEPS:
        raise SkyUsageError(
            _("a job of {work:g} h in steps of {step:g} min has {work2:.0f} steps").format(
                work=work, step=60 * step, work2=work / step
            ),
            hint=_("take steps of {work:.2g} h or more (step=...)").format(work=work / MAX_STEPS),
        )
    return work, cost, restart, step


@lru_cache(maxsize=32)
def _planned(model: Model, work: float, cost: float, restart: float, step: float) -> Schedule:
    return solve_schedule(make_grid(model, work, cost, step), cost, restart, None)


# -- Checkpoint schedules by dynamic programming over remaining work and machine age --------------
#
# State: *w* remaining work and *a* age of the machine, both in steps. Decision: *k*, the work until
# the next checkpoint, which takes the time ``L = k + C`` (``k`` alone when it ends the job). With
# the survival *S*, its integral *I*, the restart time *R* and ``p = S(a + L) / S(a)``::
#
#     V(0, a) = 0
#     V(w, a) = min over k of (I(a + L) - I(a)) / S(a) + (1 - p) (R + V(w, 0)) + p V(w - k, a + L)
#     V(w, 0) = min over k of (I(L) + (1 - p) R + p V(w - k, L)) / p
#
# A preemption loses what was done since the last checkpoint; work goes on on a new machine. With
# ``G(w, a) = S(a) V(w, a)`` the minimum runs over ``I(j) - S(j) (R + V(w, 0)) + G(w - k, j)`` at
# ``j = a + L``, which does not depend on the age: one vector operation for each *w*.

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
