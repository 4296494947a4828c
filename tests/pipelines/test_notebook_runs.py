"""Notebooks whose cells run as a graph, on clusters of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.conftest import Notebook

from .notebook_files import write_notebook

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _loaded(notebook: Notebook) -> Iterator[None]:
    assert notebook.run("import jupyter_sky as sky").status == "ok"
    yield


CELLS = (
    "factor = 2",
    "import os\ndef scale(x):\n    return [factor * one for one in x]",
    "data = [1, 2, 3]\nrows = [one for one in data]\nrows.append(4)",
    "rows[0] = 10",
    "%%sky --name left -i rows -o big\nbig = scale(rows)\nleftover = os.getpid()",
    "%%sky --name right -i 'rows[:2]->part' -o small\nsmall = sum(part)",
    "%%sky --name join -i big,small -o both\nboth = (big, small, 'leftover' in globals())",
    "total = sum(both[0])\nprint(total)",
    "print(total + 1)",
)


def test_a_notebook_gives_what_running_all_cells_gives(notebook: Notebook, tmp_path: Path) -> None:
    path = write_notebook(tmp_path, *CELLS, tags={1: ["parameters"]})
    ran = notebook.run(f"run = sky.pipeline({path}, name='book').wait(150)\nrun.status()", 170)
    assert ran.status == "ok", ran.traceback
    assert set(eval(ran.result).values()) == {"succeeded"}
    values = "run.result('join', 'both'), run.result('left')['big']"
    assert notebook.run(values).result == "(([20, 4, 6, 8], 12, False), [20, 4, 6, 8])"
    assert "38" in notebook.run("print(run.logs('cell8'))").stdout
    assert "39" in notebook.run("print(run.logs('cell9'))").stdout
    assert notebook.run("sky.status().rows").result == "()"
    written = tmp_path / "out.ipynb"
    assert notebook.run(f"run.save_notebook('{written}')").status == "ok"
    cells = nbformat.read(written, as_version=4).cells
    assert [cell["source"] for cell in cells] == list(CELLS)
    said = [output["text"] for output in cells[7]["outputs"] + cells[8]["outputs"]]
    assert said == ["38\n", "39\n"] and cells[4]["outputs"] == []
    with_three = notebook.run(f"sky.pipeline({path}, factor=3).wait(150).result('left')", 170)
    assert with_three.result == "{'big': [30, 6, 9, 12]}", with_three.traceback


@pytest.mark.parametrize(
    ("cells", "call", "message"),
    [
        (CELLS, "factr=3", "no parameter factr"),
        (CELLS, "factor=print", "parameter factor"),
        (("%%sky --name a -i x\nx",), "", "a (cell 1) needs x, which no cell gives"),
        (("import os",), "", "no cell of the notebook is to be run"),
    ],
)
def test_notebooks_that_cannot_be_run(
    notebook: Notebook, tmp_path: Path, cells: tuple[str, ...], call: str, message: str
) -> None:
    path = write_notebook(tmp_path, *cells, tags={1: ["parameters"]} if cells is CELLS else None)
    ran = notebook.run(f"sky.pipeline({path}, {call})")
    assert ran.ename == "SkyUsageError" and message in ran.evalue, ran.evalue


CONDITIONAL = (
    "least = 0.9",
    "%%sky --task score -o acc\nacc = 0.5",
    "%%sky --task train --if 'acc > least' -o model,log --default model=None\nmodel = log = 'new'",
    "%%sky --task use -i model -o used\nused = model or 'old'",
    "%%sky --task tell -i log -o told\ntold = log",
)


def test_a_cell_runs_only_if_its_condition_holds(notebook: Notebook, tmp_path: Path) -> None:
    path = write_notebook(tmp_path, *CONDITIONAL, tags={1: ["parameters"]})
    ran = notebook.run(f"run = sky.pipeline({path}, name='if').wait(150)\nrun.status()", 170)
    assert eval(ran.result) == {
        "score": "succeeded",
        "train": "skipped",
        "use": "succeeded",
        "tell": "skipped",
    }, ran.traceback
    assert notebook.run("run.result('use', 'used')").result == "'old'"
    assert (
        "skipped (acc > least is false: acc = 0.5, least = 0.9)"
        in notebook.run("print(run.table())").stdout
    )
    graph = tmp_path / "out.yaml"
    notebook.run(f"run.export({str(graph)!r})")
    assert "if: acc > least" in graph.read_text()
    call = f"run_line_magic('sky', 'pipeline show {eval(path)}')"
    shown = notebook.run(f"print(get_ipython().{call})")
    assert "if acc > least" in shown.stdout
    again = notebook.run(
        f"run = sky.pipeline({path}, name='if2', least=0.4).wait(150)\nrun.result('tell', 'told')",
        170,
    )
    assert again.result == "'new'", again.traceback
    assert notebook.run("run.why('score')").result == "'its result was kept'"


def test_by_hand_a_cell_whose_condition_does_not_hold_is_skipped(notebook: Notebook) -> None:
    notebook.run("acc, least = 0.5, 0.9")
    skipped = notebook.run(CONDITIONAL[2])
    assert skipped.stdout == (
        "the cell is skipped: acc > least is false: acc = 0.5, least = 0.9\n"
    ), skipped.traceback
    assert notebook.run("model, 'log' in globals()").result == "(None, False)"
    assert "no value of accuracy" in notebook.run("%%sky --if 'accuracy > 1'\n1").evalue
    notebook.run("acc = 0.95")
    assert notebook.run(CONDITIONAL[2], 100).status == "ok"
    assert notebook.run("model").result == "'new'"
    swept = "%%sky --map n=[1,2,3] --if 'n > 1' -o x,y --default x=0\nx = y = n"
    assert notebook.run(swept, 100).status == "ok"
    assert notebook.run("x, 'y' in globals()").result == "([0, 2, 3], False)"


def test_a_cell_that_fails_is_shown_in_its_place(notebook: Notebook, tmp_path: Path) -> None:
    path = write_notebook(tmp_path, "%%sky --name bad -o x\nprint('first')\nx = 1 / 0", "print(x)")
    ran = notebook.run(f"run = sky.pipeline({path}, name='bad')\nrun.wait(100)", 120)
    assert "task bad has failed: ZeroDivisionError" in ran.evalue
    written = tmp_path / "out.ipynb"
    notebook.run(f"run.save_notebook('{written}')")
    bad, after = nbformat.read(written, as_version=4).cells
    assert [output["output_type"] for output in bad["outputs"]] == ["stream", "error", "stream"]
    assert bad["outputs"][1]["ename"] == "ZeroDivisionError"
    assert after["outputs"][0]["text"] == "skipped: bad\n"
    shown = re.sub(r"\x1b\[[\d;]*m", "", notebook.run("print(run.logs('bad'))").stdout)
    assert "----> 3 x = 1 / 0" in shown and "attempt" not in shown, shown


def test_a_file_that_is_no_notebook(notebook: Notebook, tmp_path: Path) -> None:
    for number, text in enumerate(("{", "[]", "{}", '{"nbformat": 4}', '{"nbformat": 9}')):
        (tmp_path / f"{number}.ipynb").write_text(text)
        assert "cannot be read" in notebook.run(f"sky.pipeline('{tmp_path}/{number}.ipynb')").evalue
    assert "cannot be read" in notebook.run(f"sky.pipeline('{tmp_path}/missing.ipynb')").evalue


def test_the_verb_shows_plans_and_runs(notebook: Notebook, tmp_path: Path) -> None:
    path = eval(write_notebook(tmp_path, *CELLS, tags={1: ["parameters"]}))
    shown = notebook.run(f"print(get_ipython().run_line_magic('sky', 'pipeline show {path}'))")
    assert "left" in shown.stdout and "big, small" in shown.stdout, shown.stdout
    plan = notebook.run(f"%sky pipeline plan {path}")
    assert plan.status == "ok" and "local" in str(plan.messages)
    out = tmp_path / "out.ipynb"
    ran = notebook.run(f"%sky pipeline run {path} -p factor=5 --name verb -o {out}", 170)
    assert "left: running" in ran.stdout and "cell9: succeeded" in ran.stdout, ran.stdout
    cells = nbformat.read(out, as_version=4).cells
    assert cells[7]["outputs"][0]["text"] == "95\n"
    assert "95" in notebook.run("%sky pipeline logs verb cell8").stdout
    listed = notebook.run(
        "from jupyter_sky.interfaces.api import pipelines as made; print(made.runs())"
    ).stdout
    assert "verb" in listed and "7 succeeded" in listed
    assert "no run called vreb" in notebook.run("%sky pipeline resume vreb").evalue
    assert "is given twice" in notebook.run(f"%sky pipeline run {path} -p a=1 -p b=2").evalue
