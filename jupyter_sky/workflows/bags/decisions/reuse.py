"""Reuse of machines between jobs: keep a machine by its age, or exchange it for a new one.

The paper keeps machines always (section 4.2): those that outlived their first hours are seldom
taken back. Near a provider's cap that is wrong, as the next job cannot end before it. With the
survival *S*, its integral *I* and a job of *T* hours, the expected machine hours for j jobs on a
machine of age a are exact by dynamic programming, with boots of *B* hours::

    K(j, a) = (I(a + T) - I(a)) / S(a) + p H(j - 1, a + T) + (1 - p) (B + K(j, 0))
    H(j, a) = min(K(j, a), B + K(j, 0)),   p = S(a + T) / S(a)

A machine is exchanged where the second is less. A loss costs a boot too, and the job starts again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from jupyter_sky.knowledge.lifetimes import validation
from jupyter_sky.knowledge.lifetimes.models import Model
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind

UNCAPPED_AGES = 24.0
"""Hours of age that are told apart where the provider sets no cap."""
STEADY = 60
"""Jobs ahead after which the decision no longer changes."""
_STEPS = 12


@dataclass(frozen=True, eq=False)
class ReusePlan:
    """Ages at which a machine is exchanged before its next job.

    Attributes
    ----------
    step : float
        Hours between the ages of the table.
    keep : ndarray of bool
        Whether a machine is kept, by jobs ahead (from 1) and age in steps.
    hours : ndarray of float
        Expected machine hours until all jobs ahead have ended, on a machine of that age or, where
        that is less, on a new one.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import FloorHyperbolic
    >>> plan = plan_reuse(FloorHyperbolic(0.005, 0.41, 0.3, 24.0), job=1.0, boot=0.05)
    >>> plan.keeps(age=3.0), plan.keeps(age=23.5)
    (True, False)
    """

    step: float
    keep: np.ndarray
    hours: np.ndarray

    def keeps(self, age: float, jobs: int = STEADY) -> bool:
        """Return whether a machine of an age (hours) is used again, with so many jobs ahead."""
        row = min(max(jobs, 1), len(self.keep)) - 1
        return bool(self.keep[row, min(round(age / self.step), self.keep.shape[1] - 1)])

    def exchange_age(self, jobs: int = STEADY) -> float:
        """Return the age in hours from which on machines are exchanged; ``inf`` for never."""
        row = self.keep[min(max(jobs, 1), len(self.keep)) - 1]
        if row[-1]:
            return math.inf
        return float((len(row) - np.argmax(row[::-1])) * self.step) if row.any() else 0.0


def plan_reuse(model: Model, job: float, boot: float, jobs: int = STEADY) -> ReusePlan:
    """Return for each age whether to use a machine again.

    Parameters
    ----------
    model
        Lifetime of one machine; for groups of n that run one job, ``model.times(n)``.
    job
        Hours of a job without failures, or from one checkpoint to the next.
    boot
        Hours from a launch until the machine can work.
    jobs
        Most jobs ahead of one machine that are told apart.

    Returns
    -------
    ReusePlan
        The decisions.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import Exponential
    >>> plan_reuse(Exponential(0.1), job=1.0, boot=0.05).exchange_age()
    inf
    """
    validation.check_number(job, "job (hours)", above=0)
    validation.check_number(boot, "boot (hours)")
    jobs = min(validation.check_count(jobs, "jobs"), STEADY)
    cap = getattr(model, "cap", math.inf)
    last = cap if cap < math.inf else UNCAPPED_AGES
    step = max(job / _STEPS, last / 2000)
    taken = max(1, round(job / step))
    step = job / taken
    grid = np.arange(math.ceil(last / step) + taken + 1) * step
    alive = np.asarray(model.survival(grid), float)
    alive[0] = 1.0
    lived = -np.append(np.cumsum(model.areas(grid)[::-1])[::-1], 0.0)
    return _solve(alive, lived, taken, step, boot, jobs)


def _solve(
    alive: np.ndarray, lived: np.ndarray, taken: int, step: float, boot: float, jobs: int
) -> ReusePlan:
    ages = len(alive) - taken
    there = alive[:ages] > 0
    safe = np.where(there, alive[:ages], 1.0)
    through = np.where(there, alive[taken:] / safe, 0.0)
    spent = np.where(there, (lived[taken:] - lived[:ages]) / safe, 0.0)
    later = np.minimum(np.arange(ages) + taken, ages - 1)
    ahead = np.zeros(ages)
    keep, hours = np.zeros((jobs, ages), bool), np.zeros((jobs, ages))
    for row in range(jobs):
        rest = ahead[later]
        if through[0] <= 0:  # jobs that no machine outlives
            return ReusePlan(step, np.zeros((jobs, ages), bool), np.full((jobs, ages), math.inf))
        new = (spent[0] + through[0] * rest[0] + (1 - through[0]) * boot) / through[0]
        kept = spent + through * rest + (1 - through) * (boot + new)
        keep[row] = there & (kept <= boot + new + 1e-12)
        ahead = np.where(keep[row], kept, boot + new)
        hours[row] = ahead
    return ReusePlan(step, keep, hours)


def with_exchange(kind: MachineKind, job: float, jobs: int = STEADY) -> MachineKind:
    """Return machines of a kind that are exchanged at the age that costs least.

    Parameters
    ----------
    kind
        The machines.
    job
        Hours of a job on them without failures.
    jobs
        Jobs ahead of each group.

    Returns
    -------
    MachineKind
        With its `exchange_age`.

    Examples
    --------
    >>> from jupyter_sky.knowledge.lifetimes import FloorHyperbolic
    >>> kind = MachineKind("spot", FloorHyperbolic(0.005, 0.41, 0.3, 24.0), 0.24, boot=0.05)
    >>> 22.5 < with_exchange(kind, job=1.0).exchange_age < 23.5
    True
    """
    plan = plan_reuse(kind.lifetime.times(kind.nodes), job, kind.boot, jobs)
    return replace(kind, exchange_age=plan.exchange_age(jobs))
