"""Frameworks on a real pool of two nodes: joblib and scikit-learn, dask, MPI."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import psutil
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.execution.functions import plugins
from jupyter_sky.execution.functions.calls.lazy_calls import function
from jupyter_sky.execution.functions.images.specs import Worker
from jupyter_sky.execution.functions.pools.compute import Compute
from jupyter_sky.execution.functions.pools.pool import Pool
from jupyter_sky.machines.engines.node.instance import instance_info
from tests.conftest import wait_until

pytestmark = pytest.mark.slow


# -- joblib and scikit-learn -----------------------------------------------------------------------


def whose(number: int) -> tuple[int, int]:
    return number, os.getpid()


def test_joblib_runs_on_the_pool(compute: Pool) -> None:
    from joblib import Parallel, delayed, parallel_backend

    plugins.joblib()
    with parallel_backend("sky"):
        found = Parallel()(delayed(whose)(number) for number in range(40))
    assert [number for number, _ in found] == [*range(40)]
    pids = {pid for _, pid in found}
    assert pids == {*(function(os.getpid)() @ compute)} and len(pids) == 2


def test_error_in_batch_keeps_its_type(compute: Pool) -> None:
    from joblib import Parallel, delayed, parallel_backend

    with parallel_backend("sky"), pytest.raises(ZeroDivisionError):
        Parallel()(delayed(divmod)(1, number) for number in [1, 0, 1, 1])
    with parallel_backend("sky"):
        assert Parallel()(delayed(abs)(-1) for _ in range(3)) == [1, 1, 1], "the pool goes on"


def test_scikit_learn_grid_search(data: Any) -> None:
    from sklearn.datasets import load_iris
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    x, y = load_iris(return_X_y=True)
    grid = {"C": [0.1, 1, 10], "gamma": [0.01, 0.1]}
    here = GridSearchCV(SVC(), grid, cv=3).fit(x, y)
    seen: list[int] = []
    with Compute(nodes=2, plugins=[plugins.sklearn()]) as pool:
        submit = pool.submit
        pool.submit = lambda call: (seen.append(1), submit(call))[1]  # type: ignore[method-assign]
        there = GridSearchCV(SVC(), grid, cv=3, n_jobs=-1).fit(x, y)
    assert there.best_params_ == here.best_params_ and seen
    assert there.best_score_ == pytest.approx(here.best_score_)
    without = GridSearchCV(SVC(), grid, cv=3, n_jobs=1).fit(x, y)
    assert without.best_params_ == here.best_params_, "joblib is as it was after the pool"


def test_joblib_without_a_pool(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from joblib import Parallel, delayed, parallel_backend

    from jupyter_sky.execution.functions.calls import active_pools

    monkeypatch.setattr(active_pools, "_active", [])
    plugins.joblib()
    with pytest.raises(SkyUsageError, match="no pool is up"), parallel_backend("sky"):
        Parallel()(delayed(abs)(1) for _ in range(3))


def test_joblib_on_a_node_runs_its_calls_there(compute: Pool) -> None:
    from joblib import Parallel, delayed

    plugins.joblib()

    def inner(x: int) -> list[int]:
        return Parallel(n_jobs=2, backend="sky")(delayed(abs)(-n) for n in range(x))

    found = Parallel(n_jobs=2, backend="sky")(delayed(inner)(n) for n in (2, 3))
    assert found == [[0, 1], [0, 1, 2]]


def test_joblib_with_no_jobs_is_refused_in_joblib_s_words(compute: Pool) -> None:
    from joblib import Parallel

    plugins.joblib()
    with pytest.raises(ValueError, match="n_jobs == 0 in Parallel has no meaning"):
        Parallel(n_jobs=0, backend="sky")([])


def test_memory_cannot_be_shared_by_nodes(compute: Pool) -> None:
    from joblib import Parallel, delayed, parallel_backend

    with parallel_backend("sky"):
        assert Parallel(n_jobs=2, require="sharedmem")(delayed(abs)(n) for n in [-1, 2]) == [1, 2]


@function
def fit_with_keras() -> tuple[str, bool]:
    import keras
    import numpy as np

    x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    losses = model.fit(x, 3 * x + 1, epochs=4, verbose=0).history["loss"]
    return keras.backend.backend(), losses[-1] < losses[0]


@function
def step_with_accelerate() -> tuple[int, int, str, list[float]]:
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    torch.manual_seed(accelerator.process_index)
    model = torch.nn.Linear(1, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    accelerator.backward(model(torch.full((4, 1), accelerator.process_index + 1.0)).mean())
    optimizer.step()
    weight = accelerator.unwrap_model(model).weight.detach().reshape(1)
    weights = accelerator.gather(weight).tolist()
    precision = accelerator.state.mixed_precision
    return accelerator.num_processes, accelerator.process_index, precision, weights


def test_keras_and_accelerate_train_on_two_nodes(data: Any) -> None:
    if not all(map(find_spec, ("torch", "keras", "accelerate"))):  # the client imports none
        pytest.skip("one of them is not installed")
    settings = {"mixed_precision": "no"}
    equipment = [plugins.keras("torch"), plugins.accelerate(settings, backend="gloo")]
    with Compute(nodes=2, plugins=equipment) as pool:
        assert fit_with_keras() @ pool == [("torch", True)] * 2
        (*first, weights), (*second, others) = step_with_accelerate() @ pool
        assert (first, second) == ([2, 0, "no"], [2, 1, "no"])
        assert weights == others and weights[0] == weights[1], "both made the same step"


# -- dask ------------------------------------------------------------------------------------------


def dask_processes() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "jupyter_sky.machines.services.dask_processes" in (process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_dask_on_the_same_nodes(data: Any) -> None:
    pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    import dask.array

    assert not dask_processes()
    with Compute(nodes=2) as pool:
        client = pool.dask
        assert pool.dask is client and len(client.scheduler_info()["workers"]) == 2
        assert {w["name"] for w in client.scheduler_info()["workers"].values()} == {
            "node-0",
            "node-1",
        }
        workers = client.scheduler_info()["workers"].values()
        threads = [worker["nthreads"] for worker in workers]
        assert sum(threads) <= max(len(os.sched_getaffinity(0)), 2), "they share this machine"
        total = psutil.virtual_memory().total
        assert sum(worker["memory_limit"] for worker in workers) <= total
        folders = {worker["local_directory"] for worker in workers}
        assert len({Path(folder).parents[0] for folder in folders}) == 2
        assert client.gather(client.map(lambda n: n * n, range(20))) == [n * n for n in range(20)]
        array = dask.array.ones((400, 400), chunks=100)
        assert client.compute(array.sum()).result() == 160_000
        assert (function(instance_info)() @ pool)[1].node == 1, "calls go on beside it"
        assert client.dashboard_link.startswith("http://127.0.0.1:")
        slow = client.submit(time.sleep, 2)
        wait_until(lambda: pool.use() == "1 task of Dask")
        slow.result()
        assert pool.use() == "", "nothing keeps its nodes up now"
        assert len(dask_processes()) == 3
        unfinished = client.submit(time.sleep, 600)  # its worker does not end by itself
        wait_until(lambda: any(client.processing().values()))
    wait_until(lambda: not dask_processes())
    assert client.status in ("closed", "closing")
    assert unfinished.status != "finished"
    assert not any(map(os.path.exists, folders)), "nothing stays on the disk"


def test_dashboard_requires_token(data: Any) -> None:
    pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    with Compute(nodes=1) as pool:
        link = pool.dask.dashboard_link
        plain, _, token = link.partition("?token=")
        assert len(token) > 30
        for wrong in (plain, f"{plain}?token=", f"{plain}?token={token[:-1]}", f"{plain}/../info"):
            with pytest.raises(HTTPError) as refused:
                urlopen(wrong, timeout=10)
            assert refused.value.code == 403
        browser = build_opener(HTTPCookieProcessor())
        base = plain.rpartition("/")[0]
        with browser.open(f"{base}/info/main/workers.html?token={token}", timeout=10) as page:
            assert page.status == 200 and "token" not in page.url
        with browser.open(f"{base}/health", timeout=10) as page:
            assert page.read() == b"ok", "the cookie is enough from now on"


def test_client_without_key_cannot_use_scheduler(data: Any) -> None:
    pytest.importorskip("distributed")
    from distributed import Client

    with Compute(nodes=1) as pool:
        address = pool.dask.scheduler.address
        for bad in (address, address.replace("tls", "tcp")):
            with pytest.raises((OSError, TypeError, RuntimeError)):
                Client(bad, timeout=3, set_as_default=False)


# -- JAX -------------------------------------------------------------------------------------------


@function
def gathered(weight: float) -> tuple[int, int, list[float]]:
    import jax
    from jax.experimental.multihost_utils import process_allgather

    value = jax.numpy.array([weight * (jax.process_index() + 1)])
    return jax.process_index(), len(jax.devices()), process_allgather(value).ravel().tolist()


def test_jax_sees_the_devices_of_all_nodes(data: Any) -> None:
    pytest.importorskip("jax")
    with Compute(nodes=2, plugins=[plugins.jax()]) as pool:
        for weight in (1.0, 2.0):
            everybody = [weight, 2 * weight]
            assert gathered(weight) @ pool == [(0, 2, everybody), (1, 2, everybody)]


# -- MPI -------------------------------------------------------------------------------------------


def speaks_pmi() -> bool:
    """Whether there is an MPI library here that is told its rank as ours are."""
    code = "from mpi4py import MPI; print(MPI.get_vendor()[0])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return said.stdout.strip() in ("MPICH", "Intel MPI")


@function
def added_up(weight: float) -> tuple[int, int, float, list[int] | None]:
    import numpy
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    mine, total = numpy.full(1000, weight * (world.rank + 1)), numpy.zeros(1000)
    world.Allreduce(mine, total)
    return world.rank, world.size, total.mean(), world.gather(world.rank, root=0)


def test_one_mpi_world_of_all_nodes(data: Any) -> None:
    if not speaks_pmi():
        pytest.skip("needs mpi4py on MPICH")
    with Compute(nodes=3, plugins=[plugins.mpi()]) as pool:
        for weight in (1.0, 2.0):
            assert added_up(weight) @ pool == [
                (0, 3, 6 * weight, [0, 1, 2]),
                (1, 3, 6 * weight, None),
                (2, 3, 6 * weight, None),
            ]


def test_pmi_requests() -> None:
    from jupyter_sky.execution.functions.plugins.mpi_world import PmiServer

    manager = PmiServer("alone", 1)
    for asked, answer in {
        "cmd=init pmi_version=1 pmi_subversion=1": "cmd=response_to_init rc=0",
        "cmd=get_maxes": "cmd=maxes rc=0 kvsname_max=",
        "cmd=put kvsname=world key=a value=x=1#y": "cmd=put_result rc=0",
        "cmd=barrier_in": "cmd=barrier_out rc=0",
        "cmd=get kvsname=world key=a": "cmd=get_result rc=0 value=x=1#y",
        "cmd=get kvsname=world key=b": "cmd=get_result rc=-1",
        "cmd=spawn nprocs=2": "cmd=spawn_result rc=-1",
        "cmd=finalize": "cmd=finalize_ack rc=0",
    }.items():
        assert manager.answer(asked).startswith(answer)


# -- what the nodes lack ---------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", [plugins.torch(), plugins.jax(), plugins.mpi()])
def test_concurrent_calls_are_refused(data: Any, plugin: Any) -> None:
    with pytest.raises(SkyUsageError, match=r"one call at a time, and Worker\(concurrency=2\)"):
        Compute(nodes=1, plugins=[plugin], worker=Worker(concurrency=2)).up()


def test_threads_meet_at_the_barriers_of_their_own_broadcast(compute: Pool) -> None:
    from jupyter_sky.execution.functions.plugins.rendezvous import exchange

    def meet() -> list[int]:
        return sorted(exchange("test", instance_info().node))

    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(function(meet)() @ compute))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [[[0, 1], [0, 1]]] * 3
