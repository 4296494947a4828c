"""Ray on two nodes of this machine: cells, functions, errors, interrupts, security, its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import Notebook, wait_until
from tests.services.conftest import START, find_controller, processes_named

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SLEEPING = """%%sky --engine ray
import time
@ray.remote
def sleep(begun):
    for __ in range(6000):
        time.sleep(0.1)
print("begun", flush=True)
ray.get([sleep.remote(True) for __ in range(40)])
"""


def ray_processes(data_dir: Path) -> list[psutil.Process]:
    """Return Ray's own processes and its workers, of the clusters in a data directory."""
    return processes_named(data_dir, "ray::", "raylet", "gcs_server", "ray.scripts", "/ray/")


@pytest.fixture(scope="module")
def rays(notebook: Notebook) -> Iterator[Notebook]:
    """Yield a notebook with a cluster of two nodes on which Ray runs."""
    code = """%%sky --engine ray --nodes 2 --cpus 1 --memory 3
print(ray)
kept_name = ray
@ray.remote
def square(n):
    return n * n
sum(ray.get([square.remote(n) for n in range(10)]))
"""
    started = notebook.run(code, START)
    assert started.result == "285", started
    assert started.stdout.startswith("<Ray 2.") and "2 nodes, not used yet>" in started.stdout
    yield notebook
    notebook.run("%sky down --yes")  # killed at once, Ray's agents would take a while to notice


def test_tasks_run_on_all_nodes(rays: Notebook) -> None:
    code = """%%sky --engine ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On
@ray.remote
def where():
    return ray.get_runtime_context().get_node_id()
strategies = [On(node["NodeID"], soft=False) for node in ray.nodes()]
found = ray.get([where.options(scheduling_strategy=each).remote() for each in strategies])
print(len(set(found)), ray.cluster_resources()["CPU"], ray)
"""
    ran = rays.run(code)
    assert ran.stdout.startswith("2 2.0 <Ray 2."), ran
    assert not ran.stderr


def test_actor_lives_on_over_two_cells(rays: Notebook) -> None:
    code = """%%sky --engine ray
@ray.remote
class Counter:
    def __init__(self):
        self.n = 0
    def add(self, n):
        self.n += n
        return self.n
counter, kept = Counter.remote(), ray.put([1, 2])
ray.get(counter.add.remote(3))
"""
    assert rays.run(code).result == "3"
    assert rays.run("%%sky --on 0\nray.get(counter.add.remote(4)), ray.get(kept)").result == (
        "(7, [1, 2])"
    )


def test_imported_module_is_connected_too(rays: Notebook) -> None:
    code = "%%sky --engine ray\nimport ray\nray.get(square.remote(4))"
    assert rays.run(code).result == "16"
    assert rays.run("%%sky --engine ray\nray is not kept_name").result == "True"


def test_output_of_tasks_belongs_to_their_cell(rays: Notebook) -> None:
    code = """%%sky --engine ray
import time
@ray.remote
def say():
    print("said by a task")
sent = say.remote()
"""
    assert rays.run(code).status == "ok"
    sent = rays.send("%%sky --engine ray\nray.get(say.remote())\ntime.sleep(600)")
    rays.wait_output("said by a task")
    rays.interrupt()
    assert rays.collect(sent).ename == "KeyboardInterrupt"


def test_error_of_a_task_shows_where_it_was(rays: Notebook) -> None:
    code = """%%sky --engine ray
@ray.remote
def invert(n):
    return 1 / n
ray.get(invert.remote(0))
"""
    ran = rays.run(code)
    assert ran.status == "error" and "RayTaskError(ZeroDivisionError)" in ran.traceback
    assert "line 4, in invert" in ran.traceback and "division by zero" in ran.traceback
    assert "site-packages" not in ran.traceback


def test_interrupt_cancels_what_waits(rays: Notebook) -> None:
    earlier = rays.run("%%sky --engine ray\nearlier = square.remote(3)")
    assert earlier.status == "ok"
    sent = rays.send(SLEEPING)
    rays.wait_output("begun")
    rays.interrupt()
    assert rays.collect(sent).ename == "KeyboardInterrupt"
    # its tasks, which take all CPUs for 10 min each, have ended, too
    after = rays.run("%%sky --engine ray\nray.get(square.remote(5)), ray.get(earlier)", START)
    assert after.result == "(25, 9)", after.status


def test_interrupt_ends_a_task_that_catches_it(rays: Notebook) -> None:
    code = """%%sky --engine ray
import time
@ray.remote
def stubborn():
    print("it runs")
    while True:
        try:
            time.sleep(0.1)
        except KeyboardInterrupt:
            pass
ray.get([stubborn.remote() for __ in range(40)])
"""
    sent = rays.send(code)
    rays.wait_output("it runs")
    rays.interrupt()
    assert rays.collect(sent).ename == "KeyboardInterrupt"
    after = rays.run("%%sky --engine ray\nray.get(square.remote(5))", 60)
    assert after.result == "25", after.ename


def test_functions_have_ray(rays: Notebook) -> None:
    code = """
import jupyter_sky as sky
@sky.function
def squares(n):
    ray = sky.ray()
    return ray.get([ray.remote(lambda x: x * x).remote(x) for x in range(n)])
pool = sky.up(nodes=2, cpus="1", memory="3", engine="ray")
squares(4) >> pool
"""
    ran = rays.run(code)
    assert ran.result == "[0, 1, 4, 9]", ran


def test_other_version_is_refused(rays: Notebook) -> None:
    ran = rays.run('%%sky --engine "ray<2.60"\n1')
    assert ran.ename == "SkyError"
    assert "runs Ray 2." in ran.traceback and "ray<2.60" in ran.traceback


def test_wrong_token_is_refused(rays: Notebook) -> None:
    code = """%%sky --engine ray
import os, pathlib, subprocess, sys
code = "import ray, sys; ray.init(logging_level='ERROR'); print(ray.cluster_resources())"
for token in (None, "0" * 64):
    env = os.environ | {"PYTHONPATH": ":".join(sys.path), "RAY_NUM_REDIS_GET_RETRIES": "1"}
    if token:
        del env["RAY_AUTH_TOKEN_PATH"]
        env["RAY_AUTH_TOKEN"] = token
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    print("CPU" in done.stdout, "InvalidAuthToken" in done.stderr)
folder = pathlib.Path(os.environ["JUPYTER_SKY_ENGINE"].rpartition(":")[0], "ray")
files = [*folder.glob("*/token"), *folder.glob("*.json")]
print(len(files), *{oct(file.stat().st_mode & 0o77) for file in files})
"""
    ran = rays.run(code, START)
    assert ran.stdout.splitlines() == ["True False", "False True", "3 0o0"], ran


def test_token_is_in_no_arguments(rays: Notebook, data_dir: Path) -> None:
    token = next(data_dir.glob("local/*/ray/node-0/token")).read_text()
    assert len(token) == 64
    found = ray_processes(data_dir)
    assert len(found) > 6
    assert not any(token in word for process in found for word in process.cmdline())


def test_ray_that_was_killed_is_started_anew_beside_the_variables(
    rays: Notebook, data_dir: Path
) -> None:
    (server,) = processes_named(data_dir, "gcs_server")
    server.kill()
    wait_until(lambda: not ray_endpoints(data_dir), "it is not noticed")
    told = rays.run("%%sky --on 0\nkept_name.nodes()")
    assert told.ename == "SkyError" and "--engine ray" in told.traceback
    again = rays.run("%%sky --engine ray\nray = kept_name\nray.get(square.remote(6))", START)
    assert again.result == "36", again


def ray_endpoints(data_dir: Path) -> list[Path]:
    return [*data_dir.glob("local/*/ray/endpoint.json")]


def test_nothing_is_left_of_a_killed_controller(rays: Notebook, data_dir: Path) -> None:
    assert ray_processes(data_dir)
    os.kill(find_controller(data_dir).pid, signal.SIGKILL)
    wait_until(lambda: not ray_processes(data_dir), "Ray goes on")
