"""Pipelines of notebooks: kinds of cells, links, and what is found wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.workflows.pipelines.notebook.cells import Kind, read_cells, read_source
from jupyter_sky.workflows.pipelines.notebook.links import LinkKind, Pipeline, link_cells


def _notebook(*sources: str, tags: dict[int, str] | None = None) -> dict[str, Any]:
    return {
        "cells": [
            {
                "cell_type": "code",
                "id": f"id{number}",
                "source": source,
                "metadata": {"tags": [(tags or {}).get(number, "")]},
            }
            for number, source in enumerate(sources, 1)
        ]
    }


def _pipeline(*sources: str, tags: dict[int, str] | None = None) -> Pipeline:
    return link_cells(read_cells(_notebook(*sources, tags=tags)))


def _edges(pipeline: Pipeline, kind: LinkKind = LinkKind.DATA) -> list[str]:
    return [f"{o.producer}-{o.name}->{o.consumer}" for o in pipeline.links if o.kind is kind]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("import numpy as np\nfrom os import path", Kind.SETUP),
        ("def f(x):\n    return x", Kind.SETUP),
        ("SIZES = [1, 2]\nclass A:\n    pass", Kind.SETUP),
        ("%pip install torch\n!apt install graphviz", Kind.SKIP),
        ("%matplotlib inline", Kind.SKIP),
        ("%%sky --gpus V100\nx = 1", Kind.SKY),
        ("data = load()", Kind.HERE),
        ("print(last)", Kind.SHOW),
    ],
)
def test_kinds(source: str, kind: Kind) -> None:
    reader = "%%sky -i data,np,x\nprint(data)"
    assert read_cells(_notebook(source, reader))[0].kind is kind


def test_tags_decide_kinds() -> None:
    cells = read_cells(_notebook("lr = 0.1", "x = load()", tags={1: "parameters", 2: "skip"}))
    assert [cell.kind for cell in cells] == [Kind.PARAMETERS, Kind.SKIP]


def test_a_name_comes_from_the_nearest_earlier_cell() -> None:
    pipeline = _pipeline(
        "%%sky --name one -o x\nx = 1",
        "%%sky --name two -i x -o x\nx = x + 1",
        "%%sky --name three -i x -o y\ny = x",
        "%%sky --name four -o x\nx = 5",
    )
    assert _edges(pipeline) == ["one-x->two", "two-x->three"]
    assert pipeline.findings == ()


def test_cells_of_the_kernel_are_tasks_in_order() -> None:
    pipeline = _pipeline(
        "raw = load()",
        "raw['x'] = 0",
        "%%sky --name train -i raw -o model\nmodel = fit(raw)",
        "best = model.best",
        "print(best)",
    )
    assert [str(cell.kind) for cell in pipeline.tasks] == ["here", "here", "sky", "here", "show"]
    assert _edges(pipeline) == [
        "cell1-raw->cell2",
        "cell2-raw->train",
        "train-model->cell4",
        "cell4-best->cell5",
    ]
    assert _edges(pipeline, LinkKind.ORDER) == ["cell1-->cell2", "cell2-->cell4", "cell4-->cell5"]


def test_without_inputs_given_what_the_code_reads_counts() -> None:
    pipeline = _pipeline("x = load()", "%%sky --name a\ny = sum(x)")
    assert _edges(pipeline) == ["cell1-x->a"]


def test_an_expression_of_an_input_is_an_edge_of_its_names() -> None:
    pipeline = _pipeline("df = load()", "%%sky --name a -i 'df[:n]->part' -o y\ny = part", "n = 3")
    assert _edges(pipeline) == ["cell1-df->a"]
    assert [finding.text for finding in pipeline.findings] == ["a (cell 2) needs n, made in cell 3"]


def test_definitions_of_definitions_go_with_a_task() -> None:
    pipeline = _pipeline(
        "import math",
        "def square(x):\n    return math.pow(x, 2)",
        "def unused():\n    return 0",
        "%%sky --name a -o y\ny = square(3)",
    )
    (task,) = pipeline.tasks
    assert [cell.number for cell in pipeline.definitions(task)] == [1, 2]
    assert pipeline.links == ()


def test_variables_kept_on_a_shared_cluster_are_links() -> None:
    pipeline = _pipeline(
        "%%sky --name load --cluster big\ndata = read()",
        "%%sky --name use --cluster big -i n -o y\ny = len(data)",
    )
    assert _edges(pipeline, LinkKind.KEPT) == ["load-data->use"]


def test_a_variable_without_inputs_or_outputs_given_is_kept() -> None:
    pipeline = _pipeline("%%sky --name load\ndata = read()", "%%sky --name use\nn = len(data)")
    assert _edges(pipeline, LinkKind.KEPT) == ["load-data->use"]
    assert _edges(pipeline) == []


def test_what_no_cell_gives_is_an_error() -> None:
    pipeline = _pipeline(
        "%%sky --name train -o model_b\nmodel_b = hidden = 1",
        "%%sky --name test -i model,hidden\nprint(model)",
    )
    model, hidden = pipeline.findings
    assert model.text == "test (cell 2) needs model, which no cell gives" and model.is_error
    assert "model_b" in model.hint
    assert hidden.hint == "add -o hidden to train (cell 1)"


def test_a_change_that_is_not_given_back_is_found_through_an_alias() -> None:
    sources = (
        "train = load()\ntest = load()",
        "%%sky --name clean -i train,test -o n\nfor d in [train, test]:\n    d['x'] = 0\nn = 1",
        "%%sky --name fit -i train -o model\nmodel = train",
    )
    (finding,) = _pipeline(*sources).findings
    assert finding.text == "clean changes train in place, and fit reads it unchanged"
    assert finding.hint == "add -o train to clean (cell 2)" and not finding.is_error
    given_back = sources[1].replace("-o n", "-o n,train,test")
    assert _pipeline(sources[0], given_back, sources[2]).findings == ()


def test_errors_name_their_cells() -> None:
    with pytest.raises(SkyUsageError, match="cells 1 and 2 are both called a"):
        read_cells(_notebook("%%sky --name a\n1", "%%sky --name a\n2"))
    with pytest.raises(SkyUsageError, match="cell 2: "):
        read_cells(_notebook("x = 1", "%%sky --gpu\n2"))


def _errors(*sources: str) -> list[tuple[str, str]]:
    return [(each.text, each.hint) for each in _pipeline(*sources).findings if each.is_error]


def test_a_task_follows_those_that_after_names() -> None:
    pipeline = _pipeline(
        "%%sky --task load\nprint()",
        "rows = work()",
        "%%sky --task fit --after load,cell2\nprint()",
        "print(rows)",
    )
    assert pipeline.findings == ()
    assert _edges(pipeline, LinkKind.AFTER) == ["load-->fit", "cell2-->fit"]
    assert _edges(pipeline) == ["cell2-rows->cell4"]


def test_after_something_that_is_no_task() -> None:
    assert _errors("%%sky --task prepare\n1", "%%sky --task fit --after prepar\n1") == [
        ("fit (cell 2) is to run after prepar, which is no task", "did you mean prepare?")
    ]
    ((text, hint),) = _errors("import os", "%%sky --task fit --after cell1\nos", "f()")
    assert text == "fit (cell 2) is to run after cell1, which is no task" and "cell3" in hint


def test_tasks_that_wait_for_each_other() -> None:
    train, test = "%%sky --task train {} -o m\nm = 1", "%%sky --task test -i m -o n\nn = m"
    assert _errors(train.format("--after test"), test) == [
        ("train → test → train wait for each other", "drop --after test in train (cell 1)")
    ]
    assert _errors(train.format("--after train"), test) == [
        ("train waits for itself", "drop --after train in train (cell 1)")
    ]
    assert _errors(train.format(""), test) == []


def test_a_later_cell_gives_what_after_asks_for() -> None:
    use = "%%sky --task use -i x --after {}\nprint(x)"
    one, two = "%%sky --task one -o x\nx = 1", "%%sky --task two -o x\nx = 2"
    assert _edges(_pipeline(use.format("one"), one)) == ["one-x->use"]
    last = "%%sky --task two -i x -o x\nx = x + 1"
    pipeline = _pipeline(use.format("two"), one, last)
    assert pipeline.findings == () and _edges(pipeline) == ["two-x->use", "one-x->two"]
    assert _errors(use.format("one,two"), one, two) == [
        (
            "use (cell 1) needs x, given by one (cell 2) and two (cell 3) in no order",
            "say which is the last: --after one in two",
        )
    ]
    assert _errors(one, use.format("two"), two)[0][0].endswith("in no order")


def test_a_task_named_as_another_cell_is() -> None:
    with pytest.raises(SkyUsageError, match="cells 1 and 2 are both called cell1"):
        read_cells(_notebook("x = f()", "%%sky --task cell1 -i x\nx"))


def test_a_cell_with_errors_is_kept() -> None:
    (cell,) = read_cells(_notebook("x = ("))
    assert (cell.kind, cell.reads) == (Kind.SHOW, frozenset())


def test_code_that_cannot_run_is_an_error() -> None:
    bad = "%%sky --task fit -o x\ny = 1\nx = (1"
    hint = "mend it: running all cells ends there"
    assert _errors("%%sky --task sh\n%%bash\nif (", bad, "%pip install x\n!ls (", "await f()") == [
        ("fit (cell 2), line 2: '(' was never closed", hint)
    ]


def test_notebooks_of_all_formats_are_read() -> None:
    cell = {"cell_type": "code", "source": ["x = 1\n", "x"], "metadata": {}, "outputs": []}
    new = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    old_cell = {**cell, "input": cell["source"], "language": "python", "collapsed": False}
    del old_cell["source"]
    worksheet = {"cells": [old_cell], "metadata": {}}
    old = {"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": [worksheet]}
    for notebook in (new, old):
        (found,) = read_cells(read_source(json.dumps(notebook)))
        assert found.body == "x = 1\nx"
    with pytest.raises(ValueError, match="not a notebook"):
        read_source("[1]")
