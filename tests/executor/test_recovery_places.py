"""Places in which a cell goes on, in the order of a strategy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyNoCapacity, SkyPreempted, SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.execution.cells import recovery_places
from jupyter_sky.execution.cells.cell_recovery import CellRecovery
from jupyter_sky.execution.cells.recovery_places import (
    describe_recovery,
    find_strategy,
    order_requests,
    seen_events,
)
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.knowledge.lifetimes.observations import Happening, Seen, find_stays
from jupyter_sky.knowledge.lifetimes.recovery import STRATEGIES, Broker, IndexStrategy, SpotPlace
from jupyter_sky.knowledge.tracker.observations import Observation

EAST, WEST = "us-east-1", "us-west-2"
OFFERS = [
    Offer("aws", EAST, "g5.xlarge", 4, 16, spot=True, price=0.40),
    Offer("aws", EAST, "g5.2xlarge", 8, 32, spot=True, price=0.60),
    Offer("aws", WEST, "g5.xlarge", 4, 16, spot=True, price=0.45),
    Offer("aws", WEST, "g5.xlarge", 4, 16, price=1.00),
]
NOW = 360_000.0


def seen(kind: str, region: str, at: float, **more: Any) -> Observation:
    return Observation(kind, Place("aws", region, "", "g5.xlarge", True), at, **more)


def regions(requests: Sequence[Resources]) -> list[str | None]:
    return [request.region for request in requests]


class Failing:
    """Strategy of a user that raises."""

    def order(self, situation: Any) -> Sequence[SpotPlace]:
        raise RuntimeError("no idea")


def test_names_of_strategies() -> None:
    assert find_strategy("", {}) is None
    assert find_strategy("broker", {}) == Broker()
    own = Failing()
    assert find_strategy("mine", {"mine": own}) is own
    with pytest.raises(SkyUsageError, match="--recover brokr") as raised:
        find_strategy("brokr", {"brokr": 3})
    assert "did you mean broker?" in str(raised.value)


def test_requests_are_narrowed_to_places() -> None:
    need = Resources.parse(cpus="4+", spot=True)
    found = list(order_requests(Broker(), need, OFFERS, (), now=NOW))
    assert regions(found) == [EAST, WEST]
    assert {request.spot for request in found} == {True}
    assert found[0].clouds == ("aws",) and found[0].cpus == need.cpus


def test_the_region_that_lost_a_machine_is_asked_last() -> None:
    lost = [seen("preempted", EAST, NOW - 60, seconds=600.0)]
    requests = order_requests(Broker(), Resources(), OFFERS, lost, now=NOW)
    assert regions(list(requests)) == [WEST, EAST]
    many = [seen("preempted", EAST, NOW - 900 * n, seconds=800.0) for n in range(9, 0, -1)]
    requests = order_requests(
        IndexStrategy(), Resources(), OFFERS, many, now=NOW, lost=("aws", EAST, None)
    )
    assert next(requests).region == WEST


def test_a_loss_in_a_zone_counts_for_a_region_that_is_asked_as_a_whole() -> None:
    lost = ("aws", EAST, f"{EAST}b")
    requests = order_requests(Broker(), Resources(), OFFERS, (), now=NOW, lost=lost)
    assert regions(list(requests)) == [WEST, EAST], "the tracker has not been told yet"
    place = Place("aws", EAST, f"{EAST}b", "g5.xlarge", True)
    told = [Observation("preempted", place, NOW - 60, seconds=600.0)]
    assert seen_events(told, {f"aws {EAST} "})[-1].zone == f"aws {EAST} "
    assert seen_events(told, {f"aws {EAST} {EAST}b"})[-1].zone == f"aws {EAST} {EAST}b"
    dear = [
        replace(offer, price=(offer.price or 0) + (0.4 if offer.region == WEST else 0))
        for offer in OFFERS
    ]
    requests = order_requests(IndexStrategy(), Resources(), dear, told, now=NOW, lost=lost)
    assert next(requests).region == EAST, "the other is dearer than a loss"


def test_observations_of_the_tracker() -> None:
    observed = [
        seen("preempted", EAST, 7200.0, seconds=3600.0),
        seen("refused", WEST, 5400.0, cause="capacity"),
        seen("launched", WEST, 5400.0, seconds=30.0),
        Observation("refused", Place("aws", WEST, "", "g5.xlarge"), 1.0, cause="capacity"),
    ]
    assert seen_events(observed) == (
        Seen(1.0, f"aws {EAST} ", Happening.LAUNCHED, "0"),
        Seen(1.5, f"aws {WEST} ", Happening.REFUSED),
        Seen(2.0, f"aws {EAST} ", Happening.LOST, "0"),
    )


def test_machines_of_one_zone_are_told_apart() -> None:
    observed = [seen("preempted", EAST, 7200.0 + n, seconds=3600.0) for n in range(3)]
    stays = find_stays(seen_events(observed), 3.0, unseen_age=8.0)
    assert [round(stay.hours, 3) for stay in stays if stay.is_lost] == [1.0] * 3


@pytest.fixture
def lost_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CellRecovery:
    """Return the recovery of a cell that has lost a machine in the east."""

    def requests(strategy: Any, need: Resources, *_rest: Any) -> Any:
        return order_requests(strategy or IndexStrategy(), need, OFFERS, (), now=NOW)

    monkeypatch.setattr(recovery_places, "next_requests", requests)
    recovery = CellRecovery(parse_cell_line("--spot --recover mine"), "run1", tmp_path)
    recovery.check({"mine": Broker()})
    recovery.take_loss(SkyPreempted("cluster a is gone: the cloud took it back"))
    recovery._lost = ("aws", EAST, None)
    return recovery


def test_places_that_refuse_are_passed_over(lost_cell: CellRecovery) -> None:
    asked = []

    def obtain(request: ClusterRequest) -> Any:
        asked.append(request.resources.region)
        if request.resources.region is not None:
            raise SkyNoCapacity("none left")
        return "cluster", ["on demand"]

    request = ClusterRequest(parse_cell_line("--spot").resources)
    assert lost_cell.obtain(request, obtain) == ("cluster", ["on demand"])
    assert asked == [EAST, WEST, None], "at last the broker may ask all places"


def test_work_waits_where_every_place_refuses(lost_cell: CellRecovery, tmp_path: Path) -> None:
    def obtain(request: ClusterRequest) -> Any:
        if not request.until_up:
            raise SkyNoCapacity("none left")
        return "cluster", []

    request = ClusterRequest(parse_cell_line("--spot").resources)
    assert lost_cell.obtain(request, obtain)[0] == "cluster"
    first = CellRecovery(parse_cell_line("--spot --recover"), "run2", tmp_path)
    with pytest.raises(SkyNoCapacity):  # nothing is lost yet: it is told at once
        first.obtain(request, obtain)


def test_the_dry_run_says_where_a_cell_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_places, "launchable_offers", lambda need: OFFERS)
    text = describe_recovery(Resources(), "", {}, "aws")
    assert re.match(r"after a loss: strategy \S+ \(an hour of work, simulated: \S+ \d", text)
    assert all(f"{name} 0." in text or f"{name} 1." in text for name in STRATEGIES)
    assert describe_recovery(Resources(), "broker", {}, "aws").endswith("broker, as asked for")
    with pytest.raises(SkyUsageError, match="there is no such strategy"):
        describe_recovery(Resources(), "nowhere", {}, "aws")
    assert describe_recovery(Resources(), "", {}, "local").endswith("cluster of the same kind")


def test_a_strategy_that_raises_is_told_and_replaced(lost_cell: CellRecovery) -> None:
    lost_cell.check({"mine": Failing()})
    asked = []

    def obtain(request: ClusterRequest) -> Any:
        asked.append(request.resources.region)
        return "cluster", []

    _cluster, notes = lost_cell.obtain(ClusterRequest(Resources()), obtain)
    assert "the strategy Failing has failed: RuntimeError('no idea')" in notes[0]
    assert asked == [EAST], "the usual strategy has chosen"
