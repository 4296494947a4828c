"""Server selection over offers: which shapes there are, what each costs, why one is taken."""

from __future__ import annotations

import math

import pytest

from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.knowledge.lifetimes import (
    Choice,
    Exponential,
    KaplanMeier,
    Shape,
    cluster_shapes,
    expected_cost,
    fit_least_squares,
    google_2019,
    paper_turnaround,
    select_server,
    simulate_turnaround,
    turnaround,
)

SIZES = (4, 8, 16, 32, 64)


def offer(size: int, price: float | None = None, spot: bool = True, kind: str = "") -> Offer:
    usd = 0.0071 * size if price is None else price
    return Offer(
        "gcp", "us-central1", kind or f"n1-highcpu-{size}", size, 0.9 * size, spot=spot, price=usd
    )


def lifetimes(by=KaplanMeier.of) -> dict:
    return {f"n1-highcpu-{n}": by(google_2019().of_kind(f"n1-highcpu-{n}")) for n in SIZES}


OFFERS = [offer(size) for size in SIZES]


def test_shapes_hold_exactly_the_total() -> None:
    shapes = cluster_shapes([*OFFERS, offer(48)], 64)
    assert [(s.offer.vcpus, s.nodes) for s in shapes] == [
        (4, 16),
        (8, 8),
        (16, 4),
        (32, 2),
        (64, 1),
    ]
    gpu = Offer("aws", "us-east-1", "p3.8xlarge", 32, 244, gpu="V100", gpu_count=4, price=3.6)
    assert [s.nodes for s in cluster_shapes([gpu, OFFERS[0]], 8, "gpu_count")] == [2]
    assert cluster_shapes(OFFERS, 63) == []
    with pytest.raises(SkyUsageError, match="no resource 'cpus'"):
        cluster_shapes(OFFERS, 64, "cpus")
    with pytest.raises(SkyUsageError, match="total vcpus"):
        cluster_shapes(OFFERS, 0)


def test_equation_4_with_each_formula() -> None:
    model, shape = lifetimes()["n1-highcpu-16"], Shape(OFFERS[2], 4)
    found = expected_cost(shape, 2.0, model)
    assert found.usd == pytest.approx(4 * OFFERS[2].price * found.hours)  # pyright: ignore
    assert found.hours == turnaround(model, 2.0, 4).hours
    survival = expected_cost(shape, 2.0, model, "paper-survival")
    assert survival.hours == pytest.approx(2 + 1 * (1 - float(model.survival(2.0)) ** 4))
    equation1 = fit_least_squares("constrained", google_2019().of_kind("n1-highcpu-16"))
    paper = expected_cost(shape, 2.0, equation1, "paper")
    assert paper.lifetime == equation1.expected_lifetime_paper()  # pyright: ignore
    assert paper.hours == pytest.approx(paper_turnaround(2.0, 4, paper.lifetime))
    assert expected_cost(shape, 2.0, model, "fresh").hours != found.hours
    with pytest.raises(SkyUsageError, match="no formula"):
        expected_cost(shape, 2.0, model, "eq4")


def test_the_choice_is_the_cheapest_by_simulation() -> None:
    """Flat price per vCPU, the same run time everywhere: only lifetimes tell shapes apart."""
    models = lifetimes()
    for work in (0.5, 2.0, 4.0):
        choice = select_server(OFFERS, 64, work, models)
        truth = {n: simulate_turnaround(models[f"n1-highcpu-{n}"], work, 64 // n)[0] for n in SIZES}
        taken = truth[int(choice.best.shape.offer.vcpus)]
        assert taken <= 1.03 * min(truth.values())


def test_the_papers_own_way_takes_a_dearer_one_at_four_hours() -> None:
    paper = lifetimes(lambda seen: fit_least_squares("constrained", seen))
    theirs = select_server(OFFERS, 64, 4.0, paper, formula="paper").best
    ours = select_server(OFFERS, 64, 4.0, lifetimes()).best
    assert theirs.shape.offer.vcpus == 64 and ours.shape.offer.vcpus == 32
    models = lifetimes()
    truth = [
        simulate_turnaround(models[one.shape.offer.instance_type], 4.0, one.shape.nodes)[0]
        for one in (theirs, ours)
    ]
    assert truth[0] > 1.03 * truth[1]


def test_run_times_may_be_measured_or_estimated() -> None:
    measured = {"n1-highcpu-4": 2.0, ("n1-highcpu-64", 1): 1.0}
    choice = select_server(OFFERS, 64, measured)
    assert {one.shape.offer.vcpus for one in choice.ranked} == {4, 64}
    assert {why for _, why in choice.skipped} == {"it was not measured"}
    estimated = select_server(OFFERS, 64, lambda offer, nodes: 1 + 0.1 * nodes)
    assert [one.base_hours for one in estimated.ranked if one.shape.nodes == 16] == [2.6]
    assert select_server(OFFERS, 64, measured, minimize="time").best.shape.nodes == 1


def test_the_choice_explains_itself() -> None:
    choice = select_server(
        [*OFFERS, offer(48), offer(2, kind="unpriced", price=math.nan)][:-1], 64, 2.0
    )
    text = str(choice)
    assert text.startswith(str(choice.best.shape)) and "next kind: " in text and "USD more" in text
    assert "48 vcpus do not divide 64" in text
    assert all(str(one.shape) in text for one in choice.ranked)
    costs = [one.usd for one in choice.ranked]
    assert costs == sorted(costs) and isinstance(choice, Choice)
    assert choice.best.overhead == pytest.approx(choice.best.hours / 2.0 - 1)


def test_on_demand_machines_take_part() -> None:
    """One that is hardly ever lost wins once it is cheap enough."""
    dear, cheap = (offer(64, price=usd, spot=False, kind="steady") for usd in (2.0, 0.46))
    assert select_server([OFFERS[0], dear], 64, 4.0).best.shape.offer.spot
    assert not select_server([OFFERS[0], cheap], 64, 4.0).best.shape.offer.spot


def test_ties_go_to_the_faster_then_to_fewer_machines() -> None:
    free = [offer(size, price=0.0) for size in SIZES]
    never = {one.instance_type: Exponential(0.0) for one in free}
    assert select_server(free, 64, 1.0, never).best.shape.nodes == 1
    assert (
        select_server(free[::-1], 64, {"n1-highcpu-4": 0.5, "n1-highcpu-8": 1}).best.shape.nodes
        == 16
    )


def test_unusable_servers_are_explained() -> None:
    with pytest.raises(SkyNoOffer, match="do not divide 63"):
        select_server(OFFERS, 63, 1.0)
    with pytest.raises(SkyNoOffer, match="no offers were given"):
        select_server([], 64, 1.0)
    unknown = Offer("gcp", "us-central1", "n1-highcpu-64", 64, 58, spot=True)
    with pytest.raises(SkyNoOffer, match="price is not known"):
        select_server([unknown], 64, 1.0)
    with pytest.raises(SkyNoOffer, match="lifetime is not known"):
        select_server(OFFERS, 64, 1.0, {})
    with pytest.raises(SkyNoOffer, match="never end there"):
        select_server(OFFERS, 64, 30.0, lifetimes())
    for hours in (math.nan, -1.0, 0.0, math.inf):
        with pytest.raises(SkyUsageError, match="run time on"):
            select_server(OFFERS, 64, hours)
    with pytest.raises(SkyUsageError, match="did you mean cost"):
        select_server(OFFERS, 64, 1.0, minimize="costs")
    with pytest.raises(SkyUsageError, match="price of"):
        select_server([offer(64, price=-1.0)], 64, 1.0)
