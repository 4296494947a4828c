"""Repetition of requests that a store could not answer: exponential, with full jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from jupyter_sky.machines.storage.stores.errors import SkyStoreBusy

Result = TypeVar("Result")


def backoff(attempt: int, retry_after: float, draw: float) -> float:
    """Return the seconds before attempt `attempt` + 1.

    Parameters
    ----------
    attempt : int
        Attempts so far, from 1.
    retry_after : float
        Seconds that the store asks for; never less.
    draw : float
        Random number from 0 to 1: full jitter keeps many clients from coming back together.
    """
    return retry_after + draw * min(20.0, 0.1 * 2**attempt)


@dataclass
class Retries:
    """Repeats a call while the store is busy.

    Attributes
    ----------
    limit : int
        Attempts in all.
    sleep, draw : callable
        Waits for seconds; draws from 0 to 1.
    """

    limit: int = 8
    sleep: Callable[[float], None] = time.sleep
    draw: Callable[[], float] = random.random

    def run(
        self,
        call: Callable[[], Result],
        before_retry: Callable[[], object] = lambda: None,
    ) -> Result:
        """Return what `call` returns; raise `SkyStoreBusy` when all attempts met it.

        Parameters
        ----------
        call : callable
            The request.
        before_retry : callable
            Removes what an attempt may have left whose answer did not come.
        """
        for attempt in range(1, self.limit):
            try:
                return call()
            except SkyStoreBusy as error:
                self.sleep(backoff(attempt, error.retry_after, self.draw()))
                before_retry()
        return call()
