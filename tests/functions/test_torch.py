"""Process groups of PyTorch on real pools of two nodes, of one process a node and of several."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyError, SkyUsageError
from jupyter_sky.execution.functions import plugins
from jupyter_sky.execution.functions.calls.lazy_calls import function
from jupyter_sky.execution.functions.images.specs import Nodes
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.machines.engines.node.instance import instance_info
from tests.conftest import wait_until

pytestmark = pytest.mark.slow


def crash() -> None:
    os._exit(3)


@pytest.fixture(scope="module")
def grouped(data: Any) -> Iterator[Pool]:
    pytest.importorskip("torch")
    with Compute(nodes=2, plugins=[plugins.torch()]) as pool:
        yield pool


@function
def total(weight: float) -> tuple[int, int, float, str]:
    import torch
    import torch.distributed as group

    value = torch.tensor([weight * (group.get_rank() + 1)])
    group.all_reduce(value)
    return group.get_rank(), group.get_world_size(), value.item(), group.get_backend()


@function
def in_a_group() -> bool:
    import torch.distributed as group

    return group.is_initialized()


def test_a_process_group_of_all_nodes(grouped: Pool) -> None:
    assert in_a_group() >> grouped is False, "one node alone would wait for the others"
    assert total(2.0) @ grouped == [(0, 2, 6.0, "gloo"), (1, 2, 6.0, "gloo")]
    assert total(3.0) @ grouped == [(0, 2, 9.0, "gloo"), (1, 2, 9.0, "gloo")]


def test_a_node_that_was_lost_joins_again(grouped: Pool) -> None:
    assert [size for _, size, *_ in total(1.0) @ grouped] == [2, 2]
    before = function(os.getpid)() @ grouped
    grouped.call_on(1, crash).exception()
    wait_until(lambda: (function(os.getpid)() @ grouped) != before)
    assert total(1.0) @ grouped == [(0, 2, 3.0, "gloo"), (1, 2, 3.0, "gloo")]


def test_a_node_alone_is_a_group_of_one(data: Any) -> None:
    pytest.importorskip("torch")
    with Compute(nodes=1, plugins=[plugins.torch()]) as pool:
        assert total(2.0) >> pool == (0, 1, 2.0, "gloo") and total(2.0) @ pool == [
            (0, 1, 2.0, "gloo")
        ]


def test_a_group_grows_with_its_pool(data: Any) -> None:
    pytest.importorskip("torch")
    growing = Nodes(min=2, desired=1)
    with Compute(nodes=growing, plugins=[plugins.torch()]) as pool:
        assert total(1.0) >> pool == (0, 1, 1.0, "gloo")
        wait_until(lambda: len(pool.ranks) == 2)
        assert [size for _, size, *_ in total(1.0) @ pool] == [2, 2]


def test_gradients_are_averaged_as_ddp_does(grouped: Pool) -> None:
    @function
    def train() -> tuple[float, list[float]]:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        from jupyter_sky.execution.functions.calls.shard import shard

        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 64)[:, None]
        x, y = shard(x, 3 * x + 1, shuffle=True)
        model = DistributedDataParallel(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), 0.3)
        for _ in range(100):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
        return loss.item(), [each.item() for each in model.parameters()]

    (loss, first), (_, second) = train() @ grouped
    assert loss < 1e-3 and first == second and first == pytest.approx([3, 1], abs=0.05)


@pytest.fixture(scope="module")
def with_processes(data: Any) -> Iterator[Pool]:
    pytest.importorskip("torch")
    with Compute(nodes=2, plugins=[plugins.torch(processes=2)]) as pool:
        yield pool


def test_several_processes_of_each_node_are_one_group(with_processes: Pool) -> None:
    weight = 2.0  # a value of the notebook goes along

    @function
    def total_of_all() -> tuple[int, int, float, str, int]:
        import torch
        import torch.distributed as group

        value = torch.tensor([weight * (group.get_rank() + 1)])
        group.all_reduce(value)
        place, node = os.environ["LOCAL_RANK"], instance_info().node
        return group.get_rank(), group.get_world_size(), value.item(), place, node

    for _ in range(2):
        assert total_of_all() @ with_processes == [
            [(0, 4, 20.0, "0", 0), (1, 4, 20.0, "1", 0)],
            [(2, 4, 20.0, "0", 1), (3, 4, 20.0, "1", 1)],
        ]
    assert in_a_group() >> with_processes is False


def test_error_of_one_process_ends_the_others(
    with_processes: Pool, capfd: pytest.CaptureFixture[str]
) -> None:
    @function
    def fail() -> None:
        import torch.distributed as group

        print("said by", group.get_rank(), flush=True)
        if group.get_rank() == 3:
            raise KeyError("of the last one")
        group.barrier()

    with pytest.raises(KeyError, match="of the last one") as caught:
        fail() @ with_processes
    assert "in process 1 of its node, rank 3" in str(caught.value.__notes__)
    wait_until(lambda: "said by 3" in with_processes.logs())
    assert [len(each) for each in total(1.0) @ with_processes] == [2, 2], "the pool goes on"


def test_processes_for_gpus_that_are_not_there(data: Any) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there are GPUs")
    gpu = plugins.torch(processes="gpu")
    with Compute(nodes=1, plugins=[gpu]) as pool, pytest.raises(SkyError, match="has no GPU"):
        total(1.0) @ pool


def test_unknown_backend_and_number_of_processes() -> None:
    with pytest.raises(SkyUsageError, match="not a backend"):
        plugins.torch(backend="fast")
    for count in (0, -1, 1.5, "cpu", True):
        with pytest.raises(SkyUsageError, match="not a number of processes"):
            plugins.torch(processes=count)  # type: ignore[arg-type]


def test_missing_torch(data: Any) -> None:
    def hide() -> None:
        import sys

        sys.modules["torch"] = None  # type: ignore[assignment]

    with Compute(nodes=2, plugins=[plugins.torch()]) as pool:
        function(hide)() >> pool
        function(hide)() >> pool
        with pytest.raises(SkyError, match="no torch on the node") as caught:
            function(abs)(1) @ pool
        assert 'Image(pip=["torch"])' in str(caught.value)
