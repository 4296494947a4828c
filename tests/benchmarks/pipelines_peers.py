"""Runs of 1,000 trivial tasks beside Dask and Prefect, in turns on one machine.

The graph has layers of 100 tasks, each of which adds the values of two of the layer before. All run
it with one worker process: ours on a cluster of this machine, each state of each task on the disk.
``overhead_over_dask`` and ``overhead_over_prefect`` compare times from a cluster that is up, or a
scheduler that has answered, to the last value; ``whole_over_dask`` adds plan, start and end.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import jupyter_sky as sky  # noqa: E402
from jupyter_sky.execution.sessions import session as sessions  # noqa: E402
from jupyter_sky.workflows.pipelines.run.run_storage import open_journal  # noqa: E402
from jupyter_sky.workflows.pipelines.run.state import Kind  # noqa: E402

ROUNDS = 3

_DASK = """
import json, sys, time
import dask
from dask.distributed import Client, LocalCluster

def main(count, width):
    began = time.perf_counter()
    add = dask.delayed(lambda *values: sum(values) + 1, pure=False)
    with LocalCluster(1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            client.submit(sum, [1]).result()
            tasks = [add() for _ in range(width)]
            for n in range(width, count):
                tasks.append(add(tasks[n - width], tasks[n - n % width - width + (n + 1) % width]))
            start = time.perf_counter()
            values = client.gather(client.compute(tasks[-width:]))
            took = time.perf_counter() - start
    print(json.dumps([took, time.perf_counter() - began, values[-1]]))

if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
"""

_PREFECT = """
import json, sys, time
from prefect import flow, task

@task
def add(*values):
    return sum(values) + 1

@flow
def layers(count, width):
    tasks = [add.submit() for _ in range(width)]
    for n in range(width, count):
        other = tasks[n - n % width - width + (n + 1) % width]
        tasks.append(add.submit(tasks[n - width], other))
    return [each.result() for each in tasks[-width:]][-1]

layers(2, 1)
start = time.perf_counter()
value = layers(*map(int, sys.argv[1:]))
print(json.dumps([time.perf_counter() - start, 0.0, value]))
"""


def peer_figures(count: int, width: int, rounds: int, prefect_python: str = "") -> dict[str, float]:
    """Return our times over those of others, and our milliseconds per task.

    Parameters
    ----------
    rounds
        How often each runs, in turns.
    prefect_python
        Interpreter that has Prefect; without one it is left out.
    """
    expected = layer_value(count, width)
    ours: list[tuple[float, float]] = []
    dask: list[tuple[float, float]] = []
    prefect: list[float] = []
    for number in range(rounds):
        ours.append(run_ours(f"round{number}", count, width, expected))
        dask.append(run_other(sys.executable, _DASK, count, width, expected))
        print(f"round {number}: {ours[-1][0]:.2f} s, Dask {dask[-1][0]:.2f} s", file=sys.stderr)
        if prefect_python and not prefect:  # once: it takes minutes
            try:
                prefect.append(run_other(prefect_python, _PREFECT, count, width, expected)[0])
                print(f"Prefect {prefect[-1]:.2f} s", file=sys.stderr)
            except AssertionError as error:  # its server may not start on a busy machine
                print(f"Prefect failed, and is tried again: {error}", file=sys.stderr)
    tasks, whole = (statistics.median(times) for times in zip(*ours, strict=True))
    their_tasks, their_whole = (statistics.median(times) for times in zip(*dask, strict=True))
    figures = {
        "ms_per_task": tasks / count * 1000,
        "dask_ms_per_task": their_tasks / count * 1000,
        "overhead_over_dask": tasks / their_tasks,
        "whole_over_dask": whole / their_whole,
    }
    if prefect:
        figures["prefect_ms_per_task"] = statistics.median(prefect) / count * 1000
        figures["overhead_over_prefect"] = tasks / statistics.median(prefect)
    return figures


def layer_value(count: int, width: int) -> int:
    """Return the value of the last task."""
    return 2 ** ((count - 1) // width + 1) - 1


def layered_dag(count: int, width: int) -> sky.Dag:
    """Return a graph in layers, each of whose tasks adds the values of two of the layer before."""
    with sky.Dag("layers") as dag:
        tasks = [sky.Task(f"t{n}", run=lambda *values: sum(values) + 1) for n in range(count)]
    for n in range(width, count):
        tasks[n - width] >> tasks[n]
        tasks[n - n % width - width + (n + 1) % width] >> tasks[n]
    return dag


def run_ours(name: str, count: int, width: int, expected: int) -> tuple[float, float]:
    """Return seconds from the cluster that is up to the last value, and of the whole."""
    dag = layered_dag(count, width)
    dag.same_cluster(*dag)
    began = time.perf_counter()
    run = sky.run(dag, name=name, fresh=True).wait(600)
    whole = time.perf_counter() - began
    assert run.result(f"t{count - 1}") == expected
    journal = open_journal(Path(sessions.current().config.data_dir))
    at = {event.kind: event.at for event in journal.events(name)}
    journal.close()
    return at[Kind.DRAINED] - at[Kind.LAUNCHED], whole


def run_other(python: str, code: str, count: int, width: int, expected: int) -> tuple[float, float]:
    """Return seconds of the tasks and of the whole, of a script of another scheduler."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "graph.py")
        script.write_text(textwrap.dedent(code))
        words = [python, str(script), str(count), str(width)]
        settings = {"PREFECT_HOME": folder, "PREFECT_LOGGING_LEVEL": "ERROR", "DO_NOT_TRACK": "1"}
        settings |= {
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "300",
        }
        env = {**os.environ, **settings}
        ran = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=env)
    assert ran.returncode == 0, ran.stderr[-2000:]
    tasks, whole, value = json.loads(ran.stdout.splitlines()[-1])
    assert value == expected
    return tasks, whole


def find_prefect(folder: Path) -> str:
    """Return an interpreter that has Prefect: this one, or that of a new environment.

    It is empty where Prefect cannot be installed.
    """
    if importlib.util.find_spec("prefect"):
        return sys.executable
    venv.create(folder / "prefect", with_pip=True)
    python = str(folder / "prefect/bin/python")
    # newer ones of FastAPI refuse an argument that Prefect 3.8 gives
    words = [python, "-m", "pip", "install", "-qq", "prefect", "fastapi<0.150"]
    return "" if subprocess.run(words, check=False).returncode else python


def measure_in_process(quick: bool, prefect_python: str = "") -> dict[str, float]:
    """Return the figures of a process with a folder of its own; quick ones without Prefect."""
    size = ("60", "20", "1") if quick else ("1000", "100", str(ROUNDS))
    with tempfile.TemporaryDirectory() as folder:
        if not quick:
            prefect_python = prefect_python or find_prefect(Path(folder))
        words = [sys.executable, __file__, *size, *filter(None, [prefect_python])]
        env = {**os.environ, "SKY_DATA_DIR": str(Path(folder, "data"))}
        ran = subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=folder, env=env)
    assert ran.returncode == 0
    return json.loads(ran.stdout.splitlines()[-1])


if __name__ == "__main__":
    sessions.open_session({}, "benchmark.ipynb", lasting=True)
    found = peer_figures(*map(int, sys.argv[1:4]), *sys.argv[4:])
    sessions.close()
    print(json.dumps(found))
