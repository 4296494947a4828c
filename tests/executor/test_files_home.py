"""Files and variables of a cluster, brought home from a real kernel by ``%sky get`` and ``-o``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook
from tests.magics.test_magic import complete

pytestmark = pytest.mark.slow

MAKE = """%%sky
import os, pathlib, random
pathlib.Path('out/plots').mkdir(parents=True, exist_ok=True)
pathlib.Path('out/model.pt').write_bytes(random.Random(1).randbytes(3_000_000))
for name in 'ab': pathlib.Path(f'out/plots/{name}.svg').write_text(name)
acc, model = 0.93, 'a variable'
pathlib.Path('model').write_text('a file')
"""


@pytest.fixture(scope="module", autouse=True)
def warm(notebook: Notebook) -> Iterator[None]:
    """A cluster whose cells have written files."""
    ran = notebook.run(MAKE)
    assert ran.status == "ok", ran.traceback
    yield


def test_a_file_comes_to_its_place_and_is_not_replaced(notebook: Notebook) -> None:
    ran = notebook.run("%sky get out/model.pt")
    assert ran.status == "ok", ran.traceback
    assert ran.stdout == "out/model.pt: 3.0 MB brought to out/model.pt\n"
    here = Path(notebook.directory, "out", "model.pt")
    assert here.stat().st_size == 3_000_000
    again = notebook.run("%sky get out/model.pt")
    assert again.stdout == "out/model.pt: here already, as it is there: out/model.pt\n"
    here.write_text("mine")
    refused = notebook.run("%sky get out/model.pt")
    assert refused.ename == "SkyUsageError" and "--force replaces them" in refused.evalue
    assert here.read_text() == "mine"
    assert notebook.run("%sky get out/model.pt --force").status == "ok"
    assert here.stat().st_size == 3_000_000


def test_folders_patterns_and_a_destination(notebook: Notebook) -> None:
    folder = Path(notebook.directory)
    assert notebook.run("%sky get out/plots results/").status == "ok"
    assert (folder / "results/plots/a.svg").read_text() == "a"
    assert notebook.run("%sky get out/plots/*.svg --to flat").status == "ok"
    assert sorted(path.name for path in (folder / "flat").iterdir()) == ["a.svg", "b.svg"]
    assert notebook.run("%sky get out/plots/a.svg best.svg").status == "ok"
    assert (folder / "best.svg").read_text() == "a"
    both = notebook.run("%sky get out/plots/a.svg out/plots/b.svg")
    assert both.ename == "SkyUsageError" and "--to out/plots/b.svg" in both.evalue
    found = notebook.run("import jupyter_sky as sky; sky.get('out/plots', to='by-call')").result
    assert "by-call/plots/a.svg" in found and "by-call/plots/b.svg" in found


def test_a_variable_is_brought_by_the_same_verb_and_a_name_of_both_is_said(
    notebook: Notebook,
) -> None:
    assert notebook.run("%sky get acc\nacc").result == "0.93"
    ran = notebook.run("%sky get model\nprint(model)")
    assert "a variable\n" in ran.stdout and "%sky get ./model" in ran.stdout
    assert notebook.run("%sky get ./model").status == "ok"
    assert Path(notebook.directory, "model").read_text() == "a file"


def test_paths_of_the_cluster_complete(notebook: Notebook) -> None:
    assert complete(notebook, "%sky get out/mo") == ["out/model.pt"]
    assert complete(notebook, "%sky get out/pl") == ["out/plots/"]
    assert "acc" in complete(notebook, "%sky get ac")


def test_names_that_are_not_there(notebook: Notebook) -> None:
    ran = notebook.run("%sky get out/modle.pt")
    assert ran.ename == "SkyTransferError" and "did you mean model.pt?" in ran.evalue
    ran = notebook.run("%sky get accc")
    assert ran.ename == "SkyUsageError" and "did you mean acc?" in ran.evalue


def test_a_file_comes_while_a_cell_runs(notebook: Notebook) -> None:
    notebook.run("%%sky --bg busy\nimport time\ntime.sleep(8)")
    ran = notebook.run("%sky get out/plots/b.svg --to during.svg")
    assert ran.status == "ok", ran
    assert notebook.run("busy.status").result == "'running'"
    late = notebook.run("%sky get model\nprint(model)")
    assert "model comes when the cell has ended" in late.stdout and "./model" in late.stdout
    assert late.stdout.endswith("a variable\n"), late.stdout
    notebook.run("busy.result()")


def test_the_file_of_a_cell_is_here_when_it_ends(notebook: Notebook) -> None:
    cell = "%%sky -o score,file:said.txt,file:logs\nimport os\nscore = 1\n"
    cell += "os.makedirs('logs', exist_ok=True)\nopen('logs/1.log', 'w').write('l')\n"
    ran = notebook.run(cell + "open('said.txt', 'w').write('first')\nNone")
    assert ran.status == "ok", ran.traceback
    here = Path(notebook.directory, "said.txt")
    assert here.read_text() == "first" and notebook.run("score").result == "1"
    assert Path(notebook.directory, "logs/1.log").read_text() == "l"
    assert "said.txt: 5 B brought" in ran.status_line
    notebook.run(cell + "open('said.txt', 'w').write('second')\nNone")
    assert here.read_text() == "second", "a cell replaces what it has brought itself"
    here.write_text("of the user")
    ran = notebook.run(cell + "open('ran', 'w').write('x')\nNone")
    assert ran.ename == "SkyUsageError" and "--yes" in ran.evalue
    assert here.read_text() == "of the user"
    assert notebook.run("%%sky\nos.path.exists('ran')").result == "False", "known before it ran"


def test_a_file_that_the_cell_has_not_written_is_named(notebook: Notebook) -> None:
    ran = notebook.run("%%sky -o file:nothing.txt\n1")
    assert ran.ename == "SkyTransferError" and "nothing.txt" in ran.evalue


def test_paths_follow_the_folder_of_the_cells(notebook: Notebook) -> None:
    assert notebook.run("%%sky\nos.chdir('out')").status == "ok"
    try:
        assert notebook.run("%sky get plots/a.svg --to moved.svg").status == "ok"
    finally:
        notebook.run("%%sky\nos.chdir('..')")
    assert os.path.exists(Path(notebook.directory, "moved.svg"))


def test_a_file_of_another_node(notebook: Notebook) -> None:
    write = "import os\nopen(f\"of-{os.environ['NODE_RANK']}.txt\", 'w').write('x')"
    assert notebook.run(f"%%sky -c pair --nodes 2 --cpus 1\n{write}").status == "ok"
    ran = notebook.run("%sky get of-1.txt -c pair --on 1")
    assert ran.status == "ok", ran.traceback
    assert Path(notebook.directory, "of-1.txt").read_text() == "x"
    ran = notebook.run("%sky get of-1.txt -c pair --on 2")
    assert ran.ename == "SkyUsageError" and "0 to 1" in ran.evalue
    assert notebook.run("%sky down pair").status == "ok"


def test_a_shell_brings_files_too(notebook: Notebook, data_dir: Path, tmp_path: Path) -> None:
    code = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-m', 'jupyter_sky.cli', "
        f"'get', 'out/plots/a.svg', 'from-shell.svg'], cwd={str(tmp_path)!r}, "
        "capture_output=True, text=True))"
    )
    ran = notebook.run(code)
    assert (tmp_path / "from-shell.svg").read_text() == "a", ran.stdout
