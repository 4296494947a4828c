"""Parallel requests of a provider: results, errors and early ends."""

from __future__ import annotations

import threading
import time
from threading import Event

import pytest

from jupyter_sky.clouds.provider.parallel_requests import StopRequested, pause, send_parallel


def _is_transient(error: Exception) -> bool:
    return isinstance(error, ConnectionError)


def test_results_come_in_order_of_requests() -> None:
    def answer(number: int, halt: Event) -> int:
        time.sleep(0.03 * (3 - number))
        return number

    requests = [lambda halt, number=number: answer(number, halt) for number in range(4)]
    assert send_parallel(requests, _is_transient) == [0, 1, 2, 3]
    assert send_parallel([], _is_transient) == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_lasting_error_goes_before_transient_one(order: tuple[int, int]) -> None:
    def lose(halt: Event) -> None:
        raise ConnectionError("the answer is lost")

    def refuse(halt: Event) -> None:
        halt.wait(5)
        raise ValueError("refused")

    def wait(halt: Event) -> None:
        pause(halt, 60)

    requests = [(lose, refuse)[number] for number in order]
    with pytest.raises(ValueError, match="refused"):
        send_parallel([*requests, wait], _is_transient)


def test_transient_error_is_raised_where_there_is_no_other() -> None:
    def lose(halt: Event) -> None:
        raise ConnectionError("the answer is lost")

    with pytest.raises(ConnectionError):
        send_parallel([lose, lambda halt: pause(halt, 60)], _is_transient)


def test_stop_ends_requests_that_wait() -> None:
    stop, ended = Event(), Event()

    def wait(halt: Event) -> None:
        try:
            pause(halt, 60)
        finally:
            ended.set()

    threading.Timer(0.1, stop.set).start()
    begun = time.monotonic()
    with pytest.raises(StopRequested):
        send_parallel([wait], _is_transient, stop)
    assert ended.wait(60) and time.monotonic() - begun < 30
