"""Plan of a bag's machines from its begin to its end."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.knowledge.lifetimes import Exponential, FloorHyperbolic
from jupyter_sky.workflows.bags.decisions.backlog import JobGroup, MachineKind
from jupyter_sky.workflows.bags.decisions.fleet_plan import (
    BagView,
    forecast_view,
    is_due,
    machine_kind,
    plan_fleet,
)
from jupyter_sky.workflows.bags.decisions.job_forecast import DegradedOption

YOUNG = FloorHyperbolic(0.005, 0.41, 0.3, 24.0)
SPOT = MachineKind("spot", YOUNG, 0.24, boot=0.05)
SURE = DegradedOption(MachineKind("on demand", Exponential(0.0), 1.13, boot=0.05), most=60)
HOURS = tuple(np.random.default_rng(7).lognormal(np.log(0.3), 0.3, 20).tolist())
NEW = BagView(200, (), (), SPOT, deadline=4.0)


def test_a_bag_begins_small_and_grows_once_jobs_have_ended() -> None:
    first = plan_fleet(NEW)
    assert (first.groups, first.reason) == (8, "little known")
    groups = tuple(JobGroup(SPOT, 0.5, 0.1) for _ in range(8))
    later = plan_fleet(replace(NEW, queued=189, finished=HOURS[:3], groups=groups, deadline=3.6))
    assert later.reason == "deadline" and 15 < later.groups < 40


def test_an_earlier_bag_of_the_app_tells_at_once() -> None:
    plan = plan_fleet(replace(NEW, earlier=HOURS))
    assert plan.reason == "deadline" and plan.groups > 8


def test_no_deadline_no_hurry() -> None:
    assert plan_fleet(replace(NEW, deadline=None, finished=HOURS)).reason == "no deadline"
    assert plan_fleet(replace(NEW, queued=3, deadline=None)).groups == 3


def test_groups_that_are_there_are_never_too_many() -> None:
    groups = tuple(JobGroup(SPOT, 2.0, 0.1) for _ in range(30))
    view = replace(NEW, queued=5, finished=HOURS, groups=groups)
    assert plan_fleet(view).groups == 30


def test_machines_on_demand_come_last_and_in_time() -> None:
    """Only 10 spot machines can be had: too few, but at first nothing is lost by waiting."""
    groups = tuple(JobGroup(SPOT, 1.0, 0.1) for _ in range(10))
    view = BagView(
        **{"queued": 100, "finished": HOURS, "groups": groups, "kind": SPOT},
        **{"alternatives": (SURE,), "most": 10},
    )
    early = plan_fleet(replace(view, deadline=3.0), again=0.15)
    assert (early.kind.name, early.reason) == ("spot", "waiting")
    late = plan_fleet(replace(view, deadline=0.95), again=0.15)
    assert late.kind.name == "on demand" and late.groups > 10


def test_what_cannot_be_in_time_says_when_it_can() -> None:
    plan = plan_fleet(replace(NEW, finished=HOURS, deadline=0.2))
    assert plan.reason == "late" and plan.earliest is not None and plan.earliest > 0.3


def test_plans_are_asked_twenty_times() -> None:
    asked, times = 0, []
    for done in range(1, 1001):
        if is_due(done, 1000, asked):
            asked = done
            times.append(done)
    assert times == [3, *range(50, 1001, 50)]


def test_forecasts_need_run_times() -> None:
    assert forecast_view(NEW) is None
    groups = tuple(JobGroup(SPOT, 2.0, 0.1) for _ in range(10))
    forecast = forecast_view(replace(NEW, finished=HOURS, groups=groups))
    assert forecast is not None and 5.5 < forecast.hours.mean < 8


def test_machines_of_offers_have_their_lifetimes() -> None:
    spot = Offer("gcp", "us-central1", "n1-highcpu-16", 16, 14.4, spot=True, price=0.12)
    sure = replace(spot, spot=False, price=0.57)
    assert 0.1 < machine_kind(spot).lifetime.survival(24.0) < 0.9
    assert machine_kind(sure).lifetime.survival(1000.0) == 1
    given = {"n1-highcpu-16": Exponential(0.5)}
    assert machine_kind(spot, 4, 0.05, given).lifetime == Exponential(0.5)
