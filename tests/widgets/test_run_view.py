"""Pictures of runs: graph with states, sweeps as one box, planned beside real times."""

from __future__ import annotations

import re

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.plan import Plan, PlannedTask
from jupyter_sky.interfaces.widgets.graph_layout import MAX_BOXES
from jupyter_sky.interfaces.widgets.run_tasks import group_tasks
from jupyter_sky.interfaces.widgets.run_view import draw_run_chart, draw_run_graph
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.run_report import TaskReport
from jupyter_sky.workflows.pipelines.run.state import Phase

OFFER = Offer("aws", "us-east-1", "t3.nano", 2, 0.5, price=1.2)
SWEEP = [f"fit[lr={n}]" for n in range(9)]
GRAPH = RunGraph(
    [
        RunTask("load <raw>"),
        *(RunTask(name, ("load <raw>",)) for name in SWEEP),
        RunTask("best", tuple(SWEEP)),
    ]
)


def _report(name: str, phase: Phase, begun: float | None = None, **rest: object) -> TaskReport:
    values: dict[str, object] = {
        "reason": "",
        "place": OFFER.place,
        "seconds": None if begun is None else 60.0,
        "usd": None if begun is None else 0.02,
        "planned_seconds": 3600.0,
        "planned_usd": 1.2,
        "begun": begun,
        "ended": begun and begun + 60 if phase.is_final else None,
    }
    return TaskReport(name, phase, **(values | rest))  # type: ignore[arg-type]


def _reports(**of_load: object) -> list[TaskReport]:
    done, left = SWEEP[:4], SWEEP[4:]
    return [
        _report("load <raw>", Phase.SUCCEEDED, 1000.0, **of_load),
        *(_report(name, Phase.SUCCEEDED, 1060.0) for name in done),
        *(_report(name, Phase.RUNNING, 1070.0) for name in left),
        _report("best", Phase.WAITING, is_assumed=True),
    ]


def _planned(task: str, hours: float, finish: float) -> PlannedTask:
    return PlannedTask(task, OFFER, 1, hours, 0, 0, 0, finish, 0.1, 0.1, 0, 0)


def _plan() -> Plan:
    tasks = (_planned("load <raw>", 0.02, 0.02), _planned(SWEEP[0], 0.05, 0.07))
    return Plan("p", "cost", tasks, (), 3.5, 2.0, 0.0, None)  # type: ignore[arg-type]


def test_the_tasks_of_a_sweep_are_one_box_with_their_counts() -> None:
    tasks = group_tasks(GRAPH, _reports(), {"fit": SWEEP})
    assert [task.name for task in tasks] == ["load <raw>", "fit", "best"]
    load, fit, best = tasks
    assert (load.phase, fit.phase, best.phase) == (
        Phase.SUCCEEDED,
        Phase.RUNNING,
        Phase.WAITING,
    )
    assert fit.state == "4 ✓ succeeded, 5 ▶ running" and fit.after == ("load <raw>",)
    assert best.after == ("fit",)
    assert (fit.begun, fit.ended, fit.seconds) == (1060.0, None, 540.0)
    picture = draw_run_graph(tasks)
    assert picture.count('class="jsky-RunGraph-task"') == 3 and "fit × 9" in picture
    assert "<raw>" not in picture and "load &lt;raw&gt;" in picture
    apart = group_tasks(GRAPH, _reports(), {"fit": SWEEP[:3]})
    assert len(apart) == len(GRAPH.tasks), "a small sweep is drawn task by task"


def test_boxes_have_states_places_and_figures_beside_those_of_the_plan() -> None:
    (load, *_rest) = group_tasks(GRAPH, _reports(), {})
    picture = draw_run_graph([load])
    for words in ("✓ succeeded", OFFER.place, "1:00 · $0.02", "planned 1:00:00 · $1.20"):
        assert words in picture, words
    kept = group_tasks(GRAPH, _reports(is_kept=True, is_assumed=True), {})
    assert "✓ kept" in draw_run_graph(kept[:1]) and "planned" not in draw_run_graph(kept[:1])


def test_one_failed_task_of_a_sweep_marks_its_box() -> None:
    reports = _reports()
    reports[5] = _report(SWEEP[4], Phase.FAILED, 1070.0)
    (__, fit, __) = group_tasks(GRAPH, reports, {"fit": SWEEP})
    assert fit.phase is Phase.FAILED


def test_a_graph_that_is_too_large_is_not_drawn() -> None:
    graph = RunGraph(RunTask(f"t{n}") for n in range(MAX_BOXES + 1))
    reports = [_report(name, Phase.WAITING) for name in graph.tasks]
    assert "<svg" not in draw_run_graph(group_tasks(graph, reports, {}))


def test_the_chart_has_what_ran_and_what_was_planned() -> None:
    tasks = group_tasks(GRAPH, _reports(), {"fit": SWEEP})
    chart = draw_run_chart(tasks, _plan(), 990.0, 1110.0)
    rows = re.findall(r'data-task="([^"]+)"', chart)
    assert rows == ["load &lt;raw&gt;", "fit"], "what waits and has no planned time has no row"
    # a full bar for each of the ten attempts, a dashed one for each planned row and its legend
    assert chart.count("stroke-dasharray: 3 2") == 3
    assert chart.count("fill-opacity: 0.55") == 9
    assert "planned" in chart and "load" in chart
    assert draw_run_chart(tasks[2:], _plan(), 990.0, 1110.0) == "", "nothing has begun"
