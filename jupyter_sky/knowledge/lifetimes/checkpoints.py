"""Checkpoint times: the best schedule, the classic rule, and the value of a policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model
from jupyter_sky.knowledge.lifetimes.schedules import (
    Schedule,
    make_grid,
    solve_schedule,
    tabulate_policy,
)

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
