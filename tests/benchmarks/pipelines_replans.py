"""Runs on simulated clouds: real time and cost over the plan, and what re-planning saves.

Graphs of 4 to 9 tasks are drawn from seeds; a virtual clock lets runs of hours take seconds, with
the real controller, decisions and optimizer.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from jupyter_sky.base.requests.dag.dag import Dag, Graph, Task  # noqa: E402
from jupyter_sky.decisions.optimizer.estimators import amdahl  # noqa: E402
from tests.emulators.loopback import loopback  # noqa: E402
from tests.pipelines.simulated_clouds import Ended, Faults, carry_out, plan_offers  # noqa: E402

WRONG = 0.3
"""Largest error of a wrong estimate, as a share of it."""


def replan_figures(runs: int) -> dict[str, float]:
    """Return the figures of so many runs of each kind."""
    return {**over_plan(runs), **saved_runs(runs)}


def draw_graph(draw: random.Random) -> Graph:
    """Return a random graph whose tasks follow one or two earlier ones."""
    with Dag("drawn") as dag:
        tasks: list[Task] = []
        for number in range(draw.randint(4, 9)):
            task = Task(f"t{number}").set_resources(cpus="2+")
            task.set_time_estimator(amdahl(draw.uniform(1, 8), draw.uniform(0.02, 0.2)))
            task.set_output("?:/out", size=draw.choice([0.1, 1, 20]))
            for producer in draw.sample(tasks, min(len(tasks), draw.randint(1, 2))):
                producer >> task
            tasks.append(task)
    return dag.freeze()


def over_plan(runs: int) -> dict[str, float]:
    """Return time and cost over the plan in the worst run, with exact and with wrong estimates."""
    exact, wrong = [], []
    for seed in range(runs):
        draw = random.Random(seed)
        graph = draw_graph(draw)
        goal = draw.choice(["cost", "time_then_cost"])
        exact.append(carry_out(graph, minimize=goal))
        factors = {spec.name: draw.uniform(1 - WRONG, 1 + WRONG) for spec in graph.tasks}
        wrong.append(carry_out(graph, Faults(factors), minimize=goal))
    assert all(run.has_succeeded for run in (*exact, *wrong))
    return {
        "makespan_over_plan": max(_times(exact)),
        "cost_over_plan": max(_costs(exact)),
        "makespan_over_plan_wrong": max(_times(wrong)),
        "cost_over_plan_wrong": max(_costs(wrong)),
    }


def _times(runs: Iterable[Ended]) -> list[float]:
    return [run.seconds / 3600 / run.first.hours for run in runs]


def _costs(runs: Iterable[Ended]) -> list[float]:
    return [run.usd / run.first.usd for run in runs]


def saved_runs(runs: int) -> dict[str, float]:
    """Return the share of runs that keep their deadline though something has gone wrong.

    Only those count in which a plan made at that moment, by one who knows all real times, keeps it.
    """
    saved, static, counted, plans = 0, 0, 0, 0
    for seed in range(runs):
        graph, deadline, kind = _draw_trouble(seed)
        ended = carry_out(graph, _faults(graph, seed, kind), deadline=deadline)
        if not ended.world.rescues or not ended.world.rescues[-1]:
            continue
        counted += 1
        is_saved = _is_kept(ended, deadline)
        if not is_saved:
            print(f"seed {seed} ({kind}): late, or failed: {ended.texts}")
        saved += is_saved
        plans += sum(event.kind == "planned" for event in ended.events) - 1
        without = carry_out(graph, _faults(graph, seed, kind), is_static=True, deadline=deadline)
        static += _is_kept(without, deadline)
    return {
        "replans_saved": saved / counted,
        "replans_saved_without": static / counted,
        "replans_counted": float(counted),
        "replans_per_run": plans / counted,
    }


def _draw_trouble(seed: int) -> tuple[Graph, float, str]:
    draw = random.Random(1000 + seed)
    graph = draw_graph(draw)
    fastest = plan_offers(graph, "time").hours
    return graph, fastest * draw.uniform(1.3, 2.2), draw.choice(["refusal", "overrun"])


def _faults(graph: Graph, seed: int, kind: str) -> Faults:
    draw = random.Random(2000 + seed)
    task = draw.choice(graph.tasks).name
    if kind == "refusal":
        return Faults(refusals={task: draw.randint(1, 2)})
    return Faults(factors={task: draw.uniform(1.6, 2.4)})


def replan_real_seconds() -> float:
    """Return seconds from an emulated cloud's refusal until the next machine is asked for."""
    code = """
    import os
    from pathlib import Path
    import jupyter_sky as sky
    from jupyter_sky.execution.sessions import session as sessions
    from jupyter_sky.workflows.pipelines.run.run_storage import open_journal
    from jupyter_sky.workflows.pipelines.run.state import Kind

    sessions.open_session({}, "benchmark.ipynb", lasting=True)
    with sky.Dag() as dag:
        sky.Task("there", run=lambda: 3).set_resources(cloud="aws", cpus="2")
    assert sky.run(dag, name="refused").wait(300).result("there") == 3
    events = open_journal(Path(os.environ["SKY_DATA_DIR"])).events("refused")
    refused = [event.at for event in events if event.kind is Kind.REFUSED]
    wanted = [event.at for event in events if event.kind is Kind.CLUSTER_WANTED]
    assert len(refused) == 1 and len(wanted) == 2
    print(wanted[1] - refused[0])
    sessions.close()
    """
    with tempfile.TemporaryDirectory() as folder, loopback("aws", minute=1.0) as cloud:
        cloud.api.refuse("InsufficientInstanceCapacity", times=1)
        env = {**os.environ, **cloud.env, "SKY_DATA_DIR": str(Path(folder, "data"))}
        command = [sys.executable, "-c", textwrap.dedent(code)]
        ended = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
        assert ended.returncode == 0, ended.stderr
        return float(ended.stdout.split()[-1])


def _is_kept(run: Ended, deadline_h: float) -> bool:
    return run.has_succeeded and run.seconds <= deadline_h * 3600 + 1


if __name__ == "__main__":
    figures = replan_figures(int(sys.argv[1]) if sys.argv[1:] else 60)
    for name, value in (figures | {"replan_real_s": replan_real_seconds()}).items():
        print(f"{name:32} {value:.3f}")
