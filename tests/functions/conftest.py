"""Real pools on this machine, each test file's in a data directory of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.config.settings import Sky
from jupyter_sky.engines.node import instance
from jupyter_sky.executor import session as sessions
from jupyter_sky.functions import active_pools
from jupyter_sky.functions.compute import Compute
from jupyter_sky.functions.pool import Pool
from jupyter_sky.functions.specs import Worker
from tests.conftest import clean


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of this file's pools; a session of this process uses it."""
    path = tmp_path_factory.mktemp("sky")
    before, root = os.environ.get("SKY_DATA_DIR"), Path(__file__).parents[2]
    os.environ["SKY_DATA_DIR"] = str(path)
    os.environ["PYTHONPATH"] = str(root)
    sessions.close()
    Sky.clear_instance()
    yield path
    sessions.close()
    Sky.clear_instance()
    os.environ.pop("SKY_DATA_DIR")
    if before is not None:
        os.environ["SKY_DATA_DIR"] = before
    clean(path)


@pytest.fixture(scope="module")
def compute(data: Path) -> Iterator[Pool]:
    """A pool of two nodes."""
    with Compute(nodes=2) as pool:
        yield pool


@pytest.fixture(scope="module", params=["main", "thread", "process"])
def executors(request: pytest.FixtureRequest, data: Path) -> Iterator[Pool]:
    """A pool of two nodes, with each kind of executor."""
    workers = {"main": Worker(), "thread": Worker(2), "process": Worker(2, "process")}
    with Compute(nodes=2, worker=workers[request.param]) as pool:
        yield pool


@pytest.fixture
def unspoilt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has run no task yet."""
    monkeypatch.setattr(instance, "_PROCESS", instance._Process())
    monkeypatch.setattr(active_pools, "_had_pool", False)
    kept = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(kept)
