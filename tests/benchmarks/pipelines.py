"""Runs of graphs: their controller's time, its ends at every step, and a kernel that is killed.

``plan_1000_s`` is the time in which a graph of 1,000 tasks is planned as `sky.run` does it.
``overhead_over_dask`` compares 1,000 trivial tasks with Dask, ``overhead_over_prefect`` with
Prefect, which is installed into an environment that is removed afterwards.
``stale_wrong`` counts tasks that ran or were skipped wrongly after ``stale_edits`` edits of a
notebook and its files, in real runs; ``cache_hit_ms`` is the time in which a kept result is found
and taken.

``makespan_over_plan`` and ``cost_over_plan`` are the time and the cost of runs over those of their
plans, the worst of 60 drawn graphs on simulated clouds whose machines are as fast as estimated (at
most 1.03); with ``_wrong`` each estimate is wrong by up to 30 % (at most 1.25). ``replans_saved``
is the share of runs that keep their deadline after a refused launch or a task that takes 1.6 to 2.4
times its estimate, of those in which one who knows all real times could keep it then (1.0);
``replans_saved_without`` the same where only tasks without a place are placed again,
``replans_counted`` the number of such runs, ``replans_per_run`` the plans made anew in each.
``replan_real_s`` is the time from a refusal by an emulated cloud until the task's next machine is
asked for, in a real run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask  # noqa: E402
from jupyter_sky.workflows.pipelines.model.task_body import make_graph  # noqa: E402
from jupyter_sky.workflows.pipelines.run import controller as controller_module  # noqa: E402
from jupyter_sky.workflows.pipelines.run.controller import Controller  # noqa: E402
from jupyter_sky.workflows.pipelines.run.journal import RunJournal  # noqa: E402
from jupyter_sky.workflows.pipelines.run.outlook import residual  # noqa: E402
from jupyter_sky.workflows.pipelines.run.placing import place_graph  # noqa: E402
from jupyter_sky.workflows.pipelines.run.replanning import first_event, make_problem  # noqa: E402
from jupyter_sky.workflows.pipelines.run.state import RunState  # noqa: E402
from tests.benchmarks.pipelines_kept import cache_hit_ms, stale_wrong  # noqa: E402
from tests.benchmarks.pipelines_peers import layered_dag, measure_in_process  # noqa: E402
from tests.benchmarks.pipelines_replans import replan_figures, replan_real_seconds  # noqa: E402
from tests.runs.pretended_world import DIAMOND, Clock, PretendedWorld  # noqa: E402

EXPECTED = {"prepare": 1, "left": 2, "right": 1, "join": 2, "report": 1}
"""Attempts where an attempt of left ends with an error, and one of join with its cluster."""


def main(quick: bool = False, prefect: str = "") -> dict[str, float]:
    """Return the figures; `prefect` is an interpreter that has Prefect, else it is installed."""
    figures = {"controller_cpu_ms_per_task": controller_time(100 if quick else 1000)}
    figures["plan_1000_s"] = plan_seconds(100 if quick else 1000)
    figures |= measure_in_process(quick, prefect)
    figures |= end_everywhere(10 if quick else 10**6)
    figures["resume_s"] = resume_seconds()
    figures |= stale_wrong(1 if quick else 60)
    figures |= replan_figures(4 if quick else 60)
    figures["replan_real_s"] = replan_real_seconds()
    figures["cache_hit_ms"] = cache_hit_ms(20 if quick else 200)
    return figures


def controller_time(count: int) -> float:
    """Return milliseconds of CPU per task of a bag, with the journal and a pretended world."""
    with tempfile.TemporaryDirectory() as folder:
        world = PretendedWorld(Path(folder, "world.db"), slots=8)
        world.db.execute("PRAGMA synchronous=OFF")  # only the controller's own writes count
        journal = RunJournal(Path(folder, "runs.db"))
        journal.add("bag", RunGraph(RunTask(f"t{n}") for n in range(count)), {}, 0.0)
        began = time.process_time()
        asyncio.run(Controller(journal, "bag", world, Clock()).run())
        return (time.process_time() - began) / count * 1000


def plan_seconds(count: int, width: int = 100) -> float:
    """Return seconds in which a graph is read and placed: the least of three times."""
    took = []
    for _time in range(3):
        dag = layered_dag(count, width)
        began = time.perf_counter()
        graph = make_graph(dag)
        problem, left = make_problem(dag.freeze(), 0.0), residual(RunState.begin(graph), 0.0)
        first_event(problem, graph, place_graph(dag), left)
        took.append(time.perf_counter() - began)
    return min(took)


def end_everywhere(most: int) -> dict[str, float]:
    """Kill the process of a controller at each of its steps; return what went wrong afterwards."""
    controller_module.WISH_SECONDS = 0.001
    count, twice, leaked = 0, 0, 0
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        while count < most:
            place = Path(folder, str(count))
            place.mkdir()
            if _in_process(_run, place, _kill_at(count)) == 0:
                break  # it passed fewer steps than that
            if _in_process(_run, place) != 0:
                twice += 1
            world = PretendedWorld(place / "world.db")
            twice += sum(max(n - EXPECTED[task], 0) for task, n in world.attempts().items())
            leaked += len(world.clusters_up())
            world.db.close()
            count += 1
            if count % 20 == 0:
                print(f"{count} steps: {twice} twice, {leaked} left")
    return {
        "crash_points": float(count),
        "tasks_run_twice": float(twice),
        "machines_leaked": float(leaked),
    }


def _memory() -> str | None:
    """Return a folder in memory where there is one: each step waits for the disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _kill_at(step: int) -> Callable[[str], None]:
    passed = 0

    def at_point(name: str) -> None:
        nonlocal passed
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)
        passed += 1

    return at_point


def _run(place: Path, at_point: Callable[[str], None] = lambda name: None) -> None:
    world = PretendedWorld(place / "world.db")
    if not world.attempts():  # later the troubles are over, or kept with the attempts
        world.errors, world.losses = {"left": 1}, {"join": 1}
    else:
        done = world.attempts()
        world.errors = {"left": 1 if "left" not in done else 0}
        world.losses = {"join": 1 if "join" not in done else 0}
    journal = RunJournal(place / "runs.db")
    if not journal.names():
        journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    state = asyncio.run(Controller(journal, "r", world, Clock(), at_point).run())
    assert all(str(task.phase) == "succeeded" for task in state.tasks.values())


def _in_process(function: Callable[..., None], *values: object) -> int:
    """Call a function in a process of its own; return 0 where it returned."""
    child = os.fork()
    if child == 0:
        try:
            function(*values)
            os._exit(0)
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
    return os.waitpid(child, 0)[1]


def resume_seconds() -> float:
    """Return seconds that a run takes longer since its process was killed, on a real cluster."""
    begin = """
    import sys, time
    import jupyter_sky as sky
    from jupyter_sky.execution.sessions import session as sessions

    sessions.open_session({}, "benchmark.ipynb", lasting=True)
    with sky.Dag() as dag:
        first = sky.Task("first", run=lambda: 1)
        slow = sky.Task("slow", run=lambda one: time.sleep(4) or one)
        first >> slow >> sky.Task("last", run=lambda one: one + 1)
    run = sky.run(dag, name="killed")
    while run.status()["slow"] != "running":
        time.sleep(0.02)
    print(time.time(), flush=True)
    time.sleep(60)
    """
    go_on = """
    import time
    began = time.time()
    import jupyter_sky as sky
    from jupyter_sky.execution.sessions import session as sessions

    sessions.open_session({}, "benchmark.ipynb", lasting=True)
    run = sky.resume("killed").wait(60)
    assert run.result("last") == 2
    print(time.time())
    sessions.close()
    """
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SKY_DATA_DIR": str(Path(folder, "data"))}
        words = [sys.executable, "-c", textwrap.dedent(begin)]
        first = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder, env=env)
        assert first.stdout is not None
        ends = float(first.stdout.readline()) + 4.0
        first.kill()
        first.wait()
        time.sleep(0.5)
        words[-1] = textwrap.dedent(go_on)
        said = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=env)
        assert said.returncode == 0, said.stderr
        return max(float(said.stdout.split()[-1]) - ends, 0.0)
