"""Exploration of machine shapes: its order, its end, and what is kept of it."""

from __future__ import annotations

import json

import pytest

from jupyter_sky.base.errors import SkyNoOffer
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.knowledge.lifetimes import Exponential
from jupyter_sky.workflows.bags.queue.exploration import (
    AppTimes,
    ShapeKey,
    candidate_shapes,
    choose_shape,
    explore_next,
    shape_key,
)

OFFERS = [
    Offer("gcp", region, f"n1-highcpu-{n}", n, 0.9 * n, spot=True, price=(0.0075 + extra) * n)
    for n in (2, 4, 8, 16, 32, 64)
    for region, extra in (("us-east1", 0.0), ("us-west1", 0.001))
]
SHAPES = candidate_shapes(OFFERS, 64)
SAFE = {f"n1-highcpu-{n}": Exponential(0.01) for n in (2, 4, 8, 16, 32, 64)}


def explore(hours: dict[int, float], **options) -> tuple[list[int], str, AppTimes]:
    """Measure until the exploration ends: vCPUs measured, the reason, the times."""
    times, order = AppTimes(), []
    while not (step := explore_next(SHAPES, times, lifetimes=SAFE, **options)).is_over:
        assert step.measure is not None
        kind, nodes = shape_key(step.measure)
        order.append(64 // nodes)
        times = times.measure(kind, nodes, hours[order[-1]])
    return order, step.reason, times


def test_shapes_come_in_descending_size_at_their_least_price() -> None:
    assert [shape.nodes for shape in SHAPES] == [1, 2, 4, 8, 16]
    assert {shape.offer.region for shape in SHAPES} == {"us-east1"}
    assert [shape.nodes for shape in candidate_shapes(OFFERS[:2], 64)] == [32], "no others"


def test_two_rises_end_the_exploration() -> None:
    """Nanoconfinement in the paper: 40 % faster on the best than on the worst."""
    order, reason, times = explore({64: 0.25, 32: 0.22, 16: 0.26, 8: 0.31, 4: 0.36})
    assert order == [64, 32, 16, 8] and reason == "two rises"
    assert choose_shape(SHAPES, times, lifetimes=SAFE).best.shape.nodes == 2


def test_close_shapes_are_measured_twice() -> None:
    order, reason, _times = explore({64: 0.25, 32: 0.245, 16: 0.5, 8: 0.6, 4: 0.7})
    assert order == [64, 32, 16, 8, 64, 32] and reason == "two rises"


def test_frequent_losses_of_large_machines_decide() -> None:
    times = AppTimes().measure("n1-highcpu-64", 1, 2.0).measure("n1-highcpu-32", 2, 2.2)
    alike = choose_shape(SHAPES, times, lifetimes=SAFE).best.shape.nodes
    lossy = choose_shape(SHAPES, times, lifetimes=SAFE | {"n1-highcpu-64": Exponential(0.4)})
    assert (alike, lossy.best.shape.nodes) == (1, 2)


def test_a_refused_shape_is_unmeasured_not_bad() -> None:
    refused: list[ShapeKey] = [("n1-highcpu-64", 1)]
    order, _reason, times = explore({32: 0.22, 16: 0.3, 8: 0.4, 4: 0.5}, refused=refused)
    assert 64 not in order
    again = explore_next(SHAPES, times, lifetimes=SAFE)
    assert (again.measure is not None and again.measure.nodes == 1) or again.is_over
    step = explore_next(SHAPES, AppTimes().measure("n1-highcpu-32", 2, 0.2), lifetimes=SAFE)
    assert step.measure is not None and step.measure.nodes == 1, "free again: it is measured"


def test_few_jobs_are_not_worth_an_exploration() -> None:
    times = AppTimes().measure("n1-highcpu-64", 1, 0.25)
    few, many = (
        explore_next(SHAPES, times, lifetimes=SAFE, restart=0.05, jobs=jobs) for jobs in (2, 100)
    )
    assert few.reason == "few jobs" and few.is_over
    assert many.measure is not None and many.measure.nodes == 2


def test_what_was_learned_is_used_by_the_next_bag() -> None:
    _order, _reason, times = explore({64: 0.25, 32: 0.22, 16: 0.26, 8: 0.31, 4: 0.36})
    known = AppTimes.from_dict(json.loads(json.dumps(times.as_dict())))
    assert known == times
    assert explore_next(SHAPES, known, lifetimes=SAFE).is_over


def test_jobs_that_never_end_on_a_shape_are_a_rise_not_an_error() -> None:
    times = AppTimes().measure("n1-highcpu-64", 1, 30.0).measure("n1-highcpu-32", 2, 30.0)
    capped = {kind: Exponential(0.05, cap=24.0) for kind in SAFE}
    step = explore_next(SHAPES, times, lifetimes=capped)
    assert step.measure is not None and step.measure.nodes == 4
    with pytest.raises(SkyNoOffer):
        choose_shape(SHAPES, times, lifetimes=capped)


def test_nothing_measured_is_said() -> None:
    with pytest.raises(SkyNoOffer, match="none of 5 shapes"):
        choose_shape(SHAPES, AppTimes())
