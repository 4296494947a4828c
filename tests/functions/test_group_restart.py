"""Nodes of a process group that die under a call: all begin it again, together."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTaskLost
from jupyter_sky.execution.functions import plugins
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.functions.test_plugins import added_up, gathered, speaks_pmi
from tests.functions.test_torch import total

pytestmark = pytest.mark.slow


def die_once(mark: Path) -> None:
    """End this process, the first time."""
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


@sky.function
def process() -> int:
    return os.getpid()


# -- torch -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grouped(data: Path) -> Iterator[Pool]:
    pytest.importorskip("torch")
    with Compute(nodes=3, plugins=[plugins.torch()]) as pool:
        yield pool


@sky.function
def reduced(steps: int, mark: Path, died: int) -> tuple[float, int]:
    """Sum the ranks + 1 so many times; one of the nodes dies in the middle."""
    import torch
    import torch.distributed as group

    result = 0.0
    for step in range(steps):
        value = torch.tensor([group.get_rank() + 1.0])
        group.all_reduce(value)
        result += value.item()
        if step == steps // 2 and group.get_rank() == died:
            die_once(mark)
    return result, os.getpid()


@pytest.mark.parametrize("died", [0, 1])
def test_all_begin_again_without_the_node_that_was_lost(
    grouped: Pool, tmp_path: Path, died: int, capsys: pytest.CaptureFixture[str]
) -> None:
    before = process() @ grouped
    results = reduced(10, tmp_path / "mark", died) @ grouped
    assert [result for result, _ in results] == [60.0] * 3
    after = [pid for _, pid in results]
    assert [old == new for old, new in zip(before, after, strict=True)] == [
        rank != died for rank in range(3)
    ], "the processes of the others stay"
    assert f"node {died} has left reduced(" in capsys.readouterr().err
    assert [size for _, size, *_ in total(1.0) @ grouped] == [3, 3, 3]


@sky.function(recover=True)
def counted(steps: int, mark: Path) -> tuple[int, int]:
    """Count to a number in all nodes; return the count, and that of this process."""
    import torch
    import torch.distributed as group

    here = 0
    with sky.checkpointed("count", every="10m") as state:
        for step in range(state.get("step", 0), steps):
            value = torch.tensor([step])
            group.all_reduce(value)
            assert value.item() == step * group.get_world_size(), "all are in the same step"
            here, state["step"] = here + 1, step + 1
            state.save()
            if step == 20 and group.get_rank() == 2:
                die_once(mark)
        return state["step"], here


def test_all_go_on_from_the_same_save(grouped: Pool, tmp_path: Path) -> None:
    results = counted(40, tmp_path / "mark") @ grouped
    assert [count for count, _ in results] == [40] * 3
    assert all(here < 40 for _, here in results), "none began anew"


def test_an_error_that_is_none_of_a_loss(grouped: Pool) -> None:
    @sky.function
    def fail(kind: type[Exception]) -> None:
        raise kind("of the user")

    for kind in (RuntimeError, ValueError):
        with pytest.raises(kind, match="of the user"):
            fail(kind) @ grouped
    assert [size for _, size, *_ in total(1.0) @ grouped] == [3, 3, 3]


def test_a_call_that_kills_one_of_its_nodes_each_time(grouped: Pool) -> None:
    @sky.function
    def die() -> None:
        import torch.distributed as group

        if group.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        group.barrier()

    with pytest.raises(SkyTaskLost, match="was lost 3 times"):
        die() @ grouped
    with pytest.raises(SkyTaskLost, match="may have run"):
        die().with_retry(0) @ grouped
    assert [size for _, size, *_ in total(1.0) @ grouped] == [3, 3, 3]


# -- groups that are for the life of their processes -----------------------------------------------


def test_an_mpi_world_is_made_again(data: Any, tmp_path: Path) -> None:
    if not speaks_pmi():
        pytest.skip("needs mpi4py on MPICH")

    @sky.function
    def summed(mark: Path) -> tuple[int, int]:
        from mpi4py import MPI

        result = 0
        for step in range(10):
            result += MPI.COMM_WORLD.allreduce(1)
            if step == 5 and MPI.COMM_WORLD.rank == 1:
                die_once(mark)
        return MPI.COMM_WORLD.size, result

    everybody = [(0, 3, 6.0, [0, 1, 2]), (1, 3, 6.0, None), (2, 3, 6.0, None)]
    with Compute(nodes=3, plugins=[plugins.mpi()]) as pool:
        assert added_up(1.0) @ pool == everybody
        before = process() @ pool
        pool.call_on(1, os.kill, before[1], signal.SIGKILL).exception()
        assert added_up(1.0) @ pool == everybody, "the node was lost between two calls"
        assert summed(tmp_path / "mark") @ pool == [(3, 30)] * 3, "it was lost under a call"
        assert added_up(1.0) @ pool == everybody


def test_processes_of_jax_begin_again(data: Any) -> None:
    if find_spec("jax") is None:
        pytest.skip("jax is not installed")
    with Compute(nodes=2, plugins=[plugins.jax()]) as pool:
        everybody = [(0, 2, [1.0, 2.0]), (1, 2, [1.0, 2.0])]
        assert gathered(1.0) @ pool == everybody
        pool.call_on(1, os.kill, pool.call_on(1, os.getpid).result(), signal.SIGKILL).exception()
        assert gathered(1.0) @ pool == everybody
