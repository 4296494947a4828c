"""Virtual environment of a cluster above that of its engines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_sky.machines.engines.node import overlay as overlays
from jupyter_sky.machines.engines.node.overlay import PackageOverlay, shared_package_folders


@pytest.fixture
def overlay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageOverlay:
    """One that this process may activate: the path and the environment are put back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(overlays, "_active", [])
    monkeypatch.setattr(os, "environ", os.environ.copy())
    made = PackageOverlay(tmp_path / "packages")
    made.create()
    return made


def test_installed_packages_are_imported_first_and_scripts_found(overlay: PackageOverlay) -> None:
    before = shared_package_folders()
    overlay.activate()
    assert os.environ["PIP_PYTHON"] == os.environ["UV_PYTHON"] == overlay.python
    (folder,) = overlays._active
    assert sys.path.index(folder) < sys.path.index(before[0])
    assert not overlay.refresh(), "nothing was installed"
    Path(folder, "toy-1.0.dist-info").mkdir()
    assert overlay.refresh() and not overlay.refresh()
    assert os.environ["PATH"].startswith(str(Path(overlay.python).parent))


def test_engines_that_make_it_at_the_same_time_install_nothing(overlay: PackageOverlay) -> None:
    overlay.activate()
    for path in (Path(overlay.home, "pyvenv.cfg"), *overlay.home.rglob("engine.pth")):
        path.unlink()
    PackageOverlay(overlay.home).create()
    assert not overlay.refresh()


def test_environments_of_other_clusters_do_not_see_it(overlay: PackageOverlay) -> None:
    before = shared_package_folders()
    overlay.activate()
    assert shared_package_folders() == before


@pytest.mark.slow
def test_its_interpreter_sees_the_packages_of_the_user(overlay: PackageOverlay) -> None:
    code = "import numpy, sys; print(sys.prefix)"
    ran = subprocess.run([overlay.python, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == str(overlay.home)
