"""A folder that somebody else has prepared has no effect on a server that is opened in it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulators.hostile import EvilController, prepare

VICTIM = """
import os
from types import SimpleNamespace
from traitlets.config import SingletonConfigurable

class App(SingletonConfigurable):
    root_dir = os.getcwd()

from jupyter_sky.interfaces.server.service import SkyService

service = SkyService(App.instance(), SimpleNamespace(emit=lambda **k: None))
try:
    service.reconcile()
except Exception as error:
    print("reconcile:", type(error).__name__, error)
from jupyter_sky.base.settings.settings import Sky
print("data_dir", Sky.load().data_dir)
service.close()
"""


@pytest.fixture
def evil(tmp_path: Path) -> Iterator[EvilController]:
    made = EvilController(tmp_path / "canary")
    yield made
    made.close()


def serve(folder: Path, home: Path, **more: str) -> str:
    """Let a server's service look after clusters in a folder, in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKY_")}
    env = {**kept, "HOME": str(home), "JUPYTER_DATA_DIR": str(home / "jupyter"), **more}
    done = subprocess.run(
        [sys.executable, "-c", VICTIM],
        cwd=folder,
        env=env | {"PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_server_reads_no_project_file(tmp_path: Path, evil: EvilController) -> None:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "nice"\n[tool.jupyter_sky]\ndata_dir = "{folder}/.notes"\n'
    )
    prepare(folder / ".notes", evil.port)
    said = serve(folder, tmp_path / "home")
    assert f"data_dir {tmp_path / 'home' / 'jupyter' / 'sky'}" in said
    assert evil.requests == 0 and not evil.canary.exists(), said


@pytest.mark.slow
def test_server_never_unpickles_answers_of_controllers(
    tmp_path: Path, evil: EvilController
) -> None:
    prepare(tmp_path / "data", evil.port)
    said = serve(tmp_path, tmp_path / "home", SKY_DATA_DIR=str(tmp_path / "data"))
    assert evil.requests > 0, said  # it was asked, so that its answer was heard
    assert not evil.canary.exists(), said
