"""Report of a run: state, time and cost of each task beside those of its plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.requests.quantities import format_duration, format_elapsed
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.model.graph import RunGraph
from jupyter_sky.workflows.pipelines.notebook.cell_runs import (
    POLL_SECONDS,
)
from jupyter_sky.workflows.pipelines.run.journal import RunJournal
from jupyter_sky.workflows.pipelines.run.placing import read_offer
from jupyter_sky.workflows.pipelines.run.single_clouds import (
    Saving,
)
from jupyter_sky.workflows.pipelines.run.state import (
    TASK_CHANGES,
    Event,
    Kind,
    Phase,
    RunState,
    TaskState,
    apply_event,
    fold,
)

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan


_TOLD = frozenset({Phase.RUNNING, Phase.DELAYED, *(one for one in Phase if one.is_final)})
"""Phases that people follow."""

_ENDS = (Kind.SUCCEEDED, Kind.FAILED, Kind.LOST, Kind.STOPPED)


@dataclass(frozen=True, slots=True)
class TaskReport:
    """A task as it is and as it was planned.

    Attributes
    ----------
    name, phase, reason
        Of the task.
    place
        Of its offer by the last plan.
    seconds, usd
        Of its last attempt, so far; None before it has begun.
    planned_seconds, planned_usd
        By the plan; None for a task that is not in it.
    is_assumed
        Whether the plan knew no time of the task and took an hour.
    begun, ended
        Unix times of its last attempt; None before them, and for a kept result.
    is_kept
        Whether its result was kept of an earlier run, and nothing ran.
    """

    name: str
    phase: Phase
    reason: str
    place: str
    seconds: float | None
    usd: float | None
    planned_seconds: float | None
    planned_usd: float | None
    is_assumed: bool = False
    begun: float | None = None
    ended: float | None = None
    is_kept: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON; what is not known is left out."""
        values = {
            "state": str(self.phase),
            "reason": self.reason or None,
            "place": self.place,
            "seconds": self.seconds,
            "usd": self.usd,
            "planned_seconds": self.planned_seconds,
            "planned_usd": self.planned_usd,
            "is_assumed": self.is_assumed or None,
        }
        return {name: value for name, value in values.items() if value is not None}


def report_tasks(
    state: RunState,
    events: Iterable[Event],
    plan: Plan,
    hourly_price: Callable[[str], float],
    now: float,
) -> tuple[TaskReport, ...]:
    """Return a report of each task of a run.

    Parameters
    ----------
    state, events
        Of the run.
    plan
        With which it began.
    hourly_price
        Returns the USD/h of the cluster that was launched with a token.
    now
        Unix time.
    """
    planned = {task.task: task for task in plan.tasks}
    times = _attempt_times(events)
    reports = []
    for name, task in state.tasks.items():
        begun, ended = times.get(name, (None, None))
        seconds = usd = None
        if task.phase is Phase.SUCCEEDED:
            seconds, usd = task.hours * 3600, task.usd
        elif begun is not None:
            seconds = (ended or now) - begun
            cluster = state.clusters.get(state.placement.get(name, ""))
            usd = seconds / 3600 * hourly_price(cluster.token) if cluster else None
        one = planned.get(name)
        reports.append(
            TaskReport(
                name,
                task.phase,
                task.reason,
                _find_place(state, name) or (one.offer.place if one else ""),
                seconds,
                usd,
                one.hours * 3600 if one else None,
                one.usd if one else None,
                one.assumed if one else False,
                begun,
                ended,
                task.stored,
            )
        )
    return tuple(reports)


def _find_place(state: RunState, task: str) -> str:
    """Return the place of a task by the last plan; empty without one."""
    offer = state.offers.get(state.placement.get(task, ""), {})
    return read_offer(offer).place if "offer" in offer else ""


def _attempt_times(events: Iterable[Event]) -> Mapping[str, tuple[float, float | None]]:
    """Return the Unix times at which the last attempt of each task began and ended."""
    times: dict[str, tuple[float, float | None]] = {}
    for event in events:
        if event.kind is Kind.BEGUN:
            times[event.subject] = (event.at, None)
        elif event.kind is Kind.RETURNED:  # it was sent, and not begun
            times.pop(event.subject, None)
        elif event.kind in _ENDS and event.subject in times:
            times[event.subject] = (times[event.subject][0], event.at)
    return times


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan that was made while a run went on, or that was found to gain too little.

    Attributes
    ----------
    at
        Unix time.
    text
        Why it was made, what changed and what that saves.
    is_taken
        Whether it is the plan from then on.
    """

    at: float
    text: str
    is_taken: bool


def find_replans(events: Iterable[Event]) -> tuple[Replan, ...]:
    """Return the plans that were made after the first one.

    Examples
    --------
    >>> event = Event(Kind.PLANNED, "", 60.0, {"text": "aws was lost: fit goes to gcp"})
    >>> find_replans([event])[0].text
    'aws was lost: fit goes to gcp'
    """
    return tuple(
        Replan(event.at, event.data["text"], event.kind is Kind.PLANNED)
        for event in events
        if event.kind in (Kind.PLANNED, Kind.PLAN_KEPT) and event.data.get("text")
    )


def make_table(
    run: str,
    reports: Iterable[TaskReport],
    plan: Plan,
    elapsed_seconds: float,
    replans: Iterable[Replan] = (),
    saving: str = "",
) -> Table:
    """Return the table of a run.

    Parameters
    ----------
    run
        Its name.
    reports, plan
        Of its tasks.
    elapsed_seconds
        From its first event until now, or until its end.
    replans
        Plans that were made since.
    saving
        What the plan saves against one cloud; empty where that is not known.
    """
    rows, usd, ended, assumed = [], 0.0, 0, 0
    for report in reports:
        usd += report.usd or 0.0
        ended += report.phase.is_final
        assumed += report.is_assumed
        state = f"{report.phase} ({report.reason})" if report.reason else str(report.phase)
        times = _time(report.seconds), _time(report.planned_seconds)
        costs = _usd(report.usd), _usd(report.planned_usd)
        rows.append((report.name, state, *times, *costs, report.place))
    title = _("Run {run}: {ended} of {count} tasks have ended; {time}, ${usd:.2f}").format(
        run=run, ended=ended, count=len(rows), time=format_duration(elapsed_seconds), usd=usd
    )
    note = _("planned as a whole: {time}, ${usd:.2f}").format(
        time=format_duration(plan.hours * 3600), usd=plan.usd
    )
    if assumed:
        note += _("; an hour is assumed where no time is known ({count} of {all} tasks)").format(
            count=assumed, all=len(rows)
        )
    if saving:
        note += f"\n{saving}"
    for replan in replans:
        clock = time.strftime("%H:%M", time.localtime(replan.at))
        note += "\n" + _("{time} planned anew: {text}").format(time=clock, text=replan.text)
    columns = (
        *(_("task"), _("state"), _("time"), _("planned time")),
        *(_("cost"), _("planned cost"), _("place")),
    )
    return Table(title, columns, tuple(rows), note)


def _usd(value: float | None) -> str:
    return "" if value is None else f"${value:.4f}" if 0 < value < 0.095 else f"${value:.2f}"


def _time(seconds: float | None) -> str:
    return "" if seconds is None else format_elapsed(seconds)


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Run at a moment.

    Attributes
    ----------
    state, reports, table
        Of its tasks.
    begun, until
        Unix times of its first event, and of now or its last one.
    headline
        Title of the table; once all has ended with what the plan has saved against one cloud.
    """

    state: RunState
    reports: tuple[TaskReport, ...]
    table: Table
    begun: float
    until: float
    headline: str


def take_snapshot(
    name: str,
    graph: RunGraph,
    events: Sequence[Event],
    plan: Plan,
    hourly_price: Callable[[str], float],
    now: float,
    saving: Saving | None = None,
) -> RunSnapshot:
    """Return a run as it is after its events.

    Parameters
    ----------
    name, graph, events, plan
        Of the run; the plan is that with which it began.
    hourly_price
        Returns the USD/h of the cluster that was launched with a token.
    now
        Unix time.
    saving
        What the plan saves against one cloud, if that is known.
    """
    saving = saving or Saving()
    state = fold(RunState.begin(graph), events)
    is_over = all(task.phase.is_final for task in state.tasks.values())
    begun = events[0].at if events else now
    until = events[-1].at if events and is_over else now
    reports = report_tasks(state, events, plan, hourly_price, now)
    replans = find_replans(events)
    table = make_table(name, reports, plan, until - begun, replans, saving.text)
    headline = f"{table.title}; {saving.headline}" if is_over and saving.headline else table.title
    if tolerated := sum(map(state.is_tolerated, state.tasks)):
        headline += "; " + _(
            "{count} of {all} tasks have failed, as --allow-failures lets them"
        ).format(count=tolerated, all=len(state.tasks))
    return RunSnapshot(state, reports, table, begun, until, headline)


def follow_changes(
    journal: RunJournal, name: str, graph: RunGraph, is_done: Callable[[], bool]
) -> Iterator[tuple[str, Phase | Kind, str]]:
    """Yield the changes of tasks until the end: see `PipelineRun.changes`."""
    changes, count = PhaseChanges(graph), 0
    while True:
        is_last = is_done()
        events = journal.events(name, count)
        count += len(events)
        for event in events:
            for replan in find_replans([event]):
                yield name, event.kind, replan.text
            for task_name, task in changes.read(event):
                if task.phase in _TOLD:
                    yield task_name, task.phase, _change_reason(task)
        if is_last:
            return
        time.sleep(POLL_SECONDS)


def _change_reason(task: TaskState) -> str:
    if task.phase is Phase.RUNNING:
        return task.why
    if task.phase is Phase.SUCCEEDED:
        return _("its result was kept") if task.stored else ""
    return task.reason


def run_reason(task: TaskState) -> str:
    """Return why a task has run, or that its result was kept."""
    return _("its result was kept") if task.stored else task.why


def reason_table(name: str, state: RunState) -> Table:
    """Return a table of the tasks of a run: what became of each, and why."""
    rows = []
    for each, task in state.tasks.items():
        unkept = _("not kept: {why}").format(why=task.unkept) if task.unkept else ""
        words = "; ".join(filter(None, (run_reason(task), unkept)))
        rows.append((each, str(task.phase), words, f"${task.usd:.2f}"))
    columns = (_("task"), _("state"), _("reason"), _("cost"))
    return Table(_("Tasks of {name}").format(name=name), columns, tuple(rows))


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
    >>> from jupyter_sky.workflows.pipelines.run.state import Kind
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
