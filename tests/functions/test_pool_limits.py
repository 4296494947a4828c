"""The price limit of a pool holds for all of its clusters together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyBootstrapError, SkyNoOffer
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.clusters.cluster_request import ClusterRequest
from jupyter_sky.execution.clusters.clusters import ClusterRegistry
from jupyter_sky.execution.functions.pools import pool as pools
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.machines.provisioner import placement
from jupyter_sky.machines.provisioner.broker import LOST_STAGE
from jupyter_sky.machines.provisioner.placement import decide_placement
from tests.conftest import wait_until

PRICE = 1.0
Started = list[tuple[int, float]]


@pytest.fixture
def priced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ClusterLauncher]]:
    """Pools of machines for $1/h each, whose clusters come up at once."""
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    sessions.close()
    Sky.clear_instance()
    machine = Offer("ssh", "pool", "box", 4, 16, price=PRICE)
    monkeypatch.setattr(placement, "on_premises_offers", lambda need: [machine])

    def start(self: Any, request: ClusterRequest, *_: Any) -> Any:
        need = request.resources
        decision = decide_placement(need)  # which refuses what is too dear
        row = SimpleNamespace(
            name=request.name,
            nodes=need.nodes,
            price=decision.price,
            offer=asdict(decision.offer),
        )
        return SimpleNamespace(row=row, connection=SimpleNamespace(is_lost=False)), []

    monkeypatch.setattr(ClusterRegistry, "launch", start)

    def pool(limit: float | None, nodes: int) -> ClusterLauncher:
        need = Resources.parse(nodes=str(nodes), max_hourly_cost=limit)
        return ClusterLauncher(sessions.current().clusters, need, None)

    yield pool
    sessions.close()
    Sky.clear_instance()


def test_growth_stops_at_the_limit_of_the_whole_pool(
    priced: Callable[..., ClusterLauncher],
) -> None:
    start = priced(limit=4.0, nodes=2)
    start("p", 2)
    assert start.affordable(10) == 2
    start("p-2", start.affordable(10))
    assert start.price == 4.0
    with pytest.raises(SkyNoOffer) as refusal:
        start("p-3", start.affordable(10))
    assert "$4.00/h as a whole, and $4.00/h is up" in (refusal.value.hint or "")


def test_nodes_that_join_later_keep_their_share_of_the_limit(
    priced: Callable[..., ClusterLauncher],
) -> None:
    start = priced(limit=3.0, nodes=4)
    with pytest.raises(SkyNoOffer):
        start("p", 1)  # the other three would not keep it
    start = priced(limit=4.0, nodes=4)
    start("p", 1)
    start("p-2", 3)
    assert start.price == 4.0


def test_ended_and_lost_clusters_do_not_count(priced: Callable[..., ClusterLauncher]) -> None:
    start = priced(limit=2.0, nodes=1)
    first, second = start("p", 1), start("p-2", 1)
    assert start.affordable(1) == 1
    with pytest.raises(SkyNoOffer):
        start("p-3", 1)
    second.connection.is_lost = "it is gone"
    start("p-3", 1)
    start.clusters.remove(first)
    start("p-4", 1)


def test_unlimited_pool_requests_all_nodes(priced: Callable[..., ClusterLauncher]) -> None:
    start = priced(limit=None, nodes=1)
    start("p", 1)
    assert start.affordable(10) == 10


@pytest.mark.slow
def test_free_machines_grow_under_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    sessions.close()
    Sky.clear_instance()
    try:
        with sky.Compute(nodes=sky.Nodes(min=2, desired=1), max_hourly_cost=0.01) as pool:
            wait_until(lambda: pool.ranks == [0, 1], "the other has joined")
    finally:
        sessions.close()
        Sky.clear_instance()


@pytest.mark.slow
def test_failing_nodes_are_ended_and_retries_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(pools, "RETRY_SECONDS", 0.05)
    made_ready: list[int] = []

    def welcome(self: Compute, pool: Any, ranks: Sequence[int]) -> None:
        made_ready.append(ranks[0])
        if 0 not in ranks:
            raise SkyBootstrapError("there is no such package")

    monkeypatch.setattr(Compute, "_prepare_nodes", welcome)
    sessions.close()
    Sky.clear_instance()
    try:
        with sky.Compute(nodes=sky.Nodes(min=2, desired=1)) as pool:
            wait_until(lambda: len(made_ready) == 1 + LOST_STAGE, "the others were tried")
            wait_until(lambda: len(sky.status().rows) == 1, "what was no use has ended")
            time.sleep(2)
            assert len(made_ready) == 1 + LOST_STAGE and pool.ranks == [0]
    finally:
        sessions.close()
        Sky.clear_instance()
