"""Requests to stop a run, as its monitor reads them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.store.store import Store
from jupyter_sky.execution.cells import run_record
from jupyter_sky.execution.cells.run_monitor import describe_loss
from jupyter_sky.execution.cells.run_record import RunRecord, StopRequests
from tests.store.rows import CLUSTER, RUN


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    monkeypatch.setattr(run_record, "STOP_CHECK_SECONDS", 0.0)
    waiting = replace(RUN, status="waiting", stage="placing", nodes=0, started=time.time() - 4.0)
    return RunRecord(Store.open(tmp_path), waiting)


def test_requests_of_all_sides_are_counted(record: RunRecord) -> None:
    stops = StopRequests(record)
    record.write("placing")
    assert (stops.count(), stops.check(), stops.error("it")) == (0, "", None)
    record.store.request_stop(RUN.run_id, "in the browser")
    assert stops.check() == "stopped in the browser"
    assert stops.check() == "", "it is noted once"
    stops.cancel()
    record.store.request_stop(RUN.run_id, "in the browser")
    assert stops.count() == 3
    error = stops.error("cell 7")
    assert error is not None and error.message == "cell 7 was stopped in the browser"


def test_run_that_stops_with_its_kernel_says_so(record: RunRecord) -> None:
    record.write("placing")
    assert "--bg go on" in StopRequests(record).end_with_kernel()
    row = record.store.run(RUN.run_id)
    assert row is not None and "restarted or shut down" in row.stop


def test_sent_run_that_was_seen_waiting_is_written_at_once(record: RunRecord) -> None:
    record.begin(CLUSTER, None)
    assert record.store.run(RUN.run_id) is None, "a quick cell is written when it is over"
    record.write("running")
    row = record.store.run(RUN.run_id)
    assert row is not None and (row.status, row.nodes) == ("running", 1)
    assert 4.0 <= row.waited < 5.0
    run, boot = record.times(time.time() + 10.0)
    assert 10.0 <= run < 11.0 and boot == row.waited


def test_row_that_was_waiting_is_running_once_it_is_sent(record: RunRecord) -> None:
    record.write("placing")
    assert record.times(time.time())[0] >= 4.0, "it has only waited"
    record.begin(CLUSTER, None)
    row = record.store.run(RUN.run_id)
    assert row is not None and (row.status, row.nodes) == ("running", 1)


def test_warning_names_what_is_lost() -> None:
    assert describe_loss([]) == ""
    one = describe_loss([0], list("abcdef"))
    assert "its variables (a, b, c, d, e, …) would be lost" in one
    assert describe_loss([0, 2]).startswith("engines 0, 2 do not answer: stop again")
