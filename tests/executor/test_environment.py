"""Environment of a cell: secrets by name, files, packages."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-9f2b61c7"


@pytest.fixture(scope="module")
def notebook(data_dir: Path, folder: Path, sky_env: dict[str, str]) -> Iterator[Notebook]:
    """A kernel with a secret in its environment and a home of its own."""
    env = {
        **sky_env,
        "SKY_DATA_DIR": str(data_dir),
        "HOME": str(folder.parent / "home"),
        "THE_TOKEN": SECRET,
        "PIP_NO_INDEX": "1",
    }
    Path(env["HOME"]).mkdir(exist_ok=True)
    made = Notebook(folder, env, "analysis.ipynb")
    yield made
    made.stop()


# -- secrets ---------------------------------------------------------------------------------------


def test_a_secret_is_there_for_one_cell_and_nowhere_else(
    notebook: Notebook, data_dir: Path
) -> None:
    read = "import os; t = os.environ.get('THE_TOKEN', ''); len(t)"
    assert notebook.run(f"%%sky\n{read}").result == "0"
    ran = notebook.run(f"%%sky --env THE_TOKEN\n{read}")
    assert ran.result == str(len(SECRET))
    assert notebook.run("%%sky\n'THE_TOKEN' in os.environ").result == "False"
    failed = notebook.run("%%sky --env THE_TOKEN\nassert 'THE_TOKEN' in os.environ\n1/0")
    assert failed.ename == "ZeroDivisionError"
    assert notebook.run("%%sky\n'THE_TOKEN' in os.environ").result == "False"
    for seen in (ran, failed):
        assert SECRET not in json.dumps(seen.messages, default=str)
    for file in data_dir.rglob("*"):
        if file.is_file():
            assert SECRET.encode() not in file.read_bytes(), file


def test_a_secret_that_is_not_set_is_named(notebook: Notebook) -> None:
    ran = notebook.run("%%sky --env NOT_SET\nprint('ran')")
    assert ran.ename == "SkyUsageError" and "NOT_SET" in ran.evalue and not ran.stdout
    ran = notebook.run(f"%%sky --env TOKEN={SECRET}\nprint('ran')")
    assert ran.ename == "SkyUsageError" and SECRET not in ran.evalue


# -- files -----------------------------------------------------------------------------------------


def test_a_changed_file_is_imported_anew(notebook: Notebook, folder: Path) -> None:
    file = folder / "tools.py"
    for value in (1, 2, 3):  # same size, same second: neither must hide the change
        file.write_text(f"VALUE = {value}\n")
        ran = notebook.run("%%sky --sync tools.py\nimport tools\ntools.VALUE")
        assert ran.result == str(value), ran.traceback


def test_a_package_is_imported_anew_as_a_whole(notebook: Notebook, folder: Path) -> None:
    package = folder / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import VALUE\n")
    for value in (1, 2):
        (package / "inner.py").write_text(f"VALUE = {value}\n")
        ran = notebook.run("%%sky --sync pack\nimport pack\npack.VALUE")
        assert ran.result == str(value), ran.traceback


def test_folders_keep_their_place_and_leave_out_what_is_made(
    notebook: Notebook, folder: Path
) -> None:
    for name in ("data/a/one.txt", "data/.git/config", "data/__pycache__/x.pyc", "data/two.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (folder / "data/empty.bin").touch()
    (folder / "data/run.sh").write_text("#!/bin/sh\necho ran\n")
    (folder / "data/run.sh").chmod(0o755)
    listing = (
        "from pathlib import Path\nsorted(str(p) for p in Path('data').rglob('*') if p.is_file())"
    )
    ran = notebook.run(f"%%sky --sync data/\n{listing}")
    assert ran.result.replace("\n", "") == (
        "['data/a/one.txt', 'data/empty.bin', 'data/run.sh', 'data/two.txt']"
    )
    assert notebook.run("%%sky\n!data/run.sh").stdout.strip() == "ran"
    (folder / "data/two.txt").unlink()
    notebook.run(
        "%%sky\nPath('data/made.txt').write_text('result')\n"
        "Path('data/a/one.txt').write_text('changed there')"
    )
    (folder / "data/a/one.txt").unlink()
    ran = notebook.run(f"%%sky --sync data\n{listing}")
    assert "two.txt" not in ran.result  # deleted here, deleted there
    assert "made.txt" in ran.result and "one.txt" in ran.result  # but not the cells' own work


def test_paths_that_cannot_be_brought(notebook: Notebook) -> None:
    for path, words in (("absent", "no such file or folder"), ("/etc", "outside")):
        ran = notebook.run(f"%%sky --sync {path}\nprint('ran')")
        assert ran.ename == "SkyUsageError" and words in ran.evalue and not ran.stdout


# -- packages --------------------------------------------------------------------------------------


def wheel(folder: Path, name: str, value: int) -> Path:
    """Make the smallest wheel there is."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"VALUE = {value}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_a_package_is_installed_once_beside_the_engine(notebook: Notebook, folder: Path) -> None:
    path = wheel(folder, "tinywheel", 5)
    ran = notebook.run(f"%%sky --pip {path}\nimport tinywheel\ntinywheel.VALUE", timeout=120)
    assert ran.result == "5", ran.traceback
    again = notebook.run(f"%%sky --pip {path}\ntinywheel.VALUE")
    assert again.result == "5"
    shown = [c["data"].get("text/plain", "") for c in again.of("update_display_data")]
    assert "installing" not in "".join(shown)
    assert notebook.run("import tinywheel").ename == "ModuleNotFoundError"


def test_a_wheel_of_the_notebook_is_brought_first(notebook: Notebook, folder: Path) -> None:
    name = wheel(folder, "broughtwheel", 7).name
    ran = notebook.run(
        f"%%sky --sync {name} --pip ./{name}\nimport broughtwheel\nbroughtwheel.VALUE", timeout=120
    )
    assert ran.result == "7", ran.traceback


def test_a_rebuilt_wheel_is_installed_again(notebook: Notebook, folder: Path) -> None:
    for value in (1, 2):
        path = wheel(folder, "rebuilt", value)
        code = f"%%sky -c wheel{value} --cpus 1 --pip {path}\nimport rebuilt\nrebuilt.VALUE"
        assert notebook.run(code, timeout=120).result == str(value)


def test_a_package_that_cannot_be_installed_shows_why(notebook: Notebook) -> None:
    ran = notebook.run("%%sky --pip surely-no-such-package-9\nprint('ran')", timeout=120)
    assert ran.ename == "SkyError" and not ran.stdout
    assert "--pip surely-no-such-package-9 cannot be installed" in ran.evalue
    assert "No matching distribution found" in ran.evalue
