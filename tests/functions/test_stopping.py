"""Timeouts, cancellation, interrupts: the call stops, and its place is free."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTimeout
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.conftest import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["main", "thread", "process"])
def compute(request: pytest.FixtureRequest, data: Path) -> Iterator[Pool]:
    """A pool of one slot, with each kind of executor (threads come in twos)."""
    workers = {"main": sky.Worker(), "thread": sky.Worker(2), "process": sky.Worker(1, "process")}
    with sky.Compute(nodes=1, worker=workers[request.param]) as pool:
        yield pool


@sky.function
def process() -> int:
    return os.getpid()


@sky.function
def tick(log: Path, n: int = 10_000) -> None:
    """Shows that it runs, every 20 ms, and that it has ended."""
    try:
        for i in range(n):
            with open(log, "a") as file:
                file.write(f"{i}\n")
            time.sleep(0.02)
    finally:
        log.with_suffix(".end").touch()


@sky.function
def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def stands_still(log: Path) -> bool:
    """Whether a call that ticks has stopped."""
    before = log.read_text()
    time.sleep(0.15)
    return log.read_text() == before


def test_a_timeout_stops_the_call(compute: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert process() >> compute > 0  # the time that its process takes to start is none of a call's
    with pytest.raises(SkyTimeout, match=r"tick\(.*\) ran longer than the 1\.0 s .* on node 0"):
        tick(log).with_timeout(1) >> compute
    wait_until(log.with_suffix(".end").exists, "the call has been stopped")
    assert log.read_text() and stands_still(log)
    assert process() >> compute > 0


def test_timeout_is_a_timeout_error(compute: Pool) -> None:
    with pytest.raises(TimeoutError):
        sleep(20).with_timeout(0.2) >> compute
    assert sleep(0.3).with_timeout(20) >> compute == 0.3


def test_a_timeout_of_one_among_many(compute: Pool) -> None:
    futures = [sleep(s).with_timeout(0.5) > compute for s in (0.0, 9.0, 0.1)]
    concurrent.futures.wait(futures, timeout=20)
    assert [f.exception() is None for f in futures] == [True, False, True]


def test_a_busy_loop_is_stopped(compute: Pool) -> None:
    @sky.function
    def spin() -> None:
        while True:
            pass

    with pytest.raises(SkyTimeout):
        spin().with_timeout(0.3) >> compute
    assert process() >> compute > 0


def test_unstoppable_call_is_abandoned(compute: Pool) -> None:
    @sky.function
    def stubborn() -> None:
        while True:
            try:
                time.sleep(0.05)
            except BaseException:
                pass

    with pytest.raises(SkyTimeout):
        stubborn().with_timeout(0.3) >> compute
    assert process() >> compute > 0, "its place is free"


def test_call_that_holds_the_gil(compute: Pool) -> None:
    @sky.function
    def match() -> object:
        return re.match(r"(a+)+$", "a" * 34 + "b")  # for minutes, deaf to signals

    with pytest.raises(SkyTimeout):
        match().with_timeout(0.3) >> compute
    assert process() >> compute > 0


def test_cancelling_what_runs(compute: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    future = tick(log) > compute
    wait_until(log.exists)
    assert future.running() and not future.done()
    assert future.cancel() and future.cancelled()
    wait_until(log.with_suffix(".end").exists, "the call has been stopped")
    assert stands_still(log)
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    assert process() >> compute > 0
    assert not future.running()


def test_cancelling_what_waits(compute: Pool, tmp_path: Path) -> None:
    slots = compute.worker.concurrency
    running = [sleep(0.8) > compute for _ in range(slots)]
    waiting = tick(tmp_path / "log") > compute
    assert not waiting.running() and waiting.cancel()
    assert [future.result() for future in running] == [0.8] * slots
    assert process() >> compute > 0
    assert not (tmp_path / "log").exists()


def test_cancel_of_one_call_spares_others_of_its_batch(compute: Pool) -> None:
    sky.gather(*(sleep(0.0) for _ in range(60))) >> compute  # quick calls travel together
    futures = compute._send([(sleep(30.0), None), *[(sleep(0.5), None)] * 5])
    wait_until(futures[0].running)
    time.sleep(0.3)
    assert futures[0].cancel()
    assert [future.result(60) for future in futures[1:]] == [0.5] * 5


def test_cancelling_what_has_ended(compute: Pool) -> None:
    future = process() > compute
    pid = future.result()
    assert not future.cancel() and future.result() == pid


def test_cancelling_an_awaited_call(compute: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"

    async def wait() -> None:
        await (tick(log) > compute)  # type: ignore[misc]

    async def give_up() -> None:
        waiting = asyncio.create_task(wait())
        while not log.exists():
            await asyncio.sleep(0.02)
        waiting.cancel()
        await waiting

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(give_up())
    wait_until(log.with_suffix(".end").exists, "the call has been stopped")


@pytest.mark.parametrize("how", [">>", "gather", "stream"])
def test_an_interrupt_stops_the_call(compute: Pool, tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"

    def interrupt() -> None:
        wait_until(log.exists)
        os.kill(os.getpid(), signal.SIGINT)

    @sky.function
    def yields(log: Path) -> Iterator[int]:
        tick.local(log)
        yield 1

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        if how == ">>":
            tick(log) >> compute
        elif how == "gather":
            sky.gather(tick(log), sleep(5), sleep(5)) >> compute
        else:
            next(yields(log) >> compute)
    thread.join()
    wait_until(log.with_suffix(".end").exists, "the call has been stopped")
    assert stands_still(log)
    assert process() >> compute > 0


def test_a_pool_has_a_limit_for_all_calls(data: Path) -> None:
    with (
        sky.Compute(nodes=1, options=sky.Options(timeout=0.3)) as pool,
        pytest.raises(SkyTimeout),
    ):
        sleep(10) >> pool
