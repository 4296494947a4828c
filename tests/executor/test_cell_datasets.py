"""Cells with ``--data`` and ``--out``: data are there before the cell, cached, and kept apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(folder: Path) -> Path:
    made = folder.parent / "home"
    made.mkdir(exist_ok=True)
    return made


@pytest.fixture(scope="module")
def notebook(
    data_dir: Path, folder: Path, home: Path, sky_env: dict[str, str]
) -> Iterator[Notebook]:
    """A kernel with a home of its own, where the cache of its machine is."""
    env = {**sky_env, "SKY_DATA_DIR": str(data_dir), "HOME": str(home)}
    made = Notebook(folder, env, "analysis.ipynb")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in a folder elsewhere."""
    made = tmp_path_factory.mktemp("store") / "train"
    (made / "sub").mkdir(parents=True)
    (made / "a.txt").write_text("one")
    (made / "sub/b.txt").write_text("two")
    (made / "big.bin").write_bytes(bytes(range(256)) * 256 * 300)  # more than a part
    return made


def cached_bytes(home: Path) -> int:
    """Bytes of the objects in the machine's cache."""
    files = (home / ".cache/jupyter_sky/data/objects").glob("??/*")
    return sum(file.stat().st_size for file in files)


def test_dataset_is_a_folder_of_the_cell_and_cached(
    notebook: Notebook, train: Path, home: Path
) -> None:
    listing = (
        "from pathlib import Path\n"
        "p = Path('data/train')\n"
        "print(sorted(str(f.relative_to(p)) for f in p.rglob('*') if f.is_file()))\n"
        "print((p / 'sub/b.txt').read_text(), oct((p / 'a.txt').stat().st_mode & 0o222))\n"
        "import hashlib; print(hashlib.md5((p / 'big.bin').read_bytes()).hexdigest())"
    )
    first = notebook.run(f"%%sky --data file:{train}\n{listing}")
    assert first.status == "ok", first.evalue
    assert first.stdout.splitlines()[:2] == ["['a.txt', 'big.bin', 'sub/b.txt']", "two 0o0"]
    content = (train / "big.bin").read_bytes()
    assert first.stdout.splitlines()[2] == hashlib.md5(content).hexdigest()
    assert "19.7 MB in 3 objects" in first.status_line and "brought in" in first.status_line
    size = cached_bytes(home)
    assert size == 6 + 256 * 256 * 300
    second = notebook.run(f"%%sky --data file:{train}\n{listing}")
    assert second.stdout == first.stdout
    assert "there already, 0 bytes moved" in second.status_line
    assert cached_bytes(home) == size


def test_changed_dataset_is_brought_anew_and_the_rest_kept(notebook: Notebook, train: Path) -> None:
    (train / "a.txt").write_text("changed")
    ran = notebook.run(
        f"%%sky --data {train}/:./data/train\nprint(open('data/train/a.txt').read())"
    )
    assert ran.stdout == "changed\n"
    assert "19.7 MB were there already" in ran.status_line


def test_single_file_is_a_file(notebook: Notebook, train: Path) -> None:
    ran = notebook.run(f"%%sky --data {train}/a.txt:./one.txt\nprint(open('one.txt').read())")
    assert ran.stdout == "changed\n", ran.evalue


def test_relative_address_is_below_the_notebook(notebook: Notebook, folder: Path) -> None:
    (folder / "beside").mkdir()
    (folder / "beside/x").write_text("here")
    ran = notebook.run("%%sky --data ./beside\nprint(open('data/beside/x').read())")
    assert ran.stdout == "here\n", ran.evalue


@pytest.mark.parametrize(
    ("option", "pieces"),
    [
        ("{train}x", ["0 objects below", "did you mean"]),
        ("{train}:/sky-nowhere", ["absolute path on a machine of local", "./data/train"]),
        ("{train}:./taken.txt", ["there is a file at", "give another path"]),
        ("s9://b/x", ["no scheme that is known"]),
        ("{train} --disk 0.001", ["--disk 0.001: the data have 0.0 GiB", "has room"]),
    ],
)
def test_bad_data_say_why_before_the_cell_runs(
    notebook: Notebook, train: Path, option: str, pieces: list[str]
) -> None:
    notebook.run("%%sky\nopen('taken.txt', 'w').close()")
    ran = notebook.run(f"%%sky --data {option.format(train=train)}\nprint('ran')")
    assert ran.status == "error" and "ran\n" not in ran.stdout
    for piece in pieces:
        assert piece in ran.traceback, ran.traceback
