"""Explanations of a plan: reasons, conflicts, what-ifs, the next best, JSON, assumptions."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyNoOffer, SkyNoPlan, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer import constraints as c
from jupyter_sky.decisions.optimizer.constraints import parse_scope
from jupyter_sky.decisions.optimizer.estimators import table
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.decisions.optimizer.planning import plan
from jupyter_sky.interfaces.widgets.plan import to_text
from jupyter_sky.knowledge.lifetimes import checkpointed, fresh_turnaround, posterior

TIMES = {"V100": 28.2, "tpu-v3-8": 5.4, "T4": 14.8, "Inferentia": 8.2}


def vision(gb: float = 150) -> sky.Dag:
    with sky.Dag("vision") as dag:
        train = sky.Task("train").set_input("s3://imagenet", size=gb, region="us-east-1")
        train.set_output("?:/model", size="100MB").set_time_estimator(table(TIMES))
        asked = {"on_demand": True, "cloud": "aws,azure,gcp"}
        train.set_resources(*({"gpus": g, **asked} for g in ("V100", "tpu-v3-8")))
        infer = sky.Task("infer").set_input(train.output(0))
        infer.set_time_estimator(table(TIMES | {"tpu-v3-8": 2.5}))
        infer.set_resources(*({"gpus": g, **asked} for g in ("T4", "Inferentia", "tpu-v3-8")))
        train >> infer
    return dag


@pytest.fixture(scope="module")
def made() -> Plan:
    return plan(vision(), tracked=False)


def test_the_broker_moves_the_data_as_in_the_paper(made: Plan) -> None:
    assert made["train"].offer.gpu == "tpu-v3-8" and made["infer"].offer.gpu == "Inferentia"
    (moved,) = [move for move in made.moves if move.kind == "input"]
    assert (moved.gb, moved.usd) == (150.0, pytest.approx(13.5)) and moved.basis == "listed"
    assert made.clouds == ("aws", "gcp") and made.certificate.status == "optimal"


def test_a_larger_input_stays_where_it_is() -> None:
    large = plan(vision(600), tracked=False)
    assert large["train"].offer.cloud == "aws" and large["train"].offer.gpu == "V100"


def test_each_task_says_why_and_what_the_next_best_costs(made: Plan) -> None:
    train, infer = made.reasons()
    assert train.offer is not None and infer.offer is not None
    assert train.usd > 0 and "dearer" in train.text and train.offer.place in train.text
    # taken at its word: with the next best offer the plan costs what the reason says
    work = made.planner
    assert work is not None
    other = train.offer
    only = c.Only(region=other.region, gpus=str(other.gpu), cloud=other.cloud, tasks="train")
    again = made.what_if(
        only, c.Only(cloud="aws", region=made["infer"].offer.region, tasks="infer")
    )
    assert again.usd == pytest.approx(made.usd + train.usd, rel=1e-6)


def test_what_if_is_priced_beside_the_choice(made: Plan) -> None:
    found = {one.condition: one for one in made.compared()}
    aws, gcp, azure = (found[f"on {cloud} only"] for cloud in ("aws", "gcp", "azure"))
    for one in (aws, gcp, azure):
        assert one.usd is not None and one.usd > made.usd
    assert made.what_if(cloud="gcp").usd == pytest.approx(gcp.usd)


def test_a_what_if_that_cannot_be_says_why(made: Plan) -> None:
    with pytest.raises(SkyNoPlan) as caught:
        made.what_if(cloud="lambda")
    assert "only --cloud lambda" in caught.value.message


def test_next_best_plans_differ_and_cost_no_less(made: Plan) -> None:
    more = made.next_best(3)
    assert len(more) == 3
    places = [tuple((t.offer.cloud, t.offer.region) for t in one.tasks) for one in (made, *more)]
    assert len(set(places)) == 4
    costs = [made.usd, *(one.usd for one in more)]
    assert costs == sorted(costs)
    (other,) = made.next_best(1, by="cloud", least=2)
    assert all(a.offer.cloud != b.offer.cloud for a, b in zip(made.tasks, other.tasks, strict=True))
    with pytest.raises(SkyUsageError, match="by='zone'"):
        made.next_best(1, by="zone")


def test_json_there_and_back(made: Plan) -> None:
    made.reasons(), made.compared()
    again = Plan.from_json(made.to_json())
    assert again == made and again.reasons_ == made.reasons_ and again.compared_ == made.compared_
    assert again.explain() == made.explain()
    with pytest.raises(SkyUsageError, match="read from a file"):
        again.replan(blocked="aws")
    for text in ("", "{}", '{"format": "other/1"}', made.to_json().replace("gpu_count", "gpus")):
        with pytest.raises(SkyUsageError, match="not a plan"):
            Plan.from_json(text)


def test_replan_leaves_what_is_blocked(made: Plan) -> None:
    train = made["train"].offer
    zone = made.replan(blocked=[f"gcp {train.zone}"])
    assert zone["train"].offer.zone != train.zone and zone.usd >= made.usd
    cloud = zone.replan(blocked="gcp")
    assert cloud["train"].offer.cloud != "gcp"
    assert cloud.usd == pytest.approx(
        plan(vision(), tracked=False, constraints=[c.Avoid((parse_scope("gcp"),))]).usd
    )
    offer = made.replan(blocked=[train])
    assert offer["train"].offer != train
    rest = cloud.replan(blocked=[f"aws {cloud['train'].offer.region}"])
    assert rest["train"].offer.cloud != "gcp", "refusals add up"
    with pytest.raises(SkyNoPlan):
        made.replan(blocked=["aws", "gcp", "azure", "verda", "lambda", "nebius", "runpod", "vast"])


def test_replan_under_other_settings(made: Plan) -> None:
    fast = made.replan(minimize="time")
    assert fast.hours < made.hours
    assert made.replan(deadline=fast.hours * 1.001).hours <= fast.hours * 1.001
    with pytest.raises(SkyUsageError, match="no setting colour"):
        made.replan(colour="red")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("moon", "no cloud is called moon"),
        ("aws us-moon-1", "aws has no place called us-moon-1"),
        ("", "is not a place"),
        (7, "is not a place"),
    ],
)
def test_a_place_that_is_none(made: Plan, wrong: object, said: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        made.replan(blocked=[wrong])
    assert said in caught.value.message


# -- no plan -----------------------------------------------------------------------------------


def test_a_deadline_below_the_fastest_says_what_the_fastest_is() -> None:
    fastest = plan(vision(), "time", tracked=False)
    with pytest.raises(SkyNoPlan) as caught:
        plan(vision(), deadline="2h", tracked=False)
    message = caught.value.message
    assert "no plan ends within 2:00:00" in message
    nearest = message.rpartition("deadline=")[2].strip('"')
    made = plan(vision(), deadline=nearest, tracked=False)
    assert made.hours == pytest.approx(fastest.hours, abs=1 / 1800), "what it suggests will do"


def test_a_budget_below_the_cheapest_says_what_it_is(made: Plan) -> None:
    with pytest.raises(SkyNoPlan) as caught:
        plan(vision(), "time", budget=1, tracked=False)
    assert "no plan costs $1.00 or less" in caught.value.message
    nearest = float(caught.value.message.rpartition("budget=")[2])
    assert nearest == pytest.approx(made.usd, abs=1e-3)
    assert plan(vision(), "time", budget=nearest, tracked=False).usd <= nearest


def test_a_carbon_cap_below_the_cleanest_says_what_it_is() -> None:
    with pytest.raises(SkyNoPlan) as caught:
        plan(vision(), carbon_cap=10, tracked=False)
    cap = float(caught.value.message.rpartition("carbon_cap=")[2])
    assert plan(vision(), carbon_cap=cap, tracked=False).gco2 <= cap


def test_a_conflict_names_the_fewest_demands_and_a_way_out() -> None:
    asked = [
        c.Residency("eu", tasks="train"),
        c.same_region("train", "infer"),
        c.Residency("us", tasks="infer"),
        c.NodeCeiling(50),
        c.Reliable(1),
    ]
    with pytest.raises(SkyNoPlan) as caught:
        plan(vision(), constraints=asked, tracked=False)
    said = caught.value.message
    for part in ("residency EU of train", "residency US of infer", "in one region"):
        assert part in said
    assert "at most 50" not in said and "mean life" not in said
    hint = str(caught.value.hint)
    assert hint.count("without") == 3 and "$" in hint


def test_a_deadline_and_a_budget_that_exclude_each_other() -> None:
    fast, cheap = plan(vision(), "time_then_cost", tracked=False), plan(vision(), tracked=False)
    deadline, budget = (fast.hours + cheap.hours) / 2, cheap.usd * 1.001
    with pytest.raises(SkyNoPlan) as caught:
        plan(vision(), deadline=deadline, budget=budget, tracked=False)
    said = caught.value.message
    assert said.startswith("a deadline of") and "a budget of" in said
    assert "nearest: deadline=" in str(caught.value.hint)


def test_no_candidates_says_which_label_of_which_task() -> None:
    with sky.Dag() as dag:
        sky.Task("fine").set_resources(cpus="4+")
        sky.Task("train").set_resources(gpus="V100:64")
    with pytest.raises(SkyNoOffer) as caught:
        plan(dag, tracked=False)
    assert caught.value.message.startswith("task train: --gpus V100:64 cannot be met")


def test_an_unknown_region_is_named() -> None:
    with pytest.raises(SkyUsageError, match="us-esat-1") as caught:
        plan(region="us-esat-1", cpus="2", tracked=False)
    assert "us-east-1" in str(caught.value.hint)
    with sky.Dag() as dag:
        sky.Task("x").set_input("s3://data", size=1, region="us-esat-1")
    with pytest.raises(SkyUsageError, match="aws has no region 'us-esat-1'") as caught:
        plan(dag, tracked=False)
    assert "us-east-1" in str(caught.value.hint)


def test_residency_that_no_offer_keeps_says_where_it_is_on_sale() -> None:
    with pytest.raises(SkyNoPlan) as caught:
        plan(gpus="tpu-v3-8", constraints=[c.Residency("IS")], tracked=False)
    assert "--gpus tpu-v3-8:1 and residency IS cannot hold together" in caught.value.message
    assert "on sale in EU, US" in str(caught.value.hint)


def test_an_estimator_that_rules_everything_out() -> None:
    with sky.Dag() as dag:
        sky.Task("x").set_resources(gpus="T4").set_time_estimator(table({"V100": 1}))
    with pytest.raises(SkyNoPlan, match="task x: its time estimator rules out all"):
        plan(dag, tracked=False)


def test_a_bad_estimator_stops_the_plan() -> None:
    with sky.Dag() as dag:
        sky.Task("x").set_resources(gpus="T4").set_time_estimator(lambda offer: 1 / 0)
    with pytest.raises(SkyUsageError, match="ZeroDivisionError"):
        plan(dag, tracked=False)


# -- assumptions -------------------------------------------------------------------------------


def test_assumptions_are_listed() -> None:
    with sky.Dag() as dag:
        a = sky.Task("a").set_input("s3://data", size=10).set_resources(gpus="T4", spot=True)
        b = sky.Task("b").set_resources(cpus="2", disk="100").set_time_estimator("2h")
        a >> b
    made = plan(dag, tracked=False)
    said = "\n".join(made.notes)
    assert "assumed: 1 h for a (no time estimator)" in said
    assert "s3://data is assumed to be in us-east-1" in said
    assert "spin-up of 2 min is assumed" in said and "per GiB and month" in said
    assert made["a"].assumed and not made["b"].assumed and made["b"].disk_usd > 0
    assert "(assumed)" in to_text(made)


def test_an_estimator_sees_the_machine_or_each_offer() -> None:
    seen: list[Offer] = []

    def hours(offer: Offer) -> float:
        seen.append(offer)
        return 1.0

    with sky.Dag() as dag:
        task = sky.Task("x").set_resources(gpus="V100:8").set_time_estimator(hours)
    made = plan(dag, tracked=False)
    assert seen and {(o.gpu, o.gpu_count) for o in seen} == {("V100", 8)}
    assert any(o.vcpus and o.memory for o in seen)
    assert {(o.region, o.zone, o.country, o.price) for o in seen} == {("", None, "", None)}
    assert len({(o.cloud, o.instance_type) for o in seen}) == len(seen), "each machine once"
    kinds = len(seen)
    seen.clear()
    task.set_time_estimator(hours, each_offer=True)
    assert plan(dag, tracked=False).usd == pytest.approx(made.usd)
    assert len(seen) > kinds and all(o.region and o.price is not None for o in seen)


def test_a_warm_cluster_needs_no_spin_up() -> None:
    up = Offer("aws", "us-east-1", "m5.large", 2, 8, zone="us-east-1a", price=0.1)
    cold = plan(cpus="2", offers=[up], tracked=False)
    warm = plan(cpus="2", offers=[], warm=[up], tracked=False)
    assert cold.usd - warm.usd == pytest.approx(0.1 * 2 / 60) and warm["task"].spin_up_hours == 0


def test_work_lost_on_spot_machines_is_paid_for_by_a_hook() -> None:
    spot = Offer("gcp", "us-central1", "n2", 2, 8, spot=True, price=1.0)
    with sky.Dag() as dag:
        sky.Task("x").set_time_estimator(20.0)
    lost = plan(dag, offers=[spot], tracked=False)
    kept = plan(dag, offers=[spot], tracked=False, recompute=checkpointed(0.5))
    none = plan(dag, offers=[spot], tracked=False, recompute=lambda h, life, spin: h * 0 + 1)
    assert none.usd < kept.usd < lost.usd
    taken = fresh_turnaround(posterior(spot).model, 20.0, restart=2 / 60).hours
    assert lost["x"].redone == pytest.approx(taken / 20) and none["x"].hours == 20.0
    (said,) = [note for note in lost.notes if "interruptions" in note]
    assert "nothing saved" in said and not any("nothing saved" in note for note in kept.notes)


def test_managed_services_reach_the_estimator() -> None:
    times = table({"emr": 1, "dataproc": 1.5})
    with sky.Dag() as dag:
        sky.Task("query", num_nodes=3).set_resources(
            service="spark==3.1.*", cpus="16", on_demand=True
        ).set_time_estimator(times)
    made = plan(dag, tracked=False)
    assert made["query"].offer.service in ("emr", "dataproc") and made["query"].nodes == 3
    hours = {"emr": 1.0, "dataproc": 1.5}[made["query"].offer.service]
    assert made["query"].hours == hours


# -- size and speed ----------------------------------------------------------------------------


def test_more_than_a_hundred_thousand_candidates() -> None:
    made = plan(cpus="1+", tracked=False)
    assert made.certificate.offers > 100_000 and made.certificate.status == "optimal"
    cheapest = sky.catalog.load().filter(cpus="1+", on_demand=True).head(1).offers()[0]
    assert made.what_if(on_demand=True).tasks[0].offer.price == cheapest.price


ALONE = """
import json, sys
import jupyter_sky as sky
made = sky.plan(gpus="A100:8", tracked=False)
print(json.dumps([made.usd, made.tasks[0].offer.instance_type, "cvxpy" in sys.modules]))
model = sky.plan(gpus="A100:8", tracked=False, presolve=False)
print(json.dumps([model.usd, model.tasks[0].offer.instance_type, "cvxpy" in sys.modules]))
"""


@pytest.mark.slow
def test_a_single_request_needs_no_model_and_the_model_agrees() -> None:
    ran = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True, check=True)
    alone, model = (json.loads(line) for line in ran.stdout.splitlines())
    assert not alone[2] and model[2]
    assert alone[:2] == model[:2]


def test_blocked_places_and_prices_of_the_tracker_count(own_data: None) -> None:
    first = plan(gpus="A100:8")
    offer = first.tasks[0].offer
    sky.tracker.observe("refused", offer, cause="capacity", why="none left")
    second = plan(gpus="A100:8")
    assert second.tasks[0].offer != offer and second.usd >= first.usd
    cheap = replace(second.tasks[0].offer)
    if cheap.spot:
        sky.tracker.observe("price", cheap, usd=0.5)
        third = plan(gpus="A100:8")
        assert third.tasks[0].offer.price == 0.5
        assert third.tasks[0].offer.source == "seen by the tracker"


def test_without_the_model_installed_the_error_says_what_to_install(monkeypatch) -> None:
    made = plan(vision(), tracked=False)  # proven by bounds alone
    assert made.certificate.solver == "none"
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    with pytest.raises(SkyUsageError, match="cvxpy is not installed") as caught:
        plan(vision(), tracked=False, presolve=False)
    assert "pip install cvxpy" in str(caught.value.hint)
