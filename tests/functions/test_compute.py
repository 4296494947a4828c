"""Pools from their description: reused, grown, shrunk, chosen among specs."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyNoCapacity, SkyNoOffer, SkyPermission, SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.execution.clusters.cluster import ClusterHandle
from jupyter_sky.execution.functions.calls import call_methods
from jupyter_sky.execution.functions.calls.active_pools import active
from jupyter_sky.execution.functions.pools.launch import ClusterLauncher
from tests.conftest import processes_of, wait_until

pytestmark = pytest.mark.slow


@sky.function
def process() -> int:
    return os.getpid()


@sky.function
def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_up_and_down_in_a_notebook(data: Path) -> None:
    pool = sky.up("train", nodes=2)
    try:
        assert sky.up("train", nodes=2) is pool, "the same cell run again"
        assert pool.row.name == pool.name == "train" and pool.connection.ranks() == [0, 1]
        assert sky.run("import os; os.getpid()", cluster="train") == process() @ pool
        assert process() >> sky in process() @ pool
        with pytest.raises(SkyUsageError, match="is up already"):
            sky.Compute(name="train").up()
    finally:
        pool.down()
    assert "train" not in str(sky.status())
    assert active() is not pool


def test_up_with_compute_arguments(data: Path) -> None:
    pool = sky.up("words", vcpus=1, memory_gb=0.5, worker=sky.Worker(2), idle="5m")
    try:
        assert (pool.worker.concurrency, pool.row.idle) == (2, 300)
        assert process() >> pool > 0
    finally:
        sky.down("words")
    with pytest.raises(SkyUsageError, match="go"):
        sky.up("mixed", cpus="1", nodes=(1, 2))


def test_partial_readiness(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    late, start = threading.Event(), ClusterLauncher.__call__

    def launch(self: ClusterLauncher, name: str, nodes: int, watch: Any = None) -> ClusterHandle:
        if name == "partial-2":
            while not late.wait(0.05):  # a machine that may never come, which is still wanted
                watch("booting")
        return start(self, name, nodes, watch)

    monkeypatch.setattr(ClusterLauncher, "__call__", launch)
    with sky.Compute(name="partial", nodes=sky.Nodes(min=3, desired=2)) as pool:
        first = process() @ pool
        assert pool.ranks == [0, 1] and pool.name == "partial"
        late.set()
        wait_until(lambda: pool.ranks == [0, 1, 2], "the other has joined")
        pids = process() @ pool
        assert len(set(pids)) == 3 and pids[:2] == first
        assert {sky.function(_node)() >> pool for _ in range(6)} == {0, 1, 2}


def test_nodes_that_never_come_are_given_up_with_the_pool(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ClusterLauncher.__call__

    def launch(self: ClusterLauncher, name: str, nodes: int, watch: Any = None) -> ClusterHandle:
        if name == "waits":  # the first one, whose place the others follow
            self.near = Offer("local", "", "", 1, 1)
            watch("booting")
            while not time.sleep(0.05):
                watch("booting")
        if name in ("waits-2", "few-2", "few-3"):
            raise SkyNoCapacity("no such machine is left")
        return start(self, name, nodes, watch)

    monkeypatch.setattr(ClusterLauncher, "__call__", launch)
    with sky.Compute(name="waits", nodes=sky.Nodes(min=3, desired=1)) as pool:
        assert process() @ pool and pool.name == "waits-3"
    with pytest.raises(SkyNoCapacity, match="is left"):
        sky.Compute(name="few", nodes=sky.Nodes(min=3, desired=2)).up()
    assert not sky.status().rows


def _node() -> int:
    return sky.instance_info().node


def test_growth_and_shrinking(data: Path) -> None:
    options = sky.Options(scale_up_after=0.3, scale_down_after=1.0)
    with sky.Compute(nodes=(1, 3), options=options) as pool:
        head = process() >> pool
        futures = [sleep(0.5) > pool for _ in range(30)]
        wait_until(lambda: len(pool.ranks) == 3, "the pool has grown")
        assert [future.result(60) for future in futures] == [0.5] * 30
        wait_until(lambda: pool.ranks == [0], "it has shrunk again")
        assert process() @ pool == [head], "to its controller"
    assert not sky.status().rows


def test_pool_grows_under_a_stream_of_large_results(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_methods, "WINDOW_BYTES", 1000)

    @sky.function
    def slow(size: int) -> bytes:
        time.sleep(2.0)
        return bytes(size)

    options = sky.Options(scale_up_after=0.3)
    with sky.Compute(nodes=(1, 2), options=options) as pool:
        results = sky.gather(*(slow(2000) for _ in range(6)), stream=True) >> pool
        wait_until(lambda: len(pool.ranks) == 2, "the pool has grown")
        assert [len(result) for result in results] == [2000] * 6


def test_a_pool_that_ends_while_it_grows(data: Path) -> None:
    options = sky.Options(scale_up_after=0.0)
    with sky.Compute(nodes=(1, 3), options=options) as pool:
        futures = [sleep(20) > pool for _ in range(5)]
        time.sleep(0.6)
    assert all(future.done() for future in futures)
    assert not sky.status().rows


def test_the_first_spec_that_can_be_had(data: Path) -> None:
    specs = (sky.Spec(provider="local", vcpus=10_000), sky.Spec(provider="local"))
    with sky.Compute(*specs, selection="first") as pool:
        assert process() >> pool > 0
    with pytest.raises(SkyNoOffer, match="none of 2 specs"):
        sky.Compute(specs[0], specs[0]).up()


def test_alternatives_are_shown_before_a_launch(data: Path) -> None:
    specs = (sky.Spec(provider="local", vcpus=10_000), sky.Spec(provider="local", nodes=2))
    table = sky.Compute(*specs).offers()
    assert [row[0] for row in table.rows] == ["this machine, 2 nodes"]
    assert "--cpus 10000+" in table.note and not sky.status().rows
    with pytest.raises(SkyNoOffer, match="10000"):
        sky.Compute(specs[0]).offers()


def test_alternatives_without_an_account_say_what_would_help(
    data: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.delenv("VAST_API_KEY", raising=False)
    monkeypatch.delenv("RUNPOD_API_KEY", raising=False)
    specs = [sky.Spec(provider=cloud(), accelerator="A100") for cloud in (sky.VastAI, sky.RunPod)]
    with pytest.raises(SkyNoOffer, match="none of 2 specs") as error:
        sky.Compute(*specs).up()
    hint = error.value.hint or ""
    assert "VAST_API_KEY" in hint and "RUNPOD_API_KEY" in hint
    assert not [each for each in recwarn if "next alternative" in str(each.message)]


def test_a_spec_of_a_cloud_without_an_account_gives_way(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VAST_API_KEY", raising=False)
    rented = sky.Spec(provider=sky.VastAI(), accelerator=sky.accelerators.A100())
    with pytest.warns(UserWarning, match="no credentials; the next alternative is asked"):
        pool = sky.Compute(rented, sky.Spec(provider="local"), selection="first").up()
    with pool:
        assert process() >> pool > 0
    with pytest.raises(SkyPermission, match="no credentials"):
        sky.Compute(rented).up()


@pytest.mark.parametrize("allocation", ["spot-if-available", "on-demand", "cheapest"])
def test_allocations_that_accept_on_demand(data: Path, allocation: Any) -> None:
    with sky.Compute(allocation=allocation) as pool:
        assert process() >> pool > 0


def test_spot_machines_only(data: Path) -> None:
    with pytest.raises(SkyNoOffer, match="spot"):
        sky.Compute(provider="local", allocation="spot").up()


def test_compute_that_is_not_up_takes_no_calls(data: Path) -> None:
    compute = sky.Compute()
    with pytest.raises(SkyUsageError, match="is not up"):
        process() >> compute
    with compute as pool:
        assert process() >> compute == process() >> pool


def test_a_pool_survives_the_loss_of_nodes_that_have_joined(data: Path) -> None:
    with sky.Compute(nodes=sky.Nodes(min=2, desired=1), name="survivor") as pool:
        wait_until(lambda: pool.ranks == [0, 1], "the other has joined")
        futures = [sleep(0.5) > pool for _ in range(8)]
        time.sleep(0.2)
        for process_ in processes_of(data):
            with contextlib.suppress(psutil.Error):
                if pool.clusters[1].row.connection["token"] in " ".join(process_.cmdline()):
                    process_.kill()
        assert [future.result(60) for future in futures] == [0.5] * 8
        wait_until(lambda: len(set(process() @ pool)) == 2, "another has joined in its place")


def test_a_pool_whose_head_is_gone_gets_another(data: Path) -> None:
    with sky.Compute(nodes=sky.Nodes(min=2, desired=1), name="headless") as pool:
        wait_until(lambda: pool.ranks == [0, 1], "the other has joined")
        head, other = process() @ pool
        name, token = pool.name, pool.row.connection["token"]
        for process_ in processes_of(data):
            with contextlib.suppress(psutil.Error):
                if token in " ".join(process_.cmdline()):
                    process_.kill()
        fresh, same = process() @ pool
        assert fresh != head and same == other
        assert pool.name == name and not pool.closed
    assert not sky.status().rows
