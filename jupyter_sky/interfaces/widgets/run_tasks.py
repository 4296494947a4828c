"""Tasks of a run as its pictures show them: the tasks of a sweep as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from jupyter_sky.base.requests.quantities import format_elapsed
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.widgets.svg import EDGE, QUIET
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.run.run_report import TaskReport
from jupyter_sky.workflows.pipelines.run.state import Phase

MAX_APART = 4
"""Largest sweep whose tasks are drawn apart."""
_SYMBOLS = {
    Phase.WAITING: "○",
    Phase.RUNNING: "▶",
    Phase.DELAYED: "↻",
    Phase.SUCCEEDED: "✓",
    Phase.FAILED: "✗",
    Phase.SKIPPED: "⊘",
    Phase.CANCELLED: "⊘",
}
_RUNNING = "var(--jp-brand-color1, #1976d2)"
_GOOD = "var(--jp-success-color1, #2e7d32)"
_BAD = "var(--jp-error-color1, #d32f2f)"
# the worst first: a sweep is shown as the worst of its tasks that have ended, or as running
_WORST = (Phase.FAILED, Phase.RUNNING, Phase.DELAYED, Phase.CANCELLED, Phase.SKIPPED)


@dataclass(frozen=True, slots=True)
class ShownTask:
    """A task, or the tasks of a sweep together.

    Attributes
    ----------
    name
        Of the task or of the swept cell.
    reports
        Of its tasks.
    after
        Names of the shown tasks that come before it.
    """

    name: str
    reports: tuple[TaskReport, ...]
    after: tuple[str, ...]

    @property
    def phase(self) -> Phase:
        """Phase of the task; of a sweep the one that matters most."""
        phases = {report.phase for report in self.reports}
        if phases == {Phase.SUCCEEDED} or len(phases) == 1:
            return self.reports[0].phase
        found = next((phase for phase in _WORST if phase in phases), None)
        return found or next(report.phase for report in self.reports if not report.phase.is_final)

    @property
    def state(self) -> str:
        """State in words, with a symbol."""
        if len(self.reports) == 1:
            return describe_phase(self.reports[0])
        counts = Counter(describe_phase(report) for report in self.reports)
        return ", ".join(f"{count} {words}" for words, count in counts.items())

    @property
    def begun(self) -> float | None:
        """Unix time at which the first of its tasks began."""
        return min((each.begun for each in self.reports if each.begun is not None), default=None)

    @property
    def ended(self) -> float | None:
        """Unix time at which the last of its tasks ended; None while one has not."""
        if not all(each.phase.is_final for each in self.reports):
            return None
        return max((each.ended for each in self.reports if each.ended is not None), default=None)

    @property
    def seconds(self) -> float | None:
        """Seconds that its tasks ran, together; None before one began."""
        known = [each.seconds for each in self.reports if each.seconds is not None]
        return sum(known) if known else None

    @property
    def usd(self) -> float | None:
        """USD of its tasks; None where nothing is known."""
        known = [each.usd for each in self.reports if each.usd is not None]
        return sum(known) if known else None


def describe_phase(report: TaskReport) -> str:
    """Return the phase of a task in words, with a symbol.

    Examples
    --------
    >>> describe_phase(TaskReport("fit", Phase.SUCCEEDED, "", "", 3.0, 0.1, None, None))
    '✓ succeeded'
    """
    if report.is_kept:
        return _("✓ kept")
    return f"{_SYMBOLS.get(report.phase, '◔')} {report.phase}"


def outline(phase: Phase) -> str:
    """Return the style of the edge of a box: states differ in form too."""
    if phase is Phase.SUCCEEDED:
        return f"stroke: {_GOOD}; stroke-width: 1.6"
    if phase is Phase.FAILED:
        return f"stroke: {_BAD}; stroke-width: 2.4"
    if phase is Phase.WAITING:
        return f"stroke: {EDGE}"
    if phase.is_final:
        return f"stroke: {QUIET}; stroke-dasharray: 2 3"
    return f"stroke: {_RUNNING}; stroke-width: 2.4"


def fill(phase: Phase) -> str:
    """Return the colour of the bar of a task."""
    return {Phase.SUCCEEDED: _GOOD, Phase.FAILED: _BAD}.get(phase, _RUNNING)


def group_tasks(
    graph: RunGraph, reports: Sequence[TaskReport], sweeps: Mapping[str, Sequence[str]]
) -> tuple[ShownTask, ...]:
    """Return the tasks to show, in the order of the graph.

    Parameters
    ----------
    graph, reports
        Of the run.
    sweeps
        Names of the tasks of each swept cell; those of a small sweep are shown apart.
    """
    shown_as = {
        task: cell for cell, tasks in sweeps.items() if len(tasks) > MAX_APART for task in tasks
    }
    members: dict[str, list[TaskReport]] = {}
    after: dict[str, dict[str, None]] = {}
    for report in reports:
        name = shown_as.get(report.name, report.name)
        members.setdefault(name, []).append(report)
        before = (shown_as.get(each, each) for each in graph.tasks[report.name].after)
        after.setdefault(name, {}).update(dict.fromkeys(before))
    return tuple(ShownTask(name, tuple(told), tuple(after[name])) for name, told in members.items())


def describe_time(seconds: float | None) -> str:
    """Return a time in words; nothing where it is not known."""
    return "" if seconds is None else format_elapsed(seconds)


def describe_facts(task: ShownTask, why: str = "") -> str:
    """Return state, time, cost, place and reason of a task, beside what was planned.

    Parameters
    ----------
    task
        A task, or those of one cell.
    why
        Why it runs.

    Examples
    --------
    >>> report = TaskReport("fit", Phase.SUCCEEDED, "", "aws a", 3.0, 0.1, 60.0, 0.2)
    >>> describe_facts(ShownTask("fit", (report,), ()))
    '✓ succeeded · 3.0 s of 1:00 planned · $0.10 of $0.20 planned · aws a'
    """
    facts = [task.state]
    planned = [each.planned_seconds for each in task.reports if not each.is_assumed]
    if task.seconds is not None:
        facts.append(_of_plan(format_elapsed(task.seconds), planned, format_elapsed))
    if task.usd:
        dollars = [each.planned_usd for each in task.reports if not each.is_assumed]
        facts.append(_of_plan(_usd(task.usd), dollars, _usd))
    places = dict.fromkeys(each.place for each in task.reports)
    reasons = dict.fromkeys(each.reason for each in task.reports)
    kept = all(each.is_kept for each in task.reports)
    return " · ".join(filter(None, [*facts, *places, *reasons, "" if kept else why]))


def _usd(value: float) -> str:
    return f"${value:.4f}" if value < 0.095 else f"${value:.2f}"


def _of_plan(
    value: str, planned: Sequence[float | None], format_value: Callable[[float], str]
) -> str:
    known = [each for each in planned if each is not None]
    if not known or len(known) < len(planned):
        return value
    return _("{value} of {planned} planned").format(value=value, planned=format_value(sum(known)))
