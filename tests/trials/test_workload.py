"""Workloads of trials, what is refused before anything is launched, and what earlier runs tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.cell_options.parsing import parse_cell_line
from jupyter_sky.config.settings import Sky
from jupyter_sky.errors import SkyNoOffer, SkyUsageError
from jupyter_sky.executor import session as sessions
from jupyter_sky.search import Measurement, Point, SearchResult, Space, Try, on_sale
from jupyter_sky.store.rows import ClusterRow, RunRow
from jupyter_sky.trials.cell_trials import failed_run
from jupyter_sky.trials.history import collect_history
from jupyter_sky.trials.live_search import best_options, describe_failures, launchable, search_live
from jupyter_sky.trials.workload import find_effects, make_workload

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


def test_errors_of_machines_are_no_errors_of_the_configuration() -> None:
    from jupyter_sky.errors import SkyEngineLost, SkyPreempted

    kinds = [
        failed_run(1.0, error).failure
        for error in (SkyPreempted("taken back"), SkyEngineLost("it exited"), KeyError("x"))
    ]
    assert kinds == ["refused", "crash", "crash"]
    assert isinstance(failed_run(1.0, KeyError("x")), Measurement)
