"""Many quick calls: batches, calls ahead, and a long call among them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyError, SkyTimeout
from jupyter_sky.execution.functions.calls.nodes import PoolNode
from jupyter_sky.execution.functions.pools.pool import Pool

pytestmark = pytest.mark.slow


@sky.function
def wait_for(path: str) -> str:
    """Return when a file is there; quickly where none is named."""
    while path and not os.path.exists(path):
        time.sleep(0.01)
    return path


@sky.function
def place(x: int) -> tuple[int, int]:
    return x, sky.instance_info().node


class Broken:
    """Value that can be pickled and not opened."""

    def __reduce__(self) -> Any:
        return int, ("no number",)


@sky.function
def act(number: int, what: str = "", log: str = "") -> Any:
    """Do something special, for some of many quick calls; note that it was begun."""
    if log:
        with open(log, "a") as file:
            file.write(f"{number}\n")
    if what == "fail":
        raise KeyError(f"number {number}")
    if what == "fail once" and Path(log).read_text().split().count(str(number)) == 1:
        raise ValueError
    if what == "broken":
        return Broken()
    if what == "list":
        return [number]
    if what == "stream":
        return (each for each in range(number))
    if what == "print":
        print("number", number)
    if what.startswith("sleep"):
        time.sleep(float(what.split()[1]))
    if what.startswith("wait for"):
        wait_for.local(what.removeprefix("wait for "))
    return number


def mostly_quick(pool: Pool, special: dict[int, str], log: str = "", count: int = 600) -> list[Any]:
    """Return calls of a function that is known to be quick, some of which do something else."""
    sky.gather(*(act(number) for number in range(100))) >> pool
    return [act(number, special.get(number, ""), log) for number in range(count)]


def test_quick_calls_run_on_all_nodes_in_order(executors: Pool) -> None:
    found = sky.gather(*(place(x) for x in range(3000))) >> executors
    assert [x for x, _ in found] == list(range(3000))
    assert {node for _, node in found} == {0, 1}


def test_quick_calls_do_not_wait_behind_a_long_one(executors: Pool, tmp_path: Path) -> None:
    end = tmp_path / "end"
    sky.gather(*(wait_for("") for _ in range(50))) >> executors  # known to be quick
    futures = [wait_for(str(end) if x == 20 else "") > executors for x in range(400)]
    long = futures.pop(20)
    assert [future.result(20) for future in futures] == [""] * 399
    assert not long.done()
    end.touch()
    assert long.result(20) == str(end)


def test_call_sent_ahead_by_itself_does_not_wait_behind_a_long_one(
    executors: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as if the long calls were the last ones of quick batches
    monkeypatch.setattr(PoolNode, "takes_ahead", property(lambda n: len(n.batches) == n.slots))
    ends = [tmp_path / name for name in ("first", "second")]
    sky.gather(*(wait_for("") for _ in range(50))) >> executors  # known to be quick
    slots = 2 * executors.worker.concurrency
    long = [wait_for(str(ends[number % 2])) > executors for number in range(slots)]
    quick = [wait_for("") > executors for _ in range(2 * slots)]
    ends[1].touch()
    assert [future.result(20) for future in quick] == [""] * len(quick)
    assert not all(future.done() for future in long)
    ends[0].touch()
    assert {future.result(20) for future in long} == set(map(str, ends))


def test_error_of_a_quick_call_is_its_own(executors: Pool) -> None:
    calls = mostly_quick(executors, {300: "fail"})
    with pytest.raises(KeyError, match="number 300") as caught:
        sky.gather(*calls) >> executors
    assert "in act(300, 'fail', '') on node" in caught.value.__notes__[0]
    assert "number {number}" in str(caught.value.__cause__), "with the line that raised it"
    calls[300] = act(300, "broken")
    with pytest.raises(SkyError, match=r"the result of act\(300, 'broken'\) cannot be opened here"):
        sky.gather(*calls) >> executors
    assert sky.gather(*calls[:300]) >> executors == tuple(range(300)), "the pool goes on"


def test_quick_call_is_retried_alone(executors: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    calls = mostly_quick(executors, {300: "fail once"}, str(log))
    calls = [call.with_retry(1) for call in calls]
    assert sky.gather(*calls) >> executors == tuple(range(600))
    counts = Counter(map(int, log.read_text().split()))
    assert counts.pop(300) == 2 and set(counts.values()) == {1}


def test_quick_calls_behind_a_slow_one_run_once_elsewhere(executors: Pool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    end = tmp_path / "end"
    calls = mostly_quick(executors, {20: f"wait for {end}"}, str(log), 1000)
    with executors._gathered(calls) as gathered:
        begun = time.monotonic()
        while gathered.done < 999 and time.monotonic() - begun < 60:
            time.sleep(0.01)
        assert gathered.done == 999
        end.touch()
        assert gathered.results() == list(range(1000))
    assert sorted(map(int, log.read_text().split())) == list(range(1000))


def test_results_of_all_sorts_among_quick_ones(
    executors: Pool, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = mostly_quick(executors, {7: "list", 300: "stream", 599: "print"})
    calls[8] = act(np.arange(3))  # type: ignore[arg-type]
    found = sky.gather(*calls) >> executors
    assert (
        found[7] == [7] and list(found[300]) == list(range(300)) and found[8].tolist() == [0, 1, 2]
    )
    others = [number for number in range(600) if number not in (7, 8, 300)]
    assert [found[number] for number in others] == others
    assert "number 599" in capsys.readouterr().out, "shown before the results are there"


@pytest.mark.parametrize("limit", ["call", "map"])
def test_time_limits_of_quick_calls(executors: Pool, tmp_path: Path, limit: str) -> None:
    log = tmp_path / "log"
    calls = mostly_quick(executors, {number: "sleep 5" for number in range(50, 600)}, str(log))
    limited, items = [call.with_timeout(0.3) for call in calls], [call.args for call in calls]
    ways: dict[str, Callable[[], Any]] = {
        "call": lambda: sky.gather(*limited) >> executors,
        "map": lambda: executors.starmap(act, items, timeout=0.5),
    }
    begun = time.monotonic()
    with pytest.raises(SkyTimeout, match=r"0\.3 s|of 600 calls had not ended"):
        ways[limit]()
    while executors.use() and time.monotonic() - begun < 60:
        time.sleep(0.01)
    assert executors.use() == "" and executors.waiting == 0, "the others are stopped"
    assert len(set(log.read_text().split())) < 100


def test_working_directory_of_quick_calls(executors: Pool, tmp_path: Path) -> None:
    import os

    @sky.function
    def move(number: int, folder: str) -> str:
        before = os.getcwd()
        if number % 10 == 0:
            os.chdir(folder)
        return before

    sky.gather(*(move(1, "") for _ in range(20))) >> executors
    found = sky.gather(*(move(number, str(tmp_path)) for number in range(100))) >> executors
    if executors.worker.concurrency == 1:
        assert len(set(found)) == 1 and str(tmp_path) not in found
