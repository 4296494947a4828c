"""Results of a run, read and written by several threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_sky.workflows.pipelines.model.kept_results import KeptResults, RunResults, TaskResult


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptResults]:
    made = KeptResults(tmp_path)
    yield made
    made.close()


def test_what_another_thread_writes_is_no_part_of_a_transaction(kept: KeptResults) -> None:
    results, began = RunResults("run", kept), threading.Event()
    outputs = [{"output_type": "stream", "name": "stdout", "text": "said"}]

    def write() -> None:
        began.set()
        results.save_outputs("other", outputs)

    other = threading.Thread(target=write)

    def fail() -> None:
        results.adopt("own", TaskResult())
        other.start()
        began.wait()
        other.join(0.2)  # it waits for the transaction, or has joined it
        raise ValueError

    with pytest.raises(ValueError):
        results.together(fail)
    other.join()
    assert results.outputs("other") == outputs
    assert results.find("own") is None


def test_a_transaction_reads_what_it_has_written(kept: KeptResults) -> None:
    results = RunResults("run", kept)

    def work() -> tuple[object, object]:
        assert results.find("task") is None
        results.adopt("task", TaskResult({"x": "77aa"}))
        results.save_outputs("task", [])
        return results.find("task"), results.outputs("task")

    assert results.together(work) == (TaskResult({"x": "77aa"}), [])
    assert RunResults("run", kept).find("task") == TaskResult({"x": "77aa"})
