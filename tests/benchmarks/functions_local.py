"""Calls on the machine of the notebook, beside joblib's loky and a process pool, in turns.

Large arguments, each once and one that calls share; large results; tiny calls; memory of the
notebook meanwhile.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Any

import numpy as np
import psutil
from functions import identity, say, timed

TURNS = 3


def nbytes(x: np.ndarray) -> int:
    return x.nbytes


def item(x: np.ndarray, place: int) -> float:
    return float(x[place])


def make(count: int, value: float) -> np.ndarray:
    return np.full(count, value)


def private_mb() -> float:
    """Return the memory of this process that it shares with no other, in MB."""
    return psutil.Process().memory_full_info().uss / 1e6


class PeakMemory:
    """Growth of this process's own memory while a block runs, in MB."""

    def __enter__(self) -> "PeakMemory":
        self.grown, self._before, self._over = 0.0, private_mb(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.grown = max(self.grown, private_mb() - self._before)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


Way = Callable[[Callable[..., Any], list[tuple]], Any]


def compare(ways: dict[str, Way], function: Callable[..., Any], inputs: list[list[tuple]]) -> dict:
    """Return the seconds of each way, in turns over fresh inputs."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for arguments in inputs:
        for name, way in ways.items():
            seconds[name].append(timed(lambda w=way, a=arguments: w(function, a)))
    for name, found in seconds.items():
        say(f"{function.__name__}, {name}: {', '.join(f'{each:.3f}' for each in found)} s")
    return {name: median(found) for name, found in seconds.items()}


def large(ways: dict[str, Way], quick: bool) -> dict[str, float]:
    """Large arguments and results."""
    random = np.random.default_rng(0)
    count, size = (4, 200_000) if quick else (50, 1_250_000)
    shared_size, calls = (400_000, 10) if quick else (25_000_000, 100)
    apart = [[(random.random(size),) for _ in range(count)] for _ in range(TURNS)]
    one = [random.random(shared_size) for _ in range(TURNS)]
    shared = [[(array, place) for place in range(calls)] for array in one]
    results = [[(size, float(value)) for value in range(count)] for _ in range(TURNS)]
    seconds = compare(ways, nbytes, apart)
    together = compare(ways, item, shared)
    back = compare(ways, make, results)
    peaks = {}
    for name, way in ways.items():
        with PeakMemory() as peak:
            way(nbytes, apart[0])
        peaks[name] = peak.grown
        say(f"memory of the notebook, {name}: {peak.grown:.0f} MB more at most")
    return {
        "large_args_over_loky": seconds["sky"] / seconds["loky"],
        "shared_arg_over_loky": together["sky"] / together["loky"],
        "large_results_over_loky": back["sky"] / back["loky"],
        "large_args_client_mb": peaks["sky"],
        "large_args_loky_mb": peaks["loky"],
    }


def tiny(ways: dict[str, Way], quick: bool) -> dict[str, float]:
    """Calls that take no time."""
    count = 200 if quick else 10_000
    inputs = [[(number,) for number in range(count)]] * TURNS
    with ProcessPoolExecutor(2) as processes:
        list(processes.map(identity, range(10)))

        def plain(function: Callable[..., Any], calls: list[tuple]) -> list[Any]:
            return list(processes.map(function, [arguments[0] for arguments in calls]))

        seconds = compare({**ways, "ProcessPoolExecutor": plain}, identity, inputs)
    return {
        "tiny_over_loky": seconds["sky"] / seconds["loky"],
        "tiny_over_processes": seconds["sky"] / seconds["ProcessPoolExecutor"],
    }


def local(compute: Any, quick: bool) -> dict[str, float]:
    """Return the figures of calls on this machine."""
    import joblib

    import jupyter_sky as sky

    parallel = joblib.Parallel(n_jobs=2)

    def on_pool(function: Callable[..., Any], calls: list[tuple]) -> Any:
        lazy = sky.function(function)
        return sky.gather(*(lazy(*arguments) for arguments in calls)) >> compute

    ways: dict[str, Way] = {
        "sky": on_pool,
        "loky": lambda function, calls: parallel(joblib.delayed(function)(*a) for a in calls),
    }
    for way in ways.values():
        way(identity, [(number,) for number in range(10)])
    time.sleep(0.2)
    return large(ways, quick) | tiny(ways, quick)
