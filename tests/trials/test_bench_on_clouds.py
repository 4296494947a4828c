"""Benchmarks that rent machines: run side by side, compared, measured, ended, interrupted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import clean, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
CANDIDATES = "t3.small,t3.medium"


@pytest.fixture
def start(
    tmp_path: Path, sky_env: dict[str, str], emptied: Loopback
) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Begin a command of the shell."""
    data = tmp_path / "data"
    env = {**os.environ, **sky_env, **emptied.env, "SKY_DATA_DIR": str(data)}

    def begin(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "jupyter_sky.cli", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            cwd=tmp_path,
        )

    yield begin
    clean(data)


def run(start: Callable[..., subprocess.Popen[str]], *words: str) -> tuple[int, str, str]:
    process = start(*words)
    out, err = process.communicate(timeout=170)
    return process.returncode, out, err


def test_candidates_are_compared_and_end(
    start: Callable[..., subprocess.Popen[str]], cloud: Loopback, tmp_path: Path
) -> None:
    (tmp_path / "fit.py").write_text("print('fitted')\n")
    words = ["bench", "--cloud", "aws", "--candidates", CANDIDATES, "--budget", "1", "fit.py"]
    code, out, err = run(start, *words)
    assert code == 2 and "it costs up to $1.00" in err and "--yes" in err, (out, err)
    assert "at most $1.00" in out and not cloud.machines(), "nobody has agreed to it"
    code, out, err = run(start, *words[:-1], "--yes", "fit.py")
    assert code == 0, (out, err)
    table = out[out.rindex("Benchmark of fit.py") :]
    lines = [line for line in table.splitlines() if line.startswith("t3.")]
    assert len(lines) == 2 and all(line.endswith(" ok") for line in lines), table
    assert all(re.search(r"aws \S+ t3\.\w+ +\$\S+/h .*\$\S+ +\$\S+ +ok", line) for line in lines)
    assert "fastest: t3." in table and "their machines have ended" in table
    assert not cloud.machines()
    measured = run(start, "measurements", "fit")[1]
    assert "t3.small" in measured and "t3.medium" in measured, measured
    assert "no cluster is up" in run(start, "status")[1]


def test_failures_are_told_in_words(
    start: Callable[..., subprocess.Popen[str]], cloud: Loopback
) -> None:
    cloud.api.refuse("InsufficientInstanceCapacity", instance_type="t3.medium", times=99)
    words = ["bench", "--cloud", "aws", "--candidates", CANDIDATES, "--timeout", "2m", "--yes"]
    code, out, err = run(start, *words, "--", "exit 7")
    assert code == 1, (out, err)
    table = out[out.rindex("Benchmark of") :]
    (failed,) = [line for line in table.splitlines() if line.startswith("t3.small")]
    assert failed.endswith("exit code 7"), failed
    (refused,) = [line for line in table.splitlines() if line.startswith("t3.medium")]
    assert "capacity" in refused and "$0.00" in refused, refused
    assert not cloud.machines()


def test_an_interrupt_leaves_nothing_behind(
    start: Callable[..., subprocess.Popen[str]], cloud: Loopback
) -> None:
    words = ["bench", "--cloud", "aws", "--candidates", CANDIDATES, "--budget", "1", "--yes"]
    process = start(*words, "--", "sleep 600")
    wait_until(lambda: len(cloud.machines()) == 2, "two machines are up")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (out, err)
    assert not cloud.machines() and "Traceback" not in err
    assert "no cluster is up" in run(start, "status")[1]
