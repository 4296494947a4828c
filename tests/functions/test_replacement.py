"""Decisions on machines that a pool has lost, and records of clusters that go on without some."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_sky.base.errors import (
    SkyBudget,
    SkyClusterLost,
    SkyError,
    SkyNoCapacity,
    SkyPermission,
    SkyPreempted,
)
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.store.store import ClusterRow
from jupyter_sky.clouds.provider.values import Machine
from jupyter_sky.execution.clusters.cluster import essential_machines, is_intended
from jupyter_sky.execution.clusters.cluster_records import _filter_ended, observed_ends
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.clusters.lost_machines import without_machine
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
from jupyter_sky.execution.functions.pools.replacement import (
    MAX_IN_VAIN,
    is_replaceable,
    ranks_to_replace,
    retry_delay,
    searches,
)

SPOT = Offer("aws", "us-east-1", "g5.xlarge", 4, 16, zone="us-east-1a", spot=True, price=1.0)


def make_row(essential: list[int] | None = None) -> ClusterRow:
    fields: dict[str, Any] = dict.fromkeys(ClusterRow.__dataclass_fields__)
    machines = [
        {"id": f"i-{rank}", "rank": rank, "state": "running", "started": 100.0} for rank in range(3)
    ]
    connection = {} if essential is None else {"essential": essential}
    return ClusterRow(**fields | {"machines": machines, "connection": connection, "price": 3.0})


def make_machine(rank: int, state: Any = "ended") -> Machine:
    return Machine(f"i-{rank}", "aws", "train", rank, state, 100.0, preempted=state == "ended")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (SkyPreempted("it was taken back"), True),
        (SkyClusterLost("its machine crashed"), True),
        (SkyNoCapacity("refused"), False),
        (ValueError("of the user"), False),
    ],
)
def test_losses_that_are_made_good(error: Exception, expected: bool) -> None:
    assert is_replaceable(error) is expected


def test_an_intended_end_is_not_made_good() -> None:
    error = SkyClusterLost("ended by you")
    error.is_intended = True
    assert not is_replaceable(error)


@pytest.mark.parametrize("reason", ["idle", "stopped", "ended by you in a.ipynb"])
def test_intended_ends(reason: str) -> None:
    assert is_intended(reason) and not is_intended(f"not {reason}")


def test_without_the_head_all_machines_are_replaced() -> None:
    assert ranks_to_replace([0, 1, 2], {0, 2}) == (0, 1, 2)
    assert ranks_to_replace([0, 1, 2], {1, 7}) == (1,)
    assert ranks_to_replace([0, 1, 2], ()) == ()


def test_a_machine_is_first_asked_for_elsewhere_and_near() -> None:
    resources = Resources.parse(cpus="4+", spot=True)
    first, second, last = searches(resources, SPOT)
    assert (first.resources.clouds, first.resources.region) == (("aws",), "us-east-1")
    (scope,) = first.avoided
    assert (scope.zone, scope.instance_type, scope.spot) == ("us-east-1a", "g5.xlarge", True)
    assert second == replace(first, avoided=())
    assert last.resources == resources
    (constraint,) = ClusterRequest(first.resources, avoided=first.avoided).plan_settings[
        "constraints"
    ]
    assert constraint.places == first.avoided


def test_nodes_that_join_stay_in_the_region_of_the_first() -> None:
    registry: Any = SimpleNamespace()
    launcher = ClusterLauncher(registry, Resources.parse(cpus="4+"), None)
    assert launcher._request("train", 2).resources.region is None
    first: Any = SimpleNamespace(row=replace(make_row(), offer=asdict(SPOT)))
    launcher.clusters.append(first)
    found = launcher._request("train-2", 2).resources
    assert (found.clouds, found.region, found.nodes) == (("aws",), "us-east-1", 2)


def test_machines_of_ones_own_are_asked_for_as_before() -> None:
    resources = Resources.parse(cpus="1")
    (only,) = searches(resources, Offer("local", "", "", 4, 16))
    assert only.resources == resources and not only.avoided


def test_requests_for_a_machine_are_repeated_ever_less_often() -> None:
    refusal = SkyNoCapacity("none is left")
    delays = [retry_delay(number, 0, refusal) for number in range(1, 12)]
    assert delays == sorted(delays) and delays[0] == 30.0 and delays[-1] == 300.0
    assert math.isinf(retry_delay(1, MAX_IN_VAIN, refusal)), "each has cost money"
    for final in (SkyBudget("spent"), SkyPermission("no credentials")):
        assert math.isinf(retry_delay(1, 0, final))
    assert not math.isinf(retry_delay(1, 1, SkyError("broken")))


def test_a_cluster_goes_on_without_machines_that_are_replaced() -> None:
    lost = [make_machine(0, "running"), make_machine(1), make_machine(2, "running")]
    assert [m and m.id for m in _filter_ended(make_row(), lost)] == ["i-1"]
    row = make_row(essential=[0])
    assert essential_machines(row) == {"i-0"}
    assert _filter_ended(row, lost) == []
    assert [m and m.id for m in _filter_ended(row, [make_machine(0), *lost[1:]])] == ["i-0"]
    assert _filter_ended(row, []) == [None]


def test_a_machine_that_was_given_up_costs_and_counts_no_more() -> None:
    row = without_machine(make_row(essential=[0]), 1, 160.0)
    assert row.price == 2.0
    assert row.machines[1]["state"] == "ended" and row.machines[1]["ended"] == 160.0
    again = without_machine(row, 2, 170.0)
    assert again.price == 1.0
    seen = observed_ends(row, [make_machine(1)], 200.0)
    assert seen == [("ended", 100.0)] * 2, "its own end was observed before"
