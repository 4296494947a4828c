"""Bags that the Slurm of this machine runs: a real one, of the distribution's packages."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import jupyter_sky as sky
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.sessions import session as sessions
from tests.conftest import wait_until
from tests.emulators.slurm import USABLE, Slurm, slurm

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not USABLE, reason="needs root, slurmctld, slurmd, slurm-client and munge"),
]


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    path = tmp_path_factory.mktemp("sky")
    with pytest.MonkeyPatch.context() as patch, slurm() as made:
        patch.setenv("SLURM_CONF", made.env["SLURM_CONF"])
        patch.setenv("SKY_DATA_DIR", str(path))
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
        sessions.close()
        Sky.clear_instance()
        yield made
        sessions.close()
    Sky.clear_instance()


def test_function_runs_in_batch_jobs(batch: Slurm) -> None:
    def work(n: int) -> dict[str, object]:
        print("job", n)
        if n == 3:
            raise ValueError("three")
        return {"square": n * n, "slurm": os.environ["SLURM_JOB_ID"]}

    bag = sky.bag(work, range(8), slurm=True, machines=4, need=7, name="slurm")
    frame = bag.wait(120).frame()
    done = frame[frame.state == "succeeded"]
    assert done.square.tolist() == [n * n for n in range(8) if n != 3]
    assert done.slurm.nunique() > 1, "in several batch jobs"
    assert (frame.machine == f"slurm {batch.host}").all()
    assert frame.error[3] == "ValueError: three" and "job 3" in bag.logs(3)
    wait_until(lambda: not batch.jobs(), "what has ended is gone from the queue")


def test_mpi_command_runs_on_several_ranks(batch: Slurm, tmp_path: Path) -> None:
    program = tmp_path / "ring.py"
    program.write_text(
        "import sys\n"
        "from mpi4py import MPI\n"
        "world = MPI.COMM_WORLD\n"
        "total = world.reduce(int(sys.argv[1]) + world.rank)\n"
        "if not world.rank:\n"
        '    print({"total": total, "ranks": world.size}.__repr__().replace("\'", \'"\'))\n'
    )
    command = f"{sys.executable} {program} {{n}}"
    bag = sky.bag(command, [{"n": 1}, {"n": 10}], slurm="--ntasks 2", name="ring").wait(120)
    assert bag.results() == {0: {"total": 3, "ranks": 2}, 1: {"total": 21, "ranks": 2}}


def test_job_that_slurm_ends_is_tried_again(batch: Slurm, tmp_path: Path) -> None:
    mark = tmp_path / "begun"
    command = f"[ -e {mark} ] && exit 0; touch {mark}; kill -9 $PPID"
    bag = sky.bag(command, 1, slurm=True, name="killed").wait(120)
    assert bag.frame().attempts[0] == 2


def test_cancelled_bag_leaves_no_batch_job(batch: Slurm) -> None:
    bag = sky.bag("sleep 60", 3, slurm=True, name="cancelled")
    wait_until(lambda: len(batch.jobs()) == 3, "all are submitted")
    bag.cancel()
    with pytest.raises(sky.SkyCancelled):
        bag.wait(60)
    wait_until(lambda: not batch.jobs(), "all are cancelled")


def test_what_slurm_refuses_is_told(batch: Slurm) -> None:
    bag = sky.bag("true", 2, slurm="--partition nowhere", name="refused")
    with pytest.raises(sky.SkyBagFailed, match="nvalid partition"):
        bag.wait(60)
    with pytest.raises(sky.SkyUsageError, match="--slurm and --spot"):
        sky.bag("true", 2, slurm=True, resources="--spot")
    with pytest.raises(sky.SkyUsageError, match="--slurm and --gpus A100-SXM"):
        sky.bag("true", 2, slurm=True, resources="--gpus A100-SXM:8")


def test_shell_submits_to_slurm(batch: Slurm, tmp_path: Path) -> None:
    from jupyter_sky.cli import main

    begun = time.time()
    sessions.close()
    assert main(["bag", "submit", "echo {n}", "--sweep", "n=0:3", "--slurm", "--name", "sh"]) == 0
    bag = sky.bag("sh")
    assert bag.made > begun and bag.results() == {0: 0, 1: 1, 2: 2}
