"""Real pools on this machine, each test file's in a data directory of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.functions.calls import active_pools
from jupyter_sky.execution.functions.images.specs import Worker
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.machines.engines.controller.controller import SharedStateProcess
from jupyter_sky.machines.engines.node import instance
from tests.conftest import clean
from tests.functions.shared_state_tasks import topology


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
def no_task_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has run no task yet."""
    monkeypatch.setattr(instance, "_PROCESS", instance._Process())
    monkeypatch.setattr(active_pools, "_had_pool", False)
    kept = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(kept)


@pytest.fixture(scope="module")
def shared_state_process() -> Iterator[SharedStateProcess]:
    """Server of shared state, started as the controller does: on the first connection."""
    server, ended = SharedStateProcess(), threading.Event()

    def tick() -> None:
        while not ended.wait(0.02):
            server.tick()

    threading.Thread(target=tick, daemon=True).start()
    yield server
    ended.set()
    for listener in server._sockets.values():
        listener.close()
    if server._process is not None:
        server._process.kill()
        server._process.wait()


@pytest.fixture
def task(shared_state_process: SharedStateProcess) -> Iterator[Callable[..., subprocess.Popen]]:
    """Run code in a process of its own, as a task of the same pool."""
    made: list[subprocess.Popen] = []

    def start(code: str, node: int = 0, nodes: int = 1) -> subprocess.Popen:
        before = (
            "import jupyter_sky.execution.functions.shared.collections as sky\n"
            "from jupyter_sky.machines.engines.node import instance\n"
            f"instance.running_task({topology(shared_state_process, node, nodes)!r}).__enter__()\n"
        )
        made.append(
            subprocess.Popen(
                [sys.executable, "-c", before + textwrap.dedent(code)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            )
        )
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.communicate()
