"""Timeline of a plan: transfers, boots and work of each task, and the critical path."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from jupyter_sky.decisions.optimizer.plan import Plan, PlannedTask, PlannedTransfer

Kind = Literal["transfer", "boot", "work", "store"]


@dataclass(frozen=True, slots=True)
class TaskPhase:
    """A stretch of a task's time.

    Attributes
    ----------
    kind : str
        ``transfer`` (the data that it waits for), ``boot``, ``work``, or ``store`` (reading from
        and writing to stores while the machine is up).
    start_h, end_h : float
        Hours from the start of the plan.
    gb : float
        What moves, GB; 0 where nothing does.
    """

    kind: Kind
    start_h: float
    end_h: float
    gb: float = 0.0

    @property
    def hours(self) -> float:
        """Duration, h."""
        return self.end_h - self.start_h


@dataclass(frozen=True, slots=True)
class TaskBar:
    """The time of one task.

    Attributes
    ----------
    parts : tuple of TaskPhase
        One after the other, without gaps.
    after : tuple of str
        Tasks whose data comes last: it begins when that is there.
    critical : bool
        Whether the plan ends later when this takes longer.
    """

    task: str
    parts: tuple[TaskPhase, ...]
    after: tuple[str, ...] = ()
    critical: bool = False

    @property
    def start_h(self) -> float:
        """Start of its first transfer, or of its machine, h."""
        return self.parts[0].start_h

    @property
    def end_h(self) -> float:
        """End, h."""
        return self.parts[-1].end_h


def timeline(plan: Plan) -> tuple[TaskBar, ...]:
    """Return the tasks of a plan as bars, in the plan's order.

    The bars of the critical path lie end to end: their lengths add up to the plan's time.

    Examples
    --------
    >>> [bar.task for bar in timeline(made) if bar.critical]  # doctest: +SKIP
    ['train', 'infer']
    """
    arriving: dict[str, list[PlannedTransfer]] = {one.task: [] for one in plan.tasks}
    for move in plan.moves:
        if move.kind != "output":
            arriving[move.target].append(move)
    ends = {one.task: one.finish_h for one in plan.tasks}
    bars = {one.task: _bar(one, arriving[one.task], ends) for one in plan.tasks}
    decisive = _find_critical(bars.values())
    return tuple(
        TaskBar(bar.task, bar.parts, bar.after, bar.task in decisive) for bar in bars.values()
    )


def critical_path(bars: Iterable[TaskBar]) -> tuple[TaskBar, ...]:
    """Return one chain of bars that lie end to end from the start to the end of the plan."""
    known = {bar.task: bar for bar in bars}
    at = max(known.values(), key=lambda bar: bar.end_h, default=None)
    chain: list[TaskBar] = []
    while at is not None:
        chain.append(at)
        at = known.get(next(iter(at.after), ""))
    return tuple(reversed(chain))


def _bar(one: PlannedTask, arriving: Iterable[PlannedTransfer], ends: dict[str, float]) -> TaskBar:
    last = [
        move
        for move in arriving
        if (move.kind == "edge" or move.hours)
        and _same(ends.get(move.source, 0.0) + move.hours, one.start_h)
    ]
    last.sort(key=lambda move: move.kind != "edge")  # a store that is as late decides nothing
    at, parts = max(0.0, one.start_h), []
    after = tuple(move.source for move in last if move.kind == "edge")
    if last and last[0].hours:
        begin = ends.get(last[0].source, 0.0)
        parts.append(TaskPhase("transfer", begin, at, last[0].gb))
    kinds: tuple[Kind, ...] = ("boot", "work", "store")
    for kind, hours in zip(kinds, (one.spin_up_hours, one.hours, one.store_hours), strict=True):
        if hours or kind == "work":
            parts.append(TaskPhase(kind, at, at + hours))
            at += hours
    return TaskBar(one.task, tuple(parts), after)


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def _find_critical(bars: Iterable[TaskBar]) -> set[str]:
    """Return all tasks of which one that takes longer makes the plan longer."""
    known = {bar.task: bar for bar in bars}
    end = max((bar.end_h for bar in known.values()), default=0.0)
    todo, found = [task for task, bar in known.items() if _same(bar.end_h, end)], set[str]()
    while todo:
        task = todo.pop()
        if task not in found:
            found.add(task)
            todo += known[task].after
    return found
