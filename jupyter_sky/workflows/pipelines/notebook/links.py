"""Links between the cells of a pipeline, and what is wrong with them.

A pipeline means what running all cells in order would give: a name comes from the nearest earlier
cell that makes it. Only where independence is known are cells free to run at once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from jupyter_sky.base.errors import suggest
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.magic_code import to_plain_python
from jupyter_sky.workflows.pipelines.notebook.cells import Kind, PipelineCell

_TASKS = (Kind.SKY, Kind.HERE, Kind.SHOW)
"""Kinds that run once in a pipeline."""
_Before = Mapping[str, AbstractSet[str]]
"""Tasks that end before each."""


class LinkKind(StrEnum):
    """Why a task follows another."""

    DATA = "data"
    """It reads a value that the other makes."""
    ORDER = "order"
    """Both run in the kernel, in the notebook's order."""
    KEPT = "kept"
    """It reads a variable that the other leaves on the cluster which they share."""
    AFTER = "after"
    """Its author says so with ``--after``; it may name a later cell."""

    @property
    def is_of_one_cluster(self) -> bool:
        """Whether both tasks must run on the same cluster."""
        return self in (LinkKind.ORDER, LinkKind.KEPT)


@dataclass(frozen=True, slots=True)
class Link:
    """A task that follows another.

    Attributes
    ----------
    producer, consumer
        Names of the tasks.
    name
        Of the value; empty for a link of order alone.
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
    loses_work
        Whether it would run, and what a cell has done would be lost without a word.
    """

    cell: int
    text: str
    hint: str
    is_error: bool = False
    loses_work: bool = False


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
        needed, found = set(task.reads) | set(task.sent), []
        for cell in reversed(self.cells[: self.cells.index(task)]):
            if cell.kind in (Kind.SETUP, Kind.PARAMETERS) and cell.makes & needed:
                needed |= cell.reads
                found.append(cell)
        return tuple(reversed(found))


def link_cells(cells: Sequence[PipelineCell]) -> Pipeline:
    r"""Return cells with the links between their tasks.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
    >>> sources = ["%%sky --name a -o x\nx = 1", "%%sky --name b -i x -o y\ny = x"]
    >>> cells = [{"cell_type": "code", "source": source} for source in sources]
    >>> link_cells(read_cells({"cells": cells})).links
    (Link(producer='a', consumer='b', name='x', kind=<LinkKind.DATA: 'data'>),)
    """
    links: dict[Link, None] = {}
    findings: list[Finding] = []
    order = _order_tasks(cells)
    for index, cell in enumerate(cells):
        if cell.kind in _TASKS:
            links |= dict.fromkeys(_links_of(cells, index, order))
            findings += _find_bag(cell)
            findings += _find_syntax_error(cell)
            findings += _find_unknown_tasks(cells, cell)
            findings += _find_missing(cells, index, order)
            findings += _find_lost_changes(cells, index)
    findings += _find_kept_sweeps(cells, tuple(links))
    cycle = _find_cycle(cells, tuple(links))
    return Pipeline(tuple(cells), tuple(links), (*cycle, *findings))


def _links_of(cells: Sequence[PipelineCell], index: int, order: _Before) -> Iterator[Link]:
    cell, before = cells[index], cells[:index]
    for name in cell.inputs:
        for producer in _producers(cells, index, name, order):
            if producer.kind in _TASKS:
                yield Link(producer.name, cell.name, name)
    tasks = {other.name for other in cells if other.kind in _TASKS}
    for name in cell.after:
        if name in tasks:
            yield Link(name, cell.name, kind=LinkKind.AFTER)
    if cell.options is None:
        local_cells = [other for other in before if other.kind in (Kind.HERE, Kind.SHOW)]
        if local_cells:
            yield Link(local_cells[-1].name, cell.name, kind=LinkKind.ORDER)
        return
    sent = cell.sent if cell.options.inputs else ()
    for name in sorted(cell.reads.difference(sent)):
        if _nearest(before, name) is None and (other := _cell_with(before, cell, name)):
            yield Link(other.name, cell.name, name, LinkKind.KEPT)


def _producers(
    cells: Sequence[PipelineCell], index: int, name: str, before: _Before
) -> list[PipelineCell]:
    """Return the cells that can give a name: the nearest earlier one, then later ones.

    Later cells come before this one where ``--after`` says so. Those that a candidate follows are
    left out, since what they give is replaced; where several are left, order does not tell.
    """
    nearest = _nearest(cells[:index], name)
    later = [
        other
        for other in cells[index + 1 :]
        if name in other.outputs and other.name in before.get(cells[index].name, ())
    ]
    found = [*([nearest] if nearest else []), *later]
    replaced = set[str]()
    for cell in found:
        replaced |= before.get(cell.name, set()) - {cell.name}
    return [cell for cell in found if cell.name not in replaced] or found


def _order_tasks(cells: Sequence[PipelineCell]) -> _Before:
    """Return the tasks that end before each, if any is to run after one that is written later.

    Else the notebook's order is all that is needed, and nothing is returned.
    """
    places = {cell.name: place for place, cell in enumerate(cells)}
    if all(places.get(name, -1) < places[cell.name] for cell in cells for name in cell.after):
        return {}
    direct = {}
    for place, cell in enumerate(cells):
        nearest = (_nearest(cells[:place], name) for name in cell.inputs)
        named = {name for name in cell.after if name in places}
        direct[cell.name] = named | {other.name for other in nearest if other}
    return {name: _all_before(direct, name) for name in direct}


def _all_before(direct: _Before, task: str) -> set[str]:
    found: set[str] = set()
    waiting = [task]
    while waiting:
        added = direct[waiting.pop()] - found
        found |= added
        waiting += added
    return found


def _nearest(cells: Sequence[PipelineCell], name: str) -> PipelineCell | None:
    """Return the nearest earlier cell that gives a name."""
    return next((cell for cell in reversed(cells) if name in cell.outputs), None)


def _cell_with(cells: Sequence[PipelineCell], cell: PipelineCell, name: str) -> PipelineCell | None:
    """Return the nearest earlier cell that leaves a variable on the cluster of another."""
    cluster = cell.options.cluster if cell.options else None
    earlier = (o for o in reversed(cells) if o.options and o.options.cluster == cluster)
    return next((other for other in earlier if name in other.makes), None)


def _find_bag(cell: PipelineCell) -> Iterator[Finding]:
    """Find a cell that is a bag of jobs, which has a queue of its own."""
    if cell.options and cell.options.ranges:
        yield Finding(
            cell.number,
            _("cell {cell} with --sweep is a bag of jobs, and no task").format(cell=cell.name),
            _("--map makes a task of each value"),
            is_error=True,
        )


def _find_syntax_error(cell: PipelineCell) -> Iterator[Finding]:
    """Find code that no machine can run."""
    if cell.options and cell.options.sql:
        return
    try:
        ast.parse(to_plain_python(cell.body))
    except SyntaxError as error:
        yield Finding(
            cell.number,
            _("{cell} (cell {number}), line {line}: {error}").format(
                cell=cell.name, number=cell.number, line=error.lineno, error=error.msg
            ),
            _("mend it: running all cells ends there"),
            is_error=True,
        )


def _find_unknown_tasks(cells: Sequence[PipelineCell], cell: PipelineCell) -> Iterator[Finding]:
    """Yield what ``--after`` names and is no task."""
    tasks = [other.name for other in cells if other.kind in _TASKS and other is not cell]
    for name in cell.after:
        if name not in tasks and name != cell.name:
            yield Finding(
                cell.number,
                _("{cell} (cell {number}) is to run after {name}, which is no task").format(
                    cell=cell.name, number=cell.number, name=name
                ),
                suggest(name, tasks),
                is_error=True,
            )


def _find_cycle(cells: Sequence[PipelineCell], links: Sequence[Link]) -> Iterator[Finding]:
    """Yield tasks that wait for each other, with the ``--after`` that is to be dropped."""
    producers: Mapping[str, list[str]] = {
        cell.name: [link.producer for link in links if link.consumer == cell.name] for cell in cells
    }
    try:
        TopologicalSorter(producers).prepare()
    except CycleError as error:
        path = error.args[1]
        steps = set(pairwise(path))
        places = {cell.name: place for place, cell in enumerate(cells)}
        backward = [
            link
            for link in links
            if link.kind is LinkKind.AFTER and places[link.producer] >= places[link.consumer]
        ]
        # one of them is the cause, if not as a step then of a value that comes from a later cell
        among = [link for link in backward if (link.producer, link.consumer) in steps]
        dropped = (among or backward)[0]
        yield Finding(
            cells[places[dropped.consumer]].number,
            _("{path} wait for each other").format(path=" → ".join(path))
            if len(steps) > 1
            else _("{cell} waits for itself").format(cell=path[0]),
            _("drop --after {producer} in {cell} (cell {number})").format(
                producer=dropped.producer,
                cell=dropped.consumer,
                number=cells[places[dropped.consumer]].number,
            ),
            is_error=True,
        )


def _find_missing(cells: Sequence[PipelineCell], index: int, order: _Before) -> Iterator[Finding]:
    """Yield what a cell asks for with ``-i`` and no cell gives it, or several do."""
    cell = cells[index]
    if cell.options is None:
        return
    for name in cell.inputs:
        producers = _producers(cells, index, name, order)
        if len(producers) > 1:
            yield _ambiguous(cell, name, producers)
        is_asked = name in cell.tested or (cell.options.inputs and name in cell.sent)
        if producers or not is_asked:
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


def _ambiguous(cell: PipelineCell, name: str, producers: Sequence[PipelineCell]) -> Finding:
    given = _(" and ").join(f"{other.name} (cell {other.number})" for other in producers)
    return Finding(
        cell.number,
        _("{cell} (cell {number}) needs {name}, given by {producers} in no order").format(
            cell=cell.name, number=cell.number, name=name, producers=given
        ),
        _("say which is the last: --after {first} in {last}").format(
            first=producers[0].name, last=producers[-1].name
        ),
        is_error=True,
    )


def _advise_output(cell: PipelineCell, name: str) -> str:
    return _("add -o {name} to {cell} (cell {number})").format(
        name=name, cell=cell.name, number=cell.number
    )


def _find_kept_sweeps(cells: Sequence[PipelineCell], links: Sequence[Link]) -> Iterator[Finding]:
    """Yield variables that a cell is to find on a cluster, though several tasks make them."""
    by_name = {cell.name: cell for cell in cells}
    for link in links:
        producer, consumer = by_name[link.producer], by_name[link.consumer]
        if link.kind is LinkKind.KEPT and producer.maps:
            yield Finding(
                consumer.number,
                _("{cell} (cell {number}) reads {name}, which each task of {producer} has").format(
                    cell=consumer.name,
                    number=consumer.number,
                    name=link.name,
                    producer=producer.name,
                ),
                _advise_output(producer, link.name),
                is_error=True,
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
                    loses_work=True,
                )
                break
            if name in other.outputs:
                break
