"""Choice of a recovery strategy by replays."""

from __future__ import annotations

import pytest

from jupyter_sky.knowledge.lifetimes.models import Exponential
from jupyter_sky.knowledge.lifetimes.priors import Posterior
from jupyter_sky.knowledge.lifetimes.recovery import SpotPlace
from jupyter_sky.knowledge.lifetimes.replays import ReplayedJob
from jupyter_sky.knowledge.lifetimes.strategy_choice import choose_strategy, forecast_strategies

JOB = ReplayedJob(4.0, interval=1.0, save=0.0, boot=0.2, refusal=0.01)
EAST = SpotPlace("east-a", "east", 1.0)
WEST = SpotPlace("west-a", "west", 1.05)
ON_DEMAND = SpotPlace("east:on-demand", "east", 1.5, is_spot=False)


def lives(per_hour: float) -> Posterior:
    """Return what many machines have told of a place's losses."""
    return Posterior(Exponential(per_hour), 100.0, 100.0, 100, 100.0, 0.0, "seen")


def chosen(east: float, west: float, *places: SpotPlace) -> tuple[str, dict[str, float]]:
    found = forecast_strategies(JOB, places, {"east-a": lives(east), "west-a": lives(west)})
    return choose_strategy(found), {each.name: each.usd for each in found}


def test_a_region_that_loses_machines_is_left() -> None:
    name, usd = chosen(0.8, 0.01, EAST, WEST)
    assert usd["single-region"] > 1.2 * usd["broker"]
    assert name != "single-region" and "on-demand" not in usd


def test_a_calm_region_is_not_left() -> None:
    name, usd = chosen(0.3, 6.0, EAST, WEST)
    assert usd["broker"] > usd["single-region"]
    assert name != "broker"


def test_on_demand_where_spot_costs_more_in_the_end() -> None:
    name, usd = chosen(1.5, 1.5, EAST, WEST, ON_DEMAND)
    assert name == "on-demand"
    assert usd["on-demand"] == pytest.approx(1.5 * 4.2), "nothing is lost there"


def test_where_no_spot_machine_lives_long_enough() -> None:
    name, usd = chosen(5.0, 5.0, EAST, WEST, ON_DEMAND)
    assert name == "on-demand" and "single-region" not in usd
    assert chosen(5.0, 5.0, EAST, WEST) == ("index", {})


def test_the_same_request_gets_the_same_answer() -> None:
    assert chosen(0.3, 0.3, EAST, WEST) == chosen(0.3, 0.3, EAST, WEST)
    assert chosen(0.0001, 0.0001, EAST, WEST)[0] == "index", "no other is clearly cheaper"


def test_only_places_on_demand() -> None:
    assert chosen(0.1, 0.1, ON_DEMAND)[0] == "on-demand"
    assert choose_strategy([]) == "index"
