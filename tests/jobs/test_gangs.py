"""Jobs that several machines run together."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyBagFailed
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.sessions import session as sessions
from tests.conftest import clean

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
    assert frame.machine[0] == "this machine, 2 nodes"


def test_mpi_function_runs_over_nodes(folder: Path) -> None:
    def ring(n: int) -> dict[str, int]:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        if n < 0 and world.rank == 1:
            raise ValueError("no such number")
        return {"total": world.allreduce(n + world.rank), "ranks": world.size}

    jobs = [{"n": 1}, {"n": -1}, {"n": 10}]  # rank 0 of the second one waits in MPI
    mpi = [sky.plugins.mpi()]
    bag = sky.bag(ring, jobs, resources="--cloud local --nodes 2", machines=2, plugins=mpi)
    with pytest.raises(SkyBagFailed, match="no such number"):
        bag.wait(170)
    assert bag.results() == {0: {"total": 3, "ranks": 2}, 2: {"total": 21, "ranks": 2}}
    assert list(bag.frame().state) == ["succeeded", "failed", "succeeded"]
