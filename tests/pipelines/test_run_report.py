"""Reports of runs: states, times and costs of tasks beside those of a plan, and exported graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.plan import Plan, PlannedTask
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.export import describe_graph, write_graph
from jupyter_sky.workflows.pipelines.run.run_report import TaskReport, make_table, report_tasks
from jupyter_sky.workflows.pipelines.run.state import Event, Kind, Phase, RunState, fold

OFFER = Offer("aws", "us-east-1", "t3.nano", 2, 0.5, price=1.2)
GRAPH = RunGraph(
    [
        RunTask("load", body={"request": "--cpus 2", "code": "x = 1\nx += 1"}),
        RunTask("fit", ("load",), body={"request": "", "code": "y = x"}),
        RunTask("show", ("fit",)),
    ]
)


def _planned(task: str, hours: float, usd: float, assumed: bool = False) -> PlannedTask:
    return PlannedTask(task, OFFER, 1, hours, 0, 0, 0, hours, usd, usd, 0, 0, assumed=assumed)


def _plan(*tasks: PlannedTask) -> Plan:
    return Plan("p", "cost", tasks, (), 3.5, 2.0, 0.0, None)  # type: ignore[arg-type]


def _events(task: str, cluster: str, at: float) -> list[Event]:
    token = {"token": f"r/{cluster}/1"}
    return [
        Event(Kind.READY, task, at),
        Event(Kind.NO_RESULT, task, at),
        Event(Kind.PLANNED, "", at, {"clusters": {task: cluster}, "offers": {cluster: {}}}),
        Event(Kind.CLUSTER_WANTED, cluster, at, {**token, "offer": {}}),
        Event(Kind.LAUNCHED, cluster, at, token),
        Event(Kind.PLACED, task, at),
        Event(Kind.MOVED, task, at, {"attempt": 1}),
        Event(Kind.BEGUN, task, at + 1, {"attempt": 1}),
    ]


def _reports(now: float) -> tuple[TaskReport, ...]:
    done = {"attempt": 1, "hours": 0.01, "usd": 0.02}
    events = [
        *_events("load", "load", 100.0),
        Event(Kind.SUCCEEDED, "load", 140.0, done),
        *_events("fit", "fit", 150.0),
    ]
    state = fold(RunState.begin(GRAPH), events)
    plan = _plan(_planned("load", 0.02, 0.03), _planned("fit", 1, 1.2, assumed=True))
    prices = {"r/load/1": 0.5, "r/fit/1": 3.6}
    return report_tasks(state, events, plan, prices.__getitem__, now)


def test_time_and_cost_so_far_stand_beside_those_of_the_plan() -> None:
    load, fit, show = _reports(now=251.0)
    assert (load.phase, load.seconds, load.usd) == (Phase.SUCCEEDED, 36.0, 0.02)
    assert (load.planned_seconds, load.planned_usd) == (72.0, 0.03)
    assert (fit.phase, fit.seconds, fit.usd) == (Phase.RUNNING, 100.0, pytest.approx(0.1))
    assert (fit.planned_seconds, fit.is_assumed, fit.place) == (3600.0, True, OFFER.place)
    assert (show.phase, show.seconds, show.usd, show.place) == (Phase.WAITING, None, None, "")
    assert show.planned_seconds is None


def test_the_table_adds_up() -> None:
    table = make_table("nightly", _reports(now=251.0), _plan(), 151.0)
    assert table.title == "Run nightly: 1 of 3 tasks have ended; 2:31, $0.12"
    assert table.rows[0][:6] == ("load", "succeeded", "0:36", "1:12", "$0.0200", "$0.0300")
    assert table.rows[1][:6] == ("fit", "running", "1:40", "1:00:00", "$0.10", "$1.20")
    assert table.note == (
        "planned as a whole: 2:00:00, $3.50; "
        "an hour is assumed where no time is known (1 of 3 tasks)"
    )


def test_graphs_are_written_as_json_and_as_yaml(tmp_path: Path) -> None:
    described = describe_graph("nightly", GRAPH, {"load": 2}, _reports(now=251.0))
    load, fit, __ = described["tasks"]
    assert (load["cell"], load["resources"], load["state"]) == (2, "--cpus 2", "succeeded")
    assert fit["after"] == ["load"] and "is_assumed" not in load
    for name, read in (("a.json", json.loads), ("a.yaml", yaml.safe_load)):
        write_graph(described, tmp_path / name)
        assert read((tmp_path / name).read_text("utf-8")) == described
    assert "  code: |-\n    x = 1\n    x += 1\n" in (tmp_path / "a.yaml").read_text("utf-8")
    with pytest.raises(SkyUsageError, match=r"a\.txt: not a format of pipelines"):
        write_graph(described, tmp_path / "a.txt")
    assert not (tmp_path / "a.txt").exists()
