"""Costs of alternative places, which are those of a plan that goes there."""

from __future__ import annotations

import pytest

from jupyter_sky.decisions.optimizer import constraints as c
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.planning import plan

from .test_plan_explanations import vision


def test_the_next_of_a_request_are_those_that_a_search_would_find() -> None:
    made = plan(gpus="T4", on_demand=True, tracked=False)
    told = made.alternatives()
    best = [one for one in told if one.kind.startswith("next best")]
    assert len(best) == 3 and [one.usd for one in best] == sorted(one.usd for one in best)
    places = {(one.offer.cloud, one.offer.region, one.offer.instance_type) for one in best}
    chosen = made.tasks[0].offer
    assert len(places) == 3 and (chosen.cloud, chosen.region, chosen.instance_type) not in places
    (away,) = [one for one in told if "other cloud" in one.kind]
    assert away.offer.cloud != chosen.cloud
    others = ",".join(sorted({"aws", "azure", "gcp", "lambda", "vast"} - {chosen.cloud}))
    elsewhere = plan(gpus="T4", on_demand=True, cloud=others, tracked=False)
    assert made.usd + away.usd <= elsewhere.usd + 1e-9
    there = plan(gpus="T4", on_demand=True, cloud=away.offer.cloud, tracked=False)
    assert made.usd + away.usd == pytest.approx(there.usd)


def test_a_market_that_the_request_rules_out_is_told_as_such() -> None:
    made = plan(gpus="T4", on_demand=True, tracked=False)
    (other,) = [one for one in made.alternatives() if "if you allow it" in one.kind]
    assert other.kind == "spot, if you allow it" and other.offer.spot and other.usd < 0
    assert made.usd + other.usd == pytest.approx(plan(gpus="T4", spot=True, tracked=False).usd)
    free = plan(gpus="T4", tracked=False)
    kinds = ", ".join(one.kind for one in free.alternatives())
    assert "if you allow it" not in kinds and "on demand" in kinds


def test_each_task_of_a_graph_by_itself() -> None:
    made = plan(vision(), tracked=False)
    told = made.alternatives()
    assert {one.task for one in told} == {"train", "infer"}
    (away,) = [one for one in told if one.task == "infer" and one.kind == "other cloud"]
    offer, train = away.offer, made["train"].offer
    again = made.what_if(
        c.Only(cloud=offer.cloud, gpus=str(offer.gpu), tasks="infer"),
        c.Only(cloud=train.cloud, region=train.region, gpus=str(train.gpu), tasks="train"),
    )
    assert again.usd == pytest.approx(made.usd + away.usd)
    assert again.hours == pytest.approx(made.hours + away.hours)


def test_they_are_kept_in_json() -> None:
    made = plan(gpus="T4", tracked=False)
    told = made.alternatives()
    assert Plan.from_json(made.to_json()).alternatives() == told


def test_limits_hold_for_them_too() -> None:
    free = plan(gpus="T4", tracked=False)
    dearest = max(one.usd for one in free.alternatives() if "next best" in one.kind)
    budget = free.usd + dearest / 2
    bound = plan(gpus="T4", budget=budget, tracked=False)
    assert bound.alternatives()
    assert all(bound.usd + one.usd <= budget * (1 + 1e-6) for one in bound.alternatives())
