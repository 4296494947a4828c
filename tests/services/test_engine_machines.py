"""Dask and Ray on two machines reached by SSH: their pages, the loss of a machine, their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPCookieProcessor, build_opener, urlopen

import psutil
import pytest

from tests.conftest import Notebook, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.services.conftest import START

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not USABLE, reason="needs OpenSSH's client and server"),
]


@pytest.fixture
def hosts() -> Iterator[list[SshHost]]:
    made = [SshHost(number) for number in (83, 84)]
    try:
        yield made
    finally:
        for host in made:
            host.close()


@pytest.fixture
def notebook_of_hosts(hosts: list[SshHost], fresh: Callable[[], Notebook]) -> Notebook:
    """Return a notebook that knows both machines."""
    data: Path = fresh.data  # type: ignore[attr-defined]
    data.mkdir(exist_ok=True)
    tables = [host.toml(f"box{number}") for number, host in enumerate(hosts)]
    (data / "hosts.toml").write_text("\n".join(tables))
    return fresh()


def processes_with(host: SshHost, word: str) -> list[psutil.Process]:
    """Return the processes of a machine that have a word in their command."""
    return [process for process in host.processes() if word in " ".join(process.cmdline())]


def test_dask_on_two_machines(hosts: list[SshHost], notebook_of_hosts: Notebook) -> None:
    pytest.importorskip("distributed")
    pytest.importorskip("cryptography")
    notebook = notebook_of_hosts
    code = """%%sky --engine dask --cloud ssh --nodes 2
client.wait_for_workers(2)
print(client.dashboard_link)
sorted(each["name"] for each in client.scheduler_info()["workers"].values())
"""
    started = notebook.run(code, START)
    assert started.result == "['node-0', 'node-1']", started
    processes = [
        processes_with(host, "jupyter_sky.machines.services.dask_processes") for host in hosts
    ]
    assert [len(each) for each in processes] == [2, 1], "a worker each, and the scheduler"
    link = started.stdout.strip()
    assert build_opener(HTTPCookieProcessor()).open(link).status == 200, "through the tunnel"
    with pytest.raises(HTTPError):
        urlopen(link.partition("?")[0])

    hosts[1].close()
    scheduler = min(processes[0], key=lambda process: process.create_time())
    scheduler.kill()
    wait_until(lambda: not scheduler.is_running(), "it goes on")
    ran = notebook.run("%%sky --engine dask --on 0\nclient.submit(abs, -3).result()", START)
    assert ran.result == "3", "it starts without the machine that is lost"
    ended = notebook.run("%sky down --yes", START)
    assert ended.ename == "SkyNotEnded" and hosts[1].ip in ended.evalue, "nobody can tell"
    wait_until(lambda: not hosts[0].held(), "processes are left")


def test_ray_on_two_machines(hosts: list[SshHost], notebook_of_hosts: Notebook) -> None:
    notebook = notebook_of_hosts
    code = """%%sky --engine ray --cloud ssh --nodes 2
@ray.remote
def square(n):
    return n * n
print(sum(ray.get([square.remote(n) for n in range(10)])))
len([node for node in ray.nodes() if node["Alive"]])
"""
    started = notebook.run(code, START)
    assert (started.stdout, started.result) == ("285\n", "2"), started
    assert all(processes_with(host, "raylet") for host in hosts)
    assert notebook.run("%sky down --yes", START).status == "ok"
    wait_until(lambda: not any(host.held() for host in hosts), "processes are left")
