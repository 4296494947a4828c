"""The loop over sockets, with real sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from queue import Queue

import pytest
import zmq

from jupyter_sky.machines.engines.client.client import (
    MAX_MESSAGES_PER_TURN,
    MAX_SECONDS_PER_TURN,
    ZmqLoop,
)


@pytest.fixture
def loop() -> Iterator[ZmqLoop]:
    made = ZmqLoop()
    thread = threading.Thread(target=made.start, daemon=True)
    thread.start()
    yield made
    made.add_callback(made.stop)
    thread.join(5)
    assert not thread.is_alive()
    made.close(all_fds=True)


def pair() -> tuple[zmq.Socket, zmq.Socket]:
    context = zmq.Context.instance()
    here, there = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    there.connect(f"tcp://127.0.0.1:{here.bind_to_random_port('tcp://127.0.0.1')}")
    return here, there


def test_every_message_arrives_in_order(loop: ZmqLoop) -> None:
    here, there = pair()
    heard: Queue = Queue()
    loop.add_callback(lambda: loop.on_recv(here, lambda f: heard.put(f[0].bytes)))
    for number in range(1000):
        there.send(b"%d" % number)
    assert [heard.get(timeout=5) for _ in range(1000)] == [b"%d" % n for n in range(1000)]
    there.close(linger=0)


def test_callbacks_of_many_threads_all_run(loop: ZmqLoop) -> None:
    ran: Queue = Queue()
    threads = [
        threading.Thread(target=lambda: [loop.add_callback(lambda: ran.put(1)) for _ in range(500)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    assert sum(ran.get(timeout=5) for _ in range(4000)) == 4000


def test_a_handler_that_fails_does_not_end_the_loop(loop: ZmqLoop, caplog) -> None:
    heard: Queue = Queue()

    def fail() -> None:
        raise RuntimeError("no")

    loop.add_callback(fail)
    loop.add_callback(lambda: heard.put("still here"))
    assert heard.get(timeout=5) == "still here"
    assert "could not be handled" in caplog.text


def test_removed_socket_is_closed_and_not_polled(loop: ZmqLoop) -> None:
    here, there = pair()
    heard: Queue = Queue()
    loop.add_callback(lambda: loop.on_recv(here, lambda f: heard.put(f[0].bytes)))
    there.send(b"one")
    assert heard.get(timeout=5) == b"one"
    loop.add_callback(lambda: loop.remove(here))
    loop.add_callback(lambda: heard.put("forgotten"))
    assert heard.get(timeout=5) == "forgotten" and here.closed
    there.close(linger=0)


def test_callbacks_have_a_turn_between_messages_that_take_long(loop: ZmqLoop) -> None:
    here, there = pair()
    handled: Queue = Queue()
    for _ in range(MAX_MESSAGES_PER_TURN):
        there.send(b"large")
    asked: Queue = Queue()

    def handle(frames: list[zmq.Frame]) -> None:
        if handled.empty():
            loop.add_callback(lambda: asked.put(handled.qsize()))
        time.sleep(2 * MAX_SECONDS_PER_TURN / MAX_MESSAGES_PER_TURN)
        handled.put(frames[0].bytes)

    loop.add_callback(lambda: loop.on_recv(here, handle))
    assert asked.get(timeout=5) < MAX_MESSAGES_PER_TURN
    there.close(linger=0)
