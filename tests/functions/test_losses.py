"""Nodes that die under calls, and calls that kill nodes."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyClusterLost, SkyError, SkyTaskLost
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.conftest import processes_of, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["main", "process"])
def compute(request: pytest.FixtureRequest, data: Path) -> Iterator[Pool]:
    """A pool of two nodes, with each kind of executor."""
    workers = {"main": sky.Worker(), "process": sky.Worker(1, "process")}
    with sky.Compute(nodes=2, worker=workers[request.param]) as pool:
        yield pool


@sky.function
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@sky.function
def die_once(mark: Path) -> str:
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@sky.function
def process() -> int:
    return os.getpid()


@sky.function
def add(a: int, log: Path | None = None) -> int:
    time.sleep(0.02)
    if log is not None:
        with open(log, "a") as file:
            file.write(f"{a}\n")
    return a + 1


def test_call_of_dead_node_is_requeued(compute: Pool, tmp_path: Path) -> None:
    assert die_once(tmp_path / "mark") >> compute == "survived"
    assert len(process() @ compute) == 2


def test_a_call_that_kills_its_nodes(compute: Pool) -> None:
    with pytest.raises(
        SkyTaskLost, match=r"die\(\) was lost 3 times \(node \d: .*; node"
    ) as caught:
        die() >> compute
    assert "not sent again" in str(caught.value)
    assert len(process() @ compute) == 2, "the nodes are there again"


def test_loss_of_one_call_spares_the_gather(compute: Pool) -> None:
    futures = [add(i) > compute for i in range(20)]
    poison = die() > compute
    futures += [add(i) > compute for i in range(20, 40)]
    assert isinstance(poison.exception(60), SkyTaskLost)
    assert [future.result(60) for future in futures] == list(range(1, 41))


def test_quick_calls_batched_with_a_crashing_one(compute: Pool) -> None:
    @sky.function
    def quick(i: int) -> int:
        if i == 250:
            os.kill(os.getpid(), signal.SIGKILL)
        return i

    sky.gather(*(quick(i) for i in range(100))) >> compute
    futures = compute._send([(quick(i), None) for i in range(200, 300)])
    assert isinstance(futures[50].exception(90), SkyTaskLost)
    good = [future.result(90) for number, future in enumerate(futures) if number != 50]
    assert good == [i for i in range(200, 300) if i != 250]


@sky.function
def count(mark: Path, most: int = 200) -> Iterator[int]:
    for number in range(most):
        if number == 120 and not mark.exists():
            time.sleep(0.2)
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield number


def test_a_stream_goes_on_from_the_next_item(compute: Pool, tmp_path: Path) -> None:
    assert list(count(tmp_path / "mark") >> compute) == list(range(200))


def test_a_stream_that_is_closed_while_its_node_is_gone(compute: Pool, tmp_path: Path) -> None:
    with count(tmp_path / "mark", 10**9) >> compute as stream:
        assert [next(stream) for _ in range(130)] == list(range(130))
    assert len(process() @ compute) == 2, "the generator has ended"


def test_non_replayable_call_is_lost_immediately(compute: Pool, tmp_path: Path) -> None:
    got = []
    with pytest.raises(SkyTaskLost, match="may have run"):
        for item in count(tmp_path / "mark").with_retry(0) >> compute:
            got.append(item)
    assert got == list(range(120))

    @sky.function
    def total(numbers: Iterator[int]) -> int:
        found = sum(number for number, _ in zip(numbers, range(3), strict=False))
        os.kill(os.getpid(), signal.SIGKILL)
        return found

    with pytest.raises(SkyTaskLost, match="it streams"):
        total(iter(range(9))) >> compute
    with pytest.raises(SkyTaskLost, match="for this very node"):
        compute.call_on(1, die.local).result()
    assert len(process() @ compute) == 2


def test_a_call_for_all_nodes_waits_for_the_next_engine(compute: Pool, tmp_path: Path) -> None:
    assert die_once(tmp_path / "mark") @ compute == ["survived"] * 2


def test_an_idle_node_that_dies_is_replaced_before_the_next_call(data: Path) -> None:
    with sky.Compute(nodes=2) as pool:
        pid, engine = pool.call_on(1, os.getpid).result(), pool.engines[1]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pool.engines[1] not in ("", engine), "another engine is there")
        after = process() @ pool
        assert len(after) == 2 and pid not in after


def test_a_pool_whose_cluster_is_gone(data: Path) -> None:
    pool = sky.Compute(nodes=1).up()
    future = add(1) > pool
    assert future.result() == 2

    @sky.function
    def long() -> None:
        time.sleep(60)

    waiting = [long() > pool for _ in range(2)]
    sky.down(pool.name)
    for one in waiting:
        assert isinstance(one.exception(30), SkyClusterLost)
    with pytest.raises(SkyError):
        process() >> pool
    pool.down()


def test_leaving_by_an_exception_ends_the_machines(data: Path) -> None:
    def alive(name: str) -> bool:
        lines = []
        for process in processes_of(data):
            with contextlib.suppress(psutil.Error):
                lines.append(" ".join(process.cmdline()))
        return any(name in line for line in lines)

    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error), sky.Compute(nodes=1) as pool:
            assert alive(pool.name)
            raise error
        wait_until(lambda name=pool.name: not alive(name), "the machines have ended")


def test_a_script_that_is_killed_leaves_nothing(tmp_path: Path, sky_env: dict[str, str]) -> None:
    import subprocess
    import sys

    script = (
        "import jupyter_sky as sky, time\n"
        "@sky.function\n"
        "def long():\n"
        "    import time; time.sleep(600)\n"
        "pool = sky.Compute(nodes=1, ttl=2).up()\n"
        "future = long() > pool\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    env = {**os.environ, **sky_env, "SKY_DATA_DIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    process.kill()
    process.wait()
    process.stdout.close()
    wait_until(lambda: not processes_of(tmp_path), "the lease has ended the machines")


def test_a_cluster_that_ends_while_nothing_runs(data: Path) -> None:
    pool = sky.Compute(nodes=1, name="quiet").up()
    assert add(1) >> pool == 2
    sky.down("quiet")
    with pytest.raises(SkyError):
        add(1) >> pool
    with pytest.raises(SkyError, match="is gone"):
        add(1) >> pool
    pool.down()


@sky.function
def log_and_die(log: Path) -> None:
    with open(log, "a") as file:
        file.write("begun\n")
    os.kill(os.getpid(), signal.SIGKILL)


def test_at_most_once(compute: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(SkyTaskLost, match="may have run") as caught:
        log_and_die(log).with_retry(0) >> compute
    assert "retry=0" in str(caught.value) and log.read_text() == "begun\n"
    once = sky.function(retry=0)(log_and_die.local)
    with pytest.raises(SkyTaskLost, match="may have run"):
        once(log) >> compute
    assert log.read_text() == "begun\n" * 2


def test_calls_beside_a_lost_one_that_runs_at_most_once(compute: Pool, tmp_path: Path) -> None:
    quick = sky.function(retry=0)(add.local)
    assert sky.gather(*(quick(i) for i in range(5))) >> compute == (1, 2, 3, 4, 5)
    log = tmp_path / "log"
    futures = [quick(i, log) > compute for i in range(20)]
    poison = log_and_die(tmp_path / "poison").with_retry(0) > compute
    futures += [quick(i, log) > compute for i in range(20, 40)]
    assert isinstance(poison.exception(60), SkyTaskLost)
    assert [future.result(60) for future in futures] == list(range(1, 41))
    assert sorted(map(int, log.read_text().split())) == list(range(40)), "each ran once"
