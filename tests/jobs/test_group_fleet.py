"""Exploration of a bag while it runs, with threads in place of its groups of machines."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.knowledge.lifetimes.servers import Shape
from jupyter_sky.workflows.bags.fleet import group_fleet
from jupyter_sky.workflows.bags.fleet.group_fleet import GroupFleet
from jupyter_sky.workflows.bags.queue.application import (
    BagSettings,
    FunctionApp,
    JobOutcome,
    OpenJob,
)
from jupyter_sky.workflows.bags.queue.exploration import AppTimes
from tests.conftest import wait_until

SECONDS = {"n16": 30.0, "n8": 40.0, "n4": 400.0}
"""Run time of a job by type of machine: the second one costs least."""
SHAPES = tuple(
    Shape(Offer("gcp", "r", name, size, size, spot=True, price=size / 100), 1)
    for name, size in (("n16", 16), ("n8", 8), ("n4", 4))
)


class Group:
    """Group that has a result at once."""

    error, pool, messages, is_leaving, is_gone, is_ready, usd_h = (
        None,
        None,
        0,
        False,
        False,
        True,
        0.0,
    )

    def __init__(self, session: Any, number: int, name: str, resources: Any, *rest: Any) -> None:
        self.number, self.name, self.resources = number, name, resources
        self.rows, self.place = [], resources.instance_type

    def submit(self, app: Any, jobs: list[OpenJob], *rest: Any) -> Future[list[JobOutcome]]:
        future: Future[list[JobOutcome]] = Future()
        seconds = SECONDS[self.resources.instance_type]
        future.set_result(
            [JobOutcome(j.number, b"", seconds=seconds, rank=self.number) for j in jobs]
        )
        return future

    def end(self) -> None:
        self.is_leaving = True

    def await_end(self, seconds: float) -> None: ...


def test_types_are_measured_and_the_cheapest_runs_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_fleet, "MachineGroup", Group)
    monkeypatch.setattr(group_fleet, "find_shapes", lambda resources: SHAPES)
    kept: list[AppTimes] = []
    settings = BagSettings("f", "function", options="--cpus 4 --spot", machines=2, explore=True)
    session: Any = SimpleNamespace(store=None, ledger=None)
    fleet = GroupFleet(session, "bag", settings, {})
    fleet.remember(AppTimes(), kept.append)
    fleet.begin(1000)
    types = []
    for number in range(3):
        wait_until(lambda: any(map(fleet._is_to_measure, list(fleet._groups))), "a type is there")
        job = OpenJob(number, {})
        outcome = fleet.submit(FunctionApp(int), [job], None).result()[0]
        types.append(fleet.describe(outcome.rank)[0])
    wait_until(lambda: fleet._explorer is None and fleet.slots == 2, "the best ones are launched")
    last = fleet.submit(FunctionApp(int), [OpenJob(9, {})], None).result()[0]
    assert types == ["n16", "n8", "n4"], "in descending size"
    assert fleet.describe(last.rank)[0] == "n8"
    assert set(kept[-1].hours) == {("n16", 1), ("n8", 1), ("n4", 1)}
    assert any("runs the rest" in text for text in fleet.take_events())
    others = {option.kind.name: option.kind for option in fleet.alternatives()}
    assert others.keys() == {"gcp r n16 spot", "gcp r n4 spot"}
    assert others["gcp r n16 spot"].ratio == pytest.approx(30 / 40)
    assert others["gcp r n4 spot"].ratio == pytest.approx(400 / 40)
    fleet.grow(3, others["gcp r n16 spot"])  # as the plan says where the deadline needs it
    wait_until(lambda: fleet.slots == 3, "another one is launched")
    assert [group.place for group in fleet._groups] == ["n8", "n8", "n16"]
    assert any("another type" in text for text in fleet.take_events())
    ratios = sorted(option.kind.ratio for option in fleet.alternatives())
    assert ratios == pytest.approx([40 / 30, 400 / 30])
    fleet.end()
