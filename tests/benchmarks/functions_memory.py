"""Figures of the client's memory: streamed gathers of large results, arguments of ended calls."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import psutil
from functions import pool, say

RESULT_MB = 50
ARGUMENT_MB = 40


def zeros(number: int, megabytes: int) -> np.ndarray:
    return np.full(megabytes * 125_000, float(number))


def first_item(array: np.ndarray) -> float:
    return float(array[0])


@contextmanager
def growth_watched() -> Iterator[Callable[[], float]]:
    """Watch this process; give a function that returns its largest growth so far (MB)."""
    own = psutil.Process()
    gc.collect()
    before, peak, over = own.memory_info().rss, 0.0, threading.Event()

    def measure() -> float:
        nonlocal peak
        peak = max(peak, (own.memory_info().rss - before) / 1e6)
        return peak

    def watch() -> None:
        while not over.wait(0.02):
            measure()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield measure
    finally:
        over.set()
        watcher.join()


def streamed_gather(compute, quick: bool) -> dict[str, float]:
    """Large results through a streamed gather, each dropped before the next is read."""
    import jupyter_sky as sky

    lazy, count = sky.function(zeros), 20 if quick else 200
    with growth_watched() as grown:
        for number, result in enumerate(
            sky.gather(*(lazy(i, RESULT_MB) for i in range(count)), stream=True) >> compute
        ):
            assert result[0] == number
            del result
        peak = grown()
    say(f"streamed gather of {count} results of {RESULT_MB} MB: {peak:.0f} MB more at most")
    return {"streamed_gather_mb": peak}


def kept_arguments(compute, quick: bool) -> dict[str, float]:
    """Memory that remains after calls with large arguments, whose futures are kept."""
    import jupyter_sky as sky

    lazy, own = sky.function(first_item), psutil.Process()
    lazy(zeros(0, ARGUMENT_MB)) >> compute
    gc.collect()
    before, futures = own.memory_info().rss, []
    for number in range(3 if quick else 15):
        futures.append(lazy(zeros(number + 1, ARGUMENT_MB)) > compute)
        assert futures[-1].result() == number + 1
    kept = max((own.memory_info().rss - before) / 1e6, 0.0)
    say(f"{len(futures)} ended calls with {ARGUMENT_MB} MB each: {kept:.0f} MB kept")
    return {"kept_mb": kept}


def main(quick: bool = False) -> dict[str, float]:
    with pool() as compute:
        say(f"load: {os.getloadavg()[0]:.1f}")
        return kept_arguments(compute, quick) | streamed_gather(compute, quick)


if __name__ == "__main__":
    main("--quick" in sys.argv)
