"""Parallel calls that can be cancelled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from jupyter_sky.base.errors import SkyTimeout

TICK_SECONDS = 0.1

T = TypeVar("T")


def result_within(future: Future[T], seconds: float | None, late: Callable[[], str]) -> T:
    """Return the result of a future, or raise its error; after a timeout the work goes on.

    Parameters
    ----------
    seconds
        Longest wait; without a limit where it is None.
    late
        Returns the message of the timeout.

    Raises
    ------
    SkyTimeout
        There is no result by then.

    Examples
    --------
    >>> result_within(Future(), 0.01, lambda: "it is not done after 0.01 s")
    Traceback (most recent call last):
    jupyter_sky.base.errors.SkyTimeout: it is not done after 0.01 s
    """
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # it has just ended, or the work itself in a timeout
            return future.result()
        raise SkyTimeout(late()) from None


def run_abandonable(
    job: Callable[[threading.Event], T],
    tick: Callable[[], object],
    discard: Callable[[T], object],
) -> T:
    """Run a call in a thread, so that `tick` can give it up while it goes on.

    Parameters
    ----------
    job
        Called with an event that is set once nobody waits for the result.
    tick
        Called about ten times a second while waiting; it may raise to give up.
    discard
        Called with the result of a job that succeeds after it was given up.

    Examples
    --------
    >>> run_abandonable(lambda abandoned: 42, lambda: None, print)
    42
    """
    abandoned = threading.Event()

    def discard_late(future: Future[T]) -> None:
        if future.exception() is None:
            discard(future.result())

    worker = ThreadPoolExecutor(1, thread_name_prefix="jupyter-sky-abandonable")
    future = worker.submit(job, abandoned)
    try:
        while not wait([future], timeout=TICK_SECONDS).done:
            tick()
    except BaseException:
        abandoned.set()
        future.add_done_callback(discard_late)
        raise
    finally:
        worker.shutdown(wait=False)
    return future.result()


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
