"""Example notebooks of `notebooks/gallery`: each is short and runs; the verb that copies them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from jupyter_sky.api.examples import copy_examples, list_examples
from jupyter_sky.cli import main
from tests.conftest import processes_of, wait_until
from tests.emulators.hosts import USABLE, SshHost
from tests.notebooks import outside

GALLERY = Path(__file__).parents[1] / "notebooks/gallery"
NOTEBOOKS = sorted(GALLERY.glob("*.ipynb"))
SCREEN = 1400
"""Characters of text that fill a screen beside the code."""
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@every_notebook
def test_notebook_is_short_and_begins_with_a_picture(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    texts = [cell.source for cell in cells if cell.cell_type == "markdown"]
    assert sum(map(len, texts)) < SCREEN and len(cells) < 14
    (picture,) = re.findall(r"!\[[^\]]{10,}\]\((pictures/[^)]+)\)", texts[0])
    assert (GALLERY / picture).is_file()


@every_notebook
def test_links_of_notebook_resolve(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)\s\"]+)\)", text):
        if not link.startswith("http"):
            assert (GALLERY / link).exists(), link


@every_notebook
def test_notebook_is_kept_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


@pytest.fixture(scope="module")
def host() -> SshHost:
    """Machine of the user's own, for the notebook that needs one."""
    if not USABLE:
        pytest.skip("needs OpenSSH's client and server")
    return SshHost(83)


@pytest.mark.slow
@every_notebook
def test_notebook_runs_and_ends_its_cluster(
    path: Path, tmp_path: Path, sky_env: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if "spark" in path.stem and not shutil.which("java"):
        pytest.skip("needs Java")
    data = tmp_path / "data"
    data.mkdir()
    if path.stem.startswith("12"):
        host: SshHost = request.getfixturevalue("host")
        request.addfinalizer(host.close)
        (data / "hosts.toml").write_text(host.toml("lab"))
    copy = Path(shutil.copy(path, tmp_path))
    notebook = nbformat.read(copy, as_version=4)
    client = NotebookClient(notebook, timeout=180, kernel_name="python3")
    env = outside() | sky_env | {"SKY_DATA_DIR": str(data)}
    client.execute(env=env, cwd=str(tmp_path))
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert shown and not any(output.output_type == "error" for output in shown)
    wait_until(lambda: not processes_of(data), "the notebook ends its clusters itself")


def test_copied_examples_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "examples"
    assert main(["examples", str(folder), "--copy"]) == 0
    assert "A first cell" in capsys.readouterr().out
    first = list_examples(folder)[0].path
    first.write_text(first.read_text().replace("A first cell", "My cell"))
    copied = copy_examples(folder)
    assert [each.path.name for each in copied] == [path.name for path in NOTEBOOKS]
    assert copied[0].title == "My cell"
    assert len(list((folder / "pictures").iterdir())) == len(NOTEBOOKS)


def test_folder_of_examples_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["examples", str(tmp_path / "file"), "--copy"]) == 2
    assert "cannot be written" in capsys.readouterr().err
