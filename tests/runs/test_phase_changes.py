"""Phases of tasks as a run's events tell them, against the states that are folded."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyter_sky.workflows.pipelines.model.graph import RunGraph, RunTask
from jupyter_sky.workflows.pipelines.run.controller import Controller
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.run_report import PhaseChanges
from jupyter_sky.workflows.pipelines.run.state import Event, Kind, RunState, fold

from .pretended_world import DIAMOND, Clock, PretendedWorld


def _events(folder: Path, graph: RunGraph, **troubles: dict[str, int]) -> list[Event]:
    world, journal = PretendedWorld(folder / "world.db"), RunJournal(folder / "runs.db")
    for name, counts in troubles.items():
        setattr(world, name, counts)
    journal.add("r", graph, {}, 0.0)
    asyncio.run(Controller(journal, "r", world, Clock()).run())
    return journal.events("r")


def _by_folding(graph: RunGraph, events: list[Event]) -> list[tuple[str, str]]:
    state, found = RunState.begin(graph), []
    for event in events:
        before, state = state, fold(state, [event])
        for name, task in state.tasks.items():
            if task.phase is not before.tasks[name].phase:
                found.append((name, str(task.phase)))
    return found


def _by_reading(graph: RunGraph, events: list[Event]) -> list[tuple[str, str]]:
    changes = PhaseChanges(graph)
    return [(name, str(task.phase)) for event in events for name, task in changes.read(event)]


@pytest.mark.parametrize(
    "troubles", [{}, {"errors": {"left": 1}, "losses": {"join": 1}}, {"errors": {"left": 9}}]
)
def test_changes_are_those_of_the_states(
    tmp_path: Path, troubles: dict[str, dict[str, int]]
) -> None:
    graph = RunGraph(DIAMOND)
    events = _events(tmp_path, graph, **troubles)
    assert _by_reading(graph, events) == _by_folding(graph, events) != []


def test_events_of_the_whole_run_change_many_tasks() -> None:
    graph = RunGraph([RunTask("a"), RunTask("b")])
    events = [
        Event(Kind.READY, "a"),
        Event(Kind.NO_PLAN, "", data={"reason": "no machine will do"}),
        Event(Kind.CANCELLED, "a"),
    ]
    expected = [("a", "looking up"), ("a", "failed"), ("b", "failed")]
    assert _by_reading(graph, events) == _by_folding(graph, events) == expected


def test_states_are_not_copied_for_each_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = RunGraph(RunTask(f"t{number}") for number in range(20))
    events = _events(tmp_path, graph)
    copied: list[RunState] = []
    copy = RunState.copy
    monkeypatch.setattr(RunState, "copy", lambda self: copied.append(self) or copy(self))
    assert len(_by_reading(graph, events)) >= 100
    assert copied == []
