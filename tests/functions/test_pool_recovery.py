"""Pools whose machines are lost or taken away: others take their ranks, and calls go on."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTaskLost
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.functions.pools.pool_recovery import LATEST_LAUNCHES, StateReplica
from jupyter_sky.interfaces.api.cells import provision_log
from jupyter_sky.machines.provisioner.launch_stages import format_stages
from jupyter_sky.machines.provisioner.ssh_launch import STAGES
from tests.conftest import processes_of, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

pytestmark = pytest.mark.slow


@sky.function
def where(seconds: float = 0.0) -> tuple[int, str, int]:
    import socket

    time.sleep(seconds)
    return sky.instance_info().node, socket.gethostname(), os.getpid()


def kill_cluster(data: Path, name: str) -> None:
    for process in processes_of(data):
        with contextlib.suppress(psutil.Error):
            if name in " ".join(process.cmdline()):
                process.kill()


def test_a_pool_whose_machine_dies_begins_anew(data: Path) -> None:
    with sky.Compute(nodes=2) as pool:
        before = where() @ pool
        assert pool.dask.submit(sum, [1, 2]).result(60) == 3
        once = where(60).with_retry(0) > pool
        calls = [where(0.5) > pool for _ in range(6)]
        wait_until(once.running, "the call runs")
        kill_cluster(data, pool.name)
        after = [call.result(60) for call in calls]
        assert {pid for *_, pid in after}.isdisjoint(pid for *_, pid in before)
        assert isinstance(once.exception(60), SkyTaskLost), "it may have run"
        assert [node for node, *_ in where() @ pool] == [0, 1]
        assert "another machine" in provision_log(pool.name)
        assert pool.dask.submit(sum, [1, 2]).result(60) == 3, "its scheduler is another"


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Revisions of the copies of shared state that this notebook has made."""
    revisions: list[int] = []
    copy = StateReplica.copy

    def record(replica: StateReplica, *arguments: Any, **options: Any) -> None:
        copy(replica, *arguments, **options)
        revisions.append(replica._revision)

    monkeypatch.setattr(StateReplica, "copy", record)
    return revisions


@sky.function
def share(number: int) -> int:
    sky.dict("rows")[number] = [number] * 3
    sky.queue("jobs").put(number)
    return sky.counter("calls").add()


def test_what_a_pool_shares_goes_on_with_another_machine(data: Path, copied: list[int]) -> None:
    with sky.Compute(nodes=2) as pool:
        sky.gather(*(share(number) for number in range(4))) >> pool
        with sky.lock("l") as held:
            fence = held.fence
        wait_until(lambda: copied[-1:] == [14], "all changes are copied")
        kill_cluster(data, pool.name)
        assert share(4) >> pool == 5
        assert sky.dict("rows").snapshot() == {number: [number] * 3 for number in range(5)}
        assert sorted(sky.queue("jobs").get(timeout=5) for _ in range(5)) == [*range(5)]
        with sky.lock("l") as held:
            assert held.fence > fence


def workers_of(client: Any) -> set[str]:
    """Return the addresses of the workers that a scheduler knows, asked now."""
    with contextlib.suppress(Exception):  # it may be about to end with its engine
        return set(client.run(lambda: True))
    return set()


def test_dask_has_a_worker_on_a_restarted_engine(data: Path) -> None:
    pytest.importorskip("distributed")
    with sky.Compute(nodes=3) as pool:
        assert pool.dask.submit(sum, [1, 2]).result(60) == 3
        for rank in (2, 0):  # a worker, then the scheduler with another worker
            engine = pool.call_on(rank, os.getpid).result()
            pool.call_on(rank, os.kill, engine, signal.SIGKILL).exception()
            others = [where(1.0) > pool for _ in range(4)]
            wait_until(
                lambda: pool.engines[rank] and len(workers_of(pool.dask)) == 3,  # noqa: B023
                "there are three workers",
            )
            client = pool.dask
            assert client.gather(client.map(abs, range(-9, 0))) == [*range(9, 0, -1)]
            assert len([call.result(60) for call in others]) == 4, "the others go on"


# -- machines of a cloud --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cloud(data: Path) -> Iterator[Loopback]:
    with pytest.MonkeyPatch.context() as patch, loopback("aws") as made:
        for name, value in made.env.items():
            patch.setenv(name, value)
        Sky.clear_instance()
        yield made
    Sky.clear_instance()


@pytest.fixture(scope="module")
def pool(cloud: Loopback) -> Iterator[Pool]:
    with sky.Compute(cloud="aws", nodes=3, vcpus=2, allocation="spot") as made:
        yield made


def machine_of(pool: Pool, rank: int) -> str:
    """Return the cloud's name of the machine that a rank of the pool is on."""
    connection, place = pool.locations[rank]
    (cluster,) = [each for each in pool.clusters if each.connection is connection]
    return next(machine.id for machine in cluster.machines if machine.rank == place)


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
class TestMachinesOfACloud:
    def test_a_noticed_node_gets_no_new_calls_and_is_replaced(
        self, cloud: Loopback, pool: Pool
    ) -> None:
        before = where() @ pool
        assert [node for node, *_ in before] == [0, 1, 2]
        going, other = machine_of(pool, 1), machine_of(pool, 2)
        begun = pool.call_on(1, time.sleep, 3)
        cloud.api.preempt(going, 60.0)
        wait_until(lambda: pool._dispatcher.nodes[1].leaving, "the notebook knows")
        hosts = {host for _, host, _ in sky.gather(*(where(0.02) for _ in range(20))) >> pool}
        assert before[1][1] not in hosts
        after = where() @ pool
        assert begun.result(60) is None, "calls that run go on"
        assert [node for node, *_ in after] == [0, 1, 2]
        assert after[1][1] != before[1][1]
        assert [host for _, host, _ in after[::2]] == [host for _, host, _ in before[::2]]
        log = provision_log(pool.name)
        assert "node 1 is taken away by its cloud" in log
        wait_until(
            lambda: going not in {m["id"] for m in cloud.machines()}, "its machine has ended"
        )
        assert machine_of(pool, 2) == other

    def test_a_lost_node_is_replaced_under_its_rank(self, cloud: Loopback, pool: Pool) -> None:
        before = where() @ pool
        calls = [where(1.0) > pool for _ in range(6)]
        cloud.api.preempt(machine_of(pool, 2), 0.0)
        assert len([call.result(90) for call in calls]) == 6
        after = where() @ pool
        assert [node for node, *_ in after] == [0, 1, 2]
        assert after[2][1] != before[2][1]
        assert after[0] == before[0], "the others went on"
        assert "its cloud has taken the machine away" in provision_log(pool.name), (
            "the cloud is asked before 10 s of silence have passed"
        )

    def test_a_slow_launch_gets_a_twin_and_the_later_machine_is_given_back(
        self, cloud: Loopback, pool: Pool
    ) -> None:
        offer = sky.Offer(**pool.clusters[0].row.offer)
        for _ in range(LATEST_LAUNCHES):
            sky.tracker.observe("launched", offer, seconds=0.5)
        before, known = where() @ pool, {machine["id"] for machine in cloud.machines()}
        connection = pool.locations[1][0]
        (old,) = [each for each in pool.clusters if each.connection is connection]
        cloud.api.preempt(machine_of(pool, 1), 0.0)
        cloud.api.account.boot = 3600.0

        def new() -> list[dict[str, Any]]:
            return [machine for machine in cloud.machines() if machine["id"] not in known]

        wait_until(lambda: len(new()) == 2, "two machines are asked for")
        cloud.api.account.boot = 0.05
        slow, twin = new()
        place = ("zone", "instance_type", "spot")
        assert [slow[key] for key in place] != [twin[key] for key in place]
        cloud.api.come_up(twin["id"])
        after = where() @ pool
        assert [node for node, *_ in after] == [0, 1, 2] and after[1][1] != before[1][1]
        assert machine_of(pool, 1) == twin["id"]
        wait_until(
            lambda: [machine["id"] for machine in new()] == [twin["id"]], "one is given back"
        )
        log = Path(old.row.connection["file"]).parent / STAGES
        assert "another one is asked for elsewhere" in format_stages(log)

    def test_what_is_shared_moves_with_a_noticed_head(self, cloud: Loopback, pool: Pool) -> None:
        @sky.function
        def note(call: int) -> None:
            for step in range(40):
                sky.set("steps").add((call, step))
                time.sleep(0.25)

        before = where() @ pool
        calls = [note(number) > pool for number in range(6)]
        wait_until(lambda: len(sky.set("steps")) > 6, "calls run")
        cloud.api.preempt(machine_of(pool, 0), 90.0)
        assert len([call.result(120) for call in calls]) == 6
        assert sky.set("steps").snapshot() == {(n, step) for n in range(6) for step in range(40)}
        assert (where() @ pool)[0][1] != before[0][1]
