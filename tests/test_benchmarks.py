"""Benchmarks with small numbers: each runs and prints its figures."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests.emulators.multi_cloud import emulate_clouds

PROGRAM = Path(__file__).parent / "benchmarks" / "run.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name",
    [
        "catalog",
        "cells",
        "fidelity",
        "functions",
        "gallery",
        "house",
        "jobs",
        "lab",
        "newcomer",
        "pipelines",
        "placement",
        "preemption",
        "recovery",
        "search",
        "storage",
    ],
)
def test_benchmark_prints_its_figures(name: str, tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, PROGRAM, name, "--quick"], capture_output=True, text=True, cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    printed = json.loads(ended.stdout.splitlines()[-1])
    assert printed["name"] == name
    assert printed["figures"]
    assert all(math.isfinite(figure) for figure in printed["figures"].values())


@pytest.mark.slow
def test_crash_benchmark_reaps_what_a_killed_launch_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(PROGRAM.parent)
    from trust_crash import Harness, Scenario

    with emulate_clouds("aws", minute=1.0) as world:
        scenario = Scenario("reap", after="after:request RunInstances:1")
        points = Harness(world, tmp_path).record(scenario)
    assert "after:request TerminateInstances:1" in points
