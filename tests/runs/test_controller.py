"""Controllers of runs: order, retries, refusals, losses, users' wishes, and ends at any point."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.errors import SkyRunTaken, SkyUsageError
from jupyter_sky.runs import controller as controller_module
from jupyter_sky.runs.controller import Controller
from jupyter_sky.runs.events import REPEATED, Event, Kind
from jupyter_sky.runs.graph import RunGraph, RunTask
from jupyter_sky.runs.journal import RunJournal
from jupyter_sky.runs.state import RunState, fold
from jupyter_sky.runs.task_state import Phase

from .pretended_world import DIAMOND, Clock, PretendedWorld


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


def _run(
    journal: RunJournal,
    world: PretendedWorld,
    tasks: tuple[RunTask, ...] = DIAMOND,
    at_point: Callable[[str], None] = lambda name: None,
) -> RunState:
    if "r" not in journal.names():
        journal.add("r", RunGraph(tasks), {}, 0.0)
    return asyncio.run(Controller(journal, "r", world, Clock(), at_point).run())


def _phases(state: RunState) -> dict[str, str]:
    return {name: str(task.phase) for name, task in state.tasks.items()}


def test_tasks_follow_their_producers_and_clusters_are_released(journal, world) -> None:
    state = _run(journal, world)
    assert set(_phases(state).values()) == {"succeeded"}
    sent = [task for what, task in world.order if what == "send"]
    assert sent[0] == "prepare" and sent[-2:] == ["join", "report"]
    for task in DIAMOND:
        for producer in task.after:
            assert world.order.index(("end", producer)) < world.order.index(("send", task.name))
    assert world.clusters_up() == [] and world.launches() == 1
    assert (state.tasks["join"].hours, state.tasks["join"].usd) == (0.5, 1.0)


@pytest.mark.parametrize("slots", [1, 2])
def test_branches_run_at_once_within_the_slots(journal, tmp_path, slots: int) -> None:
    world = PretendedWorld(tmp_path / "world.db", slots=slots)
    _run(journal, world)
    assert world.most_at_once == slots


def test_stored_results_are_not_made_again(journal, world) -> None:
    world.db.execute("INSERT INTO result VALUES ('prepare'), ('left')")
    state = _run(journal, world)
    assert set(world.attempts()) == {"right", "join", "report"}
    assert state.tasks["left"].stored and not state.tasks["right"].stored


def test_nothing_is_launched_where_all_is_stored(journal, world) -> None:
    for task in DIAMOND:
        world.db.execute("INSERT INTO result VALUES (?)", (task.name,))
    _run(journal, world)
    assert world.launches() == 0 and world.plans == []


def test_errors_are_retried_as_often_as_allowed(journal, world) -> None:
    world.errors = {"left": 1, "right": 1}
    state = _run(journal, world)
    phases = _phases(state)
    assert (phases["left"], phases["right"]) == ("succeeded", "failed")
    assert (phases["join"], phases["report"]) == ("skipped", "skipped")
    assert (state.tasks["right"].reason, state.tasks["join"].reason) == ("ValueError", "right")
    assert world.attempts() == {"prepare": 1, "left": 2, "right": 1}
    assert world.clusters_up() == []


def test_a_failed_branch_does_not_end_the_others(journal, world) -> None:
    tasks = (RunTask("a"), RunTask("b", ("a",)), RunTask("x"), RunTask("y", ("x",)))
    world.errors = {"a": 1}
    assert _phases(_run(journal, world, tasks)) == {
        "a": "failed",
        "b": "skipped",
        "x": "succeeded",
        "y": "succeeded",
    }


@pytest.mark.parametrize(("failing", "follower"), [(2, "succeeded"), (3, "skipped")])
def test_as_many_tasks_of_a_group_may_fail_as_it_allows(
    journal, world, failing: int, follower: str
) -> None:
    parts = [RunTask(f"part{n}", group="part", most_failures=2) for n in range(4)]
    whole = RunTask("whole", tuple(each.name for each in parts))
    world.errors = {f"part{n}": 1 for n in range(failing)}
    journal.add("r", RunGraph.from_json(RunGraph([*parts, whole]).to_json()), {}, 0.0)
    journal.wish("r", Kind.FAIL_FAST, 0.0)
    state = _run(journal, world)
    assert _phases(state)["whole"] == ("cancelled" if failing > 2 else follower)
    assert [state.is_tolerated(each.name) for each in parts] == [
        *(failing == 2 for __ in range(failing)),
        *(False for __ in range(failing, 4)),
    ]
    assert state.has_failed is (failing > 2)
    assert world.clusters_up() == []


def test_a_refused_place_is_left_out_and_planned_anew(journal, world) -> None:
    world.refusals = {"pool": 2}
    state = _run(journal, world)
    assert set(_phases(state).values()) == {"succeeded"}
    assert world.plans == [0, 1, 2] and "pool" in state.refused
    assert world.attempts()["prepare"] == 1


def test_a_lost_cluster_costs_one_more_attempt_of_what_it_held(journal, world) -> None:
    world.losses = {"left": 1}
    state = _run(journal, world)
    assert set(_phases(state).values()) == {"succeeded"}
    attempts = world.attempts()
    assert attempts["left"] == 2 and attempts["prepare"] == attempts["join"] == 1
    assert world.clusters_up() == [] and state.tasks["left"].losses == 1
    assert world.launches() == 2


def test_losses_end_a_task_at_last(journal, world) -> None:
    world.losses = {"prepare": 9}
    state = _run(journal, world, (RunTask("prepare", losses=2),))
    assert _phases(state) == {"prepare": "failed"} and world.attempts() == {"prepare": 3}
    assert state.tasks["prepare"].reason == "preempted" and world.clusters_up() == []


def test_the_first_failure_can_end_all(journal, world) -> None:
    world.stalled, world.errors = {"left"}, {"right": 1}
    tasks = tuple(replace(task, retries=0) for task in DIAMOND)
    journal.add("r", RunGraph(tasks), {}, 0.0)
    journal.wish("r", Kind.FAIL_FAST, 0.0)
    phases = _phases(_run(journal, world))
    assert phases["right"] == "failed" and phases["left"] == "cancelled"
    assert ("stop", "left") in world.order and world.clusters_up() == []
    assert fold(RunState.begin(RunGraph(tasks)), journal.events("r")).has_failed


def test_a_retried_failure_does_not_end_all(journal, world) -> None:
    world.errors = {"left": 1}
    journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    journal.wish("r", Kind.FAIL_FAST, 0.0)
    assert set(_phases(_run(journal, world)).values()) == {"succeeded"}
    assert world.attempts()["left"] == 2


def test_cancelling_stops_what_runs_and_begins_nothing(journal, world) -> None:
    world.stalled = {"left"}

    def cancel(name: str) -> None:
        if name == "before Follow" and ("send", "left") in world.order:
            journal.wish("r", Kind.CANCEL, 5.0)

    state = _run(journal, world, at_point=cancel)
    phases = _phases(state)
    assert phases["prepare"] == "succeeded" and phases["left"] == "cancelled"
    assert phases["join"] == phases["report"] == "cancelled"
    assert ("stop", "left") in world.order and world.clusters_up() == []


def test_a_paused_run_begins_nothing_until_it_is_resumed(journal, world) -> None:
    journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    journal.wish("r", Kind.PAUSE, 0.0)

    async def scenario() -> RunState:
        running = asyncio.create_task(Controller(journal, "r", world, Clock()).run())
        await asyncio.sleep(0.05)
        assert world.order == [] and world.launches() == 0
        journal.wish("r", Kind.RESUME, 1.0)
        return await running

    assert set(_phases(asyncio.run(scenario())).values()) == {"succeeded"}


class Ended(BaseException):
    """A controller that ends without another word."""


def _count_points(
    journal: RunJournal, world: PretendedWorld, tasks: tuple[RunTask, ...]
) -> list[str]:
    points: list[str] = []
    _run(journal, world, tasks, at_point=points.append)
    return points


def _set_trouble(world: PretendedWorld) -> None:
    world.errors, world.refusals, world.losses = {"left": 1}, {"pool": 1}, {"join": 1}


class DiskJournal(RunJournal):
    """A journal that copies its file where it waits for the disk: what a power cut leaves.

    Parameters
    ----------
    path
        Of the file; the copy lies in a folder beside it.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path, self._disk = path, path.with_suffix(".disk")

    def add(self, *values: Any, **named: Any) -> None:
        super().add(*values, **named)
        self._copy()

    def append(self, name: str, epoch: int, events: Sequence[Event]) -> list[Event]:
        wishes = super().append(name, epoch, events)
        if any(event.kind not in REPEATED for event in events):
            self._copy()
        return wishes

    def _copy(self) -> None:
        shutil.rmtree(self._disk, ignore_errors=True)
        self._disk.mkdir()
        for file in self._path.parent.glob(f"{self._path.name}*"):
            shutil.copy(file, self._disk)

    def cut_power(self) -> RunJournal:
        """Return the journal as it is after a power cut."""
        return RunJournal(self._disk / self._path.name)


@pytest.mark.parametrize(
    ("is_batched", "has_power_cut"), [(False, False), (True, False), (True, True)]
)
def test_a_controller_may_end_at_any_point(
    quick_folder: Path, is_batched: bool, has_power_cut: bool
) -> None:
    tasks = tuple(replace(each, is_batched=is_batched) for each in DIAMOND)
    counted = PretendedWorld(quick_folder / "counted.db")
    _set_trouble(counted)
    points = _count_points(RunJournal(quick_folder / "counted-runs.db"), counted, tasks)
    assert len(points) >= 40
    assert {name.split()[-1] for name in points} >= {
        *("MakePlan", "FindResult", "Launch", "Send", "Follow", "Release"),
        *(() if is_batched else ("Move",)),
        "journal",
    }
    lost = 0
    for index in range(len(points)):
        journal = DiskJournal(quick_folder / f"{index}-runs.db")
        world = PretendedWorld(quick_folder / f"{index}.db")
        _set_trouble(world)
        passed = 0

        def end(name: str, index: int = index) -> None:
            nonlocal passed
            passed += 1
            if passed == index + 1:
                raise Ended

        with pytest.raises(Ended):
            _run(journal, world, tasks, at_point=end)
        left = journal.cut_power() if has_power_cut else journal
        lost += len(journal.events("r")) - len(left.events("r"))
        state = _run(left, world)
        assert set(_phases(state).values()) == {"succeeded"}, index
        expected = {"prepare": 1, "left": 2, "right": 1, "join": 2, "report": 1}
        assert world.attempts() == expected, (index, points[index])
        assert world.clusters_up() == [], (index, points[index])
        assert world.launches() == counted.launches(), (index, points[index])
        left.close()
        journal.close()
        world.db.close()
    assert bool(lost) == has_power_cut, "what was not on the disk yet"


def test_tasks_that_may_go_together_are_sent_alone_until_their_time_is_known(
    journal, quick_folder: Path
) -> None:
    world = PretendedWorld(quick_folder / "world.db", slots=1, hours=0.01 / 3600)
    world.errors = {"t7": 1}
    tasks = [RunTask(f"t{n}", is_batched=True, retries=1) for n in range(200)]
    state = _run(journal, world, (*tasks, RunTask("other")))
    assert set(_phases(state).values()) == {"succeeded"}
    together = _sent_together(journal)
    assert together[0] == ["t0"], "nothing is known of their time"
    assert max(map(len, together)) == 100, "as many as take a second"
    assert ["t7"] in together and ["other"] in together, "a new try, and what is no batch"


def _sent_together(journal: RunJournal) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for event in journal.events("r"):
        if event.kind is Kind.PLACED:
            found[-1].append(event.subject)
        elif found[-1]:
            found.append([])
    return found


def test_an_attempt_that_was_not_begun_is_sent_again_and_is_no_loss(journal, world) -> None:
    world.returns = {"right": 3}
    state = _run(journal, world, tuple(replace(each, is_batched=True) for each in DIAMOND))
    assert set(_phases(state).values()) == {"succeeded"}
    assert (state.tasks["right"].attempts, state.tasks["right"].losses) == (4, 0)
    assert state.tasks["left"].attempts == 1


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_in_a_world_of_trouble(quick_folder: Path, journal, seed: int) -> None:
    draw = random.Random(seed)
    names = [f"t{index}" for index in range(draw.randint(2, 30))]
    tasks = tuple(
        RunTask(name, tuple(draw.sample(names[:index], min(index, draw.randint(0, 3)))), retries=2)
        for index, name in enumerate(names)
    )
    clusters = {name: draw.choice("xyz") for name in names}
    world = PretendedWorld(quick_folder / "world.db", clusters, draw.randint(1, 4))
    world.errors = {name: draw.choice([0, 0, 1, 2, 3]) for name in names}
    world.losses = {name: draw.choice([0, 0, 0, 1]) for name in names}
    world.refusals = {name: draw.randint(0, 2) for name in "xyz"}
    to_fail = {name for name, count in world.errors.items() if count > 2}
    state = _run(journal, world, tasks)
    assert world.clusters_up() == []
    begun = [task for what, task in world.order if what == "send"]
    for task in tasks:
        phase = state.tasks[task.name].phase
        bad = [p for p in task.after if state.tasks[p].phase is not Phase.SUCCEEDED]
        if bad:
            assert phase is Phase.SKIPPED and task.name not in begun
        else:
            assert phase is (Phase.FAILED if task.name in to_fail else Phase.SUCCEEDED)
            for producer in task.after:
                ends = [i for i, o in enumerate(world.order) if o == ("end", producer)]
                assert ends[-1] < world.order.index(("send", task.name))
    again = RunState.begin(RunGraph(tasks))
    for event in journal.events("r"):
        again = fold(again, [event])
        indexed = {name: phase for phase, of_it in again.by_phase.items() for name in of_it}
        open_tasks = {name: t.phase for name, t in again.tasks.items() if not t.phase.is_final}
        assert indexed == open_tasks
    assert again.tasks == state.tasks and again.is_over


def test_a_controller_that_slept_cannot_go_on(journal, world) -> None:
    def take(name: str) -> None:
        if name == "before Send":
            journal.take_over("r", {"pid": 4711, "host": "other"})

    with pytest.raises(SkyRunTaken, match="process 4711"):
        _run(journal, world, at_point=take)
    assert set(_phases(_run(journal, world)).values()) == {"succeeded"}
    assert set(world.attempts().values()) == {1}


class JumpingClock(Clock):
    """Time that is a day later after ten looks, and five minutes earlier after twenty more."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        self.now += {10: 86_400.0, 30: -300.0}.get(self.looks, 1.0)
        return self.now


def test_a_clock_that_jumps_costs_nothing(journal, world) -> None:
    _set_trouble(world)
    journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    clock = JumpingClock()
    state = asyncio.run(Controller(journal, "r", world, clock).run())
    assert clock.looks > 30 and set(_phases(state).values()) == {"succeeded"}
    assert world.attempts() == {"prepare": 1, "left": 2, "right": 1, "join": 2, "report": 1}
    assert world.clusters_up() == []


def test_the_state_is_what_the_events_say(journal, world) -> None:
    _set_trouble(world)
    state = _run(journal, world)
    again = fold(RunState.begin(RunGraph(DIAMOND)), journal.events("r"))
    assert again.tasks == state.tasks and again.clusters == state.clusters


def test_a_world_that_raises_leaves_a_run_that_can_go_on(journal, world, monkeypatch) -> None:
    async def fail(action: object, task: object) -> None:
        raise OSError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(world, "perform", fail)
        with pytest.raises(OSError, match="no network"):
            _run(journal, world)
    assert set(_phases(_run(journal, world)).values()) == {"succeeded"}


def test_late_answers_change_nothing(journal, world) -> None:
    state = _run(journal, world)
    events = journal.events("r")
    again = fold(state, events)  # each of them, after the end
    assert again.tasks == state.tasks
    assert all(task.phase is Phase.SUCCEEDED for task in again.tasks.values())


def test_a_name_is_used_once(journal) -> None:
    journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    with pytest.raises(SkyUsageError, match="a run called r"):
        journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    with pytest.raises(SkyUsageError, match="no run called s"):
        journal.read("s")
    assert list(journal.read("r").graph.tasks) == [task.name for task in DIAMOND]


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ((RunTask("a"), RunTask("a")), "two tasks are called a"),
        ((RunTask("a", ("b",)),), "a waits for b, which is no task"),
        ((RunTask("a", ("b",)), RunTask("b", ("a",))), "wait for each other"),
    ],
)
def test_graphs_that_cannot_be_run(tasks, message: str) -> None:
    with pytest.raises(SkyUsageError, match=message):
        RunGraph(tasks)
