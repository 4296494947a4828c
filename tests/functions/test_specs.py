"""Specifications of pools, as values."""

from __future__ import annotations

from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.functions.images.specs import Nodes
from jupyter_sky.execution.functions.pools.pool import nodes_to_add


@pytest.mark.parametrize(
    ("given", "ready", "started", "most"),
    [
        (4, 4, 4, 4),
        ((2, 16), 2, 2, 16),
        ([2, 2], 2, 2, 2),
        (Nodes(min=8, desired=4), 4, 8, 8),
        (Nodes(min=4, desired=8), 4, 8, 8),
        (Nodes(desired=3), 3, 3, 3),
        (Nodes(min=4, desired=2, max=16), 2, 4, 16),
        (Nodes(max=3), 1, 1, 3),
    ],
)
def test_numbers_of_nodes(given: Any, ready: int, started: int, most: int) -> None:
    nodes = Nodes.of(given)
    assert (nodes.ready, nodes.initial, nodes.limit) == (ready, started, most)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "two", (4, 2), (1, 2, 3), (0, 2), (1,)])
def test_invalid_node_count(wrong: Any) -> None:
    with pytest.raises(SkyUsageError, match="nodes"):
        sky.Compute(nodes=wrong)


def test_reversed_pair_is_explained() -> None:
    with pytest.raises(SkyUsageError, match=r"nodes=\(2, 4\)"):
        sky.Compute(nodes=(4, 2))


@pytest.mark.parametrize(
    "wrong",
    [
        {"accelerator": "Z100"},
        {"accelerator": "Z100:4"},
        {"accelerator": "A100:many"},
        {"allocation": "cheep"},
        {"selection": "best"},
        {"architecture": "pdp11"},
        {"max_hourly_cost": -1},
        {"vcpus": -2},
        {"cloud": "nowhere"},
        {"cloud": "local", "provider": "local"},
        {"ttl": "soon"},
    ],
)
def test_invalid_arguments(wrong: dict[str, Any]) -> None:
    with pytest.raises(SkyUsageError):
        sky.Compute(**wrong)


def test_an_unknown_accelerator_names_the_nearest() -> None:
    with pytest.raises(SkyUsageError) as caught:
        sky.Compute(accelerator="H10")
    assert "H100" in str(caught.value)


@pytest.mark.parametrize("wrong", [{"concurrency": 0}, {"concurrency": 1.5}, {"executor": "fork"}])
def test_invalid_workers(wrong: dict[str, Any]) -> None:
    with pytest.raises(SkyUsageError):
        sky.Worker(**wrong)


def test_executor_kinds() -> None:
    assert sky.Worker().executor_kind == "main"
    assert sky.Worker(4).executor_kind == sky.Worker(4, "thread").executor_kind == "thread"
    assert sky.Worker(1, "process").executor_kind == "process"


def test_spec_converts_to_request() -> None:
    spec = sky.Spec(
        provider="aws",
        accelerator=sky.accelerators.A100(count=4),
        vcpus=8,
        memory_gb=64,
        disk_gb=100,
        architecture="x86_64",
        region="us-east-1",
        max_hourly_cost=20,
    )
    line = spec.resources(2, spot=True).command_line()
    for words in (
        "--cloud aws",
        "--gpus A100:4",
        "--cpus 8+",
        "--memory 64+",
        "--disk 100+",
        "--nodes 2",
        "--spot",
        "--region us-east-1",
        "--max-hourly-cost 20",
        "--arch x86_64",
    ):
        assert words in line
    assert sky.Spec(provider=type("AWS", (), {"name": "aws"})()).cloud == "aws"


def test_specs_by_position_take_what_is_common() -> None:
    compute = sky.Compute(
        sky.Spec(provider="aws", vcpus=2), sky.Spec(provider="gcp", nodes=3), vcpus=4, nodes=2
    )
    assert [spec.vcpus for spec in compute.specs] == [2, 4]
    assert [nodes.initial for nodes in compute.nodes] == [2, 3]
    with pytest.raises(SkyUsageError, match="each Spec"):
        sky.Compute(sky.Spec(), accelerator="A100")
    with pytest.raises(SkyUsageError, match="not a str"):
        sky.Compute("aws")  # type: ignore[arg-type]


def test_growth_by_the_length_of_the_line() -> None:
    assert nodes_to_add(nodes=2, slots=1, waiting=0, most=8) == 0
    assert nodes_to_add(nodes=2, slots=2, waiting=5, most=8) == 3
    assert nodes_to_add(nodes=2, slots=1, waiting=100, most=8) == 6
    assert nodes_to_add(nodes=8, slots=1, waiting=100, most=8) == 0


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_invalid_cancel_grace(seconds: float) -> None:
    with pytest.raises(SkyUsageError, match="cancel_grace"):
        sky.Options(cancel_grace=seconds)
