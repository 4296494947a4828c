"""Parallel requests of a provider, and waiting that a launch ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

MAX_PARALLEL_REQUESTS = 16
_CHECK_SECONDS = 0.1

T = TypeVar("T")


class StopRequested(Exception):
    """End of a launch whose machines are no longer wanted."""


def pause(stop: Event, seconds: float) -> None:
    """Wait, unless a launch is to end.

    Raises
    ------
    StopRequested
        `stop` is set.
    """
    if stop.wait(seconds):
        raise StopRequested


def send_parallel(
    requests: Sequence[Callable[[Event], T]],
    is_transient: Callable[[Exception], bool],
    stop: Event | None = None,
) -> list[T]:
    """Send requests in parallel; return their results in order.

    Parameters
    ----------
    requests
        Each is called with an event that is set as soon as another one has failed.
    is_transient
        Whether an error passes by itself: of several errors, one that does not is raised.
    stop
        Set from outside when the results are no longer wanted.

    Raises
    ------
    StopRequested
        `stop` was set.
    """
    halt = Event()
    workers = ThreadPoolExecutor(max(1, min(MAX_PARALLEL_REQUESTS, len(requests))))
    try:
        futures = [workers.submit(request, halt) for request in requests]
        left = set(futures)
        while left:
            done, left = wait(left, _CHECK_SECONDS, FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                halt.set()
            elif stop is not None and stop.is_set():
                raise StopRequested
    finally:
        halt.set()
        workers.shutdown(wait=False, cancel_futures=True)
    errors = [error for future in futures if (error := future.exception())]
    if failed := [error for error in errors if not isinstance(error, StopRequested)]:
        raise min(failed, key=lambda error: isinstance(error, Exception) and is_transient(error))
    return [future.result() for future in futures]
