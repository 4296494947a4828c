"""Streamed gathers: the window, order, errors and what is kept of results and arguments."""

from __future__ import annotations

import gc
import time
import weakref
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.execution.functions.calls.call_methods import (
    WINDOW_BYTES,
    ResultStream,
    window_calls,
)
from jupyter_sky.execution.functions.calls.tasks import RemoteFuture
from jupyter_sky.execution.functions.pools.pool import Pool


@pytest.mark.parametrize(
    ("slots", "before", "result_bytes", "expected"),
    [
        (2, 0, None, 2),
        (2, 2, 10.0, 4),
        (2, 800, 10.0, 1000),
        (2, 64, WINDOW_BYTES / 8, 8),
        (2, 64, WINDOW_BYTES * 3, 2),
        (16, 16, WINDOW_BYTES * 3, 16),
    ],
)
def test_window_size(slots: int, before: int, result_bytes: float | None, expected: int) -> None:
    assert window_calls(slots, before, result_bytes) == expected


class Sent:
    """Calls that were sent, and their futures."""

    def __init__(self) -> None:
        self.futures: list[RemoteFuture[int]] = []

    def __call__(self, calls: list[Any]) -> list[RemoteFuture[int]]:
        made = [RemoteFuture[int]() for _ in calls]
        for number, future in enumerate(made, len(self.futures)):
            future.nbytes = 2**20
            future.resolve(number)
        self.futures += made
        return made


def streamed(sent: Any, calls: int, ordered: bool = True) -> ResultStream[int]:
    progress: Any = nullcontext(lambda futures: None)
    return ResultStream([None] * calls, sent, lambda: 2, ordered, progress)  # type: ignore[list-item]


@pytest.mark.parametrize("ordered", [True, False])
def test_no_more_calls_are_sent_than_fit_the_window(ordered: bool) -> None:
    sent = Sent()
    results = streamed(sent, 500, ordered)
    assert len(sent.futures) == 2
    for read, value in enumerate(results, 1):
        assert value == read - 1
        assert len(sent.futures) - read <= WINDOW_BYTES / 2**20
    assert len(sent.futures) == 500


def test_large_result_narrows_the_window() -> None:
    sent = Sent()
    results = streamed(sent, 500)
    for _ in range(100):
        next(results)
    ahead = len(sent.futures) - 100
    for future in sent.futures[100:]:
        future.nbytes = WINDOW_BYTES
    for _ in range(ahead - 2):
        next(results)
    assert ahead > 30 and len(sent.futures) == 100 + ahead, "none is sent until they are read"


def test_call_that_cannot_be_sent_raises_after_the_results_before_it() -> None:
    class Failing(Sent):
        def __call__(self, calls: list[Any]) -> list[RemoteFuture[int]]:
            if self.futures:
                raise SkyTransferError("cannot be sent")
            return super().__call__(calls)

    results, got = streamed(Failing(), 10), []
    with pytest.raises(SkyTransferError):
        for value in results:
            got.append(value)
    assert got == [0, 1] and list(results) == []


def test_closed_stream_stops_what_is_open() -> None:
    futures = [RemoteFuture[int]() for _ in range(2)]
    results = streamed(lambda calls: futures, 10)
    del results
    assert all(future.cancelled() for future in futures)


@sky.function
def mark(folder: Path, number: int, size: int) -> bytes:
    (folder / str(number)).touch()
    return bytes(size)


@sky.function
def total(array: np.ndarray) -> float:
    return float(array.sum())


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [True, False])
def test_unread_results_hold_calls_back(compute: Pool, tmp_path: Path, ordered: bool) -> None:
    calls = [mark(tmp_path, number, 20_000_000) for number in range(20)]
    results = sky.gather(*calls, stream=True, ordered=ordered) >> compute
    for read in range(1, 4):
        next(results)
        time.sleep(0.5)
        assert len(list(tmp_path.iterdir())) <= read + 3
    assert len(list(results)) == 17 and len(list(tmp_path.iterdir())) == 20


@pytest.mark.slow
def test_ended_future_keeps_no_argument(compute: Pool) -> None:
    arrays = [np.ones(500_000), np.zeros(10)]  # one travels apart from the message, one with it
    kept = [weakref.ref(array) for array in arrays]
    gc.collect()
    gc.disable()  # references alone, without cycles
    try:
        futures = [total(array) > compute for array in arrays]
        del arrays
        assert [future.result() for future in futures] == [500_000.0, 0.0]
        until = time.monotonic() + 5
        while any(ref() is not None for ref in kept) and time.monotonic() < until:
            time.sleep(0.01)
        assert [ref() is None for ref in kept] == [True, True]
    finally:
        gc.enable()


@pytest.mark.slow
def test_ended_call_of_a_gather_keeps_no_argument(compute: Pool) -> None:
    """Its neighbours that still run do not keep it either."""

    @sky.function
    def wait(seconds: float, array: np.ndarray) -> None:
        time.sleep(seconds)

    arrays = [np.ones(300_000), np.ones(300_001)]
    kept = weakref.ref(arrays[0])
    sent = compute._send([(wait(0.0, arrays[0]), None), (wait(3.0, arrays[1]), None)])
    del arrays
    sent[0].result()
    time.sleep(0.3)
    assert kept() is None and not sent[1].done()
    sent[1].cancel()
