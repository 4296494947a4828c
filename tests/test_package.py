"""What users get: the wheel holds the package alone, the sdist is enough to build and test."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Wheel and sdist, made as `pip` would make them, but with the hatchling that is here."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT]
    subprocess.run(command, check=True, capture_output=True)
    [wheel], [sdist] = out.glob("*.whl"), out.glob("*.tar.gz")
    return zipfile.ZipFile(wheel), tarfile.open(sdist)


@pytest.mark.slow
def test_wheel_holds_only_the_package(built):
    wheel, _ = built
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"jupyter_sky"}
    packaged = {name for name in wheel.namelist() if name.endswith(".py")}
    assert packaged == {str(p.relative_to(ROOT)) for p in ROOT.glob("jupyter_sky/**/*.py")}


@pytest.mark.slow
def test_wheel_installs_the_command(built):
    wheel, _ = built
    [entry_points] = [n for n in wheel.namelist() if n.endswith("entry_points.txt")]
    assert "jupyter-sky = jupyter_sky.cli:main" in wheel.read(entry_points).decode()


@pytest.mark.slow
def test_sdist_is_enough_to_build_and_test(built):
    _, sdist = built
    names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "tests/run.sh"} <= names
    notebooks = {str(p.relative_to(ROOT)) for p in ROOT.glob("notebooks/*.ipynb")}
    assert notebooks <= names
    assert not [name for name in names if "__pycache__" in name or "artifacts" in name]
