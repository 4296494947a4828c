"""Second runs of graphs and notebooks on clusters of this machine: what is kept does not run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from tests.conftest import Notebook, wait_until

from .notebook_files import write_notebook

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _loaded(notebook: Notebook) -> Iterator[None]:
    assert notebook.run("import jupyter_sky as sky, os, time").status == "ok"
    yield
    notebook.run("%sky down --all --yes")


CELLS = (
    "factor = 2",
    "def scale(x):\n    return [factor * one for one in x]",
    "rows = [one for one in range(3)]\nprint(len(rows))",
    "%%sky --name big -i rows -o big\nprint('scaled')\nbig = scale(rows)",
    "%%sky --name total -i big -o total\ntotal = sum(big)",
    "print(total)",
)
TAGS = {1: ["parameters"]}


def _ran(notebook: Notebook, call: str) -> str:
    code = f"run = {call}.wait(150)\n[n for n, t in run.state.tasks.items() if t.attempts]"
    ran = notebook.run(code, 170)
    assert ran.status == "ok", ran.traceback
    return ran.result


def test_a_notebook_that_has_not_changed_launches_nothing(
    notebook: Notebook, tmp_path: Path
) -> None:
    path = write_notebook(tmp_path, *CELLS, tags=TAGS)
    assert _ran(notebook, f"sky.pipeline({path}, name='once')") == str(
        ["cell3", "big", "total", "cell6"]
    )
    assert _ran(notebook, f"sky.pipeline({path}, name='again')") == "[]"
    assert notebook.run("run.state.clusters, run.why('big')").result == (
        "({}, 'its result was kept')"
    )
    out = tmp_path / "out.ipynb"
    notebook.run(f"run.save_notebook('{out}')")
    cells = nbformat.read(out, 4).cells
    assert [cell["outputs"][0]["text"] for cell in (cells[2], cells[3], cells[5])] == [
        "3\n",
        "scaled\n",
        "6\n",
    ]
    write_notebook(tmp_path, *(f"{cell}  # edited" for cell in CELLS), tags=TAGS)
    assert _ran(notebook, f"sky.pipeline({path}, name='comments')") == "[]"
    shown = notebook.run(
        f"print(get_ipython().run_line_magic('sky', 'pipeline show {path[1:-1]}'))"
    )
    assert shown.stdout.count("kept") == 4, shown.stdout
    ran = notebook.run(f"%sky pipeline run {path[1:-1]} --name fresh --fresh", 170)
    assert "big: running (--fresh)" in ran.stdout, ran.stdout


def test_only_what_an_edit_concerns_runs(notebook: Notebook, tmp_path: Path) -> None:
    path = write_notebook(tmp_path, *CELLS, tags=TAGS)
    notebook.run(f"sky.pipeline({path}, name='first').wait(150)", 170)
    magic = f"get_ipython().run_line_magic('sky', 'pipeline show {path[1:-1]} -p factor=3')"
    shown = notebook.run(f"print({magic})").stdout
    assert "runs: parameter factor" in shown and "runs: after big" in shown, shown
    edited = [cell.replace("sum(big)", "sum(big) * 1") for cell in CELLS]
    write_notebook(tmp_path, *edited, tags=TAGS)
    # the total is the same: the cell that prints it is spared
    assert _ran(notebook, f"sky.pipeline({path}, name='equal')") == "['total']"
    table = notebook.run("print(run.show())").stdout
    assert "its result was kept" in table and "code" in table, table
    ran = notebook.run(f"%sky pipeline run {path[1:-1]} -p factor=5 --name five", 170)
    assert "big: running (parameter factor)" in ran.stdout, ran.stdout
    assert "total: running (input big)" in ran.stdout, ran.stdout
    assert "cell3: running" not in ran.stdout, ran.stdout


def test_a_part_runs_with_what_is_kept_of_the_rest(notebook: Notebook, tmp_path: Path) -> None:
    path = write_notebook(tmp_path, *CELLS, tags=TAGS)
    notebook.run(f"sky.pipeline({path}, name='whole').wait(150)", 170)
    file = path[1:-1]
    dry = notebook.run(f"%sky pipeline run {file} -p factor=3 --only total --dry-run")
    assert "total needs the result of big, which is not kept (parameter factor)" in dry.evalue, dry
    edited = [cell.replace("sum(big)", "sum(big) + 1") for cell in CELLS]
    write_notebook(tmp_path, *edited, tags=TAGS)
    dry = notebook.run(f"%sky pipeline run {file} --only total --dry-run").stdout
    assert "left out" in dry and "runs: code" in dry, dry
    out = tmp_path / "part.ipynb"
    ran = notebook.run(f"%sky pipeline run {file} --only total --name part -o {out}", 170)
    assert ran.status == "ok", ran.traceback
    told = notebook.run(
        "from jupyter_sky.interfaces.api import pipelines as made; made.find('part').status()"
    ).result
    assert told == "{'big': 'succeeded', 'total': 'succeeded'}"
    assert nbformat.read(out, 4).cells[3]["outputs"][0]["text"] == "scaled\n"
    assert notebook.run("made.find('part').result('total')").result == "{'total': 7}"


def test_an_edit_while_it_runs_is_of_the_next_run(notebook: Notebook, tmp_path: Path) -> None:
    cells = "%%sky --name slow -o x\nimport time\ntime.sleep(4)\nx = 1", "print(x)"
    path = write_notebook(tmp_path, *cells)
    notebook.run(f"run = sky.pipeline({path}, name='snapshot')")
    wait_until(lambda: "running" in notebook.run("run.status()['slow']").result)
    write_notebook(tmp_path, cells[0].replace("x = 1", "x = 2"), cells[1])
    assert notebook.run("run.wait(100).result('slow', 'x')", 120).result == "1"
    assert _ran(notebook, f"sky.pipeline({path}, name='edited')") == "['slow', 'cell2']"
    assert notebook.run("run.result('slow', 'x')").result == "2"


def test_a_cell_of_the_kernel_works_in_the_folder_of_the_run(
    notebook: Notebook, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    notebook.run(f"old = os.getcwd()\nos.chdir({str(data)!r})")
    try:
        (data / "rows.txt").write_text("5")
        path = write_notebook(tmp_path, "with open('rows.txt') as file: print(file.read())")
        assert _ran(notebook, f"sky.pipeline({path}, name='reads')") == "['cell1']"
        assert notebook.run("print(run.logs('cell1'))").stdout == "5\n\n"
        assert _ran(notebook, f"sky.pipeline({path}, name='reads2')") == "[]"
        (data / "rows.txt").write_text("6")
        assert _ran(notebook, f"sky.pipeline({path}, name='reads3')") == "['cell1']"
        assert notebook.run("run.why('cell1')").result == "'file rows.txt'"
    finally:
        notebook.run("os.chdir(old)")


def test_a_value_in_a_store_is_known_by_its_version(notebook: Notebook, tmp_path: Path) -> None:
    store = tmp_path / "store"
    cells = (
        f"%%sky --name make -o model@file:{store}/ -o size\nmodel = {{'a': 1}}\nsize = 1",
        "%%sky --name use -i model,size -o found\nfound = model['a'] + size",
    )
    path = write_notebook(tmp_path, *cells)
    assert _ran(notebook, f"sky.pipeline({path}, name='stored')") == "['make', 'use']"
    assert notebook.run("run.result('use', 'found')").result == "2"
    assert (store / "model.value").exists()
    assert _ran(notebook, f"sky.pipeline({path}, name='stored2')") == "[]"
    assert notebook.run("run.result('make', 'model').fetch()").result == "{'a': 1}"
    (store / "model.value").unlink()
    assert _ran(notebook, f"sky.pipeline({path}, name='stored3')").startswith("['make'")
    assert "model is no more in file:" in notebook.run("run.why('make')").result


def test_functions_run_once(notebook: Notebook) -> None:
    code = """
FACTOR = 3
def work(x):
    return x * FACTOR
def dag():
    with sky.Dag("twice") as made:
        first = sky.Task("first", run=lambda: 2)
        second = sky.Task("second", run=work)
        first >> second >> sky.Task("third", run=lambda x: x > 0)
    return made
"""
    assert notebook.run(code).status == "ok"
    assert _ran(notebook, "sky.run(dag(), name='f1')") == "['first', 'second', 'third']"
    assert _ran(notebook, "sky.run(dag(), name='f2')") == "[]"
    assert notebook.run("run.result('second'), run.state.clusters").result == "(6, {})"
    notebook.run(code.replace("FACTOR = 3", "FACTOR = 4  # more"))
    assert _ran(notebook, "sky.run(dag(), name='f3')") == "['second', 'third']"
    assert notebook.run("run.why('second'), run.why('third')").result == (
        "('definition FACTOR', 'input second')"
    )
    assert _ran(notebook, "sky.run(dag(), name='f4', fresh=True)") == "['first', 'second', 'third']"
    alone = "sky.plan(dag()).run(name='f5', fresh=True, only='second')"
    assert _ran(notebook, alone) == "['second']"
    assert notebook.run("run.result('second'), run.why('first')").result == (
        "(8, 'its result was kept')"
    )


def test_of_two_runs_at_once_one_waits_for_the_other(notebook: Notebook, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    cells = (
        f"%%sky --task slow -o x\nimport time\nopen({str(notes)!r}, 'a').write('run ')\n"
        "time.sleep(3)\nx = 1",
        "%%sky --task next -i x -o y\ny = x + 1",
    )
    path = write_notebook(tmp_path, *cells)
    ran = notebook.run(
        f"runs = [sky.pipeline({path}, name) for name in ('at once 1', 'at once 2')]\n"
        "[run.wait(150).result('next', 'y') for run in runs]",
        170,
    )
    assert ran.result == "[2, 2]", ran.traceback
    assert notes.read_text() == "run "
    attempts = notebook.run("sorted(t.attempts for run in runs for t in run.state.tasks.values())")
    assert attempts.result == "[0, 0, 1, 1]"
