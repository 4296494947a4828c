"""Sweeps of notebooks, run on clusters of this machine: as pipelines and by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _loaded(notebook: Notebook) -> Iterator[None]:
    assert notebook.run("import jupyter_sky as sky").status == "ok"
    yield


def _write(folder: Path, *sources: str) -> str:
    """Write a notebook whose first cell has its parameters; return its path."""
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    cells[0].metadata["tags"] = ["parameters"]
    path = folder / "work.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return str(path)


SWEEP = (
    "rates = [1, 2]",
    "base = sum([10])",
    "%%sky --task note -o noted\nnoted = 'noted'",
    "%%sky --task fit --map rate=rates --map kind=['a','b'] --after note -i base -o score,seen\n"
    "score = f'{kind}{base * rate}'\n"
    "seen = sorted(name for name in ('rates', 'noted') if name in globals())\n"
    "print('fitted', score)",
    "%%sky --task best -i score -o top\ntop = max(score)",
    "print(score, top)",
)


def test_a_sweep_gathers_a_list_and_after_orders(notebook: Notebook, tmp_path: Path) -> None:
    path = _write(tmp_path, *SWEEP)
    shown = notebook.run(f"print(get_ipython().run_line_magic('sky', 'pipeline show {path}'))")
    assert "fit[rate=2,kind=b]" in shown.stdout and "cell2, note" in shown.stdout, shown.stdout
    out = tmp_path / "out.ipynb"
    ran = notebook.run(f"%sky pipeline run {path} -p rates=[3,5] --name sweep -o {out}", 300)
    assert ran.status == "ok", ran.traceback
    assert ran.stdout.index("note: succeeded") < ran.stdout.index("fit[rate=3,kind=a]: running")
    assert notebook.run(
        "from jupyter_sky.interfaces.api import pipelines as made; "
        "run = made.find('sweep'); run.result('fit', 'score')"
    ).result == ("['a30', 'b30', 'a50', 'b50']")
    assert notebook.run("run.result('fit[rate=5,kind=a]')").result == "{'score': 'a50', 'seen': []}"
    assert notebook.run("run.result('best', 'top')").result == "'b50'"
    cells = nbformat.read(out, 4).cells
    said = "".join(output["text"] for output in cells[3]["outputs"])
    assert "fit[rate=3,kind=b]:\nfitted b30\n" in said, said
    assert cells[5]["outputs"][0]["text"] == "['a30', 'b30', 'a50', 'b50'] b50\n"
    logs = notebook.run("%sky pipeline logs sweep fit").stdout
    assert "fit[rate=5,kind=b]:\nfitted b50" in logs, logs
    assert notebook.run("%sky pipeline logs sweep fit[rate=5,kind=b]").stdout == "fitted b50\n"
    status = notebook.run("print(get_ipython().run_line_magic('sky', 'pipeline status'))").stdout
    assert "Run sweep: 8 of 8 tasks have ended" in status and "succeeded" in status, status
    followed = notebook.run("%sky pipeline status sweep --follow")
    assert followed.status == "ok" and "8 of 8" in str(followed.messages)
    exported = notebook.run(f"%sky pipeline export sweep {tmp_path}/graph.json")
    assert exported.status == "ok", exported.traceback
    tasks = {
        each["name"]: each for each in json.loads((tmp_path / "graph.json").read_text())["tasks"]
    }
    assert tasks["best"]["after"] == [name for name in tasks if name.startswith("fit[")]
    assert tasks["best"]["cell"] == 5 and tasks["best"]["seconds"] > 0
    assert notebook.run("sky.status().rows").result == "()"


def test_a_task_of_a_sweep_that_fails_leaves_the_others(notebook: Notebook, tmp_path: Path) -> None:
    path = _write(
        tmp_path,
        "scale = 1",
        "%%sky --task part --map n=[2,0,1] --at-once 2 -o share\nshare = scale / n",
        "%%sky --task whole -i share -o total\ntotal = sum(share)",
    )
    ran = notebook.run(f"run = sky.pipeline({path!r}, name='parts')\nrun.wait(100)", 120)
    assert "task part[n=0] has failed: ZeroDivisionError" in ran.evalue, ran.evalue
    assert eval(notebook.run("run.status()").result) == {
        "part[n=2]": "succeeded",
        "part[n=0]": "failed",
        "part[n=1]": "succeeded",
        "whole": "skipped",
    }
    assert notebook.run("run.result('part[n=1]', 'share')").result == "1.0"
    assert "part[n=0] has no value" in notebook.run("run.result('part')").evalue
    assert "did you mean part" in notebook.run("run.logs('prt')").evalue
    text = Path(path).read_text()  # the others are kept
    Path(path).write_text(text.replace("--at-once 2", "--allow-failures 40%"))
    text = Path(path).read_text()
    Path(path).write_text(text.replace("sum(share)", "sum(each or 10 for each in share)"))
    ran = notebook.run(f"%sky pipeline run {path} --name some", 120)
    assert ran.status == "ok", ran.traceback
    assert "1 of 4 tasks have failed, as --allow-failures lets them" in ran.stdout, ran.stdout
    assert notebook.run(
        "from jupyter_sky.interfaces.api import pipelines as made; "
        "run = made.find('some'); run.result('whole'), run.result('part', 'share')"
    ).result == ("({'total': 11.5}, [0.5, None, 1.0])")
    assert "part[n=0] has given it nothing" in notebook.run("print(run.show())").stdout
    notebook.run("%sky down --all --yes")


def test_running_all_cells_gives_what_the_sweep_gives(notebook: Notebook) -> None:
    for source in SWEEP[:5]:
        ran = notebook.run(source, 120)
        assert ran.status == "ok", ran.traceback
    assert "fit[rate=2,kind=a]:" in notebook.run(SWEEP[3]).stdout
    assert notebook.run("score, top").result == "(['a10', 'b10', 'a20', 'b20'], 'b20')"
    assert "--map with --bg" in notebook.run("%%sky --bg fit --map n=[1]\nn").evalue
    assert "no variable rate" in notebook.run("%%sky --map n=rate\nn").evalue
    notebook.run("%sky down --all --yes")
