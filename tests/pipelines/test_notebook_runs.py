"""Notebooks whose cells run as a graph, on clusters of this machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _loaded(notebook: Notebook) -> Iterator[None]:
    assert notebook.run("import jupyter_sky as sky").status == "ok"
    yield


def _write(folder: Path, *sources: str, tags: dict[int, list[str]] | None = None) -> str:
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "id": f"c{number}",
            "source": source,
            "metadata": {"tags": (tags or {}).get(number, [])},
            "outputs": [],
            "execution_count": None,
        }
        for number, source in enumerate(sources, 1)
    ]
    path = folder / "work.ipynb"
    path.write_text(json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5}))
    return repr(str(path))


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
    path = _write(tmp_path, *CELLS, tags={1: ["parameters"]})
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
    cells = json.loads(written.read_text())["cells"]
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
    path = _write(tmp_path, *cells, tags={1: ["parameters"]} if cells is CELLS else None)
    ran = notebook.run(f"sky.pipeline({path}, {call})")
    assert ran.ename == "SkyUsageError" and message in ran.evalue, ran.evalue


def test_a_cell_that_fails_is_shown_in_its_place(notebook: Notebook, tmp_path: Path) -> None:
    path = _write(tmp_path, "%%sky --name bad -o x\nprint('first')\nx = 1 / 0", "print(x)")
    ran = notebook.run(f"run = sky.pipeline({path}, name='bad')\nrun.wait(100)", 120)
    assert "task bad has failed: ZeroDivisionError" in ran.evalue
    written = tmp_path / "out.ipynb"
    notebook.run(f"run.save_notebook('{written}')")
    bad, after = json.loads(written.read_text())["cells"]
    assert [output["output_type"] for output in bad["outputs"]] == ["stream", "error", "stream"]
    assert bad["outputs"][1]["ename"] == "ZeroDivisionError"
    assert after["outputs"][0]["text"] == "skipped: bad\n"
    shown = re.sub(r"\x1b\[[\d;]*m", "", notebook.run("print(run.logs('bad'))").stdout)
    assert "----> 3 x = 1 / 0" in shown and "attempt" not in shown, shown


def test_a_file_that_is_no_notebook(notebook: Notebook, tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text("{")
    assert "cannot be read" in notebook.run(f"sky.pipeline('{tmp_path}/a.ipynb')").evalue
    assert "cannot be read" in notebook.run(f"sky.pipeline('{tmp_path}/b.ipynb')").evalue


def test_the_verb_shows_plans_and_runs(notebook: Notebook, tmp_path: Path) -> None:
    path = eval(_write(tmp_path, *CELLS, tags={1: ["parameters"]}))
    shown = notebook.run(f"print(get_ipython().run_line_magic('sky', 'pipeline show {path}'))")
    assert "left" in shown.stdout and "big, small" in shown.stdout, shown.stdout
    plan = notebook.run(f"%sky pipeline plan {path}")
    assert plan.status == "ok" and "local" in str(plan.messages)
    out = tmp_path / "out.ipynb"
    ran = notebook.run(f"%sky pipeline run {path} -p factor=5 --name verb -o {out}", 170)
    assert "left: running" in ran.stdout and "cell9: succeeded" in ran.stdout, ran.stdout
    cells = json.loads(out.read_text())["cells"]
    assert cells[7]["outputs"][0]["text"] == "95\n"
    assert "95" in notebook.run("%sky pipeline logs verb cell8").stdout
    listed = notebook.run("print(sky.api.pipelines.runs())").stdout
    assert "verb" in listed and "7 succeeded" in listed
    assert "no run called vreb" in notebook.run("%sky pipeline resume vreb").evalue
    assert "is given twice" in notebook.run(f"%sky pipeline run {path} -p a=1 -p b=2").evalue
