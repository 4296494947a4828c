"""Parallel calls that can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

TICK_SECONDS = 0.1

T = TypeVar("T")


def run_parallel(
    jobs: Sequence[Callable[[], T]],
    meanwhile: Callable[[], object] | None = None,
    ended: threading.Event | None = None,
) -> list[T]:
    """Run calls in parallel, a thread each; return their results in order.

    The error of the first that fails is raised, when the others have come to their end.

    Parameters
    ----------
    meanwhile
        Called about ten times a second while waiting; it may raise to give up.
    ended
        Set when nobody waits for the jobs any more: those that look at it can end early.

    Examples
    --------
    >>> run_parallel([lambda: 1, lambda: 2])
    [1, 2]
    """
    if not jobs:
        return []
    with ThreadPoolExecutor(len(jobs)) as workers:
        try:
            futures = [workers.submit(job) for job in jobs]
            while True:
                done, going = wait(futures, TICK_SECONDS, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                if not going:
                    return [future.result() for future in futures]
                if meanwhile is not None:
                    meanwhile()
        finally:
            if ended is not None:
                ended.set()
