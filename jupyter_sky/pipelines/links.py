"""Links between the cells of a pipeline, and what is wrong with them.

A pipeline means what running all cells in order would give: a name comes from the nearest earlier
cell that makes it. Only where independence is known are cells free to run at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from ..errors import suggest
from ..translation import _
from .cells import Kind, PipelineCell

_TASKS = (Kind.SKY, Kind.HERE, Kind.SHOW)
"""Kinds that run once in a pipeline."""


class LinkKind(StrEnum):
    """Why a task follows another."""

    DATA = "data"
    """It reads a value that the other makes."""
    ORDER = "order"
    """Both run in the kernel, in the notebook's order."""
    KEPT = "kept"
    """It reads a variable that the other leaves on the cluster which they share."""


@dataclass(frozen=True, slots=True)
class Link:
    """A task that follows another.

    Attributes
    ----------
    producer, consumer
        Names of the tasks.
    name
        Of the value; empty for a link of order.
    kind
        Why.
    """

    producer: str
    consumer: str
    name: str = ""
    kind: LinkKind = LinkKind.DATA


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or may be.

    Attributes
    ----------
    cell
        Number of the cell.
    text
        What is found.
    hint
        What to do.
    is_error
        Whether the pipeline cannot be run with it.
    """

    cell: int
    text: str
    hint: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Cells of a notebook with their links.

    Attributes
    ----------
    cells
        All cells of code, in the notebook's order.
    links, findings
        Of its tasks.
    """

    cells: tuple[PipelineCell, ...]
    links: tuple[Link, ...]
    findings: tuple[Finding, ...]

    @property
    def tasks(self) -> tuple[PipelineCell, ...]:
        """Return the cells that run once."""
        return tuple(cell for cell in self.cells if cell.kind in _TASKS)

    def definitions(self, task: PipelineCell) -> tuple[PipelineCell, ...]:
        """Return the cells of definitions and parameters that a task needs, in order."""
        needed, found = set(task.reads) | set(task.inputs), []
        for cell in reversed(self.cells[: self.cells.index(task)]):
            if cell.kind in (Kind.SETUP, Kind.PARAMETERS) and cell.makes & needed:
                needed |= cell.reads
                found.append(cell)
        return tuple(reversed(found))


def link_cells(cells: Sequence[PipelineCell]) -> Pipeline:
    r"""Return cells with the links between their tasks.

    Examples
    --------
    >>> from .cells import read_cells
    >>> sources = ["%%sky --name a -o x\nx = 1", "%%sky --name b -i x -o y\ny = x"]
    >>> cells = [{"cell_type": "code", "source": source} for source in sources]
    >>> link_cells(read_cells({"cells": cells})).links
    (Link(producer='a', consumer='b', name='x', kind=<LinkKind.DATA: 'data'>),)
    """
    links: dict[Link, None] = {}
    findings: list[Finding] = []
    for index, cell in enumerate(cells):
        if cell.kind in _TASKS:
            links |= dict.fromkeys(_links_of(cells, index))
            findings += _find_missing(cells, index)
            findings += _find_lost_changes(cells, index)
    return Pipeline(tuple(cells), tuple(links), tuple(findings))


def _links_of(cells: Sequence[PipelineCell], index: int) -> Iterator[Link]:
    cell, before = cells[index], cells[:index]
    for name in cell.inputs:
        producer = _nearest(before, name)
        if producer is not None and producer.kind in _TASKS:
            yield Link(producer.name, cell.name, name)
    if cell.options is None:
        lane = [other for other in before if other.kind in (Kind.HERE, Kind.SHOW)]
        if lane:
            yield Link(lane[-1].name, cell.name, kind=LinkKind.ORDER)
        return
    sent = cell.inputs if cell.options.inputs else ()
    for name in sorted(cell.reads.difference(sent)):
        if _nearest(before, name) is None and (other := _keeper(before, cell, name)):
            yield Link(other.name, cell.name, name, LinkKind.KEPT)


def _nearest(cells: Sequence[PipelineCell], name: str) -> PipelineCell | None:
    """Return the nearest earlier cell that gives a name."""
    return next((cell for cell in reversed(cells) if name in cell.outputs), None)


def _keeper(cells: Sequence[PipelineCell], cell: PipelineCell, name: str) -> PipelineCell | None:
    """Return the nearest earlier cell that leaves a variable on the cluster of another."""
    cluster = cell.options.cluster if cell.options else None
    earlier = (o for o in reversed(cells) if o.options and o.options.cluster == cluster)
    return next((other for other in earlier if name in other.makes), None)


def _find_missing(cells: Sequence[PipelineCell], index: int) -> Iterator[Finding]:
    """Yield what a cell asks for with ``-i`` and no earlier cell gives."""
    cell = cells[index]
    if cell.options is None or not cell.options.inputs:
        return
    for name in cell.inputs:
        if _nearest(cells[:index], name) is not None:
            continue
        later = next((other for other in cells[index + 1 :] if name in other.outputs), None)
        if later is not None:
            yield Finding(
                cell.number,
                _("{cell} (cell {number}) needs {name}, made in cell {later}").format(
                    cell=cell.name, number=cell.number, name=name, later=later.number
                ),
                _("move cell {later} above it").format(later=later.number),
                is_error=True,
            )
            continue
        hidden = next((o for o in reversed(cells[:index]) if name in o.makes), None)
        known = [output for other in cells[:index] for output in other.outputs]
        yield Finding(
            cell.number,
            _("{cell} (cell {number}) needs {name}, which no cell gives").format(
                cell=cell.name, number=cell.number, name=name
            ),
            _advise_output(hidden, name) if hidden else suggest(name, known),
            is_error=True,
        )


def _advise_output(cell: PipelineCell, name: str) -> str:
    return _("add -o {name} to {cell} (cell {number})").format(
        name=name, cell=cell.name, number=cell.number
    )


def _find_lost_changes(cells: Sequence[PipelineCell], index: int) -> Iterator[Finding]:
    """Yield what a cell changes, does not give back, and a later cell reads."""
    cell = cells[index]
    if cell.kind is not Kind.SKY:
        return
    for name in sorted(cell.changes & set(cell.inputs) - set(cell.outputs)):
        for other in cells[index + 1 :]:
            if name in other.inputs:
                yield Finding(
                    cell.number,
                    _("{cell} changes {name} in place, and {other} reads it unchanged").format(
                        cell=cell.name, name=name, other=other.name
                    ),
                    _advise_output(cell, name),
                )
                break
            if name in other.outputs:
                break
