"""Twins of slow launches: which is taken, which is given back."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyCancelled, SkyNoCapacity
from jupyter_sky.execution.functions.pools.pool_recovery import launch_with_twin, slow_after
from tests.conftest import wait_until

SECONDS = 20.0


class Launches:
    """A launch and its twin, each of which goes on until it is let go."""

    def __init__(self) -> None:
        self.free = {"first": threading.Event(), "twin": threading.Event()}
        self.refusals: dict[str, Exception] = {}
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.cancelled: list[str] = []
        self.ignores_checks = False
        self.stage, self.has_watched = "booting", False

    def make(self, name: str) -> Callable[[Callable[[str], None]], Any]:
        def launch(watch: Callable[[str], None]) -> str:
            self.begun.append(name)
            while not self.free[name].wait(0.005):
                try:
                    if not self.ignores_checks or not self.has_watched:
                        self.has_watched = True
                        watch(self.stage)
                except SkyCancelled:
                    self.cancelled.append(name)
                    raise
            if name in self.refusals:
                raise self.refusals[name]
            return name

        return launch

    def run(self, delay: float) -> Any:
        return launch_with_twin(self.make("first"), self.make("twin"), delay, self.ended.append)


def test_a_launch_in_time_has_no_twin() -> None:
    for delay in (SECONDS, math.inf):
        launches = Launches()
        launches.free["first"].set()
        assert launches.run(delay) == "first" and launches.begun == ["first"]
        assert not launches.ended


@pytest.mark.parametrize(("sooner", "later"), [("first", "twin"), ("twin", "first")])
def test_the_sooner_one_is_taken_and_the_other_cancelled(sooner: str, later: str) -> None:
    launches = Launches()
    launches.free[sooner].set()
    if sooner == "first":  # only once there is a twin
        launches.free[sooner].clear()
        threading.Timer(0.05, launches.free[sooner].set).start()
    assert launches.run(0.0) == sooner
    wait_until(lambda: launches.cancelled == [later], "the later one has ended")
    assert not launches.ended


def test_what_comes_up_too_late_is_given_back() -> None:
    launches = Launches()
    launches.ignores_checks = True
    launches.free["twin"].set()
    assert launches.run(0.0) == "twin"
    launches.free["first"].set()
    wait_until(lambda: launches.ended == ["first"], "it has been given back")


def test_the_choice_of_a_place_is_no_part_of_a_launch() -> None:
    launches = Launches()
    launches.stage = "placing"
    threading.Timer(0.05, launches.free["first"].set).start()
    assert launches.run(0.0) == "first" and launches.begun == ["first"]


def test_a_refused_twin_leaves_the_first_its_time() -> None:
    launches = Launches()
    launches.refusals["twin"] = SkyNoCapacity("no other place")
    launches.free["twin"].set()
    threading.Timer(0.05, launches.free["first"].set).start()
    assert launches.run(0.0) == "first"


def test_where_both_are_refused_the_error_of_the_first_is_told() -> None:
    launches = Launches()
    launches.refusals = {name: SkyNoCapacity(f"of the {name}") for name in launches.free}
    for event in launches.free.values():
        event.set()
    with pytest.raises(SkyNoCapacity, match="of the first"):
        launches.run(0.0)


def test_twice_the_90th_percentile_of_the_latest_launches_is_slow() -> None:
    assert slow_after([float(n) for n in range(1, 11)]) == 18.0
    assert slow_after([900.0] * 30 + [10.0] * 50) == 20.0
    assert math.isinf(slow_after([10.0] * 4))
