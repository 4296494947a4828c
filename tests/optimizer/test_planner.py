"""`plan` against brute force: every objective and constraint on graphs small enough to count.

The costs are worked out here once more, offer by offer and pair by pair, with the catalog's own
answers for single transfers; nothing of the tables is used.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

import jupyter_sky as sky
from jupyter_sky import catalog as rooms
from jupyter_sky.base.errors import SkyError, SkyNoPlan, SkyUsageError
from jupyter_sky.base.requests.dag.dag import Graph
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer import assumptions
from jupyter_sky.decisions.optimizer import constraints as c
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.knowledge.catalog import Location
from jupyter_sky.knowledge.lifetimes import FloorHyperbolic, Lives, expected_runs, posterior

REGIONS = [
    *(("aws", "us-east-1", "us-east-1a"), ("aws", "us-east-1", "us-east-1b")),
    *(("aws", "eu-west-1", "eu-west-1a"), ("gcp", "us-central1", "us-central1-a")),
    *(
        ("gcp", "europe-west4", "europe-west4-a"),
        ("azure", "eastus", ""),
        ("lambda", "us-east-1", ""),
    ),
]
COUNTRIES = {"us-east-1": "US", "eu-west-1": "IE", "us-central1": "US", "europe-west4": "NL"}
COUNTRIES |= {"eastus": "US"}


def some_offers(rng: random.Random, count: int) -> list[Offer]:
    offers = []
    for number in range(count):
        cloud, region, zone = rng.choice(REGIONS)
        country = COUNTRIES[region]
        offers.append(
            Offer(
                *(cloud, region, f"m{number % 3}.large", rng.choice([2, 4, 8]), 16),
                zone=zone or None,
                spot=rng.random() < 0.3,
                price=rng.choice([0.2, 0.5, 0.5, 1.3]),
                country=country,
                jurisdiction="US" if country == "US" else "EU",
            )
        )
    return offers


def some_graph(rng: random.Random, count: int) -> Graph:
    with sky.Dag("random") as dag:
        tasks = []
        for number in range(count):
            task = sky.Task(f"t{number}", num_nodes=rng.choice([1, 1, 2]))
            size = rng.choice([0, 0, 1, 40, 3000])
            task.set_output(
                rng.choice(["?:/x", "?:/x", "gs://out"]), size=size, region="us-central1"
            )
            if rng.random() < 0.5:
                task.set_input("s3://in", size=rng.choice([1, 20]), region="us-east-1")
            base = rng.choice([0.1, 0.5, 2.0])
            task.set_time_estimator(lambda offer, base=base: base * 8 / offer.vcpus)
            tasks.append(task)
        for later in range(1, count):
            for earlier in range(later):
                if rng.random() < 0.45:
                    tasks[earlier] >> tasks[later]
    return dag.freeze()


class Outcome(NamedTuple):
    usd: float
    hours: float
    grams: float


@cache
def redone(model: FloorHyperbolic, hours: float, nodes: int, spin: float) -> float:
    """Number of times that the work on one cluster is done."""
    lives = Lives.of([model], nodes)
    return float(expected_runs(np.array([hours]), lives, np.array([spin]))[0])


@cache
def moving(here: tuple, there: tuple, gb: float, store: bool) -> tuple[float, float]:
    """USD and hours of one transfer."""
    shelf = rooms.load()
    source, target = Location(*here), Location(*there)
    hours = shelf.transfer_hours(source, target, gb).hours
    if here == there or (store and here[:2] == there[:2]):
        return 0.0, hours
    usd = shelf.egress(source, target, gb).usd
    from jupyter_sky.decisions.optimizer.transfers import get_transfer_prices

    return (gb * get_transfer_prices(shelf).assumed_usd_per_gb if usd is None else usd), hours


def outcome(graph: Graph, chosen: Sequence[Offer]) -> Outcome:
    shelf = rooms.load()
    usd, grams, finish = 0.0, 0.0, []
    at = [(offer.cloud, offer.region, offer.zone or "") for offer in chosen]
    for v, (spec, offer) in enumerate(zip(graph.tasks, chosen, strict=True)):
        nodes = spec.needs[0].nodes
        work, spin = spec.estimator(offer), 2 / 60
        if offer.spot:
            work *= redone(posterior(offer).model, work, nodes, spin)
        seconds = (spin + work) * 3600
        unit, least = assumptions.billing_rule(offer.cloud)
        billed = max(math.ceil(seconds / unit - 1e-6) * unit, least) / 3600
        usd += offer.price * nodes * billed
        start, after = 0.0, 0.0
        for kind, data in [
            *(("in", data) for data in spec.inputs),
            *(("stored", data) for data in spec.stored),
            *(("out", data) for data in spec.outputs if not data.is_anywhere),
        ]:
            if not data.gb:
                continue
            store, machine = (data.cloud, data.region, ""), (*at[v][:2], "")
            ends = (machine, store) if kind == "out" else (store, machine)
            dollars, hours = moving(*ends, data.gb, True)
            usd += dollars
            if kind == "in":
                start = max(start, hours)
            else:
                after += hours
        for edge in graph.edges:
            if edge.dst != v:
                continue
            dollars, hours = moving(at[edge.src], at[v], edge.gb, False)
            clean = [shelf.region(*at[end][:2]).carbon or 480.0 for end in (edge.src, v)]
            if at[edge.src] != at[v]:
                grams += 0.001 * sum(clean) / 2 * edge.gb
            usd += dollars
            start = max(start, finish[edge.src] + hours)
        finish.append(start + spin + work + after)
        clean = shelf.region(*at[v][:2]).carbon or 480.0
        grams += assumptions.watts(offer) / 1000 * clean * nodes * (spin + work)
    return Outcome(usd, max(finish), grams)


Keeps = Callable[[Graph, Sequence[Offer], Outcome], bool]


def everything(graph: Graph, offers: Sequence[Offer], keeps: Keeps) -> list[Outcome]:
    found = []
    for chosen in itertools.product(offers, repeat=len(graph.tasks)):
        reached = outcome(graph, chosen)
        if keeps(graph, chosen, reached):
            found.append(reached)
    return found


VALUES: dict[str, Callable[[Outcome], float]] = {
    "cost": lambda o: o.usd,
    "time": lambda o: o.hours,
    "carbon": lambda o: o.grams,
}


def reached(made: Plan) -> Outcome:
    return Outcome(made.usd, made.hours, made.gco2)


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=2e-6)


@pytest.mark.parametrize("seed", range(7))
@pytest.mark.parametrize("minimize", ["cost", "time", "carbon"])
def test_the_plan_is_the_best_of_all(seed: int, minimize: str) -> None:
    rng = random.Random(seed)
    graph, offers = some_graph(rng, rng.choice([1, 2, 3, 3])), some_offers(rng, 5)
    best = min(map(VALUES[minimize], everything(graph, offers, lambda *_: True)))
    made = plan(graph, minimize, offers=offers, tracked=False)
    assert close(VALUES[minimize](reached(made)), best)
    assert made.certificate.status == "optimal" and made.certificate.checked
    chosen = [placed.offer for placed in made.tasks]
    assert all(map(close, reached(made), outcome(graph, chosen))), "and it is what it says"


@pytest.mark.parametrize("seed", range(4))
def test_the_cheapest_of_the_fastest_and_weights(seed: int) -> None:
    rng = random.Random(100 + seed)
    graph, offers = some_graph(rng, 3), some_offers(rng, 5)
    found = everything(graph, offers, lambda *_: True)
    fastest = min(one.hours for one in found)
    cheapest = min(one.usd for one in found if one.hours <= fastest * (1 + 1e-6))
    made = plan(graph, "time_then_cost", offers=offers, tracked=False)
    assert close(made.hours, fastest) and close(made.usd, cheapest)
    weights = {"usd": 1.0, "hours": 3.0, "grams": 0.002}
    best = min(one.usd + 3 * one.hours + 0.002 * one.grams for one in found)
    made = plan(graph, weights, offers=offers, tracked=False)
    assert close(made.usd + 3 * made.hours + 0.002 * made.gco2, best)


@pytest.mark.parametrize("seed", range(4))
def test_limits_are_kept_and_cost_no_more_than_they_must(seed: int) -> None:
    rng = random.Random(200 + seed)
    graph, offers = some_graph(rng, 3), some_offers(rng, 5)
    found = everything(graph, offers, lambda *_: True)
    hours = sorted(one.hours for one in found)
    deadline = (hours[0] + hours[len(hours) // 2]) / 2
    best = min(one.usd for one in found if one.hours <= deadline)
    made = plan(graph, deadline=deadline, offers=offers, tracked=False)
    assert made.hours <= deadline * (1 + 1e-6) and close(made.usd, best)
    budget = sorted(one.usd for one in found)[len(found) // 3]
    best = min(one.hours for one in found if one.usd <= budget)
    made = plan(graph, "time", budget=budget, offers=offers, tracked=False)
    assert made.usd <= budget * (1 + 1e-6) and close(made.hours, best)
    cap = sorted(one.grams for one in found)[len(found) // 3]
    best = min(one.usd for one in found if one.grams <= cap)
    made = plan(graph, carbon_cap=cap, offers=offers, tracked=False)
    assert made.gco2 <= cap * (1 + 1e-6) and close(made.usd, best)


def in_us(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    return chosen[0].jurisdiction == "US"


def one_region(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    return (chosen[0].cloud, chosen[0].region) == (chosen[1].cloud, chosen[1].region)


def on_demand(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    return not any(offer.spot for offer in chosen)


def beside(graph: Graph) -> list[tuple[int, ...]]:
    """All sets of tasks none of which comes before another, by trying every set."""
    before = {(e.src, e.dst) for e in graph.edges}
    for _ in graph.tasks:
        before |= {(a, d) for a, b in before for x, d in before if b == x}
    sets = []
    for size in range(1, len(graph.tasks) + 1):
        for some in itertools.combinations(range(len(graph.tasks)), size):
            if not any(pair in before for pair in itertools.permutations(some, 2)):
                sets.append(some)
    return sets


def few_nodes_at_a_time(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    return all(sum(graph.tasks[v].needs[0].nodes for v in some) <= 2 for some in beside(graph))


def quota_kept(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    def nodes(v: int) -> int:
        return graph.tasks[v].needs[0].nodes if chosen[v].cloud == "aws" else 0

    return all(sum(map(nodes, some)) <= 1 for some in beside(graph))


def ceiling_kept(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    def rate(v: int) -> float:
        return chosen[v].price * graph.tasks[v].needs[0].nodes

    return all(sum(map(rate, some)) <= 1.2 for some in beside(graph))


def family_kept(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    def nodes(v: int) -> int:
        mine = chosen[v].cloud == "aws"
        return graph.tasks[v].needs[0].nodes if mine else 0

    return all(sum(map(nodes, some)) <= 2 for some in beside(graph))


def same_machine(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    return chosen[0] is chosen[1]


def not_both_spot(graph: Graph, chosen: Sequence[Offer], _: Outcome) -> bool:
    return chosen[0].spot + chosen[1].spot <= 1


def hook(view: c.PlanVariables) -> list:
    return [view.chosen("t0", spot=True) + view.chosen("t1", spot=True) <= 1]


DEMANDS: dict[str, tuple[list, Keeps]] = {
    "residency": ([c.Residency("us", tasks="t0")], in_us),
    "same region": ([c.same_region("t0", "t1")], one_region),
    "on demand": ([c.Only(on_demand=True)], on_demand),
    "reliable": ([c.Reliable(1000)], on_demand),
    "at once": ([c.NodeCeiling(2)], few_nodes_at_a_time),
    "quota": ([c.Quota(1, "aws")], quota_kept),
    "family": ([c.Quota(2, "aws", family="standard")], family_kept),
    "ceiling": ([c.HourlyCeiling(1.2)], ceiling_kept),
    "hook": ([c.Custom(hook)], not_both_spot),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", DEMANDS)
@pytest.mark.parametrize("minimize", ["cost", "time"])
def test_demands_are_kept_and_cost_no_more_than_they_must(
    name: str, seed: int, minimize: str
) -> None:
    rng = random.Random(300 + seed)
    graph, offers = some_graph(rng, 3), some_offers(rng, 5)
    demands, keeps = DEMANDS[name]
    found = everything(graph, offers, keeps)
    asked = {"offers": offers, "tracked": False, "constraints": demands}
    if not found:
        with pytest.raises(SkyNoPlan):
            plan(graph, minimize, **asked)
        return
    made = plan(graph, minimize, **asked)
    assert close(VALUES[minimize](reached(made)), min(map(VALUES[minimize], found)))
    chosen = [placed.offer for placed in made.tasks]
    assert keeps(graph, chosen, reached(made))


def test_one_cluster_pays_for_one_spin_up() -> None:
    offers = [
        Offer("aws", "us-east-1", "m5.large", 2, 8, zone="us-east-1a", price=3.0),
        Offer("gcp", "us-central1", "n2-standard-2", 2, 8, zone="us-central1-a", price=2.0),
    ]
    with sky.Dag() as dag:
        a, b = (sky.Task(name).set_time_estimator(1.0) for name in "ab")
        a >> b
        dag.same_cluster(a, b)
    made = plan(dag, offers=offers, tracked=False)
    assert made["a"].offer == made["b"].offer == offers[1]
    assert made.usd == pytest.approx(2.0 * (2 + 2 / 60), rel=1e-6)
    assert made["b"].spin_up_hours == 0.0


def test_tasks_of_one_cluster_without_an_offer_have_no_plan() -> None:
    offers = [Offer("aws", "us-east-1", "a", 8, 32, price=1.0)]
    with sky.Dag() as dag:
        a, b = (sky.Task(name).set_time_estimator(1.0) for name in "ab")
        a >> b
        dag.same_cluster(a, b)
    with pytest.raises(SkyNoPlan, match="cannot hold together"):
        plan(dag, offers=offers, tracked=False, constraints=[c.Only(spot=True)])


@pytest.mark.parametrize("solver", ["glpk", "highs"])
def test_the_model_alone_comes_to_the_same(solver) -> None:
    rng = random.Random(11)
    graph, offers = some_graph(rng, 3), some_offers(rng, 5)
    first = plan(graph, offers=offers, tracked=False)
    model = plan(graph, offers=offers, tracked=False, presolve=False, solver=solver)
    assert close(first.usd, model.usd) and model.certificate.solver == solver


def test_the_same_input_gives_the_same_plan_whatever_the_order_of_offers() -> None:
    rng = random.Random(5)
    graph, offers = some_graph(rng, 3), some_offers(rng, 5)
    first = plan(graph, offers=offers, tracked=False)
    assert plan(graph, offers=offers, tracked=False) == first
    for mixed in (offers[::-1], sorted(offers, key=lambda offer: offer.vcpus)):
        made = plan(graph, offers=mixed, tracked=False)
        assert close(made.usd, first.usd)


@pytest.mark.parametrize("count", [1, 2])
def test_a_wrong_constraint_is_refused(count: int) -> None:
    with sky.Dag() as dag:
        for number in range(count):
            sky.Task(f"t{number}")
    for bad, said in [
        ("eu", "is not a constraint"),
        (c.Residency("eu", tasks="t9"), "there is no task 't9'"),
        (c.NodeCeiling(-1), "not a limit"),
        (c.Quota(1, "moon"), "is no cloud"),
    ]:
        with pytest.raises(SkyError) as caught:
            plan(dag, constraints=[bad], tracked=False)
        assert said in caught.value.message


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"minimize": "speed"}, "minimize='speed'"),
        ({"minimize": {"usd": -1}}, "minimize={'usd': -1}"),
        ({"minimize": {"usd": 0}}, "all weights are 0"),
        ({"deadline": "5"}, "not a duration"),
        ({"deadline": -1}, "deadline=-1"),
        ({"budget": float("nan")}, "budget=nan"),
        ({"solver": "cplex"}, "cplex"),
        ({"time_limit": 0}, "time limit"),
        ({"gpus": "A100:8", "what": sky.Resources()}, "gpus"),
        ({"what": 7}, "7 cannot be planned"),
        ({"gpus": "A1000"}, "A1000"),
    ],
)
def test_contradictory_request_is_refused(asked: dict, said: str) -> None:
    asked = {"what": sky.Resources(), **asked} if "gpus" not in asked else asked
    with pytest.raises(SkyUsageError) as caught:
        plan(**asked, tracked=False)
    assert said in caught.value.message
