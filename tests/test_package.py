"""Wheel and sdist: the wheel holds the package alone, the sdist builds and tests."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from jupyter_sky import __version__

ROOT = Path(__file__).parent.parent
PANEL = "share/jupyter/labextensions/jupyter-sky"


def test_the_panel_has_the_version_of_the_package():
    labextension = ROOT / "labextension"
    assert json.loads((labextension / "package.json").read_text())["version"] == __version__
    lock = json.loads((labextension / "package-lock.json").read_text())
    assert lock["version"] == __version__


def test_the_lock_names_no_registry():
    assert "http" not in (ROOT / "labextension/package-lock.json").read_text()


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, made as `pip` would make them, but with the hatchling that is here."""
    if not shutil.which("npm"):
        pytest.skip("no npm on PATH: an sdist cannot be built")
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return zipfile.ZipFile(wheel), tarfile.open(sdist)


@pytest.mark.slow
def test_wheel_holds_only_the_package(built):
    wheel, _ = built
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top.partition("-")[0] for top in tops} == {"jupyter_sky"}
    assert {top.rpartition(".")[2] for top in tops} == {"jupyter_sky", "dist-info", "data"}
    packaged = {name for name in wheel.namelist() if name.endswith(".py")}
    assert packaged == {str(p.relative_to(ROOT)) for p in ROOT.glob("jupyter_sky/**/*.py")}


@pytest.mark.slow
def test_wheel_installs_the_command(built):
    wheel, _ = built
    [entry_points] = [n for n in wheel.namelist() if n.endswith("entry_points.txt")]
    assert "jupyter-sky = jupyter_sky.cli:main" in wheel.read(entry_points).decode()


@pytest.mark.slow
def test_wheel_holds_the_panel_and_enables_the_server_extension(built):
    wheel, _ = built
    data = f"jupyter_sky-{__version__}.data/data"
    panel = json.loads(wheel.read(f"{data}/{PANEL}/package.json"))
    assert panel["version"] == __version__
    assert f"{data}/{PANEL}/{panel['jupyterlab']['_build']['load']}" in wheel.namelist()
    assert f"{data}/{PANEL}/schemas/jupyter-sky/plugin.json" in wheel.namelist()
    enabling = wheel.read(f"{data}/etc/jupyter/jupyter_server_config.d/jupyter_sky.json")
    assert json.loads(enabling)["ServerApp"]["jpserver_extensions"] == {"jupyter_sky": True}
    # not a second time inside the package
    assert not [name for name in wheel.namelist() if name.startswith("jupyter_sky/labextension")]


def wheel_without_npm(tree: Path, out: Path) -> tuple[zipfile.ZipFile, str]:
    """Return the wheel of a tree, and what the build said, where no npm is."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, tree]
    nowhere = os.environ | {"PATH": str(out)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=nowhere)
    [wheel] = out.glob("*.whl")
    return zipfile.ZipFile(wheel), done.stdout + done.stderr


@pytest.mark.slow
def test_wheel_from_the_sdist_needs_no_npm(built, tmp_path):
    wheel, sdist = built
    sdist.extractall(tmp_path, filter="data")
    [tree] = tmp_path.iterdir()
    again, said = wheel_without_npm(tree, tmp_path / "dist")
    assert "panel" not in said
    panel = {name for name in wheel.namelist() if PANEL in name}
    assert panel == {name for name in again.namelist() if PANEL in name}


@pytest.mark.slow
def test_installation_without_npm_lacks_the_panel_and_reports_it(built, tmp_path):
    _, sdist = built
    sdist.extractall(tmp_path, filter="data")
    [tree] = tmp_path.iterdir()
    shutil.rmtree(tree / "jupyter_sky/labextension")  # built, so no checkout has it
    wheel, said = wheel_without_npm(tree, tmp_path / "dist")
    assert "Without the panel for JupyterLab: npm is not on PATH" in said
    assert "jupyter_sky/interfaces/api/clusters.py" in wheel.namelist()
    assert not [name for name in wheel.namelist() if PANEL in name]


@pytest.mark.slow
def test_sdist_is_enough_to_build_and_test(built):
    _, sdist = built
    names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/run.sh"} <= names
    notebooks = {str(p.relative_to(ROOT)) for p in ROOT.glob("notebooks/*.ipynb")}
    assert notebooks <= names
    assert {"labextension/src/index.ts", "labextension/package-lock.json"} <= names
    unwanted = "__pycache__", "artifacts", "node_modules"
    assert not [name for name in names if any(part in name for part in unwanted)]
