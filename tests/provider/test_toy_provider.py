"""A cloud that a package of its own adds: cells on its machines, from a real kernel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.store.store import Store
from tests.conftest import Notebook, wait_until
from tests.emulators.fleet import Fleet
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import machine_env, warm_cache
from tests.emulators.toy import ToyCloud

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    warm_cache()
    with Fleet(minute=1.0) as opened:
        yield opened


@pytest.fixture(scope="module")
def cloud(fleet: Fleet) -> Iterator[ToyCloud]:
    cloud = ToyCloud(fleet)
    yield cloud
    cloud.close()


@pytest.fixture
def start(
    fresh: Any, cloud: ToyCloud, fleet: Fleet, toy_site: Path
) -> Iterator[Callable[..., Notebook]]:
    """Make a kernel with the package of the cloud and an account there."""
    paths = os.pathsep.join(path for path in (str(toy_site), os.environ.get("PYTHONPATH")) if path)

    def make(**env: str) -> Notebook:
        # where it is reached, each machine says itself
        login = {name: v for name, v in machine_env(fleet).items() if name == "SKY_LOGIN"}
        return fresh("toy.ipynb", **{**cloud.env(), **login, "PYTHONPATH": paths, **env})

    make.data = fresh.data  # type: ignore[attr-defined]
    yield make
    cloud.refusals.clear()


def test_cell_runs_on_two_machines_of_the_cloud(
    start: Callable[..., Notebook], cloud: ToyCloud
) -> None:
    book = start()
    ran = book.run("%%sky --cloud toy --nodes 2\nimport socket\nprint(socket.gethostname())", 120)
    assert ran.status == "ok", ran
    assert len(set(ran.stdout.split())) >= 2, "one line of each, and they are two machines"
    assert "toy toy-1" in ran.status_line and "$0.0" in ran.status_line
    assert len(cloud.machines()) == 2
    assert "2 x toy toy-1" in book.run("%sky status").result
    (row,) = Store.open(start.data).clusters()  # type: ignore[attr-defined]
    assert row.state == "up" and row.price == pytest.approx(0.24)
    assert "ended:" in book.run("%sky down --all").stdout
    assert cloud.machines() == []


def test_refusal_of_the_cloud_is_told_in_its_words(
    start: Callable[..., Notebook], cloud: ToyCloud
) -> None:
    cloud.refusals += [(400, "over_quota")]
    ran = start().run("%%sky --cloud toy\n1", 60)
    assert ran.ename == "SkyNoCapacity" and "the launch is refused (over_quota)" in ran.evalue, ran
    assert cloud.machines() == []


def test_wrong_key_is_told_with_its_remedy(start: Callable[..., Notebook], cloud: ToyCloud) -> None:
    book = start(TOY_KEY="wrong")
    check = book.run("%sky check")
    assert "toy" in check.stdout + check.result
    assert "set TOY_URL and TOY_KEY" in check.stdout + check.result
    wait_until(lambda: not cloud.machines(), "nothing is launched")
