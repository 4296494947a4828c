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
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.functions.node.calls import WINDOW_ITEMS
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.conftest import wait_until

pytestmark = pytest.mark.slow


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


def test_out(executors: Pool) -> None:
    assert list(count(2000) >> executors) == list(range(2000))
    assert list(count(0) >> executors) == []


def test_items_come_as_they_are_made(executors: Pool, tmp_path: Path) -> None:
    go_on = tmp_path / "go on"

    @sky.function
    def two() -> Iterator[int]:
        yield 0
        while not go_on.exists():
            time.sleep(0.01)
        yield 1

    stream = two() >> executors
    assert next(stream) == 0
    go_on.touch()
    assert list(stream) == [1]


def test_out_of_every_node(executors: Pool) -> None:
    assert [list(stream) for stream in count(3) @ executors] == [[0, 1, 2]] * 2
    first, second = (count(2) & count(3)) >> executors
    assert (list(first), list(second)) == ([0, 1], [0, 1, 2])
    assert list((count(4) > executors).result()) == [0, 1, 2, 3]


def test_the_producer_waits_for_the_consumer(executors: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    stream = count(100_000, log) >> executors
    for _ in range(10):
        next(stream)
    wait_until(lambda: stands_still(log), "the producer waits")
    assert int(log.read_text()) < 3 * WINDOW_ITEMS
    stream.close()  # type: ignore[attr-defined]
    assert list(stream) == []


def test_large_items_are_bounded_in_flight(executors: Pool) -> None:
    @sky.function
    def blocks(n: int) -> Iterator[bytes]:
        for _ in range(n):
            yield bytes(1_000_000)

    before, peak = psutil.Process().memory_info().rss, 0
    for number, block in enumerate(blocks(100) >> executors):
        assert len(block) == 1_000_000
        if number % 10 == 0:
            time.sleep(0.02)
        peak = max(peak, psutil.Process().memory_info().rss)
    assert peak - before < 60e6


def test_unread_stream_that_blocks_a_call_is_told(
    executors: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    slots, errors = executors.concurrency, ""
    streams = [count(2 * WINDOW_ITEMS) >> executors for _ in range(slots)]
    waiting = total(range(3)) > executors

    def is_told() -> bool:
        nonlocal errors
        errors += capsys.readouterr().err
        return errors.count("are read: read the stream, or close() it") >= slots

    wait_until(is_told)
    assert "total(" in errors and f"items of count({2 * WINDOW_ITEMS}) are read" in errors
    assert not waiting.done()
    assert [len(list(stream)) for stream in streams] == [2 * WINDOW_ITEMS] * slots
    assert waiting.result(30) == 3


@pytest.mark.parametrize("how", ["break", "close", "with", "forget"])
def test_closing_early_ends_the_producer(executors: Pool, tmp_path: Path, how: str) -> None:
    log = tmp_path / "log"

    def use() -> None:
        stream: Any = count(10**9, log, wait=0.001) >> executors
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
    wait_until(log.with_suffix(".end").exists, "the generator has been closed")
    assert list(count(2) @ executors), "its place is free"


def test_an_error_comes_after_the_items_before_it(executors: Pool) -> None:
    got = []
    with pytest.raises(KeyError, match="in the middle") as caught:
        for item in broken(1000) >> executors:
            got.append(item)
    assert got == list(range(1000))
    assert caught.value.rank in (0, 1)  # type: ignore[attr-defined]


def test_a_stream_ends_once(executors: Pool) -> None:
    stream = broken(1) >> executors
    assert next(stream) == 0
    with pytest.raises(KeyError):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_in(executors: Pool) -> None:
    assert total(iter(range(3000))) >> executors == 3000 * 2999 // 2
    assert total(i for i in (1, 2, 3)) >> executors == 6
    assert total(data=iter([])) >> executors == 0


def test_into_every_node(executors: Pool) -> None:
    assert total(iter(range(2000))) @ executors == [2000 * 1999 // 2] * 2


def test_source_iterator_is_consumed_on_demand(executors: Pool) -> None:
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

    assert slow(source()) >> executors == 2
    assert drawn < 3 * WINDOW_ITEMS


def test_the_source_is_closed_when_the_call_ends(executors: Pool) -> None:
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

    assert one(source()) >> executors == 1
    wait_until(lambda: closed, "the source has been closed")


def test_an_error_of_the_source_reaches_the_call_and_comes_back(executors: Pool) -> None:
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
        total(source()) >> executors
    assert careful(source()) >> executors == [1, "the source broke"]


def test_stream_in_and_out(executors: Pool) -> None:
    numbers = iter(range(5000))
    out = doubled(numbers, factor=3) >> executors
    assert [next(out) for _ in range(3)] == [0, 3, 6]
    assert next(numbers) < 4999, "the source is not used up yet"
    assert sum(out) > 0


def test_an_iterable_goes_once(executors: Pool) -> None:
    @sky.function
    def twice(data: Iterable[int]) -> int:
        return sum(data) + sum(data)

    with pytest.raises(SkyUsageError, match="annotate it as a list"):
        twice([1, 2, 3]) >> executors


def test_annotations_as_text(executors: Pool) -> None:
    @sky.function
    def text(data: Iterator[Missing]) -> int:  # type: ignore[name-defined] # noqa: F821
        return sum(data)

    assert text(iter([1, 2])) >> executors == 3


@pytest.mark.parametrize("wrong", [5, "text", b"bytes", object()])
def test_invalid_iterator_arguments(executors: Pool, wrong: Any) -> None:
    with pytest.raises(TypeError, match="argument data of total is annotated as an Iterator"):
        total(wrong) >> executors


def test_unpicklable_item(executors: Pool) -> None:
    import threading

    @sky.function
    def locks() -> Iterator[Any]:
        yield 1
        yield threading.Lock()

    got = []
    with pytest.raises(TypeError, match="lock"):
        for item in locks() >> executors:
            got.append(item)
    assert got == [1]
    with pytest.raises(TypeError, match="lock"):
        total(iter([1, threading.Lock()])) >> executors  # type: ignore[list-item]
