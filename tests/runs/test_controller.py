"""Controllers of runs: order, retries, refusals, losses, users' wishes, and ends at any point."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_sky.base.errors import SkyRunTaken, SkyUsageError
from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.controller import Controller
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.state import Kind, Phase, RunState, fold

from .pretended_world import DIAMOND, Clock, PretendedWorld, phases_of, run_graph, set_trouble


def test_tasks_follow_their_producers_and_clusters_are_released(journal, world) -> None:
    state = run_graph(journal, world)
    assert set(phases_of(state).values()) == {"succeeded"}
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
    run_graph(journal, world)
    assert world.most_at_once == slots


def test_stored_results_are_not_made_again(journal, world) -> None:
    world.db.execute("INSERT INTO result VALUES ('prepare'), ('left')")
    state = run_graph(journal, world)
    assert set(world.attempts()) == {"right", "join", "report"}
    assert state.tasks["left"].stored and not state.tasks["right"].stored


def test_nothing_is_launched_where_all_is_stored(journal, world) -> None:
    for task in DIAMOND:
        world.db.execute("INSERT INTO result VALUES (?)", (task.name,))
    run_graph(journal, world)
    assert world.launches() == 0 and world.plans == []


def test_errors_are_retried_as_often_as_allowed(journal, world) -> None:
    world.errors = {"left": 1, "right": 1}
    state = run_graph(journal, world)
    phases = phases_of(state)
    assert (phases["left"], phases["right"]) == ("succeeded", "failed")
    assert (phases["join"], phases["report"]) == ("skipped", "skipped")
    assert (state.tasks["right"].reason, state.tasks["join"].reason) == ("ValueError", "right")
    assert world.attempts() == {"prepare": 1, "left": 2, "right": 1}
    assert world.clusters_up() == []


def test_a_failed_branch_does_not_end_the_others(journal, world) -> None:
    tasks = (RunTask("a"), RunTask("b", ("a",)), RunTask("x"), RunTask("y", ("x",)))
    world.errors = {"a": 1}
    assert phases_of(run_graph(journal, world, tasks)) == {
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
    state = run_graph(journal, world)
    assert phases_of(state)["whole"] == ("cancelled" if failing > 2 else follower)
    assert [state.is_tolerated(each.name) for each in parts] == [
        *(failing == 2 for __ in range(failing)),
        *(False for __ in range(failing, 4)),
    ]
    assert state.has_failed is (failing > 2)
    assert world.clusters_up() == []


def test_a_refused_place_is_left_out_and_planned_anew(journal, world) -> None:
    world.refusals = {"pool": 2}
    state = run_graph(journal, world)
    assert set(phases_of(state).values()) == {"succeeded"}
    assert world.plans == [0, 1, 2] and "pool" in state.refused
    assert world.attempts()["prepare"] == 1


def test_a_lost_cluster_costs_one_more_attempt_of_what_it_held(journal, world) -> None:
    world.losses = {"left": 1}
    state = run_graph(journal, world)
    assert set(phases_of(state).values()) == {"succeeded"}
    attempts = world.attempts()
    assert attempts["left"] == 2 and attempts["prepare"] == attempts["join"] == 1
    assert world.clusters_up() == [] and state.tasks["left"].losses == 1
    assert world.launches() == 2


def test_losses_end_a_task_at_last(journal, world) -> None:
    world.losses = {"prepare": 9}
    state = run_graph(journal, world, (RunTask("prepare", losses=2),))
    assert phases_of(state) == {"prepare": "failed"} and world.attempts() == {"prepare": 3}
    assert state.tasks["prepare"].reason == "preempted" and world.clusters_up() == []


def test_the_first_failure_can_end_all(journal, world) -> None:
    world.stalled, world.errors = {"left"}, {"right": 1}
    tasks = tuple(replace(task, retries=0) for task in DIAMOND)
    journal.add("r", RunGraph(tasks), {}, 0.0)
    journal.wish("r", Kind.FAIL_FAST, 0.0)
    phases = phases_of(run_graph(journal, world))
    assert phases["right"] == "failed" and phases["left"] == "cancelled"
    assert ("stop", "left") in world.order and world.clusters_up() == []
    assert fold(RunState.begin(RunGraph(tasks)), journal.events("r")).has_failed


def test_a_retried_failure_does_not_end_all(journal, world) -> None:
    world.errors = {"left": 1}
    journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    journal.wish("r", Kind.FAIL_FAST, 0.0)
    assert set(phases_of(run_graph(journal, world)).values()) == {"succeeded"}
    assert world.attempts()["left"] == 2


def test_cancelling_stops_what_runs_and_begins_nothing(journal, world) -> None:
    world.stalled = {"left"}

    def cancel(name: str) -> None:
        if name == "before Follow" and ("send", "left") in world.order:
            journal.wish("r", Kind.CANCEL, 5.0)

    state = run_graph(journal, world, at_point=cancel)
    phases = phases_of(state)
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

    assert set(phases_of(asyncio.run(scenario())).values()) == {"succeeded"}


def test_tasks_that_may_go_together_are_sent_alone_until_their_time_is_known(
    journal, quick_folder: Path
) -> None:
    world = PretendedWorld(quick_folder / "world.db", slots=1, hours=0.01 / 3600)
    world.errors = {"t7": 1}
    tasks = [RunTask(f"t{n}", is_batched=True, retries=1) for n in range(200)]
    state = run_graph(journal, world, (*tasks, RunTask("other")))
    assert set(phases_of(state).values()) == {"succeeded"}
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
    state = run_graph(journal, world, tuple(replace(each, is_batched=True) for each in DIAMOND))
    assert set(phases_of(state).values()) == {"succeeded"}
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
    state = run_graph(journal, world, tasks)
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
        run_graph(journal, world, at_point=take)
    assert set(phases_of(run_graph(journal, world)).values()) == {"succeeded"}
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
    set_trouble(world)
    journal.add("r", RunGraph(DIAMOND), {}, 0.0)
    clock = JumpingClock()
    state = asyncio.run(Controller(journal, "r", world, clock).run())
    assert clock.looks > 30 and set(phases_of(state).values()) == {"succeeded"}
    assert world.attempts() == {"prepare": 1, "left": 2, "right": 1, "join": 2, "report": 1}
    assert world.clusters_up() == []


def test_the_state_is_what_the_events_say(journal, world) -> None:
    set_trouble(world)
    state = run_graph(journal, world)
    again = fold(RunState.begin(RunGraph(DIAMOND)), journal.events("r"))
    assert again.tasks == state.tasks and again.clusters == state.clusters


def test_a_world_that_raises_leaves_a_run_that_can_go_on(journal, world, monkeypatch) -> None:
    async def fail(action: object, task: object) -> None:
        raise OSError("no network")

    with monkeypatch.context() as patch:
        patch.setattr(world, "perform", fail)
        with pytest.raises(OSError, match="no network"):
            run_graph(journal, world)
    assert set(phases_of(run_graph(journal, world)).values()) == {"succeeded"}


def test_late_answers_change_nothing(journal, world) -> None:
    state = run_graph(journal, world)
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
