"""Notebooks of the gallery and the guide: each is short and runs; the verb that copies them."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from jupyter_sky.base import errors
from jupyter_sky.cli import main
from jupyter_sky.interfaces.api.examples import copy_examples, list_examples
from jupyter_sky.interfaces.magics.guide import list_guide
from jupyter_sky.interfaces.magics.verbs import find_page
from tests.emulators.hosts import USABLE, SshHost
from tests.markdown import is_dead, links, read_text
from tests.notebooks import run_shipped

FOLDER = Path(__file__).parents[1] / "notebooks"
GALLERY, GUIDE = (sorted((FOLDER / name).glob("*.ipynb")) for name in ("gallery", "guide"))
SCREEN = 1400
"""Characters of text that fill a screen beside the code."""


def each(paths: list[Path]) -> pytest.MarkDecorator:
    """Run a test with each of some notebooks."""
    return pytest.mark.parametrize(
        "path", paths, ids=lambda path: f"{path.parent.name}-{path.stem}"
    )


def texts(path: Path) -> list[str]:
    """Return the texts between the cells of a notebook."""
    cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


@each(GALLERY)
def test_notebook_is_short_and_begins_with_a_picture(path: Path) -> None:
    assert sum(map(len, texts(path))) < SCREEN
    assert len(nbformat.read(path, as_version=4).cells) < 14
    (picture,) = re.findall(r"!\[[^\]]{10,}\]\((pictures/[^)]+)\)", texts(path)[0])
    assert (path.parent / picture).is_file()


@each(GUIDE)
def test_page_of_guide_is_short_and_leads_to_the_next(path: Path) -> None:
    assert sum(map(len, texts(path))) < 2 * SCREEN
    assert len(nbformat.read(path, as_version=4).cells) < 24
    at = GUIDE.index(path)
    around = GUIDE[max(at - 1, 0) : at] + GUIDE[at + 1 : at + 2]
    linked = re.findall(r"(?:Previous|Next): \[[^\]]+\]\(([^)]+)\)", texts(path)[-1])
    assert linked == [page.name for page in around]
    assert "README.md" in texts(path)[-1]


def test_guide_has_its_pages_in_order() -> None:
    assert [int(path.stem[:2]) for path in GUIDE] == list(range(1, 11))
    assert [page.name for page in list_guide()] == [path.stem for path in GUIDE]
    assert all(page.summary.endswith((".", ":")) for page in list_guide())


@each(GALLERY + GUIDE)
def test_links_of_notebook_resolve(path: Path) -> None:
    assert [link for link in links(path) if is_dead(path, link)] == []


@each(GALLERY + GUIDE)
def test_notebook_is_kept_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text())["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None


POINTING = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, errors.SkyError) and vars(kind).get("guide_page")
]


@pytest.mark.parametrize("kind", POINTING, ids=lambda kind: kind.__name__)
def test_page_that_an_error_names_treats_it(kind: type[errors.SkyError]) -> None:
    (page,) = [path for path in GUIDE if path.stem == kind.guide_page]
    assert f"`{kind.__name__}`" in "\n".join(texts(page))
    pointer = f"guide: %sky help {page.stem}"
    assert kind("no")._render_traceback_()[-1] == pointer
    assert find_page([page.stem]).title in page.read_text()


@pytest.fixture(scope="module")
def host() -> SshHost:
    """Machine of the user's own, for the notebook that needs one."""
    if not USABLE:
        pytest.skip("needs OpenSSH's client and server")
    return SshHost(83)


@pytest.mark.slow
@each(GALLERY + GUIDE)
def test_notebook_runs_and_ends_its_cluster(
    path: Path, tmp_path: Path, sky_env: dict[str, str], request: pytest.FixtureRequest
) -> None:
    if "spark" in path.stem and not shutil.which("java"):
        pytest.skip("needs Java")
    host = request.getfixturevalue("host") if path.stem == "12-your-own-machines" else None
    if host:
        request.addfinalizer(host.close)
    assert run_shipped(path, tmp_path, sky_env, host) == ""


def test_copied_examples_are_not_replaced(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    folder = tmp_path / "examples"
    assert main(["examples", str(folder), "--copy"]) == 0
    printed = capsys.readouterr().out
    assert "A first cell" in printed and "When things fail" in printed
    first = list_examples(folder)[0].path
    first.write_text(first.read_text().replace("A first cell", "My cell"))
    copied = copy_examples(folder)
    assert [each.path.name for each in copied] == [path.name for path in GALLERY + GUIDE]
    assert copied[0].title == "My cell"
    assert len(list((folder / "pictures").iterdir())) == len(GALLERY)


def test_links_of_copies_resolve(tmp_path: Path) -> None:
    for copied in copy_examples(tmp_path):
        assert [link for link in links(copied.path) if is_dead(copied.path, link)] == []
        outside = re.findall(r"/blob/main/([^)#\s]+)", read_text(copied.path))
        assert [path for path in outside if not (FOLDER.parent / path).exists()] == []


def test_folder_of_examples_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["examples", str(tmp_path / "file"), "--copy"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_comparison_names_a_check_in_each_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER.parent / "tests/benchmarks"))
    import gallery

    assert len(gallery.claims(gallery.README.read_text())) > 10
    assert gallery.unshown_claims() == []
    head = f"| | {gallery.TABLE} |\n|---|---|\n"
    for checks in ("", "[`run.py x`](tests/benchmarks/x.py)", "[`test_x`](tests/test_gallery.py)"):
        (named,) = gallery.claims(f"{head}| it flies | {checks} |\n").values()
        assert not named or not all(map(gallery.is_check, named))
