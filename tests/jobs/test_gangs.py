"""Jobs that several machines run together, and types of machines that are measured first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.config.settings import Sky
from jupyter_sky.executor import session as sessions
from jupyter_sky.jobs.bag_run import open_queue
from tests.conftest import clean, wait_until
from tests.emulators.hosts import USABLE
from tests.emulators.loopback import Loopback, loopback

pytestmark = pytest.mark.slow
RING = """
import sys
from mpi4py import MPI

world = MPI.COMM_WORLD
if int(sys.argv[1]) < 0 and world.rank == 1:
    print("no such number", flush=True)
    world.Abort(3)
total = world.reduce(int(sys.argv[1]) + world.rank)
if not world.rank:
    print(f'{{"total": {total}, "ranks": {world.size}}}')
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("sky")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SKY_DATA_DIR", str(path))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        sessions.close()
        Sky.clear_instance()
        yield path
        sessions.close()
    Sky.clear_instance()
    clean(path)


def test_mpi_command_runs_over_nodes(folder: Path) -> None:
    program = folder / "ring.py"
    program.write_text(RING)
    command = f"{sys.executable} {program} {{n}}"
    jobs = [{"n": 1}, {"n": -1}, {"n": 10}]  # the second one is stopped on both
    bag = sky.bag(command, jobs, resources="--cloud local --nodes 2", machines=2, need=2)
    frame = bag.wait(170).frame()
    assert bag.results() == {0: {"total": 3, "ranks": 2}, 2: {"total": 21, "ranks": 2}}
    # that of either rank, whichever is first
    assert frame.state[1] == "failed" and "the command ended with code" in frame.error[1]
    assert frame.machine[0].startswith("local")


@pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server")
def test_types_of_machines_are_measured_and_the_best_runs_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud: Loopback
    with loopback("aws") as cloud:
        for name, value in cloud.env.items():
            monkeypatch.setenv(name, value)
        sessions.close()
        Sky.clear_instance()
        # large machines do not pay: a job takes as long on all
        bag = sky.bag(
            "sleep 0.3",
            12,
            resources="--cloud aws --spot --cpus 4",
            machines=1,
            explore=True,
            name="explored",
        )
        frame = bag.wait(170).frame()
        queue = open_queue(folder)
        times = queue.read_times("command sleep 0.3")
        queue.close()
        assert len(times.hours) >= 2, "two types at least were measured"
        assert frame.machine.nunique() >= 2
        assert any("runs the rest" in text for _at, text in bag.events())
        wait_until(lambda: not cloud.machines(), "every machine was given back")
        sessions.close()
