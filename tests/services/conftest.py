"""Fixtures of Spark: clusters of this machine with small heaps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jupyter_sky.services.java import find_java
from tests.conftest import Notebook, processes_of

START = 600.0
"""Longest first start, which installs Spark where no run has done so before."""


def java_processes(data_dir: Path) -> list[psutil.Process]:
    """Return the processes of Java of the clusters in a data directory."""
    found = []
    for process in processes_of(data_dir):
        try:
            if process.name() == "java":
                found.append(process)
        except psutil.Error:
            continue
    return found


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
