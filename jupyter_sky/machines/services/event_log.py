"""Event logs of Spark: the stages of the queries of a cell, also after the cluster has ended.

A log is one file of JSON lines for each start of Spark's driver, packed by zstd. It may be cut off
anywhere, and machines may be in the wrong hands: lines that are none are passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _

FOLDER = "spark"
"""Folder of the logs in that of a cluster's journal, with which they come home."""
CHUNK_BYTES = 2**12
"""Read at once: where a log was cut off, the last chunk is lost."""
MAX_LINE_BYTES = 2**26
MAX_BYTES = 2**33
"""Most that is read of one log, unpacked."""
CLOCK_SECONDS = 5.0
"""Most by which the clocks of the notebook and of the cluster are apart."""

_EVENT = re.compile(rb'\{"Event":"SparkListener(JobStart|StageSubmitted|StageCompleted|TaskEnd)"')
_TASK_STAGE = re.compile(rb'[^}]*?"Stage ID":(\d+)')


@dataclass(slots=True)
class Stage:
    """Stage of a query.

    Attributes
    ----------
    job, number : int
        Numbers of its job and of itself.
    tasks, done, failed : int
        Its tasks, those that ended well, and tries that did not.
    seconds : float
        From its first task to its end; 0 while it runs.
    read, shuffled, spilled : int
        Bytes that its tasks have read, have written for the next stage, and have written to disk
        for lack of memory.
    is_done : bool
        Whether it has ended.
    """

    job: int
    number: int
    tasks: int = 0
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    read: int = 0
    shuffled: int = 0
    spilled: int = 0
    is_done: bool = False


@dataclass(slots=True)
class _Reader:
    """Stages of one driver's jobs with a tag, gathered event by event."""

    tag: str
    begin: float
    end: float
    stages: dict[int, Stage] = field(default_factory=dict)

    def take(self, kind: bytes, line: bytes) -> None:
        if kind == b"TaskEnd":  # most of the log
            found = _TASK_STAGE.match(line)
            if found is None or int(found[1]) not in self.stages:
                return
        event = json.loads(line)
        if kind == b"JobStart":
            self._take_job(event)
        elif kind == b"TaskEnd":
            self._take_task(event)
        elif (stage := self.stages.get(event["Stage Info"]["Stage ID"])) is not None:
            _take_stage(stage, event["Stage Info"])

    def _take_job(self, event: dict[str, Any]) -> None:
        tags = event.get("Properties", {}).get("spark.job.tags", "").split(",")
        if not any(tag.endswith(f"_Tag_{self.tag}") for tag in tags):
            return
        if self.begin <= event["Submission Time"] / 1000 <= self.end:
            for info in event["Stage Infos"]:
                # a stage whose result is there already is in later jobs again, and is skipped
                self.stages.setdefault(info["Stage ID"], Stage(event["Job ID"], info["Stage ID"]))

    def _take_task(self, event: dict[str, Any]) -> None:
        stage = self.stages[event["Stage ID"]]
        is_well = event["Task End Reason"]["Reason"] == "Success"
        stage.done += is_well
        stage.failed += not is_well
        told = event.get("Task Metrics") or {}
        shuffle = told.get("Shuffle Read Metrics", {})
        stage.read += told.get("Input Metrics", {}).get("Bytes Read", 0)
        stage.read += shuffle.get("Remote Bytes Read", 0) + shuffle.get("Local Bytes Read", 0)
        stage.shuffled += told.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
        stage.spilled += told.get("Disk Bytes Spilled", 0)


def _take_stage(stage: Stage, told: dict[str, Any]) -> None:
    stage.tasks = max(stage.tasks, told["Number of Tasks"])
    if "Completion Time" in told and "Submission Time" in told:
        # one that is tried again, since outputs were lost, counts as long as all its tries
        stage.seconds += (told["Completion Time"] - told["Submission Time"]) / 1000
        stage.is_done = True


def read_stages(
    logs: Sequence[Path], tag: str, begin: float = 0.0, end: float | None = None
) -> list[Stage]:
    """Return the stages that have run, of the jobs with a tag, in the order of their begin.

    Parameters
    ----------
    logs
        Files of event logs.
    tag
        Such as ``cell-7``.
    begin, end
        Unix times between which the jobs have begun, by the clock of the notebook.
    """
    found = []
    for log in logs:
        last = float("inf") if end is None else end + CLOCK_SECONDS
        reader = _Reader(tag, begin - CLOCK_SECONDS, last)
        for line in _lines(log):
            if match := _EVENT.match(line):
                try:
                    reader.take(match[1], line)
                except (KeyError, TypeError, ValueError, AttributeError):
                    continue
        found += [stage for stage in reader.stages.values() if stage.tasks]
    return found


def find_logs(journal: Path) -> list[Path]:
    """Return the event logs beside a journal, the oldest first."""
    return sorted((journal / FOLDER).glob("*.zstd*"), key=lambda path: path.stat().st_mtime)


def stage_table(stages: Sequence[Stage], name: str) -> Table:
    """Return stages as a table.

    Parameters
    ----------
    name
        Of the cell.

    Examples
    --------
    >>> stage = Stage(0, 2, tasks=4, done=4, seconds=1.25, read=2_000_000, is_done=True)
    >>> print(stage_table([stage], "cell 7"))
    Spark in cell 7
    job  stage  tasks   failed  seconds    read  shuffled  spilled
    ---  -----  ------  ------  -------  ------  --------  -------
      0      2  4 of 4       0      1.2  2.0 MB       0 B      0 B
    """
    columns = ("job", "stage", "tasks", "failed", "seconds", "read", "shuffled", "spilled")
    rows = [
        (
            str(stage.job),
            str(stage.number),
            _("{done} of {total}").format(done=stage.done, total=stage.tasks),
            str(stage.failed),
            f"{stage.seconds:.1f}" if stage.is_done else _("runs"),
            *map(format_size, (stage.read, stage.shuffled, stage.spilled)),
        )
        for stage in stages
    ]
    return Table(
        _("Spark in {name}").format(name=name),
        columns,
        tuple(rows),
        empty=_("no query of Spark has run in {name}").format(name=name),
    )


def _lines(log: Path) -> Iterator[bytes]:
    """Yield the whole lines of a log, as far as it can be read."""
    import pyarrow

    rest, size = b"", 0
    try:
        with pyarrow.input_stream(str(log), compression="zstd") as stream:
            while size < MAX_BYTES and (chunk := stream.read(CHUNK_BYTES)):
                size += len(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                yield from lines
                if len(rest) > MAX_LINE_BYTES:
                    return
    except (OSError, pyarrow.ArrowException):  # it is being written, or was cut off
        return
