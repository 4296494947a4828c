"""Waits for answers of a cluster, with a callback that may end them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
wait_callback: ContextVar[Callable[[], None] | None] = ContextVar("meanwhile", default=None)
"""Function that is called periodically while waiting; it may raise to end the wait."""
WAIT_CALLBACK_SECONDS = 0.25


def wait_result(future: Future[T], timeout: float | None) -> T:
    """Return a result, and call the wait callback now and then until it is there.

    Raises
    ------
    TimeoutError
        There is none within `timeout` seconds.
    """
    callback = wait_callback.get()
    if callback is None:
        return future.result(timeout)
    deadline = time.monotonic() + (math.inf if timeout is None else timeout)
    while True:
        left = deadline - time.monotonic()
        try:
            return future.result(max(min(left, WAIT_CALLBACK_SECONDS), 0))
        except TimeoutError:
            if future.done() or left <= WAIT_CALLBACK_SECONDS:
                raise
            callback()
