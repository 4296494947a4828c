"""Trivial jobs through the whole product on this machine: kernel side, engines, file."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path


def product_jobs_per_s(count: int) -> dict[str, float]:
    """Run a bag of trivial jobs on two engines; beside it, Dask on two processes.

    Returns
    -------
    dict
        ``jobs_per_s``, from the first job that has ended to the last, results stored on the disk;
        ``jobs_per_s_dask``, results in memory.
    """
    import jupyter_sky as sky
    from jupyter_sky.workflows.bags.bag_run import open_queue

    with tempfile.TemporaryDirectory() as folder:
        os.environ["SKY_DATA_DIR"] = folder
        bag = sky.bag(_same, range(count), resources="--cloud local", machines=2, name="trivial")
        results = bag.wait(600).results()
        assert results == {n: n for n in range(count)}
        queue = open_queue(Path(folder))
        ended = [row["ended"] for row in queue.rows("trivial")]
        queue.close()
    return {
        "jobs_per_s": count / max(max(ended) - min(ended), 1e-9),
        "jobs_per_s_dask": _dask_jobs_per_s(count),
    }


def _same(n: int) -> int:
    return n


def _dask_jobs_per_s(count: int) -> float:
    from dask.distributed import Client

    with Client(n_workers=2, threads_per_worker=1, dashboard_address=None) as client:
        client.gather(client.map(_same, range(10), pure=False))
        begun = time.perf_counter()
        client.gather(client.map(_same, range(count), pure=False))
        return count / (time.perf_counter() - begun)
