"""Folders of Dask's workers are removed, however these end."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from jupyter_sky.machines.services import dask_processes
from tests.conftest import WAIT, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a worker, with something in it."""
    made = tmp_path / "sky-dask-1"
    (made / "storage").mkdir(parents=True)
    return made


def test_folder_of_a_killed_worker_is_removed(folder: Path) -> None:
    process = subprocess.Popen(["sleep", "100"], stdout=subprocess.PIPE)
    dask_processes._drain(process, str(folder))
    assert folder.exists()
    process.kill()
    process.wait()
    wait_until(lambda: not folder.exists())


def test_removal_of_the_folders_of_workers_is_awaited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    removal = dask_processes._drain(process, str(folder))
    monkeypatch.setattr(dask_processes, "_removals", {"tls://here:1": [(removal, process)]})
    dask_processes.await_removal("tls://elsewhere:1")
    assert folder.exists()
    assert process.stdin is not None
    process.stdin.close()
    dask_processes.await_removal("tls://here:1")
    assert not folder.exists() and dask_processes._removals == {}
    process.wait()


def test_worker_that_does_not_end_is_killed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen(["sleep", "600"], stdout=subprocess.PIPE)
    removal = dask_processes._drain(process, str(folder))
    monkeypatch.setattr(dask_processes, "_removals", {"tls://here:1": [(removal, process)]})
    monkeypatch.setattr(dask_processes, "REMOVAL_SECONDS", 0.1)
    try:
        dask_processes.await_removal("tls://here:1")
        assert process.wait(WAIT) == -signal.SIGKILL
        wait_until(lambda: not folder.exists())
    finally:
        process.kill()
