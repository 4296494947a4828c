"""Event logs of Spark: what is read of them, and of such that are cut off or hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest

from jupyter_sky.machines.services.event_log import find_logs, read_stages, stage_table

TAG = "SparkConnect_SessionTag_User__Session_e225_Tag_cell-7"


def job(number: int, stages: list[int], tags: str = TAG, seconds: float = 100.0) -> dict[str, Any]:
    return {
        "Event": "SparkListenerJobStart",
        "Job ID": number,
        "Submission Time": int(seconds * 1000),
        "Stage Infos": [{"Stage ID": stage} for stage in stages],
        "Properties": {"spark.job.tags": tags},
    }


def stage(number: int, tasks: int, seconds: float | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {"Stage ID": number, "Number of Tasks": tasks}
    if seconds is None:
        return {"Event": "SparkListenerStageSubmitted", "Stage Info": told}
    times = {"Submission Time": 1000, "Completion Time": 1000 + int(seconds * 1000)}
    return {"Event": "SparkListenerStageCompleted", "Stage Info": told | times}


def task(number: int, reason: str = "Success") -> dict[str, Any]:
    return {
        "Event": "SparkListenerTaskEnd",
        "Stage ID": number,
        "Task End Reason": {"Reason": reason},
        "Task Metrics": {
            "Disk Bytes Spilled": 5,
            "Input Metrics": {"Bytes Read": 70},
            "Shuffle Read Metrics": {"Remote Bytes Read": 20, "Local Bytes Read": 10},
            "Shuffle Write Metrics": {"Shuffle Bytes Written": 3},
        },
    }


def write(path: Path, events: list[Any]) -> Path:
    """Write events as Spark does: JSON without spaces, packed."""
    lines = [
        each if isinstance(each, str) else json.dumps(each, separators=(",", ":"))
        for each in events
    ]
    with pyarrow.output_stream(str(path), compression="zstd") as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())
    return path


def test_stages_of_a_cell(tmp_path: Path) -> None:
    events = [
        job(0, [0, 1]),
        stage(0, 2),
        task(0),
        task(0, "ExecutorLostFailure"),
        task(0),
        stage(0, 2, 1.5),
        job(1, [0, 2], TAG.replace("cell-7", "cell-77")),
        stage(2, 1),
        task(2),
        job(2, [0, 1, 3]),
        stage(3, 4),
        task(3),
    ]
    stages = read_stages([write(tmp_path / "app.zstd", events)], "cell-7")
    assert [(one.job, one.number) for one in stages] == [(0, 0), (2, 3)], "1 has been skipped"
    done, running = stages
    assert (done.tasks, done.done, done.failed, done.seconds) == (2, 2, 1, 1.5)
    assert (done.read, done.shuffled, done.spilled) == (300, 9, 15), "the failed try, too"
    assert (running.done, running.is_done) == (1, False)
    rows = stage_table(stages, "cell 7").to_dicts()
    assert [(row["tasks"], row["seconds"]) for row in rows] == [
        ("2 of 2", "1.5"),
        ("1 of 4", "runs"),
    ]


def test_cell_of_that_number_in_another_kernel_is_left_out(tmp_path: Path) -> None:
    events = [job(0, [0]), stage(0, 1), job(1, [1], seconds=200.0), stage(1, 1)]
    log = write(tmp_path / "app.zstd", events)
    found = read_stages([log], "cell-7", begin=199.0, end=201.0)
    assert [one.number for one in found] == [1]


@pytest.mark.parametrize("cut", [1, 20])
def test_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path, cut: int) -> None:
    log = write(tmp_path / "app.zstd.inprogress", [job(0, [0]), stage(0, 300), *[task(0)] * 200])
    with log.open("ab") as file:  # another frame, as Spark writes one whenever it flushes
        file.write(write(tmp_path / "more", [task(0)]).read_bytes()[:-cut])
    (found,) = read_stages(find_logs_in(tmp_path), "cell-7")
    assert found.tasks == 300 and found.done > 180


def find_logs_in(folder: Path) -> list[Path]:
    """Return the logs of a journal that has those of a folder."""
    journal = folder / "journal"
    journal.mkdir()
    (journal / "spark").symlink_to(folder)
    return find_logs(journal)


@pytest.mark.parametrize(
    "line",
    [
        '{"Event":"SparkListenerJobStart"}',
        '{"Event":"SparkListenerJobStart","Properties":7}',
        '{"Event":"SparkListenerTaskEnd","Stage ID":0,"Task End Reason":[]}',
        '{"Event":"SparkListenerStageCompleted","Stage Info":{"Stage ID":[]}}',
        '{"Event":"SparkListenerTaskEnd"',
        "[]",
    ],
)
def test_lines_that_are_no_events_are_passed_over(tmp_path: Path, line: str) -> None:
    log = write(tmp_path / "app.zstd", [job(0, [0]), stage(0, 2), line, task(0)])
    (found,) = read_stages([log], "cell-7")
    assert found.done == 1


def test_log_that_is_none_has_no_stages(tmp_path: Path) -> None:
    log = tmp_path / "app.zstd"
    log.write_bytes(b"\x00 garbage")
    assert read_stages([log], "cell-7") == []
    assert "no query of Spark has run in cell 7" in str(stage_table([], "cell 7"))
