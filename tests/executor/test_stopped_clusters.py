"""Clusters on a cloud's machines that are stopped and started again, from a shell."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_sky.base.store.store import Store
from tests.conftest import clean, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(420),  # each test is a row of commands, on a busy machine too
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]
Shell = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cloud() -> Iterator[Loopback]:
    with loopback("aws") as opened:
        yield opened


@pytest.fixture(params=["gcp", "azure"])
def other(request: pytest.FixtureRequest) -> Iterator[tuple[str, Loopback]]:
    with loopback(request.param) as opened:
        yield request.param, opened


@pytest.fixture
def sky(tmp_path: Path, sky_env: dict[str, str], cloud: Loopback) -> Iterator[Shell]:
    """Run a command of the shell."""
    data = tmp_path / "data"

    def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        around = {**os.environ, **sky_env, **cloud.env, "SKY_DATA_DIR": str(data), **env}
        return subprocess.run(
            [sys.executable, "-m", "jupyter_sky.cli", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=around,
            cwd=tmp_path,
            timeout=170,
        )

    run.data = data  # type: ignore[attr-defined]
    yield run
    clean(data)
    end_watches(data)
    cloud.api.scripts.clear()
    for machine in cloud.machines():
        cloud.api.power_off(machine["id"])


def end_watches(data: Path) -> None:
    """End the process that watches leases, which looks twice a minute whether it is needed."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_watch = "jupyter_sky.clouds.lease_watcher" in process.cmdline()
            if is_watch and process.environ().get("SKY_DATA_DIR") == str(data):
                process.kill()
                process.wait(10)


def intervals(sky: Shell) -> list[float | None]:
    store = Store.open(sky.data)  # type: ignore[attr-defined]
    try:
        return [row.price for row in store.intervals("one")]
    finally:
        store.close()


def states(cloud: Loopback) -> list[str]:
    return [machine["state"] for machine in cloud.machines()]


def test_stopped_cluster_costs_its_disk_and_is_started_with_its_files(
    sky: Shell, cloud: Loopback
) -> None:
    words = ["launch", "-c", "one", "--cloud", "aws", "--cpus", "2", "--"]
    ran = sky(*words, "echo kept >kept.txt")
    assert ran.returncode == 0, ran.stderr
    asked = sky("stop", "one")
    assert asked.returncode == 2 and "--yes" in asked.stderr, asked.stdout
    assert "50 GiB" in asked.stderr and "$0.0068/h" in asked.stderr, "what it costs is said before"
    assert states(cloud) == ["running"]
    stopped = sky("stop", "one", "--yes")
    assert stopped.returncode == 0 and "jupyter sky start one" in stopped.stdout, stopped.stderr
    assert states(cloud) == ["stopped"]
    status = sky("status").stdout
    assert "stopped: jupyter sky start one" in status and "$0.0068/h" in status, status
    refused = sky("exec", "one", "--", "true")
    assert refused.returncode == 2 and "one is stopped" in refused.stderr, refused.stderr
    again = sky("stop", "one", "--yes")
    assert again.returncode == 2 and "it is stopped" in again.stderr
    assert sky("reap").stdout.count("nothing to reap") == 1, "it is nobody's orphan"
    assert states(cloud) == ["stopped"]
    started = sky("start", "one")
    assert started.returncode == 0, started.stderr
    assert "one" in started.stdout and states(cloud) == ["running"], started.stdout
    read = sky("exec", "one", "--", "cat kept.txt")
    assert read.returncode == 0 and read.stdout == "kept\n", read.stderr
    prices = intervals(sky)
    assert len(prices) == 3 and prices[0] == prices[2] and (prices[1] or 1) < 0.01, prices
    down = sky("down", "one")
    assert down.returncode == 0 and "ended: one" in down.stdout, down.stderr
    wait_until(lambda: not cloud.machines())


def test_other_clouds_stop_and_start(sky: Shell, other: tuple[str, Loopback]) -> None:
    name, cloud = other
    words = ["launch", "-c", "one", "--cloud", name, "--cpus", "2", "--"]
    ran = sky(*words, "echo kept >kept.txt", **cloud.env)
    assert ran.returncode == 0, ran.stderr
    stopped = sky("stop", "one", "--yes", **cloud.env)
    assert stopped.returncode == 0, stopped.stderr
    assert states(cloud) == [{"gcp": "TERMINATED", "azure": "deallocated"}[name]]
    assert "stopped: jupyter sky start one" in sky("status", **cloud.env).stdout
    assert "nothing to reap" in sky("reap", **cloud.env).stdout
    started = sky("start", "one", **cloud.env)
    assert started.returncode == 0, started.stderr
    read = sky("exec", "one", "--", "cat kept.txt", **cloud.env)
    assert read.returncode == 0 and read.stdout == "kept\n", read.stderr
    assert sky("stop", "one", "--yes", **cloud.env).returncode == 0
    assert "ended: one" in sky("down", "--all", "--yes", **cloud.env).stdout
    wait_until(lambda: not cloud.machines())


def test_no_stock_at_a_start_keeps_the_cluster_stopped(sky: Shell, cloud: Loopback) -> None:
    sky("up", "-c", "one", "--cloud", "aws", "--cpus", "2")
    assert sky("stop", "one", "--yes").returncode == 0
    cloud.api.refuse("InsufficientInstanceCapacity", action="start")
    refused = sky("start", "one")
    assert refused.returncode == 1 and "capacity" in refused.stderr, refused.stderr
    assert "stopped" in sky("status").stdout and states(cloud) == ["stopped"]
    assert (intervals(sky)[-1] or 1) < 0.01, "it costs its disk again"
    ended = sky("down", "one")
    assert ended.returncode == 0 and "ended: one" in ended.stdout, ended.stderr
    assert "not complete" not in ended.stderr, "its log was copied before"
    wait_until(lambda: not cloud.machines())
    late = sky("start", "one")
    assert late.returncode == 2 and "has ended" in late.stderr


def test_stopped_cluster_ends_with_its_lease(sky: Shell, cloud: Loopback) -> None:
    up = sky("up", "-c", "one", "--cloud", "aws", "--cpus", "2", SKY_LEASE="75s")
    assert up.returncode == 0, up.stderr
    assert sky("stop", "one", "--yes").returncode == 0
    assert states(cloud) == ["stopped"]
    wait_until(lambda: not cloud.machines(), "the watch has ended it")
    assert "no cluster is up" in sky("status").stdout
    started = sky("start", "one")
    assert started.returncode == 2 and "ended while it was stopped" in started.stderr


def test_what_cannot_be_stopped_says_why(sky: Shell, cloud: Loopback) -> None:
    assert sky("up", "-c", "here", "--cloud", "local").returncode == 0
    local = sky("stop", "here", "--yes")
    assert local.returncode == 2 and "costs nothing" in local.stderr, local.stderr
    assert sky("launch", "-c", "one", "--cloud", "aws", "--", "true").returncode == 0
    begun = sky("exec", "one", "--name", "long", "--detach", "--", "echo begun; sleep 600")
    assert begun.returncode == 0, begun.stderr
    busy = sky("stop", "one", "--yes")
    assert busy.returncode == 2 and "jupyter sky cancel long" in busy.stderr, busy.stderr
    assert states(cloud) == ["running"]
