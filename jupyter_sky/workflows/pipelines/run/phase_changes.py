"""Phases through which the tasks of a run go, as its events tell them one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.run.events import Event
from jupyter_sky.workflows.pipelines.run.state import RunState, apply_event
from jupyter_sky.workflows.pipelines.run.task_state import TASK_CHANGES, Phase, TaskState


class PhaseChanges:
    """Reader of a run's events that notices which tasks they bring into another phase.

    Its time grows with the number of events: one about a task changes that task alone; only those
    about clusters and the whole run may change others.

    Parameters
    ----------
    graph
        Of the run.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.run.events import Kind
    >>> from jupyter_sky.workflows.pipelines.model.graph import RunTask
    >>> changes = PhaseChanges(RunGraph([RunTask("a")]))
    >>> [(name, str(task.phase)) for name, task in changes.read(Event(Kind.READY, "a"))]
    [('a', 'looking up')]
    """

    def __init__(self, graph: RunGraph) -> None:
        self.state = RunState.begin(graph)
        self._phases = {name: task.phase for name, task in self.state.tasks.items()}
        """Of the tasks that have not ended."""

    def read(self, event: Event) -> list[tuple[str, TaskState]]:
        """Take an event in; return the tasks whose phase it has changed."""
        apply_event(self.state, event)
        one = (event.subject,) if event.subject in self._phases else ()
        return self._take_changed(one if event.kind in TASK_CHANGES else [*self._phases])

    def _take_changed(self, names: Iterable[str]) -> list[tuple[str, TaskState]]:
        changed: list[tuple[str, TaskState]] = []
        for name in names:
            task = self.state.tasks[name]
            if task.phase is not self._phases[name]:
                changed.append((name, task))
                self._note(name, task.phase)
        return changed

    def _note(self, name: str, phase: Phase) -> None:
        if phase.is_final:
            del self._phases[name]
        else:
            self._phases[name] = phase
