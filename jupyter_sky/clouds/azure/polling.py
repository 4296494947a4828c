"""Parallel requests and long-running operations of Azure, with cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..base import Tick
from .errors import is_transient

T = TypeVar("T")


class _StopRequested(Exception):
    """Somebody else has failed, so this need not go on."""


class StopSignal:
    """Ends the waiting of threads that work on one thing."""

    def __init__(self, poll: float) -> None:
        self.poll = poll
        self.set = threading.Event()

    def sleep(self, seconds: float) -> None:
        """Wait, unless nobody waits any more."""
        if self.set.wait(seconds):
            raise _StopRequested

    def polling_method(self) -> Any:
        """Return how the SDK is to wait for an operation; it can be stopped, and is in no hurry."""
        from azure.mgmt.core.polling.arm_polling import ARMPolling

        stop = self

        class Polling(ARMPolling):
            first: Any = None

            def initialize(self, client: Any, initial_response: Any, *rest: Any) -> None:
                super().initialize(client, initial_response, *rest)
                self.first = rest[0](initial_response)

            def _delay(self) -> None:
                asked = self._pipeline_response.http_response.headers.get("Retry-After", "")
                wanted = float(asked) if asked.isdigit() else stop.poll
                stop.sleep(min(max(wanted, 0.05), stop.poll))

        return Polling(stop.poll, retry_total=3, retry_backoff_factor=0.1)


def run_parallel_requests(
    calls: Sequence[Callable[[StopSignal], T]], poll: float, tick: Tick | None = None
) -> list[T]:
    """Run calls at the same time; when one fails, the others stop waiting and its error is raised.

    Of several errors, one that says something of the place goes before an answer that was lost.
    """
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    stop = StopSignal(poll)
    workers = ThreadPoolExecutor(max(1, min(16, len(calls))))
    try:
        futures = [workers.submit(call, stop) for call in calls]
        left = set(futures)
        while left:
            done, left = wait(left, timeout=0.1, return_when=FIRST_EXCEPTION)
            if any(future.exception() for future in done):
                stop.set.set()
            if tick is not None:
                tick()
    finally:
        stop.set.set()
        workers.shutdown(wait=False, cancel_futures=True)
    errors = [error for future in futures if (error := future.exception())]
    errors = [error for error in errors if not isinstance(error, _StopRequested)]
    if errors:
        raise min(errors, key=is_transient)
    return [future.result() for future in futures]


def sleep_with_tick(seconds: float, tick: Tick) -> None:
    """Wait, with `tick` ten times a second."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        tick()
        time.sleep(min(0.1, seconds))
