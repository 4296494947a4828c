"""From offers to numbers: pools, classes, prices, what is kept and what the tracker adds."""

from __future__ import annotations

import time

import numpy as np
import pytest

import jupyter_sky as sky
from jupyter_sky import catalog as rooms
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer, Price
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer import assumptions
from jupyter_sky.decisions.optimizer import constraints as c
from jupyter_sky.decisions.optimizer.constraints import parse_scope
from jupyter_sky.decisions.optimizer.estimators import amdahl
from jupyter_sky.decisions.optimizer.market import Market
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.decisions.optimizer.problem_builder import ProblemBuilder, find_concurrent_sets
from jupyter_sky.decisions.optimizer.solver.problem import Objective
from jupyter_sky.knowledge.lifetimes import Beliefs
from jupyter_sky.knowledge.tracker import Knowledge, Observation, Place

NEED = (Resources.parse(gpus="T4", spot=True, cloud="aws,gcp"),)


@pytest.fixture(scope="module")
def market() -> Market:
    return Market(rooms.load())


def test_a_pool_holds_every_offer_once_in_the_order_of_places(market: Market) -> None:
    both = (*NEED, Resources.parse(gpus="T4", cloud="aws"))
    pool = market.pool(both)
    singles = [market.catalog.filter(need) for need in both]
    expected = {
        (int(row), bool(spot))
        for found in singles
        for row, spot, price in zip(found.rows, found.spot, found.price, strict=True)
        if price == price
    }
    rows = list(zip(pool.row.tolist(), pool.spot.tolist(), strict=True))
    assert len(rows) == len(set(rows)) and set(rows) == expected
    sites = [market.sites[site] for site in pool.site]
    assert sites == sorted(sites)
    for index in (0, len(pool) // 2, len(pool) - 1):
        offer = market.offer(pool, index)
        assert (offer.cloud, offer.region, offer.zone or "") == sites[index]
        assert offer.gpu == "T4" and offer.price == pytest.approx(pool.price[index])
        machine = market.machine(int(pool.machine[index]))
        assert (machine.instance_type, machine.region) == (offer.instance_type, "")


def test_classes_put_together_only_what_is_alike(market: Market) -> None:
    pool = market.pool(NEED)
    first, at = pool.classes
    for name in ("machine", "spot", "service", "floor", "early", "need"):
        values = getattr(pool, name)
        np.testing.assert_array_equal(values[first][at], values)


def test_each_place_keeps_the_cheapest_for_cost(market: Market) -> None:
    with sky.Dag() as dag:
        sky.Task("x").set_resources(NEED[0]).set_time_estimator(amdahl(20))
    builder = ProblemBuilder(dag.freeze(), market)
    whole = builder.pricer.price_task(builder.graph.tasks[0])
    (left,) = builder.build(Objective("cost")).labels
    assert len(left) == len(np.unique(whole.pool.site)) < len(whole)
    for site, usd in zip(left.pool.site, left.usd(), strict=True):
        assert usd == whole.usd()[whole.pool.site == site].min()


def test_a_deadline_keeps_all_that_is_not_beaten(market: Market) -> None:
    with sky.Dag() as dag:
        sky.Task("x").set_resources(NEED[0]).set_time_estimator(amdahl(20))
    builder = ProblemBuilder(dag.freeze(), market)
    whole = builder.pricer.price_task(builder.graph.tasks[0])
    (left,) = builder.build(Objective("cost", deadline_h=10.0)).labels
    kept = set(zip(left.pool.row.tolist(), left.pool.spot.tolist(), strict=True))
    usd, hours = whole.usd(), whole.hours()
    for index in range(0, len(whole), 7):
        here = whole.pool.site == whole.pool.site[index]
        better = here & (usd <= usd[index]) & (hours <= hours[index])
        better &= (usd < usd[index]) | (hours < hours[index])
        mine = (int(whole.pool.row[index]), bool(whole.pool.spot[index]))
        if mine in kept:
            assert not better.any()


def test_prices_that_the_tracker_has_seen_are_used(market: Market) -> None:
    pool = market.pool(NEED)
    offer = market.offer(pool, 0)
    seen = Price(0.001, time.time())
    other = Market(market.catalog, prices={Place.of(offer): seen})
    again = other.pool(NEED)
    changed = np.flatnonzero(again.price != pool.price)
    assert [other.offer(again, i).place for i in changed] == [offer.place]
    found = other.offer(again, int(changed[0]))
    assert (found.price, found.source) == (0.001, "seen by the tracker")
    old = Market(market.catalog, prices={Place.of(offer): Price(0.001, 0.0)})
    assert (old.pool(NEED).price == pool.price).all(), "what was seen long ago is not"


def test_priors_of_lifetimes_are_those_of_preemption(market: Market) -> None:
    """Worked out for the whole catalog at once, they are what a single offer is believed to be."""
    pool = market.pool((Resources.parse(cpus="8+", spot=True),))
    beliefs, kinds = Beliefs(market.catalog.interruption), set()
    for index in range(0, len(pool), 997):
        model = beliefs.posterior(market.offer(pool, index)).model
        kinds.add(type(model).__name__)
        rate, early = float(model.hazard(1e9)), float(model.hazard(0.0))
        assert pool.floor[index] == pytest.approx(rate, rel=1e-6)
        assert pool.floor[index] + pool.early[index] == pytest.approx(early, rel=1e-9)
    assert kinds == {"Exponential", "FloorHyperbolic"}


def test_every_machine_of_a_cluster_may_be_lost(market: Market) -> None:
    one, four = (
        plan(catalog=market.catalog, cpus="8", cloud="gcp", spot=True, nodes=n, tracked=False)
        for n in (1, 4)
    )
    assert 1.02 < one["task"].redone < four["task"].redone < one["task"].redone ** 5


def test_lifetimes_of_the_tracker_and_launch_times_are_used(market: Market) -> None:
    pool = market.pool(NEED)
    offer = market.offer(pool, 0)
    place = Place.of(offer)
    seen = [Observation("preempted", place, 0.0, seconds=600.0) for _ in range(5)]
    seen.append(Observation("launched", place, 0.0, seconds=360.0))
    known = Knowledge.of(seen, 0.0)
    bands = market.catalog.interruption
    beliefs = Beliefs.of(seen, 0.0, bands)
    other = Market(market.catalog, knowledge=known, beliefs=beliefs)
    again = other.pool(NEED)
    model = beliefs.posterior(offer).model
    lived, lost = model.expected_lifetime(24.0), 1 - model.survival(24.0)
    assert again.mean_life_hours[0] == pytest.approx(lived / lost)
    assert again.mean_life_hours[0] < pool.mean_life_hours[0]
    with sky.Dag() as dag:
        sky.Task("x").set_resources(NEED[0])
    spin = ProblemBuilder(dag.freeze(), other).pricer.price_task(dag.freeze().tasks[0])
    cloud = np.array([other.sites[s][0] for s in again.site])
    hours = spin.spin_hours[spin.at]
    assert set(hours[cloud == offer.cloud].round(6)) == {0.1}
    assert set(hours[cloud != offer.cloud].round(6)) == {round(assumptions.SPIN_UP_HOURS, 6)}


@pytest.mark.parametrize(
    ("cloud", "hours", "billed"),
    [
        ("aws", 10 / 3600, 60 / 3600),
        ("aws", 90.4 / 3600, 91 / 3600),
        ("azure", 10 / 3600, 10 / 3600),
        ("verda", 601 / 3600, 1200 / 3600),
        ("verda", 600 / 3600, 600 / 3600),
        ("local", 10 / 3600, 10 / 3600),
        ("aws", 0.0, 0.0),
    ],
)
def test_billing_units(cloud: str, hours: float, billed: float) -> None:
    assert assumptions.billed_hours(cloud, np.array([hours]))[0] == pytest.approx(billed)


def test_sets_of_tasks_that_run_together_are_counted_or_widened() -> None:
    with sky.Dag() as dag:
        first = sky.Task("first")
        chains = [[sky.Task(f"{a}{b}") for b in range(3)] for a in range(4)]
        for chain in chains:
            first >> chain[0] >> chain[1] >> chain[2]
    sets, exact = find_concurrent_sets(dag.freeze())
    assert exact and len(sets) == 3**4 + 1
    with sky.Dag() as wide:
        for a in range(6):
            one, two, three = (sky.Task(f"{a}{b}") for b in range(3))
            one >> two >> three
    sets, exact = find_concurrent_sets(wide.freeze())
    assert not exact and len(sets) <= 18
    made = plan(
        wide,
        tracked=False,
        offers=[Offer("aws", "us-east-1", "m5", 2, 8, price=1.0)],
        constraints=[c.NodeCeiling(100)],
    )
    assert any("more tasks than can run at once" in note for note in made.notes)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gcp", ("gcp", "", "", "", None)),
        ("aws us-east-1", ("aws", "us-east-1", "", "", None)),
        ("aws/us-east-1/us-east-1a spot", ("aws", "us-east-1", "us-east-1a", "", True)),
        ("aws us-east-1a g5.xlarge on-demand", ("aws", "", "us-east-1a", "g5.xlarge", False)),
    ],
)
def test_places_in_words(market: Market, text: str, expected: tuple) -> None:
    found = parse_scope(text, market)
    assert (found.cloud, found.region, found.zone, found.instance_type, found.spot) == expected


def test_one_task_is_no_group() -> None:
    with sky.Dag() as dag:
        a = sky.Task("a")
    with pytest.raises(SkyUsageError, match="two tasks or more"):
        dag.same_region(a)
    with pytest.raises(SkyUsageError, match="always with itself"):
        plan(dag, tracked=False, constraints=[c.same_region("a", "a")])
