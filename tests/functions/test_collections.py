"""Shared collections in a task of a pool, and without a pool."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyTransferError, SkyUsageError
from jupyter_sky.execution.functions.shared import collections
from jupyter_sky.execution.functions.shared.collections import encode_key
from jupyter_sky.machines.engines.controller.controller import SharedStateProcess
from jupyter_sky.machines.engines.node import instance
from tests.conftest import wait_until
from tests.functions.shared_state_tasks import output_of, topology

pytestmark = pytest.mark.usefixtures("no_task_yet")


class Colour(Enum):
    RED = 1


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
        shared.get(True, timeout=0.05)
    assert shared.get(timeout=0.05) is None
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
    from jupyter_sky.machines.engines.node.instance import instance_info
    print(sorted(sky.barrier("x").exchange(instance_info().node * 10)))
    """
    met = [task(code, node, 3) for node in range(3)]
    assert [output_of(process) for process in met] == ["[0, 10, 20]"] * 3


def test_object_kinds_have_separate_names(where: str) -> None:
    assert collections.counter(f"m-{where}").add() == 1
    with collections.lock(f"m-{where}"):
        collections.dict(f"m-{where}")["a"] = 1
    assert collections.counter(f"m-{where}").value == 1


def test_many_names_slow_nothing_down() -> None:
    from jupyter_sky.execution.functions.shared.messages import AddAmount
    from jupyter_sky.execution.functions.shared.shared_state import SharedState

    shared_state = SharedState()
    for number in range(1, 2001):
        asked = AddAmount("counter", str(number), 1)
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
