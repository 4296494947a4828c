"""Metrics of a node, with a tool for GPUs that is a script on the PATH."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.machines.engines.node import metrics
from jupyter_sky.machines.engines.node.metrics import (
    MAX_SAMPLES,
    MetricsHistory,
    NodeMetrics,
    parse_gpu_table,
)
from tests.conftest import wait_until

TABLE = "NVIDIA A100-SXM4-40GB, 61, 20480, 40960\nNVIDIA T4, [N/A], 0, 15360\n"


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Stands where nvidia-smi does; what it was asked is in a file beside it."""
    path = tmp_path / "nvidia-smi"
    path.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/asked\ncat <<'END'\n{TABLE}END\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(metrics, "PERIOD_SECONDS", 0.01)
    yield path


def test_gpu_table_with_unknown_values() -> None:
    assert parse_gpu_table(TABLE) == [
        {"name": "NVIDIA A100-SXM4-40GB", "use": 61.0, "memory": 20.0, "memory_total": 40.0},
        {"name": "NVIDIA T4", "use": None, "memory": 0.0, "memory_total": 15.0},
    ]
    assert parse_gpu_table("No devices were found\n") == [] == parse_gpu_table("")


def test_gpus_are_read_beside_the_work(tool: Path) -> None:
    looking = NodeMetrics([None], wait=0.0)
    (first,) = looking.tick()
    assert first["gpus"] == [] and first["cpu"] is None, "its answer is not waited for"
    wait_until(lambda: any(sample["gpus"] for sample in looking.tick()))
    (last,) = wait_for_sample(looking)
    assert [gpu["name"] for gpu in last["gpus"]] == ["NVIDIA A100-SXM4-40GB", "NVIDIA T4"]
    assert 0 <= last["cpu"] <= 100 and 0 < last["memory"] < last["memory_total"]
    asked = (tool.parent / "asked").read_text().split("\n")[0]
    assert asked.startswith("--query-gpu=name,utilization.gpu,memory.used,memory.total")


def wait_for_sample(looking: NodeMetrics) -> list[dict]:
    found: list[dict] = []
    wait_until(lambda: bool(found.extend(looking.tick()) or found))
    return found[:1]


def test_failing_gpu_tool_is_not_queried_again(tool: Path) -> None:
    tool.write_text(f"#!/bin/sh\necho asked >> {tool.parent}/asked\nexit 9\n")
    looking = NodeMetrics([None], wait=0.0)
    wait_until(lambda: bool(looking.tick()) and looking._tool is None)
    for _ in range(3):
        wait_for_sample(looking)
    assert (tool.parent / "asked").read_text() == "asked\n"


def test_nodes_that_share_a_machine_are_slices_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import psutil

    monkeypatch.setattr(metrics, "PERIOD_SECONDS", 0.01)
    monkeypatch.setattr(psutil, "cpu_percent", lambda percpu: [100.0, 50.0, 0.0])
    looking = NodeMetrics([[0], [1, 2], None, [7]], wait=0.0)
    looking.tick()
    found: list[dict] = []
    wait_until(lambda: bool(found.extend(looking.tick()) or found))
    assert [sample["cpu"] for sample in found[:4]] == [100.0, 25.0, 50.0, None]


def test_metrics_history_is_bounded_columns() -> None:
    history = MetricsHistory()
    for number in range(MAX_SAMPLES + 5):
        gpu = {"name": "T4", "use": float(number), "memory": 1.0, "memory_total": 15.0}
        sample = {"host": "box", "cpu": float(number), "memory": 2.0, "memory_total": 4.0}
        history.add(1, sample | {"gpus": [gpu] if number > 60 else []})
    history.add(0, {"host": "a", "cpu": None, "memory": 1.0, "memory_total": 4.0, "gpus": []})
    first, second = history.nodes()
    assert (first["rank"], first["cpu"], second["rank"], second["host"]) == (0, [None], 1, "box")
    assert second["cpu"] == [float(number) for number in range(5, MAX_SAMPLES + 5)]
    assert second["gpus"][0]["use"] == [None] * 56 + [61.0, 62.0, 63.0, 64.0]
