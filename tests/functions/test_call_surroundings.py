"""Surroundings of calls: names, iterables, directories, processes, pools among arguments."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTimeout, SkyTransferError, SkyUsageError
from jupyter_sky.execution.functions.node.calls import WorkingDirectory
from jupyter_sky.execution.functions.pools.pool import Pool


@sky.function
def named(self: int, function: int = 0, rank: int = 0) -> tuple[int, int, int]:
    return self, function, rank


@sky.function
def add(a: int, b: int = 1, c: int = 0) -> int:
    return a + b + c


@sky.function
def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@sky.function
def change_directory(folder: Path, seconds: float = 0.0) -> str:
    os.chdir(folder)
    time.sleep(seconds)
    return os.getcwd()


@sky.function
def directory() -> str:
    return os.getcwd()


def test_compute_that_is_not_up_cannot_be_pickled() -> None:
    with pytest.raises(SkyTransferError, match="a pool cannot be sent"):
        pickle.dumps(sky.Compute(nodes=1))


def test_working_directory_is_that_of_the_first_of_concurrent_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    kept = WorkingDirectory()
    with kept:
        with kept:
            os.chdir("other")
        assert Path.cwd() == tmp_path / "other", "the other call goes on there"
    assert Path.cwd() == tmp_path
    with kept:
        os.chdir("other")
        (tmp_path / "other").rmdir()
    assert Path.cwd() == tmp_path, "the directory of the call was deleted"


@pytest.mark.slow
def test_arguments_named_like_ours(compute: Pool) -> None:
    assert named(self=1, function=2, rank=3) >> compute == (1, 2, 3)
    assert compute.call_on(0, named.local, self=4, rank=5).result() == (4, 0, 5)


@pytest.mark.slow
def test_map_of_several_iterables(compute: Pool) -> None:
    assert compute.map(add, [1, 2, 3], (10, 20)) == [11, 22]
    assert compute.map(pow, range(4), iter([2, 2, 3, 3])) == [0, 1, 8, 27]
    assert compute.map(add, []) == []
    with pytest.raises(SkyUsageError, match="at least one iterable"):
        compute.map(add)


@pytest.mark.slow
def test_starmap(compute: Pool) -> None:
    assert compute.starmap(add, [(1,), (1, 2), (1, 2, 3)]) == [2, 3, 6]
    assert compute.starmap(pow, zip(range(3), range(3), strict=True)) == [1, 1, 4]


@pytest.mark.slow
def test_map_that_is_not_ready_in_time(compute: Pool) -> None:
    begun = time.monotonic()
    with pytest.raises(SkyTimeout, match=r"1 of 2 calls had not ended after 0\.6 s"):
        compute.map(sleep, [0.0, 100.0], timeout=0.6)
    assert time.monotonic() - begun < 50
    assert compute.map(sleep, [0.0, 0.01], timeout=30) == [0.0, 0.01], "its node is free"


@pytest.mark.slow
def test_pool_among_arguments_and_globals(compute: Pool) -> None:
    @sky.function
    def takes(pool: Any) -> None: ...

    @sky.function
    def uses() -> Any:
        return compute

    for call in (takes(compute), takes({"deep": [compute]}), uses()):
        with pytest.raises(SkyTransferError, match="a pool cannot be sent"):
            call >> compute


@pytest.mark.slow
def test_package_as_target_on_a_node(compute: Pool) -> None:
    @sky.function
    def nested() -> int:
        return add(1) >> sky

    with pytest.raises(SkyUsageError, match=r"cannot be sent from node \d of a pool") as caught:
        nested() >> compute
    assert "f.local" in str(caught.value.hint)


@pytest.mark.slow
def test_working_directory_of_a_call_ends_with_it(executors: Pool, tmp_path: Path) -> None:
    before = directory() @ executors
    assert change_directory(tmp_path) @ executors == [str(tmp_path)] * 2
    assert directory() @ executors == before
    with pytest.raises(ZeroDivisionError):
        sky.function(lambda: (os.chdir(tmp_path), 1 / 0))() @ executors
    assert directory() @ executors == before


FORKS = """
import os, sys
import jupyter_sky as sky

@sky.function
def one():
    return 1

def child(leave):
    pid = os.fork()
    if pid == 0:
        leave()
    assert os.waitpid(pid, 0)[1] == 0

def send():
    try:
        one() >> pool
    except sky.SkyUsageError as error:
        assert "forked" in str(error), error
        sys.exit(0)
    os._exit(3)

with sky.Compute(nodes=1) as pool:
    assert one() >> pool == 1
    future = one() > pool
    child(sys.exit)
    assert one() >> pool == 1
    child(send)
    assert one() >> sky == 1
print("the pool is there", flush=True)
"""


@pytest.mark.slow
def test_forked_child_that_exits_leaves_the_pool(tmp_path: Path, sky_env: dict[str, str]) -> None:
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKS)],
        env={**os.environ, **sky_env, "SKY_DATA_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.splitlines()[-1] == "the pool is there"
