"""Bags of jobs as the server answers them: list, progress, jobs, logs, new ones, wishes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.base.remote.processes import identity
from jupyter_sky.workflows.bags.bag_run import open_queue
from jupyter_sky.workflows.bags.queue.application import (
    BagSettings,
    JobChange,
    JobOutcome,
    JobState,
    OpenJob,
)
from jupyter_sky.workflows.bags.queue.job_queue import CANCEL, JobQueue
from tests.conftest import wait_until
from tests.server.conftest import Refused


@pytest.fixture
def jobs(store: Any, data: Path) -> Iterator[JobQueue]:
    """A queue with a bag of three jobs, of which one has succeeded and one has failed."""
    queue = open_queue(data)
    queue.add("ions", BagSettings("f", "function"), b"", [{"n": n} for n in range(3)], time.time())
    epoch = queue.take_over("ions", identity(), time.time())
    good = JobOutcome(0, b"", '{"energy": NaN, "steps": 5}', "", 2.0, "step 5\n")
    bad = JobOutcome(1, None, "", "ValueError: n = 1", 1.0, "Traceback")
    changes = [
        JobChange(OpenJob(0, {}, 1), JobState.SUCCEEDED, good, "aws", 0.5),
        JobChange(OpenJob(1, {}, 1, 1), JobState.FAILED, bad, "aws", 0.25, bad.error),
    ]
    queue.record("ions", epoch, changes, time.time(), 0.75)
    yield queue
    queue.close()


async def test_bags_are_listed_with_their_states(ask: Any, jobs: JobQueue) -> None:
    (run,) = (await ask("bags"))["runs"]
    assert run["states"] == {"queued": 1, "succeeded": 1, "failed": 1}
    assert run["carried_out"] and not run["over"]
    jobs.take_over("ions", {**identity(), "born": 1.0}, time.time())
    (run,) = (await ask("bags"))["runs"]
    assert not run["carried_out"], "its process has ended"


async def test_bag_is_described_with_its_jobs_and_logs(ask: Any, jobs: JobQueue) -> None:
    bag = await ask("bags", "ions")
    assert bag["headline"].startswith("Bag ions: 2 of 3 jobs have ended, 1 failed")
    assert bag["failures"] == [{"reason": "ValueError: n = 1", "count": 1}]
    found = await ask("bags", "ions", "jobs", state="succeeded")
    (job,) = found["jobs"]
    assert (job["n"], job["energy"], job["steps"], job["usd"]) == (0, "nan", 5, 0.5)
    assert (await ask("bags", "ions", "jobs", start=2))["jobs"][0]["state"] == "queued"
    assert (await ask("bags", "ions", "log", job=0))["log"] == "step 5\n"


async def test_bag_is_cancelled_by_its_controller(ask: Any, jobs: JobQueue) -> None:
    await ask("bags", "ions", "act", body={"verb": "cancel"})
    epoch = jobs.take_over("ions", identity(), time.time())
    assert jobs.record("ions", epoch, [], time.time()) == {CANCEL}


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        (("ion",), None, 404, "there is no bag called ion"),
        (("ions", "log"), None, 400, "bag ions has no job 9"),
        (("ions", "act"), {"verb": "explode"}, 400, "explode: not an action of bags"),
        ((), {"command": "ls", "job": [1]}, 400, "job: not a setting of bags"),
        ((), {"jobs": [1]}, 400, "a bag needs a command"),
        ((), {"command": "ls"}, 400, "a bag without jobs"),
        ((), {"command": "ls", "jobs": "/etc/passwd"}, 400, "a bag without jobs"),
        ((), {"command": "ls", "jobs": [1], "need": 2}, 400, "need=2: 1 jobs are there"),
        ((), {"call": "math:nothing", "jobs": [1]}, 400, "has no attribute 'nothing'"),
    ],
)
async def test_invalid_requests(
    ask: Any, jobs: JobQueue, path: tuple[str, ...], body: Any, status: int, said: str
) -> None:
    query = {"job": 9} if path[-1:] == ("log",) else {}
    with pytest.raises(Refused) as refused:
        await ask("bags", *path, body=body, **query)
    assert refused.value.status == status
    assert said in json.dumps(refused.value.said)


@pytest.mark.slow
async def test_submitted_bag_runs_in_a_process_of_its_own(ask: Any, store: Any, data: Path) -> None:
    asked = {"command": "echo $((2 * {n}))", "sweep": {"n": [3, 4]}, "name": "api"}
    assert (await ask("bags", body=asked))["total"] == 2
    queue = open_queue(data)
    wait_until(lambda: queue.read("api").reason is not None)
    assert [row["summary"] for row in queue.rows("api")] == ["6", "8"]
    queue.close()
