"""Figures of functions on a pool of two nodes: calls, gathers, broadcasts, streams, lines.

Beside raw ipyparallel, dask.distributed and joblib's loky, each with two processes, in turns in
the same run, so that a busy machine is busy for all. Engines of all sorts are up at once: none has
the machine to itself.
"""

import contextlib
import io
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median

import numpy as np
import psutil


def say(text: str) -> None:
    print(text, flush=True)


def identity(x: object) -> object:
    return x


def length(x: np.ndarray) -> int:
    return len(x)


def spread(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    low, high = ordered[0], ordered[int(len(ordered) * 0.95)]
    return f"{median(ordered) * 1e3:.2f} ms (min {low * 1e3:.2f}, p95 {high * 1e3:.2f})"


@contextlib.contextmanager
def pool(nodes: int = 2) -> Iterator:
    import jupyter_sky as sky

    with tempfile.TemporaryDirectory(prefix="sky-bench-") as data:
        os.environ["SKY_DATA_DIR"] = data
        with sky.Compute(nodes=nodes) as compute:
            yield compute
        from jupyter_sky.execution.sessions import session

        session.close()


@contextlib.contextmanager
def raw() -> Iterator:
    import cloudpickle
    import ipyparallel as ipp

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # engines cannot import this module
    with ipp.Cluster(n=2, log_level=40) as client:
        client[:].use_cloudpickle().get()
        yield client


@contextlib.contextmanager
def dask() -> Iterator:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def family() -> list[psutil.Process]:
    """Return this process, its children, and the controllers of its pools."""
    own = psutil.Process()
    mark = os.environ["SKY_DATA_DIR"]
    found = [own, *own.children(recursive=True)]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process not in found and any(mark in word for word in process.cmdline()):
                found.append(process)
    return found


def cpu_seconds(processes: list[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def roundtrip(compute, client, quick: bool) -> dict:
    """Return a trivial call, there and back, in turns with raw ipyparallel."""
    import jupyter_sky as sky

    lazy, view = sky.function(identity), client.load_balanced_view()
    blocks, size = (2, 20) if quick else (10, 50)
    ways = {
        "sky": lambda: lazy(1) >> compute,
        "raw ipyparallel": lambda: view.apply_sync(identity, 1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        call()
    for _ in range(blocks):
        for name, call in ways.items():
            seconds[name] += [timed(call) for _ in range(size)]
    for name, found in seconds.items():
        say(f"round trip, {name}: {spread(found)}")
    return {"roundtrip_over_raw": median(seconds["sky"]) / median(seconds["raw ipyparallel"])}


def cpu(compute, quick: bool) -> dict:
    """Processor time of a trivial call, in all processes that have to do with it."""
    import jupyter_sky as sky

    lazy, count = sky.function(identity), 100 if quick else 500
    processes = [
        p for p in family() if p.pid == os.getpid() or "jupyter_sky" in " ".join(p.cmdline())
    ]
    idle_from = cpu_seconds(processes)
    time.sleep(1.0)
    idle = cpu_seconds(processes) - idle_from
    before, begun = cpu_seconds(processes), time.perf_counter()
    for _ in range(count):
        lazy(1) >> compute
    spent = cpu_seconds(processes) - before - idle * (time.perf_counter() - begun)
    say(f"CPU: {spent / count * 1e3:.2f} ms a call ({len(processes)} processes)")
    return {"cpu_ms_per_call": max(spent, 0.0) / count * 1e3}


def gathers(compute, client, other, quick: bool) -> dict:
    """Many trivial calls."""
    import joblib

    import jupyter_sky as sky

    lazy, view = sky.function(identity), client.load_balanced_view()
    figures = {}
    for count in (1000,) if quick else (1000, 10_000):
        expected = tuple(range(count))
        found = []
        for _ in range(3):
            calls = [lazy(i) for i in expected]
            begun = time.perf_counter()
            assert sky.gather(*calls) >> compute == expected
            found.append(count / (time.perf_counter() - begun))
        figures[f"gather_{count}_per_s"] = median(found)
        say(f"{count} calls, sky: {', '.join(f'{each:.0f}/s' for each in found)}")
    count = 200 if quick else 1000
    seconds = timed(
        lambda: [r.get() for r in [view.apply_async(identity, i) for i in range(count)]]
    )
    say(f"{count} calls, raw ipyparallel: {count / seconds:.0f}/s")
    seconds = timed(lambda: other.gather(other.map(identity, range(count), pure=False)))
    say(f"{count} calls, dask.distributed: {count / seconds:.0f}/s")
    parallel = joblib.Parallel(n_jobs=2)
    parallel(joblib.delayed(identity)(i) for i in range(4))
    seconds = timed(lambda: parallel(joblib.delayed(identity)(i) for i in range(count)))
    say(f"{count} calls, joblib's loky: {count / seconds:.0f}/s")
    if quick:
        figures["gather_10000_per_s"] = figures["gather_1000_per_s"]
    return figures


def broadcast(compute, client, other, quick: bool) -> dict:
    """Return an array to both nodes, then the same one again."""
    import jupyter_sky as sky

    lazy, random = sky.function(length), np.random.default_rng(0)
    count = (1 if quick else 12.5) * 1_000_000
    arrays = [random.random(int(count)) for _ in range(3)]
    first = [timed(lambda a=a: lazy(a) @ compute) for a in arrays]
    again = [timed(lambda a=a: lazy(a) @ compute) for a in arrays]
    megabytes = arrays[0].nbytes / 1e6
    say(f"{megabytes:.0f} MB to 2 nodes, sky: {median(first):.2f} s, again {median(again):.3f} s")
    seconds = median(timed(lambda a=a: client[:].apply_sync(length, a)) for a in arrays)
    say(f"{megabytes:.0f} MB to 2 engines, raw ipyparallel: {seconds:.2f} s")
    seconds = median(timed(lambda a=a: other.scatter(a, broadcast=True)) for a in arrays)
    say(f"{megabytes:.0f} MB to 2 workers, dask.distributed: {seconds:.2f} s")
    return {"broadcast_100mb_s": median(first)}


def streams(compute, quick: bool) -> dict:
    """Small items from a node; then again to a slow consumer, with an eye on memory."""
    import jupyter_sky as sky

    @sky.function
    def numbers(n: int):
        yield from range(n)

    count = 5000 if quick else 100_000
    seconds = timed(lambda: [item for item in numbers(count) >> compute])
    say(f"stream of {count} items: {count / seconds:.0f}/s")
    processes = [
        p for p in family() if p.pid == os.getpid() or ".node.engine" in " ".join(p.cmdline())
    ]
    before = [process.memory_info().rss for process in processes]
    peak, over = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.05):
            grown = [p.memory_info().rss - b for p, b in zip(processes, before, strict=True)]
            peak = max(peak, sum(grown) / 1e6)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for item in numbers(count) >> compute:
        if item % 1000 == 0:
            time.sleep(0.03)
    over.set()
    watcher.join()
    say(f"slow consumer: {peak:.1f} MB more at most, in {len(processes)} processes")
    return {"stream_items_per_s": count / seconds, "stream_peak_mb": max(peak, 0.0)}


class _Watch(io.StringIO):
    """A stdout that notes when something was first written."""

    first = 0.0

    def write(self, text: str) -> int:
        self.first = self.first or time.perf_counter()
        return super().write(text)


def lines(compute, quick: bool) -> dict:
    """Return the first line that a call prints, from its sending, while the call goes on."""
    import jupyter_sky as sky

    @sky.function
    def speak() -> None:
        print("a line")
        time.sleep(0.3)

    found = []
    for _ in range(3 if quick else 10):
        watch, stdout = _Watch(), sys.stdout
        sys.stdout, begun = watch, time.perf_counter()
        try:
            speak() >> compute
        finally:
            sys.stdout = stdout
        found.append(watch.first - begun)
    say(f"first line: {spread(found)}")
    return {"first_line_ms": median(found) * 1e3}


def main(quick: bool = False) -> dict[str, float]:
    import functions_local
    import functions_memory
    import peer_tests

    figures = functions_memory.main(quick)
    with pool() as compute, raw() as client, dask() as other:
        say(f"load: {os.getloadavg()[0]:.1f}")
        figures |= roundtrip(compute, client, quick)
        figures |= cpu(compute, quick)
        figures |= gathers(compute, client, other, quick)
        figures |= broadcast(compute, client, other, quick)
        figures |= streams(compute, quick)
        figures |= lines(compute, quick)
        figures |= functions_local.local(compute, quick)
        say(f"load: {os.getloadavg()[0]:.1f}")
    return figures | peer_tests.run(quick)


if __name__ == "__main__":
    main("--quick" in sys.argv)
