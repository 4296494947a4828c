"""Sweeps: cells that ``--map`` makes several tasks of, one for each value.

The values are known before the run, so that all tasks are planned as one: they are written in the
line, or in a cell of parameters or constants.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.requests.cell_options.sweep import MAP_HINT, read_written
from jupyter_sky.base.requests.cell_options.values import CellMap
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.magic_code import parse_cell
from jupyter_sky.workflows.pipelines.notebook.cells import Kind, PipelineCell
from jupyter_sky.workflows.pipelines.notebook.links import Pipeline

MAX_TASKS = 10_000
"""Tasks that one cell may become."""
AT_ONCE = 8
"""Tasks of one cell that run side by side unless ``--at-once`` says otherwise."""
_LABEL_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class CellTask:
    """A task that a cell becomes.

    Attributes
    ----------
    name
        Of the cell, with its values: ``fit[lr=0.1]``.
    values
        Of the names that ``--map`` gives; empty for a cell without it.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)


def expand_cells(
    pipeline: Pipeline, parameters: Mapping[str, Any]
) -> dict[str, tuple[CellTask, ...]]:
    r"""Return the tasks that each cell of a pipeline becomes, by the name of the cell.

    Parameters
    ----------
    pipeline
        The cells.
    parameters
        Values of the run: a list in place of that of a ``--map`` of its name, others in place of
        those of the cell of parameters.

    Raises
    ------
    SkyUsageError
        A list is empty or too long, is computed as the notebook runs, or has a value that cannot be
        written in a notebook.

    Examples
    --------
    >>> from jupyter_sky.workflows.pipelines.notebook.cells import read_cells
    >>> from jupyter_sky.workflows.pipelines.notebook.links import link_cells
    >>> source = "%%sky --task fit --map lr=[0.1,0.01] -o score\nscore = 1 - lr"
    >>> cells = read_cells({"cells": [{"cell_type": "code", "source": source}]})
    >>> [task.name for task in expand_cells(link_cells(cells), {})["fit"]]
    ['fit[lr=0.1]', 'fit[lr=0.01]']
    """
    return {cell.name: _expand(pipeline, cell, parameters) for cell in pipeline.tasks}


def _expand(
    pipeline: Pipeline, cell: PipelineCell, parameters: Mapping[str, Any]
) -> tuple[CellTask, ...]:
    title = _("{cell} (cell {number})").format(cell=cell.name, number=cell.number)
    return expand_maps(
        cell.name,
        title,
        cell.maps,
        parameters,
        lambda name: constant_value(pipeline, cell, name, parameters),
    )


def expand_maps(
    cell: str,
    title: str,
    maps: Sequence[CellMap],
    given: Mapping[str, Any],
    constant: Callable[[str], Any],
) -> tuple[CellTask, ...]:
    """Return the tasks that the options ``--map`` of a cell make of it.

    Parameters
    ----------
    cell, title
        Its name, and what messages call it.
    maps
        Of its options.
    given
        Lists in place of those of the options.
    constant
        Returns the value of a name that a list is written as; a ValueError says that it is
        computed.

    Raises
    ------
    SkyUsageError
        As `expand_cells` says.

    Examples
    --------
    >>> maps = [CellMap("lr", "[1, 2]"), CellMap("kind", "[adam, sgd]")]
    >>> [task.name for task in expand_maps("fit", "fit", maps, {}, {}.__getitem__)][:2]
    ['fit[lr=1,kind=adam]', 'fit[lr=1,kind=sgd]']
    """
    if not maps:
        return (CellTask(cell),)
    lists = [_read_list(title, each, given, constant) for each in maps]
    count = prod(map(len, lists))
    if count > MAX_TASKS:
        raise SkyUsageError(
            _("{title} would be {count:,} tasks, and {most:,} is the most").format(
                title=title, count=count, most=MAX_TASKS
            ),
            hint=_("take several values into one task, as a list of lists"),
        )
    for each, values in zip(maps, lists, strict=True):
        _check_values(title, each, values)
    labels = [_label_values(each.name, values) for each, values in zip(maps, lists, strict=True)]
    return tuple(
        CellTask(
            f"{cell}[{','.join(label)}]",
            {each.name: value for each, value in zip(maps, values, strict=True)},
        )
        for label, values in zip(product(*labels), product(*lists), strict=True)
    )


def _read_list(
    title: str, each: CellMap, given: Mapping[str, Any], constant: Callable[[str], Any]
) -> Sequence[Any]:
    """Return the values of a name: given, or as they are written."""
    if each.name in given:
        values, source = given[each.name], f"{each.name}={given[each.name]!r}"
    else:
        source = f"--map {each.name}={each.expression}"
        try:
            values = _evaluate(each.expression, constant)
        except SkyUsageError:
            raise
        except (TypeError, ValueError):
            raise SkyUsageError(
                _("{title}: {source} is computed").format(title=title, source=source),
                hint=_("write the values, range(...), or the name of a parameter"),
            ) from None
    if hasattr(values, "tolist"):  # of numpy and pandas
        values = values.tolist()
    if not isinstance(values, list | tuple | range):
        raise SkyUsageError(
            _("{title}: {source} is not a list of values").format(title=title, source=source),
            hint=MAP_HINT,
        )
    if not values:
        raise SkyUsageError(
            _("{title}: {source} is empty").format(title=title, source=source),
            hint=_("without a value there is nothing to run: give one or more"),
        )
    return values


def _evaluate(expression: str, constant: Callable[[str], Any]) -> Any:
    """Return the value of a list as it is written: itself, ``range(...)`` or a constant's name."""
    node = ast.parse(expression, mode="eval").body
    match node:
        case ast.Name(id=name):
            return constant(name)
        case ast.Call(func=ast.Name(id="range"), args=arguments, keywords=[]):
            return range(*map(ast.literal_eval, arguments))
    return read_written(node)


def constant_value(
    pipeline: Pipeline, cell: PipelineCell, name: str, parameters: Mapping[str, Any]
) -> Any:
    """Return the value of a name that a cell of parameters or constants gives.

    Parameters
    ----------
    pipeline, cell
        The notebook, and the cell that reads the name.
    parameters
        Values in place of those of the cell of parameters.

    Raises
    ------
    ValueError
        It is computed by the cell.
    """
    fixed = (Kind.PARAMETERS, Kind.SETUP)
    before = pipeline.cells[: pipeline.cells.index(cell)]
    found = next((other for other in reversed(before) if name in other.makes), None)
    if found is None:
        known = {known for other in before if other.kind in fixed for known in other.makes}
        raise SkyUsageError(
            _("{cell} (cell {number}) sweeps over {name}, which no cell above gives").format(
                cell=cell.name, number=cell.number, name=name
            ),
            hint=suggest(name, sorted(known)),
        )
    if found.kind not in fixed:
        raise SkyUsageError(
            _("{cell} (cell {number}) sweeps over {name}, known only as cell {other} runs").format(
                cell=cell.name, number=cell.number, name=name, other=found.number
            ),
            hint=_("write the values, or make {name} a parameter").format(name=name),
        )
    if found.kind is Kind.PARAMETERS and name in parameters:
        return parameters[name]
    return written_value(found.body, name)


def written_value(code: str, name: str) -> Any:
    """Return the value that a cell gives a name, where it is written there.

    Raises
    ------
    ValueError
        It is computed.

    Examples
    --------
    >>> written_value("lr: float = 0.1", "lr")
    0.1
    """
    tree = parse_cell(code)
    for statement in reversed(tree.body if tree else ()):
        match statement:
            case ast.Assign(targets=targets, value=value):
                if any(isinstance(part, ast.Name) and part.id == name for part in targets):
                    return ast.literal_eval(value)
            case ast.AnnAssign(target=ast.Name(id=assigned), value=ast.expr() as value):
                if assigned == name:
                    return ast.literal_eval(value)
    raise ValueError(name)


def _check_values(title: str, each: CellMap, values: Sequence[Any]) -> None:
    for place, value in enumerate(values, 1):
        try:
            is_written = ast.literal_eval(repr(value)) == value
        except (SyntaxError, ValueError):
            is_written = False
        if not is_written:
            raise SkyUsageError(
                _(
                    "{title}: value {place} of {name}, {value!r}, cannot be written in a notebook"
                ).format(title=title, name=each.name, place=place, value=value),
                hint=_("numbers, texts, True, False, None, and lists and dicts of these"),
            )


def _label_values(name: str, values: Sequence[Any]) -> list[str]:
    """Return a text for each value; one that is long, or like another's, by its place."""
    labels: dict[str, None] = {}
    for place, value in enumerate(values, 1):
        text = value if isinstance(value, str) else repr(value)
        is_short = len(text) <= _LABEL_CHARACTERS and re.fullmatch(r"[\w.+:-]+", text)
        label = f"{name}={text}"
        labels[label if is_short and label not in labels else f"{name}=#{place}"] = None
    return list(labels)
