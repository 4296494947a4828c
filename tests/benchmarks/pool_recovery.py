"""Figures of pools that lose machines, on an emulated cloud: a part of the benchmark `recovery`.

replaced_s
    Seconds from the loss of a machine to the first answer of the one that replaces it, over those
    of a plain start.
noticed_s
    Seconds from the notice of a cloud until the machine gets no more calls, the worst of some.
calls_lost, calls_repeated
    Calls without a result, and results that came twice, of short calls under preemptions.
stream_items_lost
    Items of a stream that are missing or come twice when its machine is taken away.
always_starts
    Pools with ``allocation="spot-if-available"`` that came up, over all, where no spot machine can
    be had.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jupyter_sky as sky
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.sessions import session as sessions

if TYPE_CHECKING:
    from tests.emulators.loopback import Loopback

NODES = 3
NOTICE_SECONDS = 20.0
REQUEST: dict[str, Any] = {"cloud": "aws", "region": "us-east-1", "vcpus": 2}


def main(calls: int = 20_000, losses: int = 10, starts: int = 50) -> dict[str, float]:
    with _cloud() as cloud:
        begun = time.monotonic()
        with sky.Compute(**REQUEST, nodes=NODES, allocation="spot") as pool:
            _identity() @ pool
            plain = time.monotonic() - begun
            replaced = _measure_replacement(cloud, pool)
            figures = {"replaced_s": replaced / plain, "noticed_s": _measure_notice(cloud, pool)}
            print(f"plain start {plain:.1f} s, replaced {replaced:.1f} s", figures, flush=True)
            figures |= _count_lost_calls(cloud, pool, calls, losses)
            figures["stream_items_lost"] = _count_lost_items(cloud, pool, calls // 4)
        return figures | {"always_starts": _count_starts(cloud, starts) / starts}


@contextlib.contextmanager
def _cloud() -> Iterator[Loopback]:
    # here: this module travels to the nodes with its functions
    from clouds import environment

    from tests.emulators.loopback import loopback

    with (
        tempfile.TemporaryDirectory() as folder,
        loopback("aws") as cloud,
        environment(**cloud.env, SKY_DATA_DIR=folder),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        sessions.close()
        Sky.clear_instance()
        try:
            yield cloud
        finally:
            sessions.close()
            Sky.clear_instance()


@sky.function
def _identity() -> str:
    import socket

    return socket.gethostname()


@sky.function
def _number(n: int) -> int:
    time.sleep(0.002)
    return n


@sky.function
def _numbers(count: int) -> Iterator[int]:
    for number in range(count):
        time.sleep(0.002)
        yield number


def _machine(pool: Pool, rank: int) -> str:
    connection, place = pool.locations[rank]
    cluster = next(each for each in pool.clusters if each.connection is connection)
    return next(machine.id for machine in cluster.machines if machine.rank == place)


def _wait(until: Callable[[], bool]) -> None:
    while not until():
        time.sleep(0.01)


def _measure_replacement(cloud: Loopback, pool: Pool) -> float:
    before, begun = pool.locations[NODES - 1], time.monotonic()
    cloud.api.preempt(_machine(pool, NODES - 1), 0.0)
    with contextlib.suppress(sky.SkyError):  # a call by which the loss is noticed
        pool.call_on(NODES - 1, time.time).result()
    _wait(lambda: pool.locations[NODES - 1] != before)
    pool.call_on(NODES - 1, time.time).result()
    return time.monotonic() - begun


def _measure_notice(cloud: Loopback, pool: Pool, times: int = 3) -> float:
    worst = 0.0
    for _ in range(times):
        node, begun = pool._dispatcher.nodes[1], time.monotonic()
        cloud.api.preempt(_machine(pool, 1), NOTICE_SECONDS)
        _wait(lambda node=node: node.leaving)
        worst = max(worst, time.monotonic() - begun)
        _wait(lambda node=node: node.replaced)
    return worst


def _count_lost_calls(cloud: Loopback, pool: Pool, calls: int, losses: int) -> dict[str, float]:
    """Count calls without a result, and with two, while machines other than the head are lost."""
    ended = threading.Event()

    def take_away() -> None:
        for number in range(losses):
            if ended.is_set():
                return
            rank = 1 + number % (NODES - 1)
            before = pool.locations[rank]
            cloud.api.preempt(_machine(pool, rank), 0.0 if number % 2 else NOTICE_SECONDS)
            until = time.monotonic() + 90.0
            while pool.locations[rank] == before and time.monotonic() < until:
                if ended.wait(0.05):
                    return

    thread = threading.Thread(target=take_away)
    thread.start()
    seen: Counter[int] = Counter()
    rounds = 0
    while thread.is_alive() or not rounds:  # as many as there is time for while machines go
        portion = sky.gather(*(_number(n) for n in range(calls)), stream=True, ordered=False)
        seen.update(portion >> pool)
        rounds += 1
    ended.set()
    thread.join()
    lost = sum(rounds - min(rounds, seen[n]) for n in range(calls))
    print(f"{rounds * calls} calls under {losses} preemptions, {lost} lost", flush=True)
    return {"calls_lost": lost, "calls_repeated": sum(seen.values()) + lost - rounds * calls}


def _count_lost_items(cloud: Loopback, pool: Pool, items: int) -> float:
    stream = _numbers(items) >> pool
    got = [next(stream) for _ in range(items // 4)]
    running = [n.rank for n in pool._dispatcher.nodes.values() if n.batches and not n.replaced]
    cloud.api.preempt(_machine(pool, running[0]), 0.0)
    got += stream
    return sum((Counter(got) - Counter(range(items))).values()) + len({*range(items)} - {*got})


def _count_starts(cloud: Loopback, starts: int) -> int:
    cloud.api.refuse("MaxSpotInstanceCountExceeded", spot=True, times=math.inf)
    came_up = 0
    for _ in range(starts):
        with (
            contextlib.suppress(sky.SkyError),
            sky.Compute(**REQUEST, allocation="spot-if-available") as pool,
        ):
            came_up += bool(_identity() >> pool)
    return came_up


if __name__ == "__main__":
    print(main(2000, 2, 1))
