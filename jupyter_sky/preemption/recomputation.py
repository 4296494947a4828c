"""The hook of placement: how much longer, and dearer, a job becomes because machines are lost.

An optimizer that prices a spot offer multiplies its run time by the factor of a `Recomputation`::

    again = Recomputation(preemption.current())
    hours = run_hours * again(offer, run_hours, nodes)

It is a function of (offer, hours of the run without failures, nodes) to a factor of at least 1,
``math.inf`` for a run that never ends there. On-demand offers have the factor 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from ..offers import Offer
from . import checks
from .checkpoints import MINUTE, plan_checkpoints
from .models import Model
from .turnaround import Turnaround, turnaround

CHECKPOINTED_STEPS = 120
"""Steps into which a run with checkpoints is divided to plan them."""


@dataclass(frozen=True)
class Recomputation:
    """Expected run time, failures included, over the run time without them.

    Attributes
    ----------
    lifetimes : callable
        From an offer to the lifetime model of one machine, such as `Beliefs`.
    checkpoint : float, optional
        Hours that a checkpoint takes; the run then saves at the best times. Without, a failure
        loses all.
    restart : float
        Hours from a failure to the next attempt.

    Examples
    --------
    >>> from jupyter_sky.preemption import Exponential
    >>> again = Recomputation(lambda offer: Exponential(0.1))
    >>> spot = Offer("aws", "us-east-1", "m5.large", 2, 8, spot=True, price=0.04)
    >>> round(again(spot, 4.0), 3), round(again(spot, 4.0, nodes=2), 3)
    (1.23, 1.532)
    """

    lifetimes: Callable[[Offer], Model]
    checkpoint: float | None = None
    restart: float = 0.0

    def __call__(self, offer: Offer, hours: float, nodes: int = 1) -> float:
        """The factor on the run time, and so on the price of the machines."""
        hours = checks.number(hours, "run time (hours)", above=0)
        if not offer.spot:
            return 1.0
        return max(1.0, self.expected(offer, hours, nodes).hours / hours)

    def expected(self, offer: Offer, hours: float, nodes: int = 1) -> Turnaround:
        """Expected hours, failures and the chance that any machine is lost in the first attempt."""
        hours = checks.number(hours, "run time (hours)", above=0)
        nodes = checks.count(nodes, "nodes")
        model = self.lifetimes(offer)
        if self.checkpoint is None:
            return _unsaved(model, hours, nodes, self.restart)
        return _saved(model, hours, nodes, float(self.checkpoint), self.restart)


@lru_cache(maxsize=65536)
def _unsaved(model: Model, hours: float, nodes: int, restart: float) -> Turnaround:
    return turnaround(model, hours, nodes, restart=restart)


@lru_cache(maxsize=4096)
def _saved(model: Model, hours: float, nodes: int, cost: float, restart: float) -> Turnaround:
    """With the best checkpoints, all machines taken as new after each failure."""
    group = model.times(nodes) if nodes > 1 else model
    chance = 1 - float(group.survival(hours))
    step = max(MINUTE, hours / CHECKPOINTED_STEPS)
    if hours <= MINUTE or group.survival(step + cost) <= 0:  # nothing to divide, or nothing lasts
        return _unsaved(model, hours, nodes, restart)
    plan = plan_checkpoints(group, hours, cost, restart, step)
    longer = plan.expected()
    return Turnaround(longer, math.nan, chance)
