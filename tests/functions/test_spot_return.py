"""Pools on demand that go back to spot machines, once those can be had."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky import tracker
from jupyter_sky.base.requests.offers import Offer, Place
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.clusters.cluster import ClusterHandle
from jupyter_sky.execution.functions.pools import pool_recovery
from jupyter_sky.execution.functions.pools import pool_recovery as spot_return
from jupyter_sky.execution.functions.pools.pool_recovery import OnDemandStay, choose_spot
from jupyter_sky.interfaces.api.cells import provision_log
from jupyter_sky.knowledge.tracker.observations import Observation
from tests.conftest import wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

HOUR = 3600.0
SPOT = Offer("aws", "us-east-1", "c5.large", 2, 4, zone="us-east-1a", spot=True, price=1.0)
OTHER = replace(SPOT, zone="us-east-1b", price=1.1)


def saw(kind: str, offer: Offer, hours: float) -> Observation:
    cause = "capacity" if kind == "refused" else ""
    seconds = HOUR if kind == "preempted" else None
    return Observation(kind, Place.of(offer), hours * HOUR, cause=cause, seconds=seconds)


@pytest.mark.parametrize("kind", ["refused", "preempted"])
def test_a_place_in_trouble_is_left_out_for_a_while(kind: str) -> None:
    observed = [saw(kind, SPOT, 10.0)]
    assert choose_spot([SPOT], observed, 3.0, 10.4 * HOUR) is None
    assert choose_spot([SPOT, OTHER], observed, 3.0, 10.4 * HOUR) is OTHER
    assert choose_spot([SPOT], observed, 3.0, 10.6 * HOUR) is SPOT


def test_a_spot_machine_must_cost_clearly_less() -> None:
    assert choose_spot([SPOT], [], 1.35, 0.0) is SPOT
    assert choose_spot([SPOT], [], 1.2, 0.0) is None
    losses = [saw("preempted", SPOT, hours) for hours in range(1, 30)]
    assert choose_spot([SPOT], losses, 1.35, 30 * HOUR) is None, (
        "its losses cost more than it saves"
    )
    assert choose_spot([], [], 3.0, 0.0) is None


def test_requests_become_rarer_with_refusals() -> None:
    stay = OnDemandStay(since=0.0)
    waits = []
    for __ in range(7):
        stay = stay.refused(0.0)
        waits.append(next(n for n in range(600, 20_000, 600) if stay.is_due(float(n))))
    assert waits == [1200, 2400, 4800, 9600, 14400, 14400, 14400]


@pytest.fixture
def cloud(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with loopback("aws") as made:
        for name, value in made.env.items():
            monkeypatch.setenv(name, value)
        Sky.clear_instance()
        yield made
    Sky.clear_instance()


@sky.function(recover=True)
def count(most: int) -> tuple[int, int]:
    """Count until another machine goes on; return the number, and how much of it that counted."""
    import socket

    here = 0
    with sky.checkpointed("count", every="1s") as state:
        first = state["first"] = state.get("first", socket.gethostname())
        for step in range(state.get("step", 0), most):
            if here == 10 and socket.gethostname() != first:
                break
            time.sleep(0.1)
            here, state["step"] = here + 1, step + 1
            state.safe_point()
        return state["step"], here


@sky.function
def host() -> str:
    import socket

    return socket.gethostname()


def cloud_looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the times at which pools are looked at, from now on."""
    times: list[float] = []
    look = pool_recovery.SpotWatch.look

    def record(watch: pool_recovery.SpotWatch, cluster: ClusterHandle, now: float) -> None:
        look(watch, cluster, now)
        times.append(now)

    monkeypatch.setattr(pool_recovery.SpotWatch, "look", record)
    return times


@pytest.mark.slow
@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_a_pool_goes_back_to_spot(cloud: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud.api.refuse("MaxSpotInstanceCountExceeded", spot=True)
    monkeypatch.setattr(spot_return, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(spot_return, "QUIET_HOURS", 0.0)
    monkeypatch.setattr(pool_recovery, "TICK_SECONDS", 0.5)
    with (
        pytest.warns(UserWarning, match="no spot machine could be had"),
        sky.Compute(
            cloud="aws", region="us-east-1", vcpus=2, allocation="spot-if-available"
        ) as pool,
    ):
        assert pool.row.offer["spot"] is False
        first, before = pool.cluster, host() >> pool
        bound = sky.function(time.sleep)(3600) > pool
        wait_until(bound.running, "a call without a checkpoint runs")
        tracker.clear("aws")
        looked = cloud_looks(monkeypatch)
        wait_until(lambda: len(looked) > 2, "the pool is looked at")
        assert pool.cluster is first, "it stays for that call"
        moved = count(1000) > pool
        bound.cancel()
        total, there = moved.result(120)
        assert there == 10 and 10 < total < 1000, "it went on from a save"
        assert pool.row.offer["spot"] is True
        assert host() >> pool != before
        assert "a spot machine is asked for, for node 0" in provision_log(first.row.name)
