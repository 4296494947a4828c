"""Calls of a gather without futures: their ways through queue and batches, and their results."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTimeout
from jupyter_sky.execution.functions.calls.call_durations import CallDurations
from jupyter_sky.execution.functions.calls.call_queue import CallQueue
from jupyter_sky.execution.functions.calls.gathered_calls import (
    GatheredCalls,
    PlainCalls,
    find_plain_calls,
)
from jupyter_sky.execution.functions.calls.nodes import PoolNode, SentBatch
from jupyter_sky.execution.functions.calls.output import OutputSink
from jupyter_sky.execution.functions.calls.progress import CallCounter
from jupyter_sky.execution.functions.node.messages import Returned, RunPlainCalls
from jupyter_sky.execution.functions.node.node_worker import CallBatch

NODE: Any = object.__new__(PoolNode)


@sky.function
def same(x: Any, **_: Any) -> Any:
    return x


def plain(gathered: GatheredCalls, numbers: range) -> PlainCalls:
    gathered.first_key = gathered.first_key or 100
    return PlainCalls(gathered, (b"function",), {}, numbers, None)


def gather_of(count: int) -> GatheredCalls:
    return GatheredCalls([same(number) for number in range(count)], OutputSink(many=False))


def queue_of(seconds: float | None = 1e-4) -> CallQueue:
    durations = CallDurations()
    if seconds is not None:
        durations.record("same", seconds)
    return CallQueue(durations)


@settings(max_examples=60)
@given(st.integers(1, 40), st.sampled_from([1e-4, 0.01, None]), st.integers(0, 2**20))
def test_each_result_is_taken_once_and_in_order(
    count: int, seconds: float | None, seed: int
) -> None:
    gathered, queue, random = gather_of(count), queue_of(seconds), Random(seed)
    queue.append(plain(gathered, range(count)))
    batches: list[SentBatch] = []
    expected: dict[int, str] = {}
    for step in range(10_000):
        open_batches = [batch for batch in batches if batch.open_count]
        if gathered.done == count:
            break
        action = random.choice(["send", "report", "report", "return", "lose"])
        if action == "send" or not open_batches:
            if queue.head() is not None:
                batches.append(SentBatch.of(NODE, queue.take(2)))
            continue
        batch = random.choice(open_batches)
        keys = sorted({*batch.tasks, *batch.open_plain})
        some = keys[: random.randint(1, len(keys))]
        if action == "report":
            new = {key: f"{key - 100} at {step}" for key in some}
            for reported in (new, dict.fromkeys(new, "again")):  # a second report changes nothing
                keys, values = list(reported), list(reported.values())
                if batch.take_values(keys, values) != len(keys):
                    for key, value in reported.items():
                        if task := batch.take(key):
                            task.future.resolve(value)
            expected |= {key - 100: value for key, value in new.items()}
        elif action == "return":
            if part := batch.take_unstarted(some):
                queue.appendleft(part)
            for task in filter(None, (batch.take(key) for key in some)):
                queue.appendleft(task)
        else:
            for task in reversed(batch.take_all()):
                task.isolated = True
                queue.appendleft(task)
    assert gathered.results(0) == [expected[number] for number in range(count)]
    assert len(queue) == 0 and queue.head() is None and gathered.failed == 0


def test_quick_calls_are_taken_together_and_others_alone() -> None:
    queue = queue_of(None)
    queue.append(plain(gather_of(10), range(10)))
    first = queue.take(2)
    assert isinstance(first, list) and [task.key for task in first] == [100] and len(queue) == 9
    queue = queue_of(1e-4)
    queue.append(plain(gather_of(1000), range(1000)))
    taken = queue.take(2)
    assert isinstance(taken, PlainCalls) and taken.numbers == range(250) and len(queue) == 750
    queue = queue_of(0.02)
    queue.append(plain(gather_of(1000), range(1000)))
    assert queue.take(2).numbers == range(2)  # type: ignore[union-attr]


def test_result_of_a_failed_call_is_its_error_before_all_have_ended() -> None:
    gathered = gather_of(4)
    batch = SentBatch.of(NODE, plain(gathered, range(4)))
    batch.take_values([100], ["a"])
    with pytest.raises(SkyTimeout, match="3 of 4 calls had not ended"):
        gathered.results(0.001)
    for key, error in ((103, KeyError("later")), (102, ValueError("first"))):
        task = batch.take(key)
        assert task is not None and task.attempts == 1 and repr(task.call) == f"same({key - 100})"
        task.future.fail(error)
    with pytest.raises(ValueError, match="first"):
        gathered.results()
    assert (gathered.done, gathered.failed, batch.open_count) == (1, 2, 1)


def test_stopped_gather_is_dropped_from_the_queue() -> None:
    gathered, queue = gather_of(6), queue_of()
    sent = SentBatch.of(NODE, plain(gathered, range(3)))
    queue.append(plain(gathered, range(3, 6)))
    gathered.stop("group")
    assert queue.head() is None and len(queue) == 0
    task = sent.take(101)
    assert task is not None and task.future.cancelled(), "nobody waits for it"


def test_progress_counts_calls_without_futures() -> None:
    gathered = gather_of(5)
    batch = SentBatch.of(NODE, plain(gathered, range(5)))
    counter = CallCounter((), lambda: (batch.count_of(gathered), 1), 0.0, 5, gathered)
    batch.take_values([100, 103], [0, 3])
    task = batch.take(101)
    assert task is not None
    task.future.fail(ValueError())
    now = counter.snapshot()
    assert (now.done, now.failed, now.running, now.left) == (2, 1, 2, 0)


def test_calls_are_plain_by_their_arguments() -> None:
    other = sky.function(lambda x: x)
    calls = [same(1), same("two"), same(x=3), same([4]), same(5), same(6), other(7), other(8)]
    calls += [same("long" * 5000), same(9).with_timeout(1), same(10).with_retry(0)]
    found = [list(numbers) for numbers in find_plain_calls(calls, lambda function: True)]
    assert found == [[0, 1, 2], [3], [4, 5], [6, 7], [8], [9], [10]]
    known: list[str] = []
    alone = find_plain_calls(calls[:3], lambda function: bool(known))
    assert next(alone) == range(1)
    known.append("the first call has been analysed")
    assert list(alone) == [range(1, 3)]


def test_node_begins_or_returns_each_call_once() -> None:
    context: Any = None
    batch = CallBatch([], {"header": {"msg_id": "a"}}, context, slots=2)
    arguments = [((x,), {}) for x in range(2000)]
    batch.add_plain(context, RunPlainCalls("p", None, (b"",), range(7, 2007), arguments))
    begun: list[int] = []
    started = threading.Event()

    def begin() -> None:
        started.wait()
        while (call := batch.begin_call()) is not None:
            begun.append(call.key)

    def return_some() -> None:
        started.wait()
        for last in range(1900, 7, -50):
            batch._return(range(last, 2007))

    assert batch._return(range(1950, 2007)) and not batch._return(range(1950, 2007))
    threads = [threading.Thread(target=each) for each in (begin, begin, return_some)]
    for thread in threads:
        thread.start()
    started.set()
    for thread in threads:
        thread.join()
    returned = [key for each in batch._out if isinstance(each, Returned) for key in each.keys]
    assert sorted([*begun, *returned]) == list(range(7, 2007))
    assert batch.open_count == len(begun) == len(batch.calls)
