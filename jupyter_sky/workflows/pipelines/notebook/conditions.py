"""Conditions of tasks: what ``--if`` reads of other tasks, and whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.conditions import default_value, describe_unmet, is_met
from jupyter_sky.base.translation import _
from jupyter_sky.workflows.pipelines.notebook.cells import PipelineCell
from jupyter_sky.workflows.pipelines.notebook.links import LinkKind, Pipeline
from jupyter_sky.workflows.pipelines.notebook.sweeps import CellTask, constant_value


@dataclass(frozen=True, slots=True)
class TaskCondition:
    """Condition of a task.

    Attributes
    ----------
    expression
        Of its ``--if``.
    reads
        Producer of each name that it reads from another task; a list where a sweep gives it.
    constants
        Values of the names that are known before the run.
    defaults
        Values of what the task gives where it does not run.
    """

    expression: str
    reads: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return values of JSON from which `from_json` makes an equal condition."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TaskCondition:
        """Return the condition of what `to_json` gave."""
        return cls(**data)

    def find_unmet(self, load: Callable[[str, str], Any]) -> str:
        """Return why the task does not run; empty where it does.

        Parameters
        ----------
        load
            Returns a value of another task.

        Raises
        ------
        SkyUsageError
            A value cannot be compared.

        Examples
        --------
        >>> TaskCondition("acc > .9", {"acc": "score"}).find_unmet(lambda task, name: 0.5)
        'acc > .9 is false: acc = 0.5'
        """
        values = dict(self.constants)
        for name, producer in self.reads.items():
            is_one = isinstance(producer, str)
            values[name] = (
                load(producer, name) if is_one else [load(each, name) for each in producer]
            )
        if is_met(self.expression, values):
            return ""
        return describe_unmet(self.expression, values)


def as_tasks(producers: str | Sequence[str]) -> Sequence[str]:
    """Return the tasks that give a value: one, or those of a sweep."""
    return [producers] if isinstance(producers, str) else producers


def make_condition(
    pipeline: Pipeline,
    cell: PipelineCell,
    task: CellTask,
    parameters: Mapping[str, Any],
    producers: Callable[[str], str | Sequence[str]],
) -> TaskCondition | None:
    """Return the condition of a task of a notebook; None where it has none.

    Parameters
    ----------
    pipeline, cell, task
        The notebook, the cell, and the task that it becomes.
    parameters
        Values in place of those of the cell of parameters.
    producers
        Returns the task, or the tasks of a sweep, that a cell becomes.

    Raises
    ------
    SkyUsageError
        It reads what a cell of definitions computes.
    """
    if cell.options is None or not cell.options.condition:
        return None
    links = {
        link.name: link.producer
        for link in pipeline.links
        if link.consumer == cell.name and link.kind is LinkKind.DATA
    }
    constants: dict[str, Any] = dict(task.values)
    for name in cell.tested:
        if name in links:
            continue
        try:
            constants[name] = constant_value(pipeline, cell, name, parameters)
        except ValueError:
            raise SkyUsageError(
                _("{cell} (cell {number}): --if reads {name}, which is computed").format(
                    cell=cell.name, number=cell.number, name=name
                ),
                hint=_("write its value, or give it with -o from a cell with %%sky"),
            ) from None
    return TaskCondition(
        cell.options.condition,
        {name: producers(links[name]) for name in cell.tested if name in links},
        constants,
        {each.name: default_value(each) for each in cell.options.defaults},
    )


def optional_producers(pipeline: Pipeline, cell: PipelineCell) -> tuple[str, ...]:
    """Return the cells that may be skipped by their condition without this one being skipped.

    Those are they that have a default for each name which this one reads from them.
    """
    found: list[str] = []
    for other in pipeline.tasks:
        links = [
            link
            for link in pipeline.links
            if link.consumer == cell.name and link.producer == other.name
        ]
        defaults = {each.name for each in other.options.defaults} if other.options else set()
        read = {link.name for link in links if link.name}
        is_kept = any(link.kind is LinkKind.KEPT for link in links)
        if links and defaults and read <= defaults and not is_kept:
            found.append(other.name)
    return tuple(found)
