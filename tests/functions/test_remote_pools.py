"""Functions on machines elsewhere: by the controller, over a connection that may be cut."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyTaskLost, SkyTimeout
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.machines.engines.client.client import DirectClient
from tests.conftest import wait_until
from tests.emulators.hosts import USABLE, SshHost

pytestmark = pytest.mark.slow


@sky.function
def process() -> int:
    return os.getpid()


@sky.function
def home() -> str:
    return os.environ["HOME"]


@sky.function
def text(path: str) -> str:
    return Path(path).read_text()


@sky.function
def numbers(n: int, wait: float = 0.0) -> Iterator[int]:
    for i in range(n):
        yield i
        time.sleep(wait)


@sky.function
def total(data: Iterator[int]) -> int:
    return sum(data)


@sky.function
def length(array: np.ndarray) -> int:
    return len(array)


@sky.function
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@sky.function
def die() -> None:
    os.kill(os.getpid(), 9)


@sky.function
def speak(n: int) -> None:
    for i in range(n):
        print("line", i)


def use(pool: Pool, capsys: pytest.CaptureFixture[str]) -> None:
    """Do with a pool what has a way of its own."""
    count = len(pool.ranks)
    assert len(set(process() @ pool)) == count
    assert sky.gather(*(sky.function(abs)(-i) for i in range(2000))) >> pool == tuple(range(2000))
    assert list(numbers(3000) >> pool) == list(range(3000))
    assert total(iter(range(3000))) >> pool == 3000 * 2999 // 2
    for item in numbers(10**9) >> pool:
        if item == 5:
            break
    assert length(np.arange(500_000.0)) @ pool == [500_000] * count
    with pytest.raises(SkyTimeout):
        sleep(30).with_timeout(0.3) >> pool
    future = sleep(30) > pool
    time.sleep(0.3)
    assert future.cancel()
    assert len(process() @ pool) == count, "all places are free"
    capsys.readouterr()
    speak(50) >> pool
    assert len(capsys.readouterr().out.splitlines()) == 50
    with pytest.raises(SkyTaskLost):
        die() >> pool
    assert len(process() @ pool) == count


def test_calls_through_the_controller(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(DirectClient, "connect_directly", lambda *_: None)
    with sky.Compute(nodes=2) as pool:
        assert not pool.connection.client.routes
        use(pool, capsys)


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_calls_over_ssh(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [SshHost(71), SshHost(72)]
    try:
        tables = [host.toml(f"box{number}") for number, host in enumerate(hosts)]
        (data / "hosts.toml").write_text("\n".join(tables))
        (tmp_path / "a").write_text("one")
        volume = sky.Volume(str(tmp_path), "volumes/set")
        with sky.Compute(provider="ssh", nodes=2, volumes=[volume]) as pool:
            assert home() @ pool == [str(host.home) for host in hosts]
            assert text("volumes/set/a") @ pool == ["one"] * 2
            use(pool, capsys)
            stream = numbers(200, wait=0.02) >> pool
            assert next(stream) == 0
            drop_connections(pool)
            assert list(stream) == list(range(1, 200)), "nothing is lost by a cut connection"
        wait_until(lambda: not any(host.held() for host in hosts), "processes are left")
    finally:
        for host in hosts:
            host.close()


def drop_connections(pool: Pool) -> None:
    """Cut what connects this process with the cluster; it is made anew."""
    tunnel = pool.cluster.tunnel
    assert tunnel is not None
    for process in psutil.Process(tunnel._process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            process.kill()
