"""Shared collections that many processes use at once, one of which is killed or interrupted."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_sky.base.errors import SkySharedLost
from jupyter_sky.execution.functions.shared import collections, shared_client
from jupyter_sky.machines.engines.controller.controller import SharedStateProcess
from jupyter_sky.machines.engines.node import instance
from tests.conftest import wait_until
from tests.functions.shared_state_tasks import output_of, topology

pytestmark = pytest.mark.usefixtures("no_task_yet")


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
    outcomes = [output_of(p).split(",") for p in [task(code) for _ in range(4)]]
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
    assert output_of(process) == "yours"


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
    assert output_of(task(code)) == "[2, 3, 4, 5, 6, 7] 8"


def test_loss_of_shared_state_is_reported(shared_state_process: SharedStateProcess) -> None:
    with instance.running_task(topology(shared_state_process)):
        collections.counter("lost").add(5)
        assert shared_state_process._process is not None
        shared_state_process._process.kill()
        shared_state_process._process.wait()
        with pytest.raises(SkySharedLost, match="lost"):
            collections.counter("lost").add(5)
        assert collections.counter("lost").value == 5, "the request itself was carried out anew"
