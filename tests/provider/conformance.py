"""The conformance suite in a process and a folder of its own, as a provider's author runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHECKS = {f"{number:02}" for number in range(1, 21)}
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED) .*::(test_(\d\d)_\w+)", re.M)


@dataclass(frozen=True, slots=True)
class Results:
    """Numbers of the checks by their result, and all that was printed."""

    passed: set[str]
    failed: set[str]
    skipped: int
    text: str


def run_suite(folder: Path, *options: str, path: Path = ROOT) -> Results:
    """Run the suite.

    Parameters
    ----------
    folder
        Where it is run.
    path
        Further folder of modules.
    """
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "jupyter_sky.testing.plugin",
        "-rA",
        "--show-capture=no",
    ]
    command += ["--pyargs", "jupyter_sky.testing.provider", "--tb=short", "--durations=5"]
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(path), str(ROOT)))},
        capture_output=True,
        text=True,
    )
    text = done.stdout + done.stderr
    lines = _LINE.findall(text)
    return Results(
        passed={number for result, _, number in lines if result == "PASSED"},
        failed={number for result, _, number in lines if result in ("FAILED", "ERROR")},
        skipped=sum(map(int, re.findall(r"(\d+) skipped", text))),
        text=text,
    )
