"""Dask on two nodes of this machine: cells, functions, errors, interrupts, security, its end."""

from __future__ import annotations

import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import psutil
import pytest

from jupyter_sky.machines.services.dask_processes import make_certificate
from tests.conftest import Notebook, wait_until
from tests.services.conftest import START, find_controller, processes_named

pytest.importorskip("distributed")
pytest.importorskip("cryptography")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SLEEPING = """%%sky --engine dask
import time
def sleep(n):
    for __ in range(20):
        time.sleep(0.1)
print("begun", flush=True)
client.gather(client.map(sleep, range(1000, 2000), pure=False))
"""


def dask_processes(data_dir: Path) -> list[psutil.Process]:
    """Return the scheduler and the workers of the clusters in a data directory."""
    return processes_named(data_dir, "jupyter_sky.machines.services.dask_processes")


@pytest.fixture(scope="module")
def dasks(notebook: Notebook) -> Iterator[Notebook]:
    """Yield a notebook with a cluster of two nodes on which Dask runs."""
    code = """%%sky --engine dask --nodes 2 --cpus 1 --memory 3
print(client)
import dask.array
print(int(dask.array.ones((400, 400), chunks=100).sum().compute()))
sorted((each["name"], each["nthreads"]) for each in client.scheduler_info()["workers"].values())
"""
    started = notebook.run(code, START)
    assert started.result == "[('node-0', 1), ('node-1', 1)]", started
    first, total = started.stdout.splitlines()
    assert "on 2 nodes, not used yet>" in first
    assert total == "160000", "collections are computed there, before the client is used"
    yield notebook


def test_cells_share_one_client(dasks: Notebook) -> None:
    made = dasks.run("%%sky --engine dask\nkept = client.scatter([1, 2, 3])\nname = client.id")
    assert made.status == "ok", made
    code = "%%sky --on 0\nsum(client.gather(kept)), name == client.id"
    assert dasks.run(code).result == "(6, True)"


def test_tasks_may_use_the_client(dasks: Notebook) -> None:
    code = """%%sky --engine dask
def total(n):
    return sum(client.gather(client.map(abs, range(n))))
client.submit(total, 4).result()
"""
    assert dasks.run(code).result == "6"


def test_error_of_a_task_is_raised(dasks: Notebook) -> None:
    code = """%%sky --engine dask
def invert(n):
    return 1 / n
client.submit(invert, 0).result()
"""
    ran = dasks.run(code)
    assert ran.ename == "ZeroDivisionError" and ran.evalue == "division by zero"
    assert len(ran.traceback.splitlines()) < 25, ran.traceback


def test_interrupt_cancels_what_waits(dasks: Notebook) -> None:
    assert dasks.run("%%sky --engine dask\nearlier = client.submit(abs, -4)").status == "ok"
    sent = dasks.send(SLEEPING)
    dasks.wait_output("begun")
    dasks.interrupt()
    assert dasks.collect(sent).ename == "KeyboardInterrupt"
    code = """%%sky --engine dask
print(sum(client.submit(abs, -n).result() for n in (5, 6)), earlier.result())
print(len(client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.tasks])) < 100)
"""
    assert dasks.run(code).stdout.split() == ["11", "4", "True"]


def test_functions_have_the_client(dasks: Notebook) -> None:
    code = """
import jupyter_sky as sky
@sky.function
def squares(n):
    return sky.dask().gather(sky.dask().map(lambda x: x * x, range(n)))
pool = sky.up(nodes=2, cpus="1", memory="3", engine="dask")
squares(4) >> pool
"""
    ran = dasks.run(code)
    assert ran.result == "[0, 1, 4, 9]", ran


def test_pools_use_the_dask_that_runs(dasks: Notebook, data_dir: Path) -> None:
    before = {process.pid for process in dask_processes(data_dir)}
    ran = dasks.run("pool.dask.submit(sum, [1, 2]).result(), pool.dask.scheduler.address")
    assert ran.status == "ok" and ran.result.startswith("(3, 'tls://127.0.0.1:"), ran
    link = dasks.run("print(pool.dask.dashboard_link)").stdout.strip()
    assert build_opener(HTTPCookieProcessor()).open(link).status == 200
    assert {process.pid for process in dask_processes(data_dir)} == before
    assert dasks.run("%%sky --engine dask\nclient.submit(abs, -7).result()").result == "7"


def test_dashboard_wants_the_link(dasks: Notebook) -> None:
    link = dasks.run("%%sky --engine dask\nprint(client.dashboard_link)").stdout.strip()
    plain, __, token = link.partition("/status?token=")
    assert len(token) == 64
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{plain}/info/main/workers.html", timeout=30)
    assert refused.value.code == 403
    browser = build_opener(HTTPCookieProcessor())
    with browser.open(f"{plain}/info/main/workers.html?token={token}", timeout=30) as page:
        assert page.status == 200


def test_other_certificate_is_refused(dasks: Notebook) -> None:
    code = """%%sky --engine dask
from distributed import Client
from jupyter_sky.machines.services.dask_processes import make_security
for secret in ("0" * 64, None):
    try:
        Client(
            client.scheduler.address,
            security=make_security({"secret": secret}) if secret else None,
            timeout=3, set_as_default=False,
        )
    except (OSError, TypeError) as error:
        print("refused")
"""
    ran = dasks.run(code)
    assert ran.stdout.splitlines() == ["refused", "refused"], ran


def test_certificate_is_the_same_everywhere() -> None:
    first, second, other = map(make_certificate, ("ab" * 32, "ab" * 32, "cd" * 32))
    assert first == second and first["certificate"] != other["certificate"]
    context = ssl.create_default_context(cadata=first["ca"])
    assert len(context.get_ca_certs()) == 1


def test_dask_that_was_killed_is_started_anew(dasks: Notebook, data_dir: Path) -> None:
    for process in dask_processes(data_dir):
        process.kill()
    wait_until(lambda: not [*data_dir.glob("local/*/dask/endpoint.json")], "it is not noticed")
    told = dasks.run("%%sky --on 0\nclient.submit(abs, -1)")
    assert told.ename == "SkyError" and "--engine dask" in told.traceback
    again = dasks.run("%%sky --engine dask\nclient.submit(abs, -7).result()", START)
    assert again.result == "7", again


def test_nothing_is_left_of_a_killed_controller(dasks: Notebook, data_dir: Path) -> None:
    assert len(dask_processes(data_dir)) == 3
    os.kill(find_controller(data_dir).pid, signal.SIGKILL)
    wait_until(lambda: not dask_processes(data_dir), "Dask goes on")
