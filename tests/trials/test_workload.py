"""Workloads of trials, what is refused before anything is launched, and what earlier runs tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bs4 import BeautifulSoup

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.store.rows import ClusterRow, RunRow
from jupyter_sky.decisions.search import Measurement, Point, SearchResult, Space, Try, on_sale
from jupyter_sky.decisions.search.measurement import Trial
from jupyter_sky.execution.cells.request import CellPosition
from jupyter_sky.execution.cells.run_record import waiting_row
from jupyter_sky.execution.sessions import session as sessions
from jupyter_sky.interfaces.widgets.search_view import to_html, to_text
from jupyter_sky.workflows.trials.cell_trials import failed_run, stop_reason
from jupyter_sky.workflows.trials.live_search import (
    best_options,
    collect_history,
    describe_failures,
    launchable,
    read_history,
    search_live,
)
from jupyter_sky.workflows.trials.workload import find_effects, make_workload

LABELS = {"cpus": "2", "memory": "4+", "cloud": "aws", "types": 3}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(Sky.load(), "data_dir", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    sessions.close()
    monkeypatch.setattr("IPython.get_ipython", lambda: None)
    yield sessions.open_session({"x": 1}, str(tmp_path / "n.ipynb"), lasting=False)
    sessions.close()


# -- workloads ------------------------------------------------------------------------------------


def test_tasks_of_a_graph_are_steps_in_their_order() -> None:
    with sky.Dag("two") as dag:
        first = sky.Task("first", run=lambda: 1)
        second = sky.Task("second", run=lambda found: found + 1)
        first >> second  # pyright: ignore[reportUnusedExpression]
    work = make_workload(dag)
    assert [(step.name, step.is_needed) for step in work.steps] == [
        ("first", True),
        ("second", False),
    ]
    cell = work.steps[1].make(lambda task, name: 41)
    assert cell.values["_sky_values"] == [41]
    alone = make_workload(sky.Task("alone", run="ls"))
    assert [step.name for step in alone.steps] == ["alone"] and not alone.effects


def test_a_task_of_a_graph_alone_leaves_the_graph_as_it_is() -> None:
    with sky.Dag("two") as dag:
        first = sky.Task("first", run=lambda: 1)
    assert len(make_workload(first).steps) == 1 and first.dag is dag


@pytest.mark.parametrize(
    ("code", "line", "words"),
    [
        ("df.to_parquet('s3://b/a')", "", "it writes s3://b/a"),
        ("pd.read_parquet('s3://b/a')", "", ""),
        ("requests.post(url, json=x)", "", "requests.post()"),
        ("!git push", "", "!git push"),
        ("!rm -rf a", "", ""),
        ("x = 1", "--out ./m:s3://b/m", "it writes s3://b/m"),
        ("x = 1", "-o x@s3://b/x", "it writes s3://b/x"),
        ("open('a', 'w').write('1'); requests.get(url)", "-o x", ""),
    ],
)
def test_effects_outside_the_machine_are_found(code: str, line: str, words: str) -> None:
    found = find_effects(code, parse_cell_line(line))
    assert words in "; ".join(found) and bool(words) == bool(found)


def test_calls_with_other_data_are_the_same_workload() -> None:
    @sky.function
    def add(a: int, b: int) -> int:
        return a + b

    one, other = make_workload(add(1, 2)), make_workload(add(3, b=4))
    assert one.code == other.code == make_workload(add).code
    assert one.code != make_workload(sky.function(lambda: 1)()).code


def test_effects_need_consent(session: Any) -> None:
    with pytest.raises(SkyUsageError, match="every trial would repeat") as raised:
        sky.search("requests.post(url)", LABELS, 3, progress=False)
    assert "--yes" in str(raised.value.hint)


# -- bad input ------------------------------------------------------------------------------------


def test_what_cannot_be_searched_is_said_before_anything_is_launched(session: Any) -> None:
    with pytest.raises(SkyNoOffer):
        sky.search("x", {"cpus": "4", "memory": "1", "cloud": "aws"}, 3)
    with pytest.raises(SkyUsageError, match="cheapest trial"):
        sky.search("1 + 1", LABELS, 3, usd=1e-6)
    with pytest.raises(SkyUsageError, match="empty"):
        sky.search(" ", LABELS, 3)
    with pytest.raises(SkyUsageError, match="nothing that can be run"):
        sky.search(3, LABELS, 3)  # type: ignore[arg-type]
    with pytest.raises(SkyUsageError, match="missing"):
        options = parse_cell_line("-i missing")
        search_live("missing", LABELS, 3, options=options)
    with pytest.raises(SkyUsageError, match="deadline"):
        sky.search("1", LABELS, 3, deadline=-1)
    unknown = Space(tuple(Point(p.arm, p.values, None, p.offer) for p in on_sale(**LABELS)))  # type: ignore[arg-type]
    with pytest.raises(SkyUsageError, match="no known price"):
        sky.search("1", unknown, 3, usd=1.0)
    assert not session.store.clusters(live_only=False)


def test_configurations_that_cannot_be_launched_are_left_out(session: Any) -> None:
    both = on_sale(cpus="2", memory="4+", cloud="aws,gcp", types=3)
    assert {point.arm for point in launchable(both).points} == {"aws"}
    gcp = Space(tuple(point for point in both.points if point.arm == "gcp"))
    with pytest.raises(SkyNoOffer, match="gcp"):
        launchable(gcp)


def test_why_nothing_has_succeeded_is_told_for_each() -> None:
    space = on_sale(**LABELS)  # type: ignore[arg-type]
    failed = tuple(
        Try(n + 1, n, point, None, (failed_run(1.0, ValueError(f"wrong {n}")),))
        for n, point in enumerate(space.points[:2])
    )
    found = SearchResult(space, "cost", 3, failed)
    words = describe_failures(found)
    assert str(space[0]) in words and "wrong 0" in words and "wrong 1" in words
    with pytest.raises(SkyUsageError, match="wrong 1"):
        best_options(found, parse_cell_line("--cpus 2"))


# -- history --------------------------------------------------------------------------------------


def _ran(cluster: str, seconds: float, session: str = "s", status: str = "ok") -> RunRow:
    return RunRow(
        run_id=f"{cluster}{seconds}", notebook="n", session=session, cell=1, name=None,
        cluster=cluster, code="fit()", price=1.0, nodes=1, started=100.0, ended=100.0 + seconds,
        last_beat=0.0, status=status, shown=0,
    )  # fmt: skip


def _cluster(name: str, point: Point, created: float = 50.0) -> ClusterRow:
    assert point.offer is not None
    return ClusterRow(
        name=name, state="ended", cloud=point.offer.cloud, region="", spot=False, price=1.0,
        instance_type=point.offer.instance_type, nodes=point.nodes, resources="", offer={},
        machines=[], connection={}, notebook="n", created=created, idle=60.0, price_source="",
        price_date="", renewed=0.0,
    )  # fmt: skip


def test_earlier_runs_are_gathered_by_search_and_session() -> None:
    space = on_sale(**LABELS)  # type: ignore[arg-type]
    a, b = space[0], space[1]
    clusters = [_cluster("search-aa-1", a), _cluster("search-aa-2", b), _cluster("mine", a)]
    runs = [_ran("search-aa-1", 4.0), _ran("search-aa-2", 9.0), _ran("search-aa-1", 6.0)]
    others = [_ran("mine", 3.0), _ran("search-aa-2", 1.0, status="error"), _ran("gone", 1.0)]
    later = [_cluster("gone", b, created=500.0)]  # a name that was used again
    found = collect_history([*runs, *others], [*clusters, *later], space)
    assert found == [{str(a): 5.0, str(b): 9.0}]


def test_history_is_of_the_same_code_to_its_end(session: Any) -> None:
    space = on_sale(**LABELS)  # type: ignore[arg-type]
    code = "\n".join(["total = 0", *(f"total += {n}" for n in range(100))])
    for number, point in enumerate(space.points[:2]):
        session.store.save_cluster(_cluster(f"search-aa-{number}", point))
        ran = _ran(f"search-aa-{number}", 4.0 + number)
        row = waiting_row(ran.run_id, session, parse_cell_line(""), CellPosition(0), code, 0.0)
        session.store.begin_run(replace(ran, code=row.code, code_digest=row.code_digest))
    known = {str(space[0]): 4.0, str(space[1]): 5.0}
    assert read_history(session.store, f"{code}\n", space) == [known]
    assert read_history(session.store, code.replace("total += 99", "total += 98"), space) == []


# -- what is told of a search ---------------------------------------------------------------------


def test_measured_times_are_an_estimator_of_plans() -> None:
    space = on_sale(**LABELS)  # type: ignore[arg-type]
    runs = (
        Measurement(7200.0, 0.2, redone=1.1),
        Measurement(600.0, 0.1, redone=1.1),  # a plan counts lost machines itself
        Measurement(1.0, 0.1, "ValueError", "crash"),
    )
    tries = [Try(n + 1, n, space[n], run.usd, (run,)) for n, run in enumerate(runs)]
    found = SearchResult(space, "cost", 3, tuple(tries))
    with sky.Dag("one") as dag:
        task = sky.Task("train").set_resources(cpus="2", memory="4+", cloud="aws", on_demand=True)
        task.set_time_estimator(found.estimator())
    place = sky.plan(dag, tracked=False)["train"]
    fastest, failed = space[1].offer, space[2].offer
    assert fastest and place.offer.instance_type == fastest.instance_type
    assert place.hours == pytest.approx(600 / 3600)
    assert failed and found.estimator()(failed) == float("inf")
    untried = replace(fastest, instance_type="m99.large")
    assert found.estimator()(untried) == pytest.approx((7200 * 600) ** 0.5 / 3600)


def test_the_view_tells_costs_bounds_savings_and_what_memory_rules_out() -> None:
    space = Space.of(
        {arm: {"vcpus": [2], "memory": [4, 8, 16, 32]} for arm in ("aws", "gcp")},
        price=lambda arm, values: float(values["memory"]),
    )
    runs = {
        1: Measurement(1.0, 0.01, "MemoryError: array", "memory"),
        2: Measurement(60.0, 0.5, billed=0.75),
        3: Measurement(9.0, 0.25, billed=0.5),
    }
    tries = tuple(Try(n, n, space[n], r.usd if r.ok else None, (r,)) for n, r in runs.items())
    refused = Try(4, 6, space[6], None, (Measurement(0.0, error="no room", failure="refused"),))
    found = SearchResult(
        space,
        "cost",
        8,
        tries,
        "",
        (refused,),
        bounds={"gcp": 0.125},
        running=(space[4],),
        waiting=(space[7],),
    )
    assert [str(point) for point in found.hopeless] == [
        "aws vcpus=2 memory=4",
        "gcp vcpus=2 memory=8",
    ], "what runs is not left out"
    for shown in (to_text(found), BeautifulSoup(to_html(found), "html.parser").get_text(" ")):
        words = " ".join(shown.split())
        for told in (
            "best: aws vcpus=2 memory=32, $0.2500",
            "2 left out for lack of memory",
            "$0.2500 (50 %) a run less than aws vcpus=2 memory=16: paid back after 6 runs",
            "running: gcp vcpus=2 memory=4",
            "or for the budget: gcp vcpus=2 memory=32",
            "with as much memory or more has run out of it: aws vcpus=2 memory=4; gcp",
            "refused: no room",
            "MemoryError: array",
        ):
            assert told in words, (told, words)
        assert "0.12" in words and words.count("2 left out for lack of memory") == 1


@pytest.mark.parametrize(
    ("seconds", "spent", "now", "words"),
    [
        (9.0, 0.4, 4.0, ""),
        (11.0, 0.4, 4.0, "cannot be the best"),
        (9.0, 0.5, 4.0, "its part of the budget"),
        (9.0, 0.4, 5.0, "deadline"),
    ],
)
def test_a_run_is_stopped_for_a_reason(
    seconds: float, spent: float, now: float, words: str
) -> None:
    trial = Trial(1, Point("aws", {}), winning_seconds=lambda: 10.0, usd=0.5, ends=5.0)
    found = stop_reason(trial, seconds, spent, now)
    assert words in found and bool(words) == bool(found)


def test_errors_of_machines_are_no_errors_of_the_configuration() -> None:
    from jupyter_sky.base.errors import SkyEngineLost, SkyPreempted

    kinds = [
        failed_run(1.0, error).failure
        for error in (SkyPreempted("taken back"), SkyEngineLost("it exited"), KeyError("x"))
    ]
    assert kinds == ["refused", "crash", "crash"]
    assert isinstance(failed_run(1.0, KeyError("x")), Measurement)
