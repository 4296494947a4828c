"""Exploration: which shape of machines to measure next, and which runs the rest of a bag.

After section 4.1 of SciSpot. A job needs R of a resource; a shape is n_i machines with r_i each,
``n_i = R / r_i``. Run times ``T`` without failures are measured by running jobs of the bag, whose
results count, on shapes in descending size r_i, without the smallest. With them a shape costs ::

    E[C] = n c E[T']                            (4)
    E[T'] = T + T / 2 P                         (5), (6)
    P = 1 - (1 - min(T / E[L], 1))^n            (7) to (9)

Equations (5) to (9) are replaced by exact turnarounds for the fitted lifetimes
(`preemption.renewals`): they count one failure at most, and their E[L] is 2-3 times too short.

The paper does not say when to stop. Here: after two shapes in a row that cost more than the one
before, after five shapes, or when the jobs that are left could not win back what measuring another
shape is expected to cost. A shape that was refused is unmeasured, not bad.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.lifetimes.servers import (
    Choice,
    LifetimesBy,
    Shape,
    cluster_shapes,
    expected_cost,
    find_lifetime,
    rank_shapes,
)

LEAST_VCPUS = 4.0
"""Smaller machines are not explored: the paper ignores those of 1 and 2 vCPUs."""
MOST_SHAPES = 5
"""Shapes that are measured at most."""
CLOSE = 0.1
"""Relative difference of expected costs below which two shapes are measured a second time."""
_SPREAD = 0.25
"""Standard deviation of the log of E[C] of a shape from that of its neighbour, as assumed."""

ShapeKey = tuple[str, int]
"""Instance type and number of machines."""


@dataclass(frozen=True)
class AppTimes:
    """Run times of an app by shape: kept for the next bag of the same app.

    Attributes
    ----------
    hours : mapping
        Run times in hours without failures, by instance type and number of machines. Of jobs of
        unlike size, hours for one unit of size.

    Examples
    --------
    >>> times = AppTimes().measure("n1-highcpu-32", 2, 0.24)
    >>> AppTimes.from_dict(times.as_dict()) == times
    True
    """

    hours: Mapping[ShapeKey, tuple[float, ...]] = field(default_factory=dict)

    def measure(self, instance_type: str, nodes: int, hours: float) -> AppTimes:
        """Return the times with one more.

        Examples
        --------
        >>> AppTimes().measure("n1-highcpu-32", 2, 0.24).mean(("n1-highcpu-32", 2))
        0.24
        """
        key = (instance_type, nodes)
        return replace(self, hours={**self.hours, key: (*self.hours.get(key, ()), hours)})

    def mean(self, key: ShapeKey) -> float | None:
        """Return the mean hours on a shape; None where it was not measured."""
        found = self.hours.get(key)
        return sum(found) / len(found) if found else None

    def as_dict(self) -> dict[str, list[float]]:
        """Return the times as values of JSON.

        Examples
        --------
        >>> AppTimes().measure("n1-highcpu-32", 2, 0.24).as_dict()
        {'2 n1-highcpu-32': [0.24]}
        """
        return {f"{nodes} {kind}": list(hours) for (kind, nodes), hours in self.hours.items()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> AppTimes:
        """Return what `as_dict` has written."""
        pairs = ((key.split(" ", 1), hours) for key, hours in stored.items())
        return cls({(kind, int(nodes)): tuple(hours) for (nodes, kind), hours in pairs})


@dataclass(frozen=True)
class ExplorationStep:
    """Step of an exploration.

    Attributes
    ----------
    measure : Shape, optional
        Shape on which the next job is to run; None when the exploration is over.
    reason : str
        Why it goes on or ends: ``unmeasured``, ``close``, ``two rises``, ``enough shapes``,
        ``few jobs`` or ``none left``.

    Examples
    --------
    >>> ExplorationStep(None, "two rises").is_over
    True
    """

    measure: Shape | None
    reason: str

    @property
    def is_over(self) -> bool:
        """Whether the exploration has ended."""
        return self.measure is None


def candidate_shapes(
    offers: Iterable[Offer], total: float, resource: str = "vcpus", least: float = LEAST_VCPUS
) -> tuple[Shape, ...]:
    """Return the shapes to explore: the largest machines first, each type at its least price.

    Parameters
    ----------
    offers
        Offers of the catalog.
    total
        Amount of the resource that a job needs.
    resource
        ``vcpus``, ``memory`` or ``gpu_count``.
    least
        Least vCPUs of a machine; smaller ones are taken only where there are no others.

    Returns
    -------
    tuple of Shape
        In descending size.

    Examples
    --------
    >>> sizes = [Offer("gcp", "r", f"n{n}", n, n, spot=True, price=n / 100) for n in (2, 16, 64)]
    >>> [shape.nodes for shape in candidate_shapes(sizes, 64)]
    [1, 4]
    """
    cheapest: dict[ShapeKey, Shape] = {}
    for shape in cluster_shapes(offers, total, resource):
        key = shape_key(shape)
        if shape.offer.price is None:
            continue
        if key not in cheapest or shape.offer.price < (cheapest[key].offer.price or 0.0):
            cheapest[key] = shape
    found = sorted(cheapest.values(), key=lambda shape: (shape.nodes, shape.offer.instance_type))
    large = [shape for shape in found if (shape.offer.vcpus or 0.0) >= least]
    return tuple(large or found)


def shape_key(shape: Shape) -> ShapeKey:
    """Return the instance type and the number of machines of a shape.

    Examples
    --------
    >>> offer = Offer("gcp", "r", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    >>> shape_key(Shape(offer, 4))
    ('n1-highcpu-16', 4)
    """
    return shape.offer.instance_type, shape.nodes


def explore_next(
    shapes: Sequence[Shape],
    times: AppTimes,
    *,
    refused: Iterable[ShapeKey] = (),
    lifetimes: LifetimesBy | None = None,
    restart: float = 0.0,
    jobs: int | None = None,
    most: int = MOST_SHAPES,
) -> ExplorationStep:
    """Return the shape to measure next, or that the exploration is over.

    Parameters
    ----------
    shapes
        As `candidate_shapes` returns them.
    times
        What was measured, in this bag or an earlier one of the same app.
    refused
        Shapes that could not be had.
    lifetimes
        Lifetimes by instance type or by offer, as `preemption.select_server` takes them.
    restart
        Hours from a failure to the next attempt.
    jobs
        Jobs of the bag that have not begun; without, they are taken to be many.
    most
        Most shapes to measure.

    Returns
    -------
    ExplorationStep
        The shape, and why.

    Examples
    --------
    >>> sizes = [Offer("gcp", "r", f"n{n}", n, n, spot=True, price=n / 100) for n in (4, 16, 64)]
    >>> shapes = candidate_shapes(sizes, 64)
    >>> explore_next(shapes, AppTimes()).measure.nodes
    1
    >>> explore_next(shapes, AppTimes().measure("n64", 1, 0.2), refused=[("n16", 4)]).measure.nodes
    16
    """
    blocked = set(refused)
    costs = _measured_costs(shapes, times, lifetimes, restart)
    if len(costs) >= most:
        return _close_or_over(shapes, times, costs, blocked, "enough shapes")
    if _rises(list(costs.values())) >= 2:
        return _close_or_over(shapes, times, costs, blocked, "two rises")
    left = [one for one in shapes if shape_key(one) not in blocked | set(costs)]
    if not left:
        return _close_or_over(shapes, times, costs, blocked, "none left")
    if costs and jobs is not None and not _pays(min(costs.values()), left[0], jobs, restart):
        return ExplorationStep(None, "few jobs")
    return ExplorationStep(left[0], "unmeasured")


def choose_shape(
    shapes: Sequence[Shape],
    times: AppTimes,
    *,
    refused: Iterable[ShapeKey] = (),
    lifetimes: LifetimesBy | None = None,
    restart: float = 0.0,
    minimize: str = "cost",
) -> Choice:
    """Return the shape that runs the rest of the bag, of those that were measured.

    Parameters
    ----------
    shapes, times, refused, lifetimes, restart
        As in `explore_next`. A refused shape is left out, and measured again in a later bag.
    minimize
        ``cost`` or ``time``.

    Returns
    -------
    Choice
        Shapes by expected cost under failures, the best first, with an explanation.

    Raises
    ------
    SkyNoOffer
        When no shape was measured.

    Examples
    --------
    >>> sizes = [Offer("gcp", "r", f"n{n}", n, n, spot=True, price=n / 100) for n in (16, 64)]
    >>> times = AppTimes().measure("n64", 1, 0.2).measure("n16", 4, 0.3)
    >>> choose_shape(candidate_shapes(sizes, 64), times).best.shape.nodes
    1
    """
    blocked = set(refused)
    taken = [shape for shape in shapes if shape_key(shape) not in blocked]
    measured = {key: sum(hours) / len(hours) for key, hours in times.hours.items()}
    choice = rank_shapes(taken, measured, lifetimes, minimize=minimize, restart=restart)
    if not choice.ranked:
        raise SkyNoOffer(
            _("none of {count} shapes has run a job of the bag").format(count=len(shapes)),
            hint=_("give other resources, or try again later"),
        )
    return choice


def _measured_costs(
    shapes: Sequence[Shape], times: AppTimes, lifetimes: LifetimesBy | None, restart: float
) -> dict[ShapeKey, float]:
    """Return E[C] of the measured shapes in descending size; ``inf`` where jobs never end."""
    found: dict[ShapeKey, float] = {}
    for shape in shapes:
        hours = times.mean(shape_key(shape))
        if hours is not None:
            model = find_lifetime(lifetimes, shape.offer)
            found[shape_key(shape)] = (
                expected_cost(shape, hours, model, restart=restart).usd if model else math.inf
            )
    return found


def _rises(costs: list[float]) -> int:
    """Return how many of the last costs rise, one after the other."""
    rises = 0
    for before, after in zip(costs[-2::-1], costs[:0:-1], strict=True):
        if after <= before:
            break
        rises += 1
    return rises


def _close_or_over(
    shapes: Sequence[Shape],
    times: AppTimes,
    costs: Mapping[ShapeKey, float],
    blocked: set[ShapeKey],
    reason: str,
) -> ExplorationStep:
    """Measure one of the two best a second time where they are close, else end."""
    best = sorted((usd, key) for key, usd in costs.items() if key not in blocked)[:2]
    if len(best) == 2 and best[1][0] < (1 + CLOSE) * best[0][0]:
        for shape in shapes:
            key = shape_key(shape)
            if key in (best[0][1], best[1][1]) and len(times.hours[key]) < 2:
                return ExplorationStep(shape, "close")
    return ExplorationStep(None, reason)


def _pays(best: float, shape: Shape, jobs: int, restart: float) -> bool:
    """Return whether measuring another shape is expected to gain more than it costs.

    Its E[C] is taken to be log-normal around the best one. Then a job on it costs
    ``best (exp(s^2 / 2) - 1)`` more on average, beside a boot of its machines, and each of the
    other jobs gains the expected improvement ``best (Phi(0) - exp(s^2 / 2) Phi(-s))``.
    """
    if not math.isfinite(best):
        return True
    mean = math.exp(_SPREAD**2 / 2)
    gain = best * (0.5 - mean * 0.5 * math.erfc(_SPREAD / math.sqrt(2)))
    boot = shape.nodes * (shape.offer.price or 0.0) * restart
    return (jobs - 1) * gain > best * (mean - 1) + boot
