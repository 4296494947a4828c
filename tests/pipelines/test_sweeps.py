"""Sweeps of notebooks: the tasks that ``--map`` makes of a cell, and what is wrong with a list."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.interfaces.magics.bag_cells import run_sweep
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, attempt_name, plain_name
from jupyter_sky.workflows.pipelines.notebook.cell_body import (
    CellBody,
    make_notebook_dag,
    make_notebook_graph,
)
from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
from jupyter_sky.workflows.pipelines.notebook.links import Pipeline, link_cells
from jupyter_sky.workflows.pipelines.notebook.sweeps import expand_cells
from jupyter_sky.workflows.pipelines.run.outlook import residual
from jupyter_sky.workflows.pipelines.run.replanning import assign_clusters
from jupyter_sky.workflows.pipelines.run.state import RunState


def _pipeline(*sources: str) -> Pipeline:
    cells = [
        {
            "cell_type": "code",
            "source": source,
            "metadata": {"tags": ["parameters"] if source.startswith("# parameters") else []},
        }
        for source in sources
    ]
    return link_cells(read_cells({"cells": cells}))


def _tasks(line: str, *above: str, **parameters: Any) -> list[str]:
    pipeline = _pipeline(*above, f"%%sky --task fit {line} -o score\nscore = 1")
    return [task.name for task in expand_cells(pipeline, parameters)["fit"]]


def _graph(*sources: str, **parameters: Any) -> RunGraph:
    return make_notebook_graph(_pipeline(*sources), parameters)


def _body(graph: RunGraph, task: str) -> CellBody:
    return CellBody.from_json(graph.tasks[task].body)


SWEEP = "%%sky --task fit --map lr=[0.1,0.01] -i data -o score\nscore = f(data, lr)"
NOTEBOOK = (
    "data = load()",
    SWEEP,
    "%%sky --task best -i score -o top\ntop = max(score)",
    "print(score, top)",
)


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--map lr=[0.1,0.01]", ["fit[lr=0.1]", "fit[lr=0.01]"]),
        ("--map 'lr=(0.1, 1e-9)'", ["fit[lr=0.1]", "fit[lr=1e-09]"]),
        ("--map n=range(2)", ["fit[n=0]", "fit[n=1]"]),
        ("--map kind=['adam', 'sgd']", ["fit[kind=adam]", "fit[kind=sgd]"]),
        ("--map on=[True,None,-1]", ["fit[on=True]", "fit[on=None]", "fit[on=-1]"]),
        ("--map 'x=[1, 1, \"1\"]'", ["fit[x=1]", "fit[x=#2]", "fit[x=#3]"]),
        ("--map 'x=[[1, 2], \"a b\"]'", ["fit[x=#1]", "fit[x=#2]"]),
        (
            "--map a=[1,2] --map b=[x,y]",
            ["fit[a=1,b=x]", "fit[a=1,b=y]", "fit[a=2,b=x]", "fit[a=2,b=y]"],
        ),
        ("--map lr=rates", ["fit[lr=5]", "fit[lr=6]"]),
        ("--map lr=sizes", ["fit[lr=8]"]),
    ],
)
def test_a_cell_becomes_a_task_for_each_value(line: str, names: list[str]) -> None:
    assert _tasks(line, "# parameters\nrates = [5, 6]", "sizes = (8,)") == names


def test_values_of_a_run_replace_the_list() -> None:
    import numpy as np

    assert _tasks("--map lr=[1]", lr=[2, 3]) == ["fit[lr=2]", "fit[lr=3]"]
    assert _tasks("--map lr=[1]", lr=np.array([0.5])) == ["fit[lr=0.5]"]
    assert _tasks("--map lr=rates", "# parameters\nrates = [1]", rates=[7]) == ["fit[lr=7]"]
    assert _tasks("--map lr=rates", "rates = [1]", rates=[7]) == ["fit[lr=1]"]


@pytest.mark.parametrize(
    ("line", "above", "parameters", "message"),
    [
        ("--map lr=[]", (), {}, "fit (cell 1): --map lr=[] is empty"),
        ("--map lr=range(0)", (), {}, "is empty"),
        ("--map lr=3", (), {}, "fit (cell 1): --map lr=3 is not a list of values"),
        ("--map lr=[1]", (), {"lr": 0.1}, "lr=0.1 is not a list of values"),
        ("--map lr=[1]", (), {"lr": []}, "lr=[] is empty"),
        ("--map n=range(10001)", (), {}, "would be 10,001 tasks, and 10,000 is the most"),
        ("--map a=range(101) --map b=range(100)", (), {}, "would be 10,100 tasks"),
        ("--map lr=np.logspace(-3,0)", (), {}, "--map lr=np.logspace(-3,0) is computed"),
        ("--map lr=[nan]", (), {}, "--map lr=[nan] is computed"),
        ("--map lr=[1e999]", (), {}, "value 1 of lr, inf, cannot be written in a notebook"),
        ("--map lr=[1]", (), {"lr": [1, print]}, "value 2 of lr, <built-in function print>"),
        ("--map lr=rates", (), {}, "sweeps over rates, which no cell above gives"),
        (
            "--map lr=rates",
            ("rate = [1]",),
            {},
            "rates, which no cell above gives\ndid you mean rate?",
        ),
        ("--map lr=rates", ("rates = f()",), {}, "sweeps over rates, known only as cell 1 runs"),
        ("--map lr=f", ("def f(): pass",), {}, "--map lr=f is computed"),
    ],
)
def test_lists_that_cannot_be_swept(
    line: str, above: tuple[str, ...], parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(SkyUsageError) as caught:
        _tasks(line, *above, **parameters)
    assert message in str(caught.value), caught.value


def test_what_a_sweep_gives_is_read_as_a_list_in_its_order() -> None:
    graph = _graph(*NOTEBOOK)
    fits = ("fit[lr=0.1]", "fit[lr=0.01]")
    assert list(graph.tasks) == ["cell1", *fits, "best", "cell4"]
    assert graph.tasks["best"].after == fits
    assert _body(graph, "best").reads == {"score": list(fits)} or _body(graph, "best").reads == {
        "score": fits
    }
    scores = {"fit[lr=0.1]": {"score": 1}, "fit[lr=0.01]": {"score": 2}}
    cell = _body(graph, "best").as_cell("best", "result", lambda task, name: scores[task][name])
    assert cell.values == {"score": [1, 2]}
    assert [_body(graph, name).definitions for name in fits] == ["lr = 0.1", "lr = 0.01"]


def test_one_value_is_read_as_a_list_too() -> None:
    graph = _graph(*NOTEBOOK, lr=[0.5])
    cell = _body(graph, "best").as_cell("best", "result", lambda task, name: (task, name))
    assert cell.values == {"score": [("fit[lr=0.5]", "score")]}


def test_a_swept_name_is_not_that_of_another_cell() -> None:
    graph = _graph("lr = load()", "data = load()", SWEEP, "print(lr, data)")
    assert graph.tasks["fit[lr=0.1]"].after == ("cell2",)
    assert "lr" in _body(graph, "fit[lr=0.1]").hidden


def _assign(graph: RunGraph) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the clusters of a graph whose tasks all take what they ask for."""
    wanted = {name: {"resources": task.body["request"]} for name, task in graph.tasks.items()}
    clusters, offers = assign_clusters(graph, wanted, residual(RunState.begin(graph), 0.0))
    return clusters, dict(offers)


def test_as_many_clusters_as_tasks_run_at_a_time() -> None:
    wide = SWEEP.replace("[0.1,0.01]", "range(20)")
    clusters, offers = _assign(_graph(NOTEBOOK[0], wide))
    assert len(offers) == 9 and len(clusters) == 21  # one is that of cell1
    narrow = wide.replace("--map", "--at-once 3 --map")
    clusters, offers = _assign(_graph(NOTEBOOK[0], narrow))
    assert len(offers) == 4
    assert clusters["fit[lr=0]"] == clusters["fit[lr=3]"] != clusters["fit[lr=1]"]
    frozen = make_notebook_dag(_pipeline(NOTEBOOK[0], narrow), "wide", {}).freeze()
    assert len(frozen.edges) == 20 + 17
    assert [task.spin_up for task in frozen.tasks].count(0.0) == 17


def test_variables_left_on_the_clusters_of_a_sweep_are_an_error() -> None:
    pipeline = _pipeline(
        "%%sky --task fit --map lr=[1,2]\nmodel = lr", "%%sky --task use -o y\ny = model"
    )
    (finding,) = pipeline.findings
    assert finding.text == "use (cell 2) reads model, which each task of fit has"
    assert finding.hint == "add -o model to fit (cell 1)" and finding.is_error


def test_tasks_that_read_variables_of_a_cluster_run_there_one_after_the_other() -> None:
    graph = _graph("%%sky --task load\ndata = 1", "%%sky --task fit --map lr=[1,2] -o y\ny = data")
    assert [task.body["kept_by"] for task in graph.tasks.values()] == ["", "load", "fit[lr=1]"]


def test_names_of_files_and_clusters_differ_where_those_of_tasks_do() -> None:
    names = [f"fit[lr={value}]" for value in ("0.1", "-0.1", "0_1", "a/b", "a b", "ä")] + ["fit"]
    assert len({plain_name(name) for name in names}) == len(names)
    assert len({attempt_name("run", name, 1) for name in names}) == len(names)
    assert all("/" not in plain_name(name) for name in names)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rate": "fast"}, "parameter rate is a number, not 'fast'"),
        ({"rate": True}, "parameter rate is a number, not True"),
        ({"kind": 3}, "parameter kind is text, not 3"),
        ({"deep": 1}, "parameter deep is True or False, not 1"),
    ],
)
def test_a_parameter_of_another_kind_is_refused(given: dict[str, Any], message: str) -> None:
    cells = (
        "# parameters\nrate: float = 1\nkind, deep = 'adam', None\nkind = 'adam'\ndeep = True",
        "print(rate)",
    )
    with pytest.raises(SkyUsageError) as raised:
        _graph(*cells, **given)
    assert raised.value.message == message
    _graph(*cells, rate=None, kind="sgd", deep=False)
    _graph(*cells, rate=0.5)


def test_by_hand_as_many_values_may_fail_as_are_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}

    def run(options: Any, values: Any) -> None:
        namespace["share"] = 1 / values["n"]

    options = parse_cell_line("--task part --map n=[1,0,2,0] --allow-failures 50% -o share")
    run_sweep(options, namespace, run)
    assert namespace["share"] == [1.0, None, 0.5, None]
    assert "part[n=0] has failed: division by zero" in capsys.readouterr().out
    options = parse_cell_line("--map n=[1,0,2,0] --allow-failures 1 -o share")
    with pytest.raises(ZeroDivisionError):
        run_sweep(options, namespace, run)


def test_failures_are_allowed_among_the_tasks_of_a_sweep() -> None:
    graph = _graph("a = 1", "%%sky --task fit --map n=range(10) --allow-failures 25% -o m\nm = n")
    assert {task.most_failures for task in graph.tasks.values()} == {2}
    with pytest.raises(SkyUsageError, match="there are no tasks of --map"):
        parse_cell_line("--allow-failures 2")
    with pytest.raises(SkyUsageError, match="not understood"):
        parse_cell_line("--map n=[1] --allow-failures 101%")
