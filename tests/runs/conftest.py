"""Journal and pretended world of runs, in a folder that does not wait for a disk."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.workflows.pipelines.run import controller as controller_module
from jupyter_sky.workflows.pipelines.run.journal import RunJournal

from .pretended_world import PretendedWorld


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch) -> None:
    monkeypatch.setattr(controller_module, "WISH_SECONDS", 0.001)


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory where there is one: each step waits for the disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.fixture
def journal(quick_folder: Path) -> Iterator[RunJournal]:
    made = RunJournal(quick_folder / "runs.db")
    yield made
    made.close()


@pytest.fixture
def world(quick_folder: Path) -> PretendedWorld:
    return PretendedWorld(quick_folder / "world.db")
