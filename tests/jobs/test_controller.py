"""Controller of a bag: what is stored, what runs again, when all is over."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from jupyter_sky.base.errors import SkyClusterLost, SkyError, SkyRunTaken
from jupyter_sky.knowledge.lifetimes.models import Exponential
from jupyter_sky.workflows.bags import controller as controller_module
from jupyter_sky.workflows.bags.controller import BagController
from jupyter_sky.workflows.bags.decisions.backlog import MachineKind
from jupyter_sky.workflows.bags.decisions.outlook import FleetView
from jupyter_sky.workflows.bags.queue.application import (
    App,
    BagCounts,
    BagSettings,
    End,
    FunctionApp,
    JobState,
    OpenJob,
)
from jupyter_sky.workflows.bags.queue.job_queue import JobQueue
from tests.conftest import wait_until
from tests.jobs.thread_fleet import ThreadFleet, engine_died, machine_gone


@pytest.fixture(autouse=True)
def _short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_module, "ROUND_SECONDS", 0.01)


ASKED = BagSettings("f", "function")


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[JobQueue]:
    """A queue in a file of its own."""
    queue = JobQueue(tmp_path / "jobs.db")
    yield queue
    queue.close()


def add(jobs: JobQueue, count: int, settings: BagSettings = ASKED) -> None:
    """Store a bag of numbers."""
    jobs.add("bag", settings, b"", [{"n": n} for n in range(count)], time.time())


def controller(
    jobs: JobQueue, app: App, fleet: ThreadFleet, at_point: Callable[[str], None] = lambda _: None
) -> BagController:
    """Return a controller of the bag."""
    return BagController(jobs, jobs.read("bag"), app, fleet, at_point=at_point)


def square(n: int) -> int:
    return n * n


def results(jobs: JobQueue) -> dict[int, Any]:
    """Return the stored results."""
    return {number: cloudpickle.loads(value) for number, value in jobs.values("bag")}


def test_every_job_runs_once_and_short_ones_go_together(jobs: JobQueue) -> None:
    add(jobs, 500)
    fleet = ThreadFleet(slots=2)
    assert controller(jobs, FunctionApp(square), fleet).run() is End.DONE
    assert results(jobs) == {n: n * n for n in range(500)}
    assert set(fleet.runs.values()) == {1}
    assert len(fleet.sent) < 50
    assert jobs.counts("bag") == BagCounts(succeeded=500)
    assert fleet.is_ended


class Killed(BaseException):
    """The controller's process ends here."""


def test_nothing_kept_runs_again_wherever_the_controller_is_killed(tmp_path: Path) -> None:
    points = 0
    for fatal in range(1000):
        queue = JobQueue(tmp_path / f"{fatal}.db")
        queue.add("bag", ASKED, b"", [{"n": n} for n in range(6)], time.time())
        passed: list[str] = []

        def count(name: str, passed: list[str] = passed, fatal: int = fatal) -> None:
            passed.append(name)
            if len(passed) == fatal + 1:
                raise Killed

        first = ThreadFleet()
        try:
            controller(queue, FunctionApp(square), first, count).run()
        except Killed:
            points += 1
            kept = set(results(queue))
            second = ThreadFleet()
            assert controller(queue, FunctionApp(square), second).run() is End.DONE
            assert set(second.runs) == set(range(6)) - kept, passed
            assert results(queue) == {n: n * n for n in range(6)}
        else:
            queue.close()
            break
        queue.close()
    assert points > 8


def test_controller_that_slept_is_refused(jobs: JobQueue) -> None:
    add(jobs, 3)
    taken = []

    def take_over(name: str) -> None:
        if name == "before storing" and not taken:
            taken.append(jobs.take_over("bag", {"pid": 1, "host": "other"}, time.time()))

    with pytest.raises(SkyRunTaken, match="process 1 on other has taken the bag bag over"):
        controller(jobs, FunctionApp(square), ThreadFleet(), take_over).run()
    assert results(jobs) == {}


def fail_odd(n: int) -> int:
    if n % 2:
        raise ValueError(f"odd {n}")
    return n


def test_failed_jobs_are_tried_again_and_leave_the_others_alone(jobs: JobQueue) -> None:
    add(jobs, 6, BagSettings("f", "function", retries=2))
    fleet = ThreadFleet()
    assert controller(jobs, FunctionApp(fail_odd), fleet).run() is End.DONE
    assert jobs.counts("bag") == BagCounts(succeeded=3, failed=3)
    assert {n: fleet.runs[n] for n in range(6)} == {0: 1, 1: 3, 2: 1, 3: 3, 4: 1, 5: 3}
    row = jobs.rows("bag", "number = 1")[0]
    assert (row["reason"], row["attempts"], row["failures"]) == ("ValueError: odd 1", 3, 3)
    assert "ValueError: odd 1" in jobs.output("bag", 1)


def fail(n: int) -> None:
    raise RuntimeError("no such file")


def test_app_that_always_fails_is_stopped_early(jobs: JobQueue) -> None:
    add(jobs, 5000)
    fleet = ThreadFleet()
    assert controller(jobs, FunctionApp(fail), fleet).run() is End.ALL_FAIL
    counts = jobs.counts("bag")
    assert 10 <= counts.failed < 4000
    assert counts.skipped == 5000 - counts.failed


def test_bag_ends_when_enough_have_succeeded(jobs: JobQueue) -> None:
    add(jobs, 400, BagSettings("f", "function", needed=20))
    assert (
        controller(jobs, FunctionApp(lambda n: time.sleep(0.01)), ThreadFleet()).run() is End.DONE
    )
    counts = jobs.counts("bag")
    assert 20 <= counts.succeeded < 200
    assert counts.succeeded + counts.skipped == 400


def test_bag_ends_when_too_few_can_succeed(jobs: JobQueue) -> None:
    add(jobs, 30, BagSettings("f", "function", needed=28))
    end = controller(jobs, FunctionApp(fail_odd), ThreadFleet()).run()
    assert end is End.FAILED
    assert jobs.counts("bag").failed >= 3


def test_losses_of_machines_are_no_failures(jobs: JobQueue) -> None:
    add(jobs, 20)
    fleet, losses = ThreadFleet(), []

    def lose(sent: Sequence[OpenJob]) -> SkyError | None:
        if len(losses) < 7:
            losses.extend(job.number for job in sent)
            return machine_gone()
        return None

    fleet.lose = lose
    assert controller(jobs, FunctionApp(square), fleet).run() is End.DONE
    assert results(jobs) == {n: n * n for n in range(20)}
    assert jobs.losses("bag") == len(losses) >= 7
    assert all(row["failures"] == 0 for row in jobs.rows("bag"))


def test_job_that_ends_its_process_fails_and_the_others_do_not(jobs: JobQueue) -> None:
    add(jobs, 10)
    fleet = ThreadFleet()
    fleet.lose = lambda sent: (
        engine_died(len(sent) == 1) if any(job.number == 4 for job in sent) else None
    )
    assert controller(jobs, FunctionApp(square), fleet).run() is End.DONE
    assert jobs.counts("bag") == BagCounts(succeeded=9, failed=1)
    row = jobs.rows("bag", "state = 'failed'")[0]
    assert (row["number"], row["reason"], row["deaths"]) == (4, "its engine died", 3)


def test_result_that_cannot_be_pickled_is_a_failure(jobs: JobQueue) -> None:
    add(jobs, 2)
    controller(jobs, FunctionApp(lambda n: threading.Lock()), ThreadFleet()).run()
    reasons = {row["reason"] for row in jobs.rows("bag")}
    assert len(reasons) == 1
    assert "cannot be pickled" in reasons.pop()


def test_cancel_keeps_results(jobs: JobQueue) -> None:
    add(jobs, 50)

    def cancel_at_thirty(n: int) -> int:
        if n == 30:
            jobs.cancel("bag", time.time())
        time.sleep(0.02)
        return n

    assert controller(jobs, FunctionApp(cancel_at_thirty), ThreadFleet()).run() is End.CANCELLED
    counts = jobs.counts("bag")
    assert counts.succeeded == len(results(jobs)) > 0
    assert counts.cancelled == 50 - counts.succeeded > 0


def test_budget_is_never_passed(jobs: JobQueue) -> None:
    add(jobs, 100, BagSettings("f", "function", budget=1.0))
    fleet = ThreadFleet(usd_h=6.0)

    def work(n: int) -> None:
        fleet.usd += 0.05  # at 6 USD/h a minute, in which machines end, costs 0.1

    end = controller(jobs, FunctionApp(work), fleet).run()
    assert end is End.BUDGET
    counts = jobs.counts("bag")
    assert counts.queued == 100 - counts.succeeded > 0
    assert fleet.is_ended


def test_after_the_deadline_nothing_begins(jobs: JobQueue) -> None:
    add(jobs, 100, BagSettings("f", "function", deadline=0.5))
    fleet = ThreadFleet()
    assert controller(jobs, FunctionApp(lambda n: time.sleep(0.2)), fleet).run() is End.DEADLINE
    counts = jobs.counts("bag")
    assert 1 <= counts.succeeded < 50
    assert counts.queued == 100 - counts.succeeded


def test_machines_are_added_where_the_deadline_needs_them(jobs: JobQueue) -> None:
    add(jobs, 60, BagSettings("f", "function", deadline=4.0))
    fleet = ThreadFleet()
    fleet.machines = FleetView(MachineKind("safe", Exponential(0.0), 0.2), (0.1,))
    controller(jobs, FunctionApp(lambda n: time.sleep(0.2)), fleet).run()
    assert fleet.grown[0] >= 3, "60 jobs of 0.2 s, in less than 4 s"


def test_bag_without_machines_keeps_its_queue(jobs: JobQueue) -> None:
    add(jobs, 3)
    fleet = ThreadFleet(slots=1)
    fleet.slots, fleet.error = 0, SkyClusterLost("every place refused")
    assert controller(jobs, FunctionApp(square), fleet).run() is End.NO_MACHINES
    assert jobs.counts("bag") == BagCounts(queued=3)
    assert jobs.read("bag").detail == "every place refused"


def test_longest_jobs_begin_first(jobs: JobQueue) -> None:
    add(jobs, 5, BagSettings("f", "function", size="n"))
    fleet = ThreadFleet()
    controller(jobs, FunctionApp(square), fleet).run()
    assert [number for sent in fleet.sent for number in sent] == [4, 3, 2, 1, 0]


def test_straggler_is_raced_by_a_copy_and_counts_once(jobs: JobQueue, tmp_path: Path) -> None:
    add(jobs, 6)
    marker = tmp_path / "copied"

    def work(n: int) -> str:
        if n == 5 and not marker.exists():
            marker.touch()
            wait_until(lambda: jobs.counts("bag").succeeded == 6)
            return "slow"
        return "fast"

    fleet = ThreadFleet(slots=2)
    assert controller(jobs, FunctionApp(work), fleet).run() is End.DONE
    assert results(jobs)[5] == "fast"
    assert jobs.rows("bag", "number = 5")[0]["attempts"] == 2


def test_jobs_that_are_added_while_it_runs_are_run(jobs: JobQueue) -> None:
    add(jobs, 5)

    def work(n: int) -> int:
        if n == 4:
            jobs.extend("bag", [{"n": 5}, {"n": 6}], time.time())
        return n

    assert controller(jobs, FunctionApp(work), ThreadFleet()).run() is End.DONE
    assert results(jobs) == {n: n for n in range(7)}


def test_failed_jobs_run_again_on_demand(jobs: JobQueue) -> None:
    add(jobs, 4)
    controller(jobs, FunctionApp(fail_odd), ThreadFleet()).run()

    assert jobs.retry("bag", [JobState.FAILED], time.time()) == 2
    fleet = ThreadFleet()
    assert controller(jobs, FunctionApp(square), fleet).run() is End.DONE
    assert set(fleet.runs) == {1, 3}
    assert jobs.counts("bag") == BagCounts(succeeded=4)


def test_full_disk_stops_the_controller_and_loses_nothing(jobs: JobQueue) -> None:
    add(jobs, 2000)
    pages = jobs._db.read("PRAGMA page_count")[0][0]
    jobs._db._db.execute(f"PRAGMA max_page_count = {pages + 40}")
    with pytest.raises(SkyError, match="full"):
        controller(jobs, FunctionApp(lambda n: "x" * 500), ThreadFleet()).run()
    kept = set(results(jobs))
    jobs._db._db.execute("PRAGMA max_page_count = 1000000")
    fleet = ThreadFleet()
    assert controller(jobs, FunctionApp(square), fleet).run() is End.DONE
    assert not kept & set(fleet.runs)
    assert len(results(jobs)) == 2000
