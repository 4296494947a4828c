"""Cells of a notebook as parts of a pipeline: what each is, reads, makes and changes."""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.conditions import check_defaults, condition_names
from jupyter_sky.base.requests.cell_options.parsing import parse_cell_line
from jupyter_sky.base.requests.cell_options.values import CellMap, CellOptions
from jupyter_sky.base.translation import _
from jupyter_sky.execution.cells.cell_names import assigned_names, read_names
from jupyter_sky.execution.cells.magic_code import parse_cell
from jupyter_sky.workflows.pipelines.notebook.changed_values import changed_names

_INSTALLING = re.compile(
    r"[%!]\s*(pip|conda|mamba|uv|apt|apt-get|load_ext|reload_ext|autoreload|matplotlib|config)\b"
)
_SKY_LINE = re.compile(r"%%sky\b(.*)")


class Kind(StrEnum):
    """Kind of a cell."""

    SKY = "sky"
    """It runs on its cluster."""
    SETUP = "setup"
    """Imports, definitions and constants: each task that reads them runs them itself."""
    PARAMETERS = "parameters"
    """Tagged so, as papermill has it: values that a run may replace."""
    HERE = "here"
    """Other code that a later cell needs: it runs in the kernel of the run, in the notebook's
    order."""
    SHOW = "show"
    """Nothing that it makes or changes is read later."""
    SKIP = "skip"
    """Tagged so, or it installs: it is not part of a pipeline."""


@dataclass(frozen=True, slots=True)
class PipelineCell:
    """A cell of a notebook.

    Attributes
    ----------
    number
        Its place among the cells of code, from 1.
    id
        Of the cell in the notebook's file.
    kind
        What it is.
    name
        Of the task, as ``--task`` gives it, else ``cell7``.
    body
        Its code, without the line of ``%%sky``.
    options, line
        Of ``%%sky``, and their text; None and empty for other kinds.
    reads, makes, changes
        Names that it reads from elsewhere, that it assigns, and whose values, made elsewhere, it
        may change in place.
    tags
        Of the cell in the notebook's file.
    """

    number: int
    id: str
    kind: Kind
    name: str
    body: str
    options: CellOptions | None = None
    line: str = ""
    reads: frozenset[str] = frozenset()
    makes: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()
    tags: tuple[str, ...] = ()

    @property
    def sent(self) -> tuple[str, ...]:
        """Names that its ``-i`` reads; with none given, all that it reads."""
        if self.options is None or not self.options.inputs:
            return tuple(sorted(self.reads))
        found = [read_names(part.expression) for part in self.options.inputs]
        swept = {each.name for each in self.maps}
        return tuple(dict.fromkeys(name for names in found for name in sorted(names - swept)))

    @property
    def tested(self) -> tuple[str, ...]:
        """Names of other cells that its ``--if`` reads."""
        if self.options is None or not self.options.condition:
            return ()
        swept = {each.name for each in self.maps}
        return tuple(each for each in condition_names(self.options.condition) if each not in swept)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of other cells that it or its condition reads."""
        return tuple(dict.fromkeys((*self.sent, *self.tested)))

    @property
    def maps(self) -> tuple[CellMap, ...]:
        """Names that ``--map`` gives it, with their lists."""
        return self.options.maps if self.options else ()

    @property
    def after(self) -> tuple[str, ...]:
        """Tasks that it waits for beside those whose values it reads."""
        return self.options.after if self.options else ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names that later cells can read: of ``-o``, or all that a cell of the kernel makes."""
        if self.options is None:
            return tuple(sorted(self.makes | self.changes))
        return tuple(output.name for output in self.options.outputs)


def read_source(text: str) -> dict[str, Any]:
    r"""Return a notebook in format 4 from the text of its file.

    Raises
    ------
    ValueError
        It is not one.

    Examples
    --------
    >>> cell = '{"cell_type": "code", "source": ["x = 1\\n", "x"]}'
    >>> read_source('{"nbformat": 4, "cells": [' + cell + "]}")["cells"][0]["source"]
    'x = 1\nx'
    """
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(_("it is not a notebook"))
    if found.get("nbformat") != 4:
        import nbformat  # it takes a second to load

        try:
            return nbformat.reads(text, as_version=4)
        except nbformat.ValidationError as error:
            raise ValueError(str(error)) from error
    for cell in found["cells"]:
        if isinstance(cell["source"], list):
            cell["source"] = "".join(cell["source"])
    return found


def read_cells(notebook: Mapping[str, Any]) -> tuple[PipelineCell, ...]:
    r"""Return the cells of code of a notebook.

    Parameters
    ----------
    notebook
        In format 4, as nbformat reads it.

    Raises
    ------
    SkyUsageError
        A line of ``%%sky`` has an error, or two tasks share a name.

    Examples
    --------
    >>> source = "%%sky --task train -i data -o model\nmodel = fit(data)"
    >>> (cell,) = read_cells({"cells": [{"cell_type": "code", "id": "a", "source": source}]})
    >>> cell.kind, cell.name, cell.inputs, cell.outputs
    (<Kind.SKY: 'sky'>, 'train', ('data',), ('model',))
    """
    found = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells = [_read_cell(number, cell) for number, cell in enumerate(found, 1)]
    cells = [cell for cell in cells if cell.body.strip()]
    names: dict[str, int] = {}
    for cell in cells:
        if names.setdefault(cell.name, cell.number) != cell.number:
            raise SkyUsageError(
                _("cells {first} and {number} are both called {name}").format(
                    first=names[cell.name], number=cell.number, name=cell.name
                ),
                hint=_("give one another --task"),
            )
    return tuple(_find_shown(cells))


def _read_cell(number: int, cell: Mapping[str, Any]) -> PipelineCell:
    source = cell["source"]
    first, __, rest = source.lstrip().partition("\n")
    line = _SKY_LINE.fullmatch(first.strip())
    options = _parse_options(number, line[1]) if line else None
    body = rest if line else source
    name = (options.name if options else None) or f"cell{number}"
    swept = {each.name for each in options.maps} if options else set()
    return PipelineCell(
        number,
        str(cell.get("id", number)),
        _kind_of(body, cell.get("metadata", {}).get("tags", ()), options),
        name,
        body,
        options,
        line[1].strip() if line else "",
        frozenset(read_names(body) - vars(builtins).keys() - swept),
        frozenset(assigned_names(body)),
        frozenset(changed_names(body)),
        tuple(cell.get("metadata", {}).get("tags", ())),
    )


def _parse_options(number: int, line: str) -> CellOptions:
    try:
        options = parse_cell_line(line.strip())
        check_defaults(options)
        return options
    except SkyUsageError as error:
        raise SkyUsageError(
            _("cell {number}: {message}").format(number=number, message=error.message),
            hint=error.hint,
        ) from None


def _kind_of(body: str, tags: Sequence[str], options: CellOptions | None) -> Kind:
    if "skip" in tags:
        return Kind.SKIP
    if options is not None:
        return Kind.SKY
    if "parameters" in tags:
        return Kind.PARAMETERS
    lines = [line.strip() for line in body.splitlines()]
    code = [line for line in lines if line and not line.startswith("#")]
    if all(_INSTALLING.match(line) for line in code):
        return Kind.SKIP
    tree = parse_cell(body)
    return Kind.SETUP if tree is not None and all(map(_is_setup, tree.body)) else Kind.HERE


def _is_setup(node: ast.stmt) -> bool:
    """Whether a statement defines without computing: an import, a definition, a constant."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.Assign(targets=targets, value=value):
            return all(isinstance(part, ast.Name) for part in targets) and _is_constant(value)
        case ast.Expr(value=value):
            return _is_constant(value)
    return False


def _is_constant(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def _find_shown(cells: Sequence[PipelineCell]) -> Iterable[PipelineCell]:
    """Yield the cells; those of the kernel that no later cell needs only show."""
    needed: set[str] = set()
    backwards = []
    for cell in reversed(cells):
        if cell.kind is Kind.HERE and not (cell.makes | cell.changes) & needed:
            cell = replace(cell, kind=Kind.SHOW)
        if cell.kind is not Kind.SKIP:
            needed |= set(cell.inputs) | cell.reads
        backwards.append(cell)
    return reversed(backwards)
