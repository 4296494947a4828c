"""Streams on a real pool, both ways."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import jupyter_sky as sky
from jupyter_sky.errors import SkyUsageError
from jupyter_sky.functions.inlets import WINDOW_ITEMS
from jupyter_sky.functions.pool import Pool
from tests.conftest import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["main", "thread", "process"])
def compute(request: pytest.FixtureRequest, data: Path) -> Iterator[Pool]:
    """A pool of two nodes, with each kind of lane."""
    workers = {"main": sky.Worker(), "thread": sky.Worker(2), "process": sky.Worker(2, "process")}
    with sky.Compute(nodes=2, worker=workers[request.param]) as pool:
        yield pool


@sky.function
def count(n: int, log: Path | None = None, wait: float = 0.0) -> Iterator[int]:
    """Yields numbers, and writes down how far it is."""
    try:
        for i in range(n):
            if log is not None:
                log.write_text(str(i))
            yield i
            time.sleep(wait)
    finally:
        if log is not None:
            log.with_suffix(".end").touch()


@sky.function
def total(data: Iterator[int]) -> int:
    return sum(data)


@sky.function
def doubled(data: Iterator[int], factor: int = 2) -> Iterator[int]:
    for item in data:
        yield factor * item


@sky.function
def broken(after: int) -> Iterator[int]:
    yield from range(after)
    raise KeyError("in the middle")


def stands_still(log: Path) -> bool:
    """Whether a producer goes no further."""
    before = log.read_text()
    time.sleep(0.3)
    return before != "" and log.read_text() == before


def test_out(compute: Pool) -> None:
    assert list(count(2000) >> compute) == list(range(2000))
    assert list(count(0) >> compute) == []


def test_items_come_as_they_are_made(compute: Pool) -> None:
    begun = time.monotonic()
    stream = count(3, wait=1.0) >> compute
    assert next(stream) == 0
    assert time.monotonic() - begun < 1.0
    assert list(stream) == [1, 2]


def test_out_of_every_node(compute: Pool) -> None:
    assert [list(stream) for stream in count(3) @ compute] == [[0, 1, 2]] * 2
    first, second = (count(2) & count(3)) >> compute
    assert (list(first), list(second)) == ([0, 1], [0, 1, 2])
    assert list((count(4) > compute).result()) == [0, 1, 2, 3]


def test_the_producer_waits_for_the_consumer(compute: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stream = count(100_000, log) >> compute
    for _ in range(10):
        next(stream)
    wait_until(lambda: stands_still(log), 20.0, "the producer waits")
    assert int(log.read_text()) < 3 * WINDOW_ITEMS
    stream.close()  # type: ignore[attr-defined]
    assert list(stream) == []


def test_large_items_are_few_at_a_time(compute: Pool) -> None:
    @sky.function
    def blocks(n: int) -> Iterator[bytes]:
        for _ in range(n):
            yield bytes(1_000_000)

    before, peak = psutil.Process().memory_info().rss, 0
    for number, block in enumerate(blocks(100) >> compute):
        assert len(block) == 1_000_000
        if number % 10 == 0:
            time.sleep(0.02)
        peak = max(peak, psutil.Process().memory_info().rss)
    assert peak - before < 60e6


@pytest.mark.parametrize("how", ["break", "close", "with", "forget"])
def test_closing_early_ends_the_producer(compute: Pool, tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"

    def use() -> None:
        stream: Any = count(10**9, log, wait=0.001) >> compute
        if how == "break":
            for item in stream:
                if item == 3:
                    break
        elif how == "close":
            next(stream)
            stream.close()
        elif how == "with":
            with stream:
                next(stream)
        else:
            next(stream)

    use()
    gc.collect()
    wait_until(log.with_suffix(".end").exists, 5.0, "the generator has been closed")
    assert list(count(2) @ compute), "its place is free"


def test_an_error_comes_after_the_items_before_it(compute: Pool) -> None:
    got = []
    with pytest.raises(KeyError, match="in the middle") as caught:
        for item in broken(1000) >> compute:
            got.append(item)
    assert got == list(range(1000))
    assert caught.value.rank in (0, 1)  # type: ignore[attr-defined]


def test_a_stream_ends_once(compute: Pool) -> None:
    stream = broken(1) >> compute
    assert next(stream) == 0
    with pytest.raises(KeyError):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_in(compute: Pool) -> None:
    assert total(iter(range(3000))) >> compute == 3000 * 2999 // 2
    assert total(i for i in (1, 2, 3)) >> compute == 6
    assert total(data=iter([])) >> compute == 0


def test_into_every_node(compute: Pool) -> None:
    assert total(iter(range(2000))) @ compute == [2000 * 1999 // 2] * 2


def test_the_source_is_not_run_ahead_of(compute: Pool) -> None:
    drawn = 0

    def source() -> Iterator[int]:
        nonlocal drawn
        while True:
            drawn += 1
            yield drawn

    @sky.function
    def slow(data: Iterator[int]) -> int:
        next(data)
        time.sleep(0.8)
        return next(data)

    assert slow(source()) >> compute == 2
    assert drawn < 3 * WINDOW_ITEMS


def test_the_source_is_closed_when_the_call_ends(compute: Pool) -> None:
    closed = []

    def source() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.append(True)

    @sky.function
    def one(data: Iterator[int]) -> int:
        return next(data)

    assert one(source()) >> compute == 1
    wait_until(lambda: closed, 3.0, "the source has been closed")


def test_an_error_of_the_source_reaches_the_call_and_comes_back(compute: Pool) -> None:
    def source() -> Iterator[int]:
        yield 1
        raise OSError("the source broke")

    @sky.function
    def careful(data: Iterator[int]) -> list[Any]:
        seen: list[Any] = []
        try:
            for item in data:
                seen.append(item)
        except OSError as error:
            seen.append(str(error))
        return seen

    with pytest.raises(OSError, match="the source broke"):
        total(source()) >> compute
    assert careful(source()) >> compute == [1, "the source broke"]


def test_both_ways(compute: Pool) -> None:
    numbers = iter(range(5000))
    out = doubled(numbers, factor=3) >> compute
    assert [next(out) for _ in range(3)] == [0, 3, 6]
    assert next(numbers) < 4999, "the source is not used up yet"
    assert sum(out) > 0


def test_an_iterable_goes_once(compute: Pool) -> None:
    @sky.function
    def twice(data: Iterable[int]) -> int:
        return sum(data) + sum(data)

    with pytest.raises(SkyUsageError, match="annotate it as a list"):
        twice([1, 2, 3]) >> compute


def test_annotations_as_text(compute: Pool) -> None:
    @sky.function
    def text(data: Iterator[Missing]) -> int:  # type: ignore[name-defined] # noqa: F821
        return sum(data)

    assert text(iter([1, 2])) >> compute == 3


@pytest.mark.parametrize("wrong", [5, "text", b"bytes", object()])
def test_what_is_no_iterator(compute: Pool, wrong: Any) -> None:
    with pytest.raises(TypeError, match="argument data of total is annotated as an Iterator"):
        total(wrong) >> compute


def test_an_item_that_cannot_be_sent(compute: Pool) -> None:
    import threading

    @sky.function
    def locks() -> Iterator[Any]:
        yield 1
        yield threading.Lock()

    got = []
    with pytest.raises(TypeError, match="lock"):
        for item in locks() >> compute:
            got.append(item)
    assert got == [1]
    with pytest.raises(TypeError, match="lock"):
        total(iter([1, threading.Lock()])) >> compute  # type: ignore[list-item]
