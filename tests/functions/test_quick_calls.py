"""Many quick calls: batches, calls ahead, and a long call among them."""

from __future__ import annotations

import time

import pytest

import jupyter_sky as sky
from jupyter_sky.functions.pool import Pool

pytestmark = pytest.mark.slow


@sky.function
def wait(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@sky.function
def place(x: int) -> tuple[int, int]:
    return x, sky.instance_info().node


def test_quick_calls_run_on_all_nodes_in_order(executors: Pool) -> None:
    found = sky.gather(*(place(x) for x in range(3000))) >> executors
    assert [x for x, _ in found] == list(range(3000))
    counts = [sum(node == rank for _, node in found) for rank in (0, 1)]
    assert min(counts) > 300


def test_quick_calls_do_not_wait_behind_a_long_one(executors: Pool) -> None:
    sky.gather(*(wait(0.0) for _ in range(50))) >> executors  # known to be quick
    futures = [wait(2.0 if x == 20 else 0.0) > executors for x in range(400)]
    begun = time.monotonic()
    for place_, future in enumerate(futures):
        if place_ != 20:
            future.result()
    assert time.monotonic() - begun < 1.5
    assert futures[20].result() == 2.0
