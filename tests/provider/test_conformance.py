"""The conformance suite, as the author of a driver runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emulators.hosts import USABLE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
ROOT = Path(__file__).parents[2]
SUITE_SECONDS = 60.0
Run = Callable[..., tuple[dict[str, set[str]], str]]


@pytest.fixture
def run(toy_site: Path, tmp_path: Path) -> Run:
    """Run the suite on a driver in a folder that has nothing of this repository."""

    def run(provider: str, *options: str) -> tuple[dict[str, set[str]], str]:
        paths = os.pathsep.join((str(toy_site), str(ROOT)))
        command = [sys.executable, "-m", "pytest", "-p", "jupyter_sky.testing.plugin", "-rA"]
        command += ["--pyargs", "jupyter_sky.testing.provider", "--tb=short", *options]
        command += ["--provider", provider, "--world", "tests.provider.toy_world:ToyWorld"]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
        )
        results: dict[str, set[str]] = {"PASSED": set(), "FAILED": set(), "SKIPPED": set()}
        for result, number in re.findall(r"^([A-Z]+) .*::test_(\d\d)_", done.stdout, re.M):
            results[result].add(number)
        return results, done.stdout + done.stderr

    return run


def test_toy_cloud_conforms(run: Run) -> None:
    begun = time.monotonic()
    results, said = run("sky_toy:Toy")
    assert results["FAILED"] == results["SKIPPED"] == set(), said
    assert results["PASSED"] == {f"{number:02}" for number in range(1, 21)}, said
    assert time.monotonic() - begun < SUITE_SECONDS, said


def test_driver_that_repeats_launches_is_found(run: Run) -> None:
    results, said = run("tests.provider.faulty_toys:Repeating", "-k", "04 or 06 or 07 or 12")
    assert {"06", "07"} <= results["FAILED"] and "12" in results["PASSED"], said


def test_faults_of_a_driver_are_found(run: Run) -> None:
    checks = ("09", "12", "14", "17", "18")
    results, said = run("tests.provider.faulty_toys:Careless", "-k", " or ".join(checks))
    assert results["FAILED"] == set(checks), said


def test_missing_options_are_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-p", "jupyter_sky.testing.plugin", "--pyargs"]
    done = subprocess.run(
        [*command, "jupyter_sky.testing.provider", "-k", "01"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "name the driver: --provider" in done.stdout
