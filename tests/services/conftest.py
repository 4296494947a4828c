"""Fixtures of data engines: clusters of this machine, their processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from jupyter_sky.machines.services.spark_node import find_java
from tests.conftest import Notebook, processes_of

START = 600.0
"""Longest first start, which installs Spark where no run has done so before."""


def java_processes(data_dir: Path) -> list[psutil.Process]:
    """Return Spark's processes of Java of the clusters in a data directory."""
    found = [process for process in processes_of(data_dir) if _told(process.name) == "java"]
    # one that makes an archive of classes may run beside them
    return [process for process in found if "-Xshare:dump" not in (_told(process.cmdline) or ())]


def processes_named(data_dir: Path, *words: str) -> list[psutil.Process]:
    """Return the processes of the clusters in a data directory that have words in their command."""
    found = {process: " ".join(_told(process.cmdline) or ()) for process in processes_of(data_dir)}
    return [process for process, text in found.items() if any(word in text for word in words)]


def find_controller(data_dir: Path) -> psutil.Process:
    """Return the controller of the only cluster in a data directory."""
    found = processes_named(data_dir, "engines.controller ")
    (controller,) = [each for each in found if "supervisor.py" not in " ".join(each.cmdline())]
    return controller


def _told(ask: Callable[[], Any]) -> Any:
    """Return what is told of a process; None once it has ended."""
    try:
        return ask()
    except psutil.Error:
        return None


@pytest.fixture(scope="module")
def needs_java() -> None:
    """Skip where Spark cannot run."""
    pytest.importorskip("pyspark")
    if find_java() is None:
        pytest.skip("no Java that is new enough")


@pytest.fixture(scope="module")
def sparks(needs_java: None, notebook: Notebook) -> Iterator[Notebook]:
    """Yield a notebook with a cluster of one node on which Spark runs."""
    started = notebook.run(
        "%%sky --engine spark --cpus 2 --memory 4\nspark.range(7).count()", START
    )
    assert started.result == "7", started
    yield notebook
