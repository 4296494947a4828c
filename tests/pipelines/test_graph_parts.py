"""Parts of graphs: which tasks run, what is taken for the others, and what is refused."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import jupyter_sky as sky
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Dag, Data, Task
from jupyter_sky.decisions.optimizer.plan import Plan
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.model.reuse import Freshness, Reuse
from jupyter_sky.workflows.pipelines.model.task_body import make_graph
from jupyter_sky.workflows.pipelines.run.earlier_results import EarlierResults
from jupyter_sky.workflows.pipelines.run.graph_parts import (
    GraphPart,
    choose_tasks,
    limit_graph,
    read_part,
    take_part,
)
from jupyter_sky.workflows.pipelines.run.run_storage import open_journal

from .kept_runs import KeptRuns, notebook_graph

CHAIN = RunGraph(
    [
        RunTask("read"),
        RunTask("clean", ("read",)),
        RunTask("fit[n=1]", ("clean",)),
        RunTask("fit[n=2]", ("clean",)),
        RunTask("best", ("fit[n=1]", "fit[n=2]")),
        RunTask("count", ("read",)),
    ]
)
CELLS = {"fit": ["fit[n=1]", "fit[n=2]"], "#nightly": ["count", "best"]}


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ({"only": "fit[n=2],count"}, ["count", "fit[n=2]"]),
        ({"only": ["fit"]}, ["fit[n=1]", "fit[n=2]"]),
        ({"only": "#nightly"}, ["best", "count"]),
        ({"from_task": "fit[n=1]"}, ["best", "fit[n=1]"]),
        ({"to_task": "clean"}, ["clean", "read"]),
        ({"from_task": "clean", "to_task": "fit"}, ["clean", "fit[n=1]", "fit[n=2]"]),
    ],
)
def test_tasks_of_a_part(given: dict[str, Any], chosen: list[str]) -> None:
    assert sorted(choose_tasks(CHAIN, read_part(**given), CELLS)) == chosen


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"only": "fitt"}, "there is no task 'fitt'.*did you mean fit"),
        ({"only": "fit", "to_task": "best"}, "neither --from nor --to"),
        ({"from_task": "best", "to_task": "count"}, "count does not follow best"),
    ],
)
def test_parts_that_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SkyUsageError) as raised:
        choose_tasks(CHAIN, read_part(**given), CELLS)
    assert re.search(message, f"{raised.value.message} {raised.value.hint}")


BOOK = (
    "factor = 2",
    "%%sky --task rows -o rows\nrows = [1, 2]",
    "%%sky --task fit -i rows -o model\nmodel = [factor * row for row in rows]",
    "%%sky --task tell -i model --after rows -o told\ntold = str(model)",
)


def _part(runs: KeptRuns, graph: RunGraph, **given: Any) -> GraphPart:
    def judge(whole: RunGraph, tasks: Iterable[str]) -> Mapping[str, Freshness]:
        return Reuse(whole, runs.kept, "book").judge(tasks)

    return take_part(graph, choose_tasks(graph, read_part(**given), {}), judge)


def test_a_part_takes_what_is_kept_and_leaves_out_the_rest(tmp_path: Path) -> None:
    runs = KeptRuns(tmp_path)
    runs.cells(*BOOK)
    part = _part(runs, notebook_graph(BOOK), only="tell")
    assert list(part.graph.tasks) == ["fit", "tell"] and list(part.taken) == ["fit"]
    assert part.graph.tasks["tell"].after == ("fit",)  # `rows` gives it no value
    assert part.graph.tasks["fit"].after == ()
    with pytest.raises(SkyUsageError) as raised:  # of another factor nothing is kept
        _part(runs, notebook_graph(BOOK, {"factor": 3}), only="tell")
    assert raised.value.message == (
        "tell needs the result of fit, which is not kept (parameter factor)"
    )
    assert raised.value.hint == "run that too: --from fit, or the whole"
    edited = [cell.replace("[1, 2]", "[1, 3]") for cell in BOOK]
    with pytest.raises(SkyUsageError, match=r"fit, which is not kept \(rows would run: code\)"):
        _part(runs, notebook_graph(edited), only="tell")


def test_cells_of_an_engine_bring_those_whose_variables_they_find(tmp_path: Path) -> None:
    book = "a = 1", "rows = list(range(3))", "print('shown')", "rows.append(4)", "print(rows)"
    part = _part(KeptRuns(tmp_path), notebook_graph(book), only="cell5")
    assert list(part.graph.tasks) == ["cell2", "cell4", "cell5"] and not part.taken
    assert [task.after for task in part.graph.tasks.values()] == [(), ("cell2",), ("cell4",)]
    assert part.graph.tasks["cell4"].body["kept_by"] == "cell2"


def test_what_has_no_key_is_taken_of_the_newest_run_of_the_same_code(tmp_path: Path) -> None:
    book = (
        "a = 1",
        "import os\nfound = os.listdir('.')",  # of a folder's list no key is known
        "%%sky --task count -i found -o n\nn = len(found)",
        "%%sky --task tell -i n -o told\ntold = str(n)",
    )
    runs, journal = KeptRuns(tmp_path), open_journal(tmp_path)
    graph = notebook_graph(book)
    runs.cells(*book)
    journal.add("run1", graph, {"origin": "book"}, time.time())

    def find(graph: RunGraph) -> Mapping[str, Freshness]:
        earlier = EarlierResults(graph, runs.kept, journal, "book")
        judge = Reuse(graph, runs.kept, "book", substitute=earlier.find).judge
        return judge(["cell2", "count"])

    assert runs.unkept["cell2"]
    taken = take_part(graph, frozenset({"tell"}), lambda whole, tasks: find(whole)).taken
    assert taken["count"] == runs.results.find("count")
    edited = notebook_graph([book[0], f"{book[1]}[:1]", *book[2:]])
    assert find(edited)["cell2"].result is None and find(edited)["count"].result is None


def test_a_cell_that_was_skipped_gives_its_defaults(tmp_path: Path) -> None:
    book = (
        "a = 1",
        "%%sky --task score -o acc\nacc = 0.5",
        "%%sky --task tune -i acc --if 'acc < .1' --default best=None -o best\nbest = 1",
        "%%sky --task tell -i best -o told\ntold = str(best)",
    )
    runs, journal = KeptRuns(tmp_path), open_journal(tmp_path)
    runs.cells(*book[:2])
    graph = notebook_graph(book)
    earlier = EarlierResults(graph, runs.kept, journal, "book")
    found = Reuse(graph, runs.kept, "book", substitute=earlier.find).judge(["tune"])
    result = found["tune"].result
    assert result is not None
    runs.results.adopt("tune", result)
    assert runs.results.load("tune", "best") is None


def test_what_has_nothing_to_run_is_refused() -> None:
    with Dag("one") as dag:
        Task("first", run=abs)
    plan = sky.plan(dag)
    assert plan.begin is not None and Plan.from_json(plan.to_json()) == plan
    with pytest.raises(SkyUsageError, match="nothing to run"):
        sky.plan(cpus="2+").run()
    with pytest.raises(SkyUsageError, match="3 cannot be run: it is neither code nor a Dag"):
        sky.run(3)


def test_a_plan_of_a_part_has_kept_values_as_data_of_this_machine(tmp_path: Path) -> None:
    with Dag("three") as dag:
        first = Task("first", run=lambda: bytes(20_000_000))
        second, third = Task("second", run=len), Task("third", run=abs)
        first >> second >> third
    runs = KeptRuns(tmp_path)
    runs.functions(dag)
    part = _part(runs, make_graph(dag), only="second")
    assert list(part.taken) == ["first"] and part.graph.tasks["second"].after == ("first",)
    limited = limit_graph(dag.freeze(), replace(part, gb={"first": 0.02}))
    (spec,) = limited.tasks
    assert spec.name == "second" and not limited.edges
    assert spec.inputs == (Data("local", 0.02, "local", ""),)
