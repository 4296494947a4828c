"""Shared state on real pools: from functions, from the notebook, through a tunnel."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.emulators.hosts import USABLE, SshHost

pytestmark = pytest.mark.slow


@sky.function
def add_up(rounds: int) -> tuple[int, int]:
    lock, total, seen = sky.lock("l"), sky.dict("total"), sky.set("seen")
    sky.barrier("start").wait(30)
    for _ in range(rounds):
        with lock:
            total["n"] = total.get("n", 0) + 1
    return sky.counter("calls").add(rounds), sum(seen.add(n) for n in range(20))


def test_functions_and_the_notebook_share(compute: Pool) -> None:
    told = add_up(25) @ compute
    assert max(count for count, _ in told) == 50 and sum(won for _, won in told) == 20
    assert sky.dict("total")["n"] == 50 and sky.counter("calls").value == 50, "seen from here"
    sky.queue("jobs").put({"rate": 0.1})

    @sky.function
    def take() -> dict[str, float]:
        return sky.queue("jobs").get(timeout=10)

    assert take() >> compute == {"rate": 0.1}


def test_an_interrupted_wait_leaves_the_node_free(compute: Pool) -> None:
    @sky.function
    def wait_for_ever() -> None:
        sky.barrier("never", 5).wait()

    future = wait_for_ever() > compute
    time.sleep(0.5)
    future.cancel()
    assert sky.function(abs)(-1) @ compute == [1, 1]
    assert sky.barrier("never", 5).n_waiting == 0


def test_shared_state_ends_with_its_pool(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_sky.execution.functions.calls import active_pools

    with Compute(nodes=1):
        assert sky.counter("gone").add(3) == 3
    monkeypatch.setattr(active_pools, "_active", [])
    with pytest.warns(UserWarning, match="no pool is up") as caught:
        assert sky.counter("gone").value == 0
    assert caught[0].filename == __file__


def test_processes_share_as_threads_do(data: Path) -> None:
    @sky.function
    def count() -> int:
        return sky.counter("of processes").add()

    for executor in ("thread", "process"):
        worker = sky.Worker(concurrency=2, executor=executor)  # type: ignore[arg-type]
        with Compute(nodes=1, worker=worker) as pool:
            assert sorted(pool.run_all([count() for _ in range(8)])) == [*range(1, 9)]


def test_pool_without_cluster_network(data: Path) -> None:
    @sky.function
    def shared() -> int:
        return sky.counter("n").add()

    with Compute(nodes=1, options=sky.Options(cluster=False)) as pool:
        assert sky.function(abs)(-2) >> pool == 2
        with pytest.raises(SkyUsageError, match=r"Options\(cluster=False\)"):
            shared() >> pool
        with pytest.raises(SkyUsageError, match="share nothing"):
            sky.counter("n").add()


@pytest.fixture
def hosts(data: Path) -> Iterator[list[SshHost]]:
    made = [SshHost(65), SshHost(66)]
    tables = [host.toml(f"box{number}") for number, host in enumerate(made)]
    (data / "hosts.toml").write_text("\n".join(tables))
    yield made
    for host in made:
        host.close()


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_machines_reached_by_ssh_share(hosts: list[SshHost]) -> None:
    with Compute(provider="ssh", nodes=2) as pool:
        told = add_up(10) @ pool
        assert max(count for count, _ in told) == 20
        assert sky.dict("total")["n"] == 20, "seen from here, through the tunnel"
        addresses = sky.function(sky.instance_info)() >> pool
        assert [peer.private_ip for peer in addresses.peers] == [host.ip for host in hosts]
