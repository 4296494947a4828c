"""Conditions of tasks: what they may compare, which links they make, and what becomes of tasks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.conditions import describe_unmet, is_met
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.notebook.cell_body import make_notebook_graph
from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
from jupyter_sky.workflows.pipelines.notebook.links import Pipeline, link_cells
from jupyter_sky.workflows.pipelines.run.controller import decide
from jupyter_sky.workflows.pipelines.run.state import Event, Kind, RunState, fold


@pytest.mark.parametrize(
    ("condition", "values", "met"),
    [
        ("acc > .9", {"acc": 0.91}, True),
        ("acc > .9", {"acc": np.float32(0.5)}, False),
        ("not done and n in [1, 2]", {"done": np.bool_(False), "n": np.int64(2)}, True),
        ("row['loss'] - 1 < rows[-1]['loss']", {"row": {"loss": 1}, "rows": [{"loss": 2}]}, True),
        ("best is None", {"best": None}, True),
        ("(a if b else c) == 'x'", {"a": 1, "b": False, "c": "x"}, True),
        ("scores[1:] == [2, 3]", {"scores": np.array([1, 2, 3])}, True),
        ("True", {}, True),
    ],
)
def test_conditions_compare_values_of_json(
    condition: str, values: dict[str, Any], met: bool
) -> None:
    assert is_met(condition, values) is met


@pytest.mark.parametrize(
    ("condition", "values", "message"),
    [
        ("acc > .9", {}, "there is no value of acc"),
        ("acc > .9", {"acc": object()}, "acc is a object"),
        ("acc > .9", {"acc": {1: 2}}, "acc is a dict"),
        ("acc > .9", {"acc": "high"}, "TypeError"),
        ("rows[3]", {"rows": []}, "IndexError"),
        ("a / b", {"a": 1, "b": 0}, "ZeroDivisionError"),
        ("exit()", {}, "not allowed"),
        ("__import__", {}, "there is no value of __import__"),
    ],
)
def test_conditions_that_cannot_be_answered(
    condition: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(SkyUsageError, match=message):
        is_met(condition, values)


def test_a_long_value_is_shown_by_its_beginning() -> None:
    text = describe_unmet("rows == []", {"rows": list(range(1000))})
    assert text.startswith("rows == [] is false: rows = [0, 1, 2,") and len(text) < 150


def notebook(*sources: str, **tags: list[str]) -> Pipeline:
    cells = [
        {"cell_type": "code", "source": source, "metadata": {"tags": tags.get(f"c{number}", [])}}
        for number, source in enumerate(sources, 1)
    ]
    return link_cells(read_cells({"cells": cells}))


SCORE = "%%sky --task score -o acc,data\nacc = data = 1"
TRAIN = "%%sky --task train --if 'acc > least' -i data -o model OPTIONS\nmodel = data"
USE = "%%sky --task use -i model -o used\nused = model"


def test_a_condition_makes_links_and_takes_constants() -> None:
    found = notebook("least = .9", SCORE, TRAIN.replace("OPTIONS", ""), USE, c1=["parameters"])
    task = make_notebook_graph(found, {"least": 0.5}).tasks["train"]
    assert task.after == ("score",) and task.body["reads"] == {"data": "score"}
    condition = task.body["condition"]
    assert condition["reads"] == {"acc": "score"} and condition["constants"] == {"least": 0.5}
    assert "acc" not in task.body["identity"]["values"], "it is no part of the key"
    assert "least" not in task.body["definitions"]


def test_a_default_for_all_that_is_read_makes_a_producer_optional() -> None:
    def optional(options: str, use: str = USE) -> tuple[str, ...]:
        train = TRAIN.replace("OPTIONS", options)
        return (
            make_notebook_graph(notebook("least = .9", SCORE, train, use), {}).tasks["use"].optional
        )

    assert optional("") == ()
    assert optional("--default model=None") == ("train",)
    assert optional("-o log --default log=1") == ()
    both = USE.replace("-i model", "-i model,log")
    assert optional("-o log --default log=1", both) == ()
    assert optional("-o log --default log=1,model=2", both) == ("train",)


def test_a_condition_is_that_of_each_task_of_a_sweep() -> None:
    fit = "%%sky --task fit --map n=[1,2] --if 'n > 1' -o x --default x=0\nx = n"
    use = "%%sky --task use -i x --if 'x[0] < 1'\nx"
    tasks = make_notebook_graph(notebook(fit, use), {}).tasks
    assert tasks["fit[n=2]"].body["condition"]["constants"] == {"n": 2}
    assert tasks["use"].optional == ("fit[n=1]", "fit[n=2]")
    assert tasks["use"].body["condition"]["reads"] == {"x": ("fit[n=1]", "fit[n=2]")}


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["%%sky --task a --if 'acc > 1'\n1"], "a (cell 1) needs acc, which no cell gives"),
        (["%%sky --task a --if 'x > 1'\n1", "%%sky -o x\nx = 1"], "needs x, made in cell 2"),
        (["%%sky --if 1 -o y --default z=1\ny = 1"], "cell 1: --default: -o does not give z"),
        (["%%sky -o y --default y=1\ny = 1"], "without --if the cell gives y itself"),
        (["def f(): pass", "%%sky --task a --if 'f == 1'\n1"], "--if reads f, which is computed"),
    ],
)
def test_conditions_without_a_value_are_refused(cells: list[str], message: str) -> None:
    with pytest.raises(SkyUsageError) as caught:
        make_notebook_graph(notebook(*cells), {})
    assert message in str(caught.value)


def test_declined_tasks_skip_what_has_no_default() -> None:
    tasks = [
        RunTask("score"),
        RunTask("train", ("score",)),
        RunTask("bound", ("train", "score")),
        RunTask("free", ("train", "score"), optional=("train",)),
        RunTask("later", ("free",)),
    ]
    state, __ = decide(RunState.begin(RunGraph(tasks)), 0.0, "r")
    state = fold(state, [Event(Kind.RESULT_FOUND, "score")])
    state, __ = decide(state, 0.0, "r")
    declined = Event(Kind.DECLINED, "train", 0.0, {"reason": "acc > .9 is false"})
    state, events = decide(fold(state, [declined, declined]), 0.0, "r")
    assert [(str(event.kind), event.subject) for event in events] == [
        ("skipped", "bound"),
        ("ready", "free"),
    ]
    assert state.tasks["train"].phase == "skipped" and state.tasks["train"].reason
    state = fold(state, [Event(Kind.RESULT_FOUND, "free")])
    state = fold(decide(state, 0.0, "r")[0], [Event(Kind.RESULT_FOUND, "later")])
    assert state.is_over


def test_an_optional_producer_that_fails_still_skips() -> None:
    tasks = [RunTask("train"), RunTask("free", ("train",), optional=("train",))]
    state, __ = decide(RunState.begin(RunGraph(tasks)), 0.0, "r")
    failed = Event(Kind.GIVEN_UP, "train", 0.0, {"reason": "no"})
    state = decide(fold(state, [failed]), 0.0, "r")[0]
    assert state.tasks["free"].phase == "skipped" and state.is_over
