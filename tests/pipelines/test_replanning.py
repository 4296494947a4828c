"""Runs whose rest is planned anew: real controller and optimizer, machines on a virtual clock."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Dag, Graph, Task
from jupyter_sky.decisions.optimizer.constraints import Residency, same_region
from jupyter_sky.decisions.optimizer.estimators import amdahl
from jupyter_sky.workflows.pipelines.run.replanning import RunProblem, make_problem
from jupyter_sky.workflows.pipelines.run.state import Kind

from .simulated_clouds import Ended, Faults, carry_out, plan_offers


def _chain(count: int = 3, gb: float = 20, **needs: Any) -> Graph:
    with Dag("chain") as dag:
        tasks = [Task(f"t{index}") for index in range(count)]
        for index, task in enumerate(tasks):
            task.set_time_estimator(amdahl(4 + index, 0.1)).set_resources(cpus="2+", **needs)
            task.set_output("?:/out", size=gb)
        for one, other in pairwise(tasks):
            one >> other
    return dag.freeze()


DEADLINE = 1.8 * plan_offers(_chain(), "time").hours


def _kept(run: Ended) -> bool:
    return run.has_succeeded and run.seconds <= DEADLINE * 3600 + 1


def test_a_run_without_trouble_keeps_its_plan() -> None:
    run = carry_out(_chain())
    assert run.has_succeeded and run.texts == []
    assert 0.97 < run.seconds / 3600 / run.first.hours <= 1.0
    assert 0.97 < run.usd / run.first.usd <= 1.0


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        ({"refusals": {"t0": 2}}, "refused (no capacity)"),
        ({"losses": {"t1": 1}}, "was lost (preempted)"),
        ({"factors": {"t0": 2.0}}, "after its deadline"),
    ],
)
def test_a_deadline_is_kept_after_trouble(faults: dict[str, Any], words: str) -> None:
    run = carry_out(_chain(), Faults(**faults), deadline=DEADLINE)
    assert _kept(run), run.state.tasks
    assert words in run.texts[0] and "goes to" in run.texts[0]
    static = carry_out(_chain(), Faults(**faults), is_static=True, deadline=DEADLINE)
    assert not _kept(static), "the trouble costs the deadline where nothing is planned anew"


def test_money_is_saved_again_once_a_late_task_has_ended() -> None:
    run = carry_out(_chain(), Faults({"t0": 2.0}), deadline=DEADLINE)
    assert "t0 took" in run.texts[-1] and "saves $" in run.texts[-1]


def test_running_tasks_stay_where_they_are() -> None:
    run = carry_out(_chain(), Faults({"t0": 2.0, "t1": 1.6}), deadline=DEADLINE)
    running: set[str] = set()
    count = 0
    for event in run.events:
        if event.kind is Kind.PLACED:
            running.add(event.subject)
        elif event.kind is Kind.PLANNED and running:
            count += 1
            assert not running & set(event.data["clusters"])
    assert count >= 2


def test_no_plan_left_names_the_deadline_and_begins_nothing_more() -> None:
    deadline = 1.05 * plan_offers(_chain(), "time").hours
    run = carry_out(_chain(), Faults({"t0": 4.0}), deadline=deadline)
    phases = {name: str(task.phase) for name, task in run.state.tasks.items()}
    assert phases == {"t0": "succeeded", "t1": "failed", "t2": "failed"}
    assert "left until the deadline: no plan ends within" in run.state.tasks["t1"].reason
    assert "nearest: deadline=" in run.state.tasks["t1"].reason


def test_the_budget_holds_while_it_runs() -> None:
    budget = 2 * plan_offers(_chain()).usd
    run = carry_out(_chain(), Faults({"t0": 1.5}), minimize="time", budget=budget)
    assert run.has_succeeded and run.usd <= budget
    assert "the run would cost $" in run.texts[0]
    static = carry_out(_chain(), Faults({"t0": 1.5}), True, minimize="time", budget=budget)
    assert not static.has_succeeded or static.usd > budget
    over = carry_out(_chain(), Faults({"t0": 9.0}), budget=budget)
    assert not over.has_succeeded and over.usd <= 1.01 * budget
    assert "budget" in over.state.tasks["t2"].reason


def test_another_plan_that_gains_too_little_is_not_taken() -> None:
    run = carry_out(_chain(), Faults({"t0": 2.0}))  # no deadline: the cheapest is the cheapest
    (text,) = run.texts
    assert text.startswith("t0 runs for") and "the plan stays" in text
    assert [event.kind for event in run.events if event.data.get("text")] == [Kind.PLAN_KEPT]


def test_a_larger_result_draws_its_consumers_to_it() -> None:
    with Dag("size") as dag:
        make = Task("make").set_resources(cpus="2+", cloud="azure").set_time_estimator(1.0)
        make.set_output("?:/out", size="0.001GB")
        use = Task("use").set_resources(cpus="2+").set_time_estimator(8.0)
        make >> use
    graph = dag.freeze()
    run = carry_out(graph, Faults(gb={"make": 500.0}))
    assert run.first["use"].offer.cloud == "aws", "the cheapest, as nearly nothing is to be moved"
    (text,) = run.texts
    assert "make gave 500 GB and not 0.001" in text and "saves $" in text
    assert run.world.machines["use-plan1"].offer.cloud == "azure"


def test_a_join_runs_where_its_last_producer_ends_and_no_machine_waits_for_it() -> None:
    with Dag("join") as dag:
        short, long, join = (
            Task(name).set_resources(cpus="2+").set_time_estimator(hours)
            for name, hours in (("short", 1.0), ("long", 8.0), ("join", 1.0))
        )
        [short, long] >> join
    run = carry_out(dag.freeze())
    assert run.state.placement == {"short": "short", "long": "long", "join": "long"}
    assert run.world.machines["short"].ended == pytest.approx(3600 + 120)
    assert run.usd <= run.first.usd


def test_a_task_without_an_offer_fails_and_the_others_go_on() -> None:
    with Dag("two") as dag:
        only = Task("only").set_resources(instance_type="m5.large", region="us-east-1")
        only.set_time_estimator(1.0)
        Task("other").set_resources(cpus="2+").set_time_estimator(1.0)
    run = carry_out(dag.freeze(), Faults(refusals={"only": 9}))
    phases = {name: str(task.phase) for name, task in run.state.tasks.items()}
    assert phases == {"only": "failed", "other": "succeeded"}
    assert "no capacity" in run.state.tasks["only"].reason


def test_demands_hold_for_what_is_left() -> None:
    demands = [Residency("us", tasks=["t0", "t1"]), same_region("t1", "t2")]
    faults = Faults(refusals={"t0": 2})
    run = carry_out(_chain(), faults, constraints=demands, deadline=DEADLINE)
    assert run.has_succeeded, run.state.tasks
    assert {machine.offer.region for machine in run.world.machines.values()} <= {
        *("us-east-1", "us-central1", "eastus")
    }


def test_a_problem_is_kept_as_text() -> None:
    graph = _chain()
    problem = make_problem(graph, 100.0, "time", deadline="2h", budget="$5", solver="glpk")
    again = RunProblem.from_text(problem.to_text())
    assert again == problem
    assert (again.deadline_at, again.budget_usd) == (100.0 + 7200, 5.0)
    lock = threading.Lock()
    with Dag() as dag:
        Task("a").set_time_estimator(lambda offer: lock and 1.0)
    with pytest.raises(SkyUsageError, match="cannot be kept"):
        make_problem(dag.freeze(), 0.0).to_text()
