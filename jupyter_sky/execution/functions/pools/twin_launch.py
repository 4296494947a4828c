"""Twins of slow launches: another machine is asked for elsewhere, and the later one is given back.

A launch is slow when it takes longer than twice the 90th percentile of earlier launches at its
cloud.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyCancelled
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge import tracker

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle

Watch = Callable[[str], None]
"""Function that is called with each stage of a launch; raises when it is no longer wanted."""
Launch = Callable[[Watch], "ClusterHandle"]
PLACING = "placing"
"""Stage before a cloud is asked, which does not count as time of a launch."""

LEAST_LAUNCHES = 5
"""Launches that have to be known before one can be called slow."""
LATEST_LAUNCHES = 50
SLOW_FACTOR, PERCENTILE = 2.0, 0.9


def slow_after(seconds: Sequence[float]) -> float:
    """Return the seconds after which a launch is slow, by those that others took.

    Parameters
    ----------
    seconds
        Of earlier launches, the latest last; infinity is returned where they are too few.

    Examples
    --------
    >>> slow_after([40, 30, 50, 45, 35]), slow_after([40])
    (100.0, inf)
    """
    latest = sorted(seconds[-LATEST_LAUNCHES:])
    if len(latest) < LEAST_LAUNCHES:
        return math.inf
    return SLOW_FACTOR * latest[math.ceil(PERCENTILE * len(latest)) - 1]


def slow_after_at(cloud: str) -> float:
    """Return the seconds after which a launch at a cloud is slow; infinity if not known."""
    seen = tracker.current().observations()
    launches = (each for each in seen if each.kind == "launched" and each.place.cloud == cloud)
    return slow_after([each.seconds for each in launches if each.seconds is not None])


def launch_with_twin(
    first: Launch, twin: Launch, delay: float, end: Callable[[ClusterHandle], object]
) -> ClusterHandle:
    """Return the cluster of a launch, or of its twin where that is up sooner.

    Parameters
    ----------
    delay
        Seconds after a cloud has been asked at which the twin begins, if the first is not up.
    end
        Gives back a cluster that has come up too late.

    Raises
    ------
    SkyError
        Neither can be had: the error of the first.
    """
    if math.isinf(delay):
        return first(lambda stage: None)
    begun, decided = Event(), Event()

    def watch(stage: str) -> None:
        if stage != PLACING:
            begun.set()
        if decided.is_set():
            raise SkyCancelled(_("another machine was up sooner"))

    pool = ThreadPoolExecutor(2, "sky-twin")
    launches = [pool.submit(first, watch)]
    launches[0].add_done_callback(lambda launch: begun.set())
    winner: Future[ClusterHandle] | None = None
    try:
        begun.wait()
        if not wait(launches, delay).done:
            launches.append(pool.submit(twin, watch))
        winner = _first_success(launches)
    finally:
        decided.set()
        for launch in launches:
            if launch is not winner:
                launch.add_done_callback(partial(_end_late, end))
        pool.shutdown(wait=False)
    return (winner or launches[0]).result()


def _first_success(launches: Iterable[Future[ClusterHandle]]) -> Future[ClusterHandle] | None:
    """Wait for the first launch that succeeds; None where none does."""
    running = set(launches)
    while running:
        done, running = wait(running, return_when=FIRST_COMPLETED)
        for launch in done:
            if launch.exception() is None:
                return launch
    return None


def _end_late(end: Callable[[ClusterHandle], object], launch: Future[ClusterHandle]) -> None:
    if launch.exception() is None:
        end(launch.result())
