"""Shared collections of a pool against the synchronization objects of dask.distributed.

Round trips of one client, time and memory until the first operation of a fresh client process, and
whether a lock is released when its holder is killed. Distributed is the alternative of
`jupyter_sky.execution.functions.shared.shared_state`, whose docstring quotes the figures.
"""

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from statistics import median
from typing import Any

FRESH = """
import psutil, time
begun = time.perf_counter()
{connect}
print(time.perf_counter() - begun, psutil.Process().memory_info().rss / 2**20)
"""
HOLDER = "{connect}\nprint('held', flush=True)\nimport time; time.sleep(60)"


RELEASE_SECONDS = 60.0


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def own_server() -> Iterator[dict[str, Any]]:
    """A server of ours, started by its first client as on a cluster; yields a topology."""
    from jupyter_sky.machines.engines.controller.controller import SharedStateProcess
    from jupyter_sky.machines.engines.node.instance import InstanceInfo

    server, over = SharedStateProcess(), threading.Event()

    def tick() -> None:
        while not over.wait(0.02):
            server.tick()

    threading.Thread(target=tick, daemon=True).start()
    endpoint = {"url": server.endpoint["local_url"], "key": server.endpoint["key"]}
    try:
        yield {
            "instance": asdict(InstanceInfo(job_id="bench")),
            "shared_state": endpoint,
            "facts": {},
        }
    finally:
        over.set()
        if server._process is not None:
            server._process.kill()
            server._process.wait()


@contextlib.contextmanager
def scheduler() -> Iterator[str]:
    """A scheduler of distributed in a process of its own; yields its address."""
    code = (
        "import asyncio\nfrom distributed import Scheduler\n"
        "async def serve():\n"
        "    async with Scheduler(host='127.0.0.1', port=0, dashboard_address=None) as it:\n"
        "        print(it.address, flush=True)\n"
        "        await it.finished()\n"
        "asyncio.run(serve())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def microseconds(call: Callable[[], object], count: int) -> float:
    found = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return median(found) * 1e6


def operations(shared: Any, other: Any) -> dict[str, tuple[Callable, Callable]]:
    """Pairs of the same operation, ours and distributed's."""
    ours, queue, value = shared.Lock("lock"), shared.Queue("queue"), shared.Dict("value")
    theirs, their_queue = other.Lock("lock"), other.Queue("queue")
    variable = other.Variable("value")

    def locked(lock: Any) -> None:
        lock.acquire()
        lock.release()

    def passed(one: Any) -> None:
        one.put(1)
        one.get()

    def assign() -> int:
        value["x"] = 1
        return value["x"]

    def assign_variable() -> int:
        variable.set(1)
        return variable.get()

    return {
        "lock": (lambda: locked(ours), lambda: locked(theirs)),
        "queue": (lambda: passed(queue), lambda: passed(their_queue)),
        "value": (assign, assign_variable),
    }


def fresh(connect: str, env: dict[str, str]) -> tuple[float, float]:
    """Return seconds and MiB until a new process has done its first operation."""
    code = FRESH.format(connect=connect)
    out = [
        subprocess.check_output([sys.executable, "-c", code], text=True, env=env).split()
        for _ in range(3)
    ]
    return median(float(each[0]) for each in out), median(float(each[1]) for each in out)


def released_after(connect: str, acquire: Callable[[float], bool], env: dict[str, str]) -> float:
    """Return the seconds until a killed holder's lock is free, at most `RELEASE_SECONDS`."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER.format(connect=connect)],
        stdout=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    holder.kill()
    holder.wait()
    begun = time.perf_counter()
    return time.perf_counter() - begun if acquire(RELEASE_SECONDS) else RELEASE_SECONDS


def main(quick: bool = False) -> dict[str, float]:
    import distributed

    from jupyter_sky.execution.functions.shared import collections
    from jupyter_sky.machines.engines.node import instance

    count, figures = 50 if quick else 1000, dict[str, float]()
    with own_server() as topology, scheduler() as address:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        enter = textwrap.dedent(f"""
            import json
            from jupyter_sky.machines.engines.node import instance
            from jupyter_sky.execution.functions.shared import collections
            told = json.loads({json.dumps(topology)!r})
            instance.running_task(told).__enter__()
        """)
        connect = f"from distributed import Client, Lock; client = Client({address!r})"
        with distributed.Client(address), instance.running_task(topology):
            for name, (ours, theirs) in operations(collections, distributed).items():
                ours(), theirs()
                for who, call in (("sky", ours), ("distributed", theirs)):
                    figures[f"{name}_us_{who}"] = microseconds(call, count)
                    say(f"{name}, {who}: {figures[f'{name}_us_{who}']:.0f} us (two round trips)")
            taken = "collections.Lock('dead').acquire()"
            figures["release_s_sky"] = released_after(
                f"{enter}\n{taken}", lambda s: collections.Lock("dead").acquire(timeout=s), env
            )
            figures["release_s_distributed"] = released_after(
                f"{connect}; Lock('dead').acquire()",
                lambda s: distributed.Lock("dead").acquire(timeout=s),
                env,
            )
        for who, code in (("sky", f"{enter}\ncollections.Counter('n').add(1)"),):
            figures[f"fresh_s_{who}"], figures[f"fresh_mb_{who}"] = fresh(code, env)
        code = f"{connect}; lock = Lock('fresh'); lock.acquire(); lock.release()"
        figures["fresh_s_distributed"], figures["fresh_mb_distributed"] = fresh(code, env)
    for name, figure in figures.items():
        say(f"{name}: {figure:.3f}")
    return figures


if __name__ == "__main__":
    main("--quick" in sys.argv)
