"""Runs on simulated clouds: real end and cost over plan, and what re-planning saves.

Graphs of 4 to 9 tasks are drawn from seeds; a virtual clock lets runs of hours take seconds, with
the real controller, decisions and optimizer.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from jupyter_sky.dag.dag import Dag  # noqa: E402
from jupyter_sky.dag.graph import Graph  # noqa: E402
from jupyter_sky.dag.task import Task  # noqa: E402
from jupyter_sky.optimizer.estimators import amdahl  # noqa: E402
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
    """Return how far time and cost exceed the plan, with exact estimates and with wrong ones.

    The worst of the runs with exact estimates counts, and the mean of those with wrong ones.
    """
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
        "makespan_over_plan_wrong": statistics.mean(_times(wrong)),
        "cost_over_plan_wrong": statistics.mean(_costs(wrong)),
        "makespan_over_plan_wrong_worst": max(_times(wrong)),
        "cost_over_plan_wrong_worst": max(_costs(wrong)),
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
    return graph, fastest * draw.uniform(1.2, 2.0), draw.choice(["refusal", "overrun"])


def _faults(graph: Graph, seed: int, kind: str) -> Faults:
    draw = random.Random(2000 + seed)
    task = draw.choice(graph.tasks).name
    if kind == "refusal":
        return Faults(refusals={task: draw.randint(1, 2)})
    return Faults(factors={task: draw.uniform(1.7, 3.0)})


def _is_kept(run: Ended, deadline_h: float) -> bool:
    return run.has_succeeded and run.seconds <= deadline_h * 3600 + 1


if __name__ == "__main__":
    for name, value in replan_figures(int(sys.argv[1]) if sys.argv[1:] else 60).items():
        print(f"{name:32} {value:.3f}")
