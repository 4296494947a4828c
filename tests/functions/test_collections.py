"""What tasks share: the real process that keeps it, and many processes that use it at once."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.engines.node import instance
from jupyter_sky.engines.node.instance import InstanceInfo
from jupyter_sky.errors import SkyTransferError, SkyUsageError
from jupyter_sky.functions.shared import collections, shared_client
from jupyter_sky.functions.shared.key_encoding import encode_key
from jupyter_sky.functions.shared.shared_state_server import SharedStateProcess
from tests.conftest import wait_until

pytestmark = pytest.mark.usefixtures("unspoilt")


class Colour(Enum):
    RED = 1


def topology(
    shared_state_process: SharedStateProcess, node: int = 0, nodes: int = 1
) -> dict[str, Any]:
    route = {
        "url": shared_state_process.endpoint["local_url"],
        "key": shared_state_process.endpoint["key"],
    }
    info = asdict(InstanceInfo(node=node, total_nodes=nodes, job_id="test"))
    return {"instance": info, "shared_state": route, "facts": {}}


@pytest.fixture(scope="module")
def shared_state_process() -> Iterator[SharedStateProcess]:
    """The process, started as the controller does: when somebody comes."""
    made, ended = SharedStateProcess(), threading.Event()

    def tick() -> None:
        while not ended.wait(0.02):
            made.tick()

    threading.Thread(target=tick, daemon=True).start()
    yield made
    ended.set()
    for listener in made._sockets.values():
        listener.close()
    if made._process is not None:
        made._process.kill()
        made._process.wait()


@pytest.fixture(params=["pool", "alone"])
def where(
    request: pytest.FixtureRequest, shared_state_process: SharedStateProcess
) -> Iterator[str]:
    """In a task of a pool, and where there is none."""
    if request.param == "alone":
        yield "alone"
        return
    with instance.running_task(topology(shared_state_process)):
        yield "pool"


@pytest.fixture
def task(shared_state_process: SharedStateProcess) -> Iterator[Callable[..., subprocess.Popen]]:
    """Run code in a process of its own, as a task of the same pool."""
    made: list[subprocess.Popen] = []

    def start(code: str, node: int = 0, nodes: int = 1) -> subprocess.Popen:
        before = (
            "import jupyter_sky.functions.shared.collections as sky\n"
            "from jupyter_sky.engines.node import instance\n"
            f"instance.running_task({topology(shared_state_process, node, nodes)!r}).__enter__()\n"
        )
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", before + textwrap.dedent(code)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
        )
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    return out.strip()


# -- each of them ---------------------------------------------------------------------------------


def test_dict(where: str) -> None:
    shared = collections.dict(f"d-{where}")
    shared["a"] = [1, 2]
    shared[1, "b"] = None
    shared[1.0, "b"] = "same key"
    assert shared["a"] == [1, 2] and shared[True, "b"] == "same key" and len(shared) == 2
    assert [*shared] == ["a", (1, "b")] and "a" in shared and "c" not in shared
    assert shared.setdefault("a", 0) == [1, 2] and shared.setdefault("c", 3) == 3
    assert shared.get("nothing", 7) == 7
    with pytest.raises(KeyError, match="nothing"):
        shared["nothing"]
    with pytest.raises(KeyError):
        shared.pop("nothing")
    with pytest.raises(TypeError):
        shared[[1]] = 2
    del shared["c"]
    shared.update({"x": 1}, y=2)
    assert shared.snapshot() == {"a": [1, 2], (1, "b"): "same key", "x": 1, "y": 2}
    assert shared == shared.snapshot() and sorted(map(str, shared.values()))[0] == "1"
    assert shared.pop("x") == 1 and "x" not in shared and shared.pop("x", None) is None
    shared.clear()
    assert not shared
    with pytest.raises(SkyTransferError, match="lock"):
        shared["bad"] = threading.Lock()
    assert len(shared) == 0


def test_arrays_travel(where: str) -> None:
    import numpy

    shared = collections.dict(f"arrays-{where}")
    shared["a"] = numpy.arange(100_000)
    found = shared["a"]
    assert found.sum() == 4999950000 and found.flags.writeable


def test_set(where: str) -> None:
    shared = collections.set(f"s-{where}")
    assert shared.add("a") and not shared.add("a") and shared.add(2)
    shared.update(["b", 2.0])
    assert len(shared) == 3 and "b" in shared and shared.snapshot() == {"a", "b", 2}
    assert shared.discard("a") and not shared.discard("a") and shared & {2, 5} == {2}
    with pytest.raises(KeyError):
        shared.remove("a")


def test_counter(where: str) -> None:
    shared = collections.counter(f"c-{where}")
    assert (shared.add(), shared.add(2.5), shared.decrement(), shared.value) == (1, 3.5, 2.5, 2.5)
    shared += 1
    assert shared.reset() == 3.5 and int(shared) == 0
    with pytest.raises(SkyUsageError, match="not a number"):
        shared.add("1")  # type: ignore[arg-type]


def test_queue(where: str) -> None:
    shared = collections.queue(f"q-{where}", maxsize=2)
    shared.put({"a": 1})
    shared.put(2)
    assert len(shared) == 2 and not shared.empty() and shared
    with pytest.raises(queue.Full, match="2"):
        shared.put(3, timeout=0.05)
    with pytest.raises(queue.Full):
        shared.put_nowait(3)
    assert shared.get() == {"a": 1} and shared.get_nowait() == 2 and shared.empty()
    with pytest.raises(queue.Empty):
        shared.get_nowait()
    with pytest.raises(queue.Empty, match=f"q-{where}"):
        shared.get(timeout=0.05)
    shared.put(4)
    assert shared.get() == 4, "who gave up must not be given anything"


def test_lock(where: str) -> None:
    shared = collections.lock(f"l-{where}")
    with shared:
        assert shared.locked()
        first = shared.fence
        with pytest.raises(SkyUsageError, match="holds it already"):
            shared.acquire()
    assert not shared.locked() and shared.acquire() and shared.fence > first
    shared.release()
    with pytest.raises(SkyUsageError, match="nobody holds it"):
        shared.release()


def test_another_thread_waits_for_a_lock(where: str) -> None:
    context = {**instance.pool_facts()}
    got: list[Any] = []

    def other() -> None:
        mine = collections.lock(f"lt-{where}")
        got.append(mine.acquire(blocking=False))
        got.append(mine.acquire(timeout=0.1))
        with pytest.raises(SkyUsageError, match="another task"):
            mine.release()
        got.append(mine.acquire())
        mine.release()

    with collections.lock(f"lt-{where}"):
        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(0.5)
        assert got == [False, False]
    thread.join(5)
    assert got == [False, False, True] and context == {**instance.pool_facts()}


def test_lock_lease_expires(where: str) -> None:
    held = collections.lock(f"ttl-{where}", ttl=0.2)
    held.acquire()
    taken: list[int] = []

    def other() -> None:
        mine = collections.lock(f"ttl-{where}")
        mine.acquire()
        taken.append(mine.fence)
        mine.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(5)
    assert taken and taken[0] > held.fence
    with pytest.raises(SkyUsageError, match="cannot be released"):
        held.release()


def test_barrier(where: str) -> None:
    places: list[int] = []

    def other() -> None:
        places.append(collections.barrier(f"b-{where}", 3).wait())

    threads = [threading.Thread(target=other) for _ in range(2)]
    for thread in threads:
        thread.start()
    mine = collections.barrier(f"b-{where}", 3)
    wait_until(lambda: mine.n_waiting == 2)
    assert places == []
    places.append(mine.wait())
    for thread in threads:
        thread.join(5)
    assert sorted(places) == [0, 1, 2]
    with pytest.raises(threading.BrokenBarrierError, match="3 tasks"):
        mine.wait(timeout=0.1)
    assert collections.barrier("one").wait() == 0, "all nodes of a pool of one"


def test_barrier_exchanges_values(
    shared_state_process: SharedStateProcess, task: Callable[..., Any]
) -> None:
    code = """
    from jupyter_sky.engines.node.instance import instance_info
    print(sorted(sky.barrier("x").exchange(instance_info().node * 10)))
    """
    met = [task(code, node, 3) for node in range(3)]
    assert [said(process) for process in met] == ["[0, 10, 20]"] * 3


def test_object_kinds_have_separate_names(where: str) -> None:
    assert collections.counter(f"m-{where}").add() == 1
    with collections.lock(f"m-{where}"):
        collections.dict(f"m-{where}")["a"] = 1
    assert collections.counter(f"m-{where}").value == 1


def test_many_names_slow_nothing_down() -> None:
    from jupyter_sky.functions.shared.shared_state import SharedState

    shared_state = SharedState()
    for number in range(1, 2001):
        asked = {"kind": "counter", "name": str(number), "op": "add", "amount": 1}
        shared_state.handle_request(b"me", number, asked, ())
    assert (
        len(shared_state.objects) == 2000
        and not shared_state.active_objects
        and not shared_state.pending_numbers
    )


def test_misuse(where: str) -> None:
    for bad in ("", 3, None):
        with pytest.raises(SkyUsageError, match="not a name"):
            collections.lock(bad)  # type: ignore[arg-type]
    with pytest.raises(SkyUsageError, match="at least one"):
        collections.barrier("b", 0)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (True, 1, True),
        (1, "1", False),
        (b"1", "1", False),
        (("a", 2), ("a", 2.0), True),
        (("a", "b"), ("ab",), False),
        (("a" * 2, "aa"), (*["aa"] * 2,), True),
        (frozenset("abc"), frozenset("cba"), True),
        (Colour.RED, Colour.RED, True),
        (None, "None", False),
        (2**70, float(2**70), True),
        (0.1, 0.1, True),
    ],
)
def test_equal_keys_are_the_same_key(one: Any, other: Any, same: bool) -> None:
    assert (encode_key(one) == encode_key(other)) is same


# -- many at once --------------------------------------------------------------------------------


def test_concurrent_processes_lose_no_updates(
    shared_state_process: SharedStateProcess, task: Callable[..., Any]
) -> None:
    code = """
    import time
    c, d, q = sky.counter("n"), sky.dict("plain"), sky.queue("items")
    l, s = sky.lock("l"), sky.set("s")
    sky.barrier("start", 4).wait(20)
    told = [c.add() for _ in range(200)]
    for _ in range(50):
        with l:
            d["total"] = d.get("total", 0) + 1
    won = sum(s.add(n) for n in range(100))
    for n in range(50): q.put(n)
    got = [q.get(timeout=10) for _ in range(50)]
    print(len(set(told)), won, sum(got), sep=",")
    """
    outcomes = [said(p).split(",") for p in [task(code) for _ in range(4)]]
    with instance.running_task(topology(shared_state_process)):
        assert collections.counter("n").value == 800
        assert collections.dict("plain")["total"] == 200
        assert sum(int(won) for _, won, _ in outcomes) == 100
        assert sum(int(got) for *_, got in outcomes) == 4 * sum(range(50))
        assert collections.queue("items").empty()


def test_killed_process_releases_its_locks(
    shared_state_process: SharedStateProcess, task: Callable[..., Any]
) -> None:
    holder = task("""
    import time
    sky.lock('dead').acquire()
    print('has it', flush=True)
    time.sleep(60)
    """)
    assert holder.stdout.readline() == "has it\n"
    getter = task("print('gets', flush=True); sky.queue('dead-q').get()")
    assert getter.stdout.readline() == "gets\n"
    waiter = task("print('waits', flush=True); sky.barrier('dead-b', 2).wait()")
    assert waiter.stdout.readline() == "waits\n"
    time.sleep(0.3)
    with instance.running_task(topology(shared_state_process)):
        assert not collections.lock("dead").acquire(timeout=0.1)
        for process in (holder, getter, waiter):
            process.kill()
            process.wait()
        collections.queue("dead-q").put("kept")
        assert collections.lock("dead").acquire(timeout=10)
        collections.lock("dead").release()
        assert collections.queue("dead-q").get(timeout=5) == "kept"
        wait_until(lambda: collections.barrier("dead-b", 2).n_waiting == 0)


def test_an_interrupted_wait_takes_nothing(
    shared_state_process: SharedStateProcess, task: Callable[..., Any]
) -> None:
    process = task("""
    try:
        print('waits', flush=True)
        sky.queue('int-q').get()
    except KeyboardInterrupt:
        print('interrupted', flush=True)
    sky.barrier('int-b', 2).wait(10)
    print(sky.queue('int-q').get(timeout=5))
    """)
    assert process.stdout.readline() == "waits\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    with instance.running_task(topology(shared_state_process)):
        collections.queue("int-q").put("mine")
        assert collections.queue("int-q").get(timeout=5) == "mine"
        collections.queue("int-q").put("yours")
        collections.barrier("int-b", 2).wait(10)
    assert said(process) == "yours"


def test_client_without_key_is_refused(shared_state_process: SharedStateProcess) -> None:
    import zmq

    with instance.running_task(topology(shared_state_process)):
        collections.counter("private").add()
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 0)
    socket.connect(shared_state_process.endpoint["local_url"])
    asked = b'[1, {"kind": "counter", "name": "private", "op": "add", "amount": 1}]'
    socket.send_multipart([asked])
    assert not socket.poll(500)
    socket.close()


def test_resent_request_counts_once(shared_state_process: SharedStateProcess) -> None:
    with instance.running_task(topology(shared_state_process)):
        wire = shared_client.current_client()
        assert isinstance(wire, shared_client.RemoteClient)
        asked = b'[1000000, {"kind": "counter", "name": "twice", "op": "add", "amount": 1}]'
        for _ in range(2):
            wire._socket.send_multipart([asked])
        wire._numbers = iter(range(1_000_001, 2_000_000))  # type: ignore[assignment]
        assert collections.counter("twice").value == 1


def test_processes_that_a_task_forks_share_too(
    shared_state_process: SharedStateProcess, task: Callable[..., Any]
) -> None:
    code = """
    import multiprocessing
    def count(_):
        return sky.counter("forked").add()
    count(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sorted(pool.map(count, range(6))), count(0))
    """
    assert said(task(code)) == "[2, 3, 4, 5, 6, 7] 8"


def test_loss_of_shared_state_is_reported(shared_state_process: SharedStateProcess) -> None:
    from jupyter_sky.errors import SkyClusterLost

    with instance.running_task(topology(shared_state_process)):
        collections.counter("lost").add(5)
        assert shared_state_process._process is not None
        shared_state_process._process.kill()
        shared_state_process._process.wait()
        with pytest.raises(SkyClusterLost, match="lost"):
            collections.counter("lost").add(5)
        assert collections.counter("lost").value == 5, "the request itself was carried out anew"
