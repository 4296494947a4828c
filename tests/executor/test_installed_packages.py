"""Packages that a cell installs on this machine: for its cluster, and not for the user."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Notebook

pytestmark = pytest.mark.slow


def make_wheel(folder: Path, name: str, version: str) -> Path:
    """Write a wheel of one module that says its version, and of a command."""
    files = {
        f"{name}.py": f"VERSION = '{version}'\ndef main(): print('command {version}')\n",
        f"{name}-{version}.dist-info/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        ),
        f"{name}-{version}.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
        f"{name}-{version}.dist-info/entry_points.txt": (
            f"[console_scripts]\n{name} = {name}:main\n"
        ),
    }
    record = f"{name}-{version}.dist-info/RECORD"
    lines = [f"{path},sha256={_digest(text)},{len(text)}" for path, text in files.items()]
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in (files | {record: "\n".join([*lines, f"{record},,\n"])}).items():
            archive.writestr(path, text)
    return wheel


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the user's environment: one of the test alone, above that of the tests."""
    home = tmp_path_factory.mktemp("user") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site_packages,) = home.glob("lib/python*/site-packages")
    below = [path for path in sys.path if path.endswith("site-packages")]
    (site_packages / "tests.pth").write_text("\n".join(below))
    return home


@pytest.fixture(scope="module")
def notebook(
    environment: Path, data_dir: Path, folder: Path, sky_env: dict[str, str]
) -> Iterator[Notebook]:
    """A kernel in the user's environment."""
    env = {**sky_env, "SKY_DATA_DIR": str(data_dir), "PIP_NO_INDEX": "1", "UV_OFFLINE": "1"}
    made = Notebook(folder, env, "analysis.ipynb", python=str(environment / "bin" / "python"))
    yield made
    made.stop()


def snapshot(environment: Path) -> set[str]:
    """Return the packages of the user's environment, and those of the tests' own."""
    return {str(path) for home in (environment, sys.prefix) for path in _packages(Path(home))}


def _packages(home: Path) -> Iterator[Path]:
    return home.glob("lib/python*/site-packages/*.dist-info")


def test_pip_in_a_cell_leaves_the_users_environment_alone(
    notebook: Notebook, environment: Path, folder: Path
) -> None:
    before, wheel = snapshot(environment), make_wheel(folder, "skytoy", "1.0")
    assert notebook.run("import sys; sys.prefix").result == repr(str(environment))
    ran = notebook.run(f"%%sky\n%pip install --quiet {wheel}")
    assert ran.status == "ok", ran.traceback
    assert "installed for this cluster only" in ran.stderr
    assert notebook.run("%%sky\nimport skytoy; skytoy.VERSION").result == "'1.0'"
    assert snapshot(environment) == before
    assert notebook.run("import skytoy").ename == "ModuleNotFoundError"
    commands = notebook.run(
        "%%sky\n!skytoy\n!python -c 'import skytoy, numpy; print(skytoy.VERSION)'"
    )
    assert "command 1.0" in commands.stdout and "\n1.0" in commands.stdout, commands
    assert "only" not in notebook.run("%%sky\n!echo quiet").stderr


@pytest.mark.parametrize("line", ["!pip install -q {}", "%uv pip install -q {}"])
def test_other_ways_to_install(
    notebook: Notebook, environment: Path, folder: Path, line: str
) -> None:
    name = "toy" + hashlib.sha256(line.encode()).hexdigest()[:6]
    before, wheel = snapshot(environment), make_wheel(folder, name, "2.0")
    ran = notebook.run(f"%%sky\n{line.format(wheel)}")
    assert ran.status == "ok", ran.traceback
    assert notebook.run(f"%%sky\nimport {name}; {name}.VERSION").result == "'2.0'", ran.stdout
    assert snapshot(environment) == before


def test_a_package_of_the_user_is_neither_changed_nor_removed(
    notebook: Notebook, environment: Path, folder: Path
) -> None:
    (site_packages,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(make_wheel(folder, "ofuser", "1.0")) as archive:
        archive.extractall(site_packages)
    newer = make_wheel(folder, "ofuser", "3.0")
    assert notebook.run(f"%%sky\n!uv pip install -q {newer}").status == "ok"
    assert notebook.run("%%sky\nimport ofuser; ofuser.VERSION").result == "'3.0'"
    assert notebook.run("import ofuser; ofuser.VERSION").result == "'1.0'"
    notebook.run("%%sky\n!uv pip uninstall ofuser\n%pip uninstall -y ofuser")
    assert (site_packages / "ofuser.py").exists()
