"""Functions in another Python than the notebook's: `Image(python=...)`."""

from __future__ import annotations

import asyncio
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import (
    SkyBootstrapError,
    SkyTransferError,
    SkyUsageError,
    SkyVersionError,
)
from jupyter_sky.execution.functions.calls.lazy_calls import Function
from jupyter_sky.execution.functions.calls.portable import make_portable
from jupyter_sky.execution.functions.node.image_install import (
    PackageRequest,
    end_workers,
    find_python,
)
from jupyter_sky.execution.functions.pools.pool import Pool
from tests.conftest import wait_until
from tests.functions.test_image_on_nodes import project

__all__ = ["project"]
HERE = "{}.{}".format(*sys.version_info)


def another_python() -> str:
    """Return the minor version of another Python of this machine, or one that uv installs."""
    for minor in (13, 12, 14, 11):
        try:
            if (version := f"3.{minor}") != HERE and find_python(version):
                return version
        except SkyBootstrapError:
            continue
    raise AssertionError("no other Python on the path, below ~/.pyenv, or from uv")


FACTOR = 3


@dataclass
class Point:
    x: float

    def doubled(self) -> Point:
        return Point(self.x * 2)


def helper(x: float) -> float:
    return math.sqrt(x) * FACTOR


@sky.function
def where(x: float) -> tuple[str, float]:
    """Return the Python that runs this, and something computed with what it names."""
    print("computing", x)
    return "{}.{}".format(*sys.version_info), helper(Point(x).doubled().x / 2)


@sky.function
def numbers(count: int) -> Iterator[int]:
    for number in range(count):
        yield number * FACTOR


@sky.function
async def later(x: int) -> int:
    await asyncio.sleep(0.01)
    return x + 1


@sky.function
def fail(kind: str) -> None:
    if kind == "own":

        class OwnError(Exception):
            pass

        raise OwnError("of the user")
    raise ValueError("of the user")


@sky.function
def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


@pytest.fixture(scope="module")
def version() -> str:
    return another_python()


@pytest.fixture(scope="module")
def request_of(version: str) -> Iterator[PackageRequest]:
    yield PackageRequest(python=version)
    end_workers()


def test_functions_travel_as_source(request_of: PackageRequest) -> None:
    portable = make_portable(where.local, request_of)
    assert portable(4.0) == (request_of.python, 6.0)
    assert list(make_portable(numbers.local, request_of)(4)) == [0, 3, 6, 9]
    assert make_portable(later.local, request_of)(1) == 2
    outer = 7

    def closure(x: int) -> int:
        return x + outer

    assert make_portable(closure, request_of)(1) == 8


def test_prints_come_back(request_of: PackageRequest, capsys: pytest.CaptureFixture[str]) -> None:
    make_portable(where.local, request_of)(4.0)
    assert capsys.readouterr().out == "computing 4.0\n"


def test_errors_keep_their_class(request_of: PackageRequest) -> None:
    portable = make_portable(fail.local, request_of)
    with pytest.raises(ValueError, match="of the user") as caught:
        portable("builtin")
    (note,) = caught.value.__notes__
    assert f"Python {request_of.python}" in note and "raise ValueError" in note
    with pytest.raises(RuntimeError, match="OwnError: of the user"):
        portable("own")


def test_processes_serve_one_call_after_the_other(request_of: PackageRequest) -> None:
    portable = make_portable(nap.local, request_of)
    assert portable(0) == portable(0)
    unfinished = make_portable(numbers.local, request_of)(4)
    next(unfinished)
    unfinished.close()
    assert make_portable(numbers.local, request_of)(1) is not None
    with pytest.raises(SkyTransferError, match="ended with exit code 3"):
        make_portable(die, request_of)()


def die() -> None:
    os._exit(3)


def uses_sky() -> int:
    return sky.instance_info().node


def test_what_cannot_travel_is_told() -> None:
    request = PackageRequest(python="3.99")
    for function, why in (
        (lambda: 1, "no name of its own"),
        (uses_sky, "names sky of jupyter_sky"),
        (math.sqrt, "no plain function"),
        (make_without_source(), "no source"),
        (uses_lock(), "lock does not pickle plainly"),
    ):
        with pytest.raises(SkyVersionError, match=why) as caught:
            make_portable(function, request)
        assert "Python 3.99" in str(caught.value)


def make_without_source() -> Any:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def made(): pass", space)
    return space["made"]


def uses_lock() -> Any:
    import threading

    lock = threading.Lock()

    def locked() -> bool:
        return lock.locked()

    return locked


def test_arguments_that_cannot_travel(request_of: PackageRequest) -> None:
    with pytest.raises(SkyTransferError, match="arguments of numbers cannot go"):
        make_portable(numbers.local, request_of)(lambda: 1)


def test_a_python_that_is_not_there() -> None:
    with pytest.raises(SkyBootstrapError, match=r"there is no Python 3\.99"):
        find_python("3.99")


def test_a_shim_that_leads_nowhere_is_no_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    shim = tmp_path / f"python{version}"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = find_python.__wrapped__(version)
    assert found != str(shim)
    code = "import sys; print(sys.version_info[1])"
    ran = subprocess.run([found, "-c", code], capture_output=True, text=True)
    assert ran.stdout.strip() == version.partition(".")[2]


# -- on nodes --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pool(data: Path, version: str) -> Iterator[Pool]:
    with sky.Compute(nodes=2, image=sky.Image(python=version)) as made:
        yield made


@pytest.mark.slow
class TestNodes:
    def test_calls_of_all_kinds(
        self, pool: Pool, version: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert where(4.0) >> pool == (version, 6.0)
        assert where(1.0) @ pool == [(version, 3.0)] * 2
        assert list(numbers(300) >> pool) == [n * 3 for n in range(300)]
        assert sky.gather(*(later(n) for n in range(20))) >> pool == tuple(range(1, 21))
        with pytest.raises(ValueError, match="of the user"):
            fail("builtin") >> pool
        assert "computing 4.0" in capsys.readouterr().out

    def test_a_call_that_is_cancelled_ends_its_process(self, pool: Pool) -> None:
        before = nap(0) @ pool
        future = nap(3600) > pool
        wait_until(future.running, "it runs")
        time.sleep(0.5)
        future.cancel()
        after = nap(0) @ pool
        assert len({*before} - {*after}) == 1, "that of the other node goes on"

    def test_what_cannot_travel_is_told_before_it_is_sent(self, pool: Pool) -> None:
        with pytest.raises(SkyVersionError, match="names sky of jupyter_sky"):
            Function(uses_sky)() >> pool

    def test_packages_of_that_python(self, project: Path, version: str) -> None:
        @sky.function
        def packages() -> tuple[str, int, str]:
            import tinywheel  # pyright: ignore[reportMissingImports]

            return tinywheel.__file__, tinywheel.VALUE, os.environ["MINE"]

        wheel = str(next(project.glob("*.whl")))
        image = sky.Image(python=version, pip=[wheel], env={"MINE": "1"})
        with sky.Compute(nodes=1, image=image) as made:
            file, *values = packages() >> made
        assert f"python{version}" in file and values == [5, "1"]

    def test_plugins_of_engines_are_refused(self, data: Path, version: str) -> None:
        with pytest.raises(SkyUsageError, match="plug-ins that run in engines"):
            sky.Compute(nodes=1, image=sky.Image(python=version), plugins=[sky.plugins.mpi()]).up()
