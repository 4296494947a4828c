"""Exploration of a bag while it runs: what was measured, what is measured next, what was chosen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import Amount
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.recovery_places import launchable_offers
from jupyter_sky.knowledge.lifetimes.models import Exponential, Model
from jupyter_sky.knowledge.lifetimes.priors import current
from jupyter_sky.knowledge.lifetimes.servers import Shape
from jupyter_sky.workflows.bags.decisions.outlook import BOOT_HOURS
from jupyter_sky.workflows.bags.queue.exploration import (
    LEAST_VCPUS,
    AppTimes,
    ExplorationStep,
    ShapeKey,
    candidate_shapes,
    choose_shape,
    explore_next,
    shape_key,
)

LARGEST = 4.0
"""Times the vCPUs asked for up to which machines are measured that run a job alone."""


class Explorer:
    """Exploration of one bag.

    Parameters
    ----------
    shapes
        As `find_shapes` returns them.
    times
        What an earlier bag of the same app has learned.

    Attributes
    ----------
    times : AppTimes
        What is known by now.
    refused : set of ShapeKey
        Shapes that could not be had.
    """

    def __init__(self, shapes: tuple[Shape, ...], times: AppTimes) -> None:
        self.shapes, self.times = shapes, times
        self.refused: set[ShapeKey] = set()
        self._beliefs = current()

    def _lifetime(self, offer: Offer) -> Model:
        """Return the lifetime of a machine, with what the tracker has seen of such ones."""
        return self._beliefs.posterior(offer).model if offer.spot else Exponential(0.0)

    def next_step(self, jobs: int) -> ExplorationStep:
        """Return the shape that is measured next, with so many jobs that have not begun."""
        return explore_next(
            self.shapes,
            self.times,
            refused=self.refused,
            lifetimes=self._lifetime,
            restart=BOOT_HOURS,
            jobs=jobs,
        )

    def measure(self, key: ShapeKey, hours: float) -> None:
        """Take in the run time of a job."""
        self.times = self.times.measure(*key, hours)

    def measured_hours(self) -> dict[Shape, float]:
        """Return the mean run time (hours) on each shape that was measured and can be had."""
        known = {
            shape: self.times.mean(shape_key(shape))
            for shape in self.shapes
            if shape_key(shape) not in self.refused
        }
        return {shape: hours for shape, hours in known.items() if hours is not None}

    def choose(self) -> tuple[Shape, str]:
        """Return the shape with the least expected cost, and a sentence on it.

        Raises
        ------
        SkyNoOffer
            None was measured.
        """
        choice = choose_shape(
            self.shapes,
            self.times,
            refused=self.refused,
            lifetimes=self._lifetime,
            restart=BOOT_HOURS,
        )
        best = choice.best
        text = _("measured on {count} types: {shape} runs the rest, {usd:.4f} USD a job").format(
            count=len(choice.ranked), shape=best.shape, usd=best.usd
        )
        return best.shape, text


def find_shapes(resources: Resources, offers: Iterable[Offer] | None = None) -> tuple[Shape, ...]:
    """Return the shapes to measure, the largest machines first.

    Jobs that run on several machines need the vCPUs of all of them: ``n_i = R / r_i``. Those that
    run on one are measured on one with up to four times the vCPUs that they ask for.

    Parameters
    ----------
    resources
        Of each machine, and their number.
    offers
        Offers to take; those that can be launched unless given.

    Returns
    -------
    tuple of Shape
        The cheapest for each number of machines and of vCPUs.

    Examples
    --------
    >>> sizes = [Offer("gcp", "r", f"n{n}", n, n, spot=True, price=n / 100) for n in (4, 8, 16)]
    >>> [shape.nodes for shape in find_shapes(Resources.parse(cpus=4, nodes=4), sizes)]
    [1, 2, 4]
    >>> [shape.offer.vcpus for shape in find_shapes(Resources.parse(cpus=4), sizes)]
    [16, 8, 4]
    """
    cpus = resources.cpus.value if resources.cpus is not None else 1.0
    total = cpus * resources.nodes
    if offers is None:
        sizes = _machine_sizes(cpus, resources.nodes)
        asked = [replace(resources, cpus=Amount(each), nodes=1) for each in sizes]
        offers = [offer for each in asked for offer in launchable_offers(each)]
    if resources.nodes > 1:
        shapes = candidate_shapes(offers, total)
    else:
        fitting = [each for each in offers if cpus <= (each.vcpus or 0.0) <= LARGEST * cpus]
        shapes = tuple(Shape(each, 1) for each in fitting if each.price is not None)
    cheapest: dict[tuple[int, float], Shape] = {}
    for shape in shapes:
        key = (shape.nodes, -(shape.offer.vcpus or 0.0))
        known = cheapest.get(key)
        if known is None or (shape.offer.price or 0.0) < (known.offer.price or math.inf):
            cheapest[key] = shape
    return tuple(shape for __, shape in sorted(cheapest.items(), key=lambda pair: pair[0]))


def _machine_sizes(cpus: float, nodes: int) -> list[float]:
    """Return the vCPUs of the machines that are looked for, the largest first.

    Examples
    --------
    >>> _machine_sizes(16.0, 4), _machine_sizes(4.0, 1)
    ([64.0, 32.0, 16.0, 8.0, 4.0], [16.0, 8.0, 4.0])
    """
    if nodes == 1:
        return [LARGEST * cpus, 2 * cpus, cpus]
    total = cpus * nodes
    halves = [total / 2**power for power in range(12)]
    return [each for each in halves if each >= min(LEAST_VCPUS, cpus) and each == int(each)]


def narrow_to(resources: Resources, shape: Shape) -> Resources:
    """Return the request of a shape.

    Examples
    --------
    >>> shape = Shape(Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True), 4)
    >>> narrow_to(Resources(), shape).nodes
    4
    """
    offer = shape.offer
    return replace(
        resources,
        cpus=None,
        memory=None,
        nodes=shape.nodes,
        instance_type=offer.instance_type,
        clouds=(offer.cloud,),
        spot=offer.spot,
    )
