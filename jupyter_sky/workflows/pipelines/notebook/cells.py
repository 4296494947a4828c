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


# -- Values of others that the code of a cell changes in place ------------------------------------
#
# A task works on copies of its inputs. Where a cell changes an input and does not give it back, the
# work is lost without a word; so such changes are found, also through other names of the same
# value, as in ``for frame in [train, test]: frame["x"] = 0``.

_METHODS = frozenset(
    "add append appendleft clear discard extend extendleft fill fit "
    "fit_predict fit_transform insert intersection_update itemset load_state_dict load_weights "
    "partial_fit pop popitem popleft put remove resize reverse rotate set_params setdefault "
    "setflags sort step symmetric_difference_update update difference_update".split()
)
"""Methods that change the value on which they are called, of containers and common libraries."""
_FUNCTIONS = frozenset(
    "heapify heappop heappush heappushpop heapreplace insort setattr shuffle".split()
)
"""Functions that change their first argument."""
_SAME = frozenset(
    "dict enumerate filter iter list map max min next reversed sorted tuple zip".split()
)
"""Functions whose result holds the very values of their arguments."""
_PARTS = frozenset("get items ravel reshape setdefault squeeze transpose values view".split())
"""Methods whose result holds parts of the value on which they are called."""


def changed_names(code: str) -> set[str]:
    """Return the names whose values, made elsewhere, a cell may change in place.

    Parameters
    ----------
    code
        The body of the cell.

    Examples
    --------
    >>> changed_names("for frame in [train, test]: frame['x'] = 0") == {"train", "test"}
    True
    >>> changed_names("train = train.dropna(); train['x'] = 0")
    set()
    """
    tree = parse_cell(code)
    if tree is None:
        return set()
    changes = _Changes(_changed_parameters(tree))
    changes.each(tree.body)
    return changes.changed


def _changed_parameters(tree: ast.Module) -> Mapping[str, tuple[int, ...]]:
    """Return the positions of the parameters that each function of a cell changes."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
            inside = _Changes({})
            inside.each(node.body)
            found[node.name] = tuple(
                index for index, name in enumerate(names) if name in inside.changed
            )
    return found


class _Changes(ast.NodeVisitor):
    """Names of values of others that are changed, statement by statement.

    `origins` has the names made here, each with the names of others whose values it may hold.
    """

    def __init__(self, changed_parameters: Mapping[str, tuple[int, ...]]) -> None:
        self.changed: set[str] = set()
        self._origins: dict[str, set[str]] = {}
        self._changed_parameters = changed_parameters

    def each(self, nodes: Iterable[ast.AST | None]) -> None:
        """Visit nodes in order."""
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _origin(self, node: ast.AST | None) -> set[str]:
        """Return the names of others whose values an expression may give."""
        match node:
            case ast.Name(id=name):
                return self._origins.get(name, {name})
            case ast.Attribute(value=value) | ast.Subscript(value=value):
                return self._origin(value)
            case ast.Starred(value=value) | ast.Await(value=value) | ast.NamedExpr(value=value):
                return self._origin(value)
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return self._union(parts)
            case ast.BoolOp(values=parts) | ast.Dict(values=parts):
                return self._union(parts)
            case ast.IfExp(body=body, orelse=orelse):
                return self._union((body, orelse))
            case ast.Call(func=ast.Name(id=name), args=parts) if name in _SAME:
                return self._union(parts)
            case ast.Call(func=ast.Attribute(attr=name, value=value)) if name in _PARTS:
                return self._origin(value)
        return set()

    def _union(self, nodes: Iterable[ast.AST | None]) -> set[str]:
        return set().union(*(self._origin(node) for node in nodes))

    def _bind(self, target: ast.AST | None, origin: set[str]) -> None:
        if isinstance(target, ast.Name):
            self._origins[target.id] = origin
        elif isinstance(target, ast.Tuple | ast.List):
            for part in target.elts:
                self._bind(part, origin)
        elif isinstance(target, ast.Starred):
            self._bind(target.value, origin)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            self.changed |= self._origin(target.value)
            self.visit(target.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            match target, node.value:
                case ast.Tuple(elts=parts), ast.Tuple(elts=values) if len(parts) == len(values):
                    origins = [self._origin(value) for value in values]
                    for part, origin in zip(parts, origins, strict=True):
                        self._bind(part, origin)
                case __:
                    self._bind(target, self._origin(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._bind(node.target, self._origin(node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._bind(node.target, self._origin(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        if not isinstance(node.target, ast.Name):  # a name is made anew, which others see
            self._bind(node.target, set())

    def visit_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._origins[target.id] = set()
            else:
                self._bind(target, set())

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self.visit(node.iter)
        self._bind(node.target, self._origin(node.iter))
        for __ in range(2):  # what the first round binds, the second may change
            self.each(node.body)
        self.each(node.orelse)

    visit_AsyncFor = visit_For

    def visit_While(self, node: ast.While) -> None:
        self.visit(node.test)
        for __ in range(2):
            self.each(node.body)
        self.each(node.orelse)

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches(node.body, node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        self.each(node.body)
        self._branches(*(handler.body for handler in node.handlers), [])
        self.each((*node.orelse, *node.finalbody))

    def visit_With(self, node: ast.With | ast.AsyncWith) -> None:
        for item in node.items:
            self.visit(item.context_expr)
            self._bind(item.optional_vars, self._origin(item.context_expr))
        self.each(node.body)

    visit_AsyncWith = visit_With

    def _branches(self, *branches: Iterable[ast.AST]) -> None:
        """Visit branches apart; afterwards a name may hold what any of them has bound."""
        before, ends = self._origins, []
        for branch in branches:
            self._origins = dict(before)
            self.each(branch)
            ends.append(self._origins)
        names = {name for end in ends for name in end}
        self._origins = {
            name: set().union(*(end.get(name, {name}) for end in ends)) for name in names
        }

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Count what a function changes of the cell's names as changed: it is called, as a rule."""
        arguments = node.args
        own = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        own += [part for part in (arguments.vararg, arguments.kwarg) if part is not None]
        inside = _Changes(self._changed_parameters)
        inside._origins = {**self._origins, **{argument.arg: set() for argument in own}}
        inside.each(node.body)
        self.changed |= inside.changed
        self._origins[node.name] = set()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._origins[node.name] = set()
        self.each(part for part in node.body if not isinstance(part, ast.FunctionDef))

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            self._origins[(alias.asname or alias.name).partition(".")[0]] = set()

    visit_ImportFrom = visit_Import

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        for keyword in node.keywords:
            if keyword.arg == "out":
                self.changed |= self._origin(keyword.value)
        name = _called_name(node)
        if isinstance(node.func, ast.Attribute):
            is_in_place = any(
                keyword.arg == "inplace" and getattr(keyword.value, "value", False) is True
                for keyword in node.keywords
            )
            of_torch = name.endswith("_") and not name.startswith("_")
            if name in _METHODS or is_in_place or of_torch:
                self.changed |= self._origin(node.func.value)
        if name in _FUNCTIONS and node.args:
            self.changed |= self._origin(node.args[0])
        if isinstance(node.func, ast.Name):
            for index in self._changed_parameters.get(name, ()):
                if index < len(node.args):
                    self.changed |= self._origin(node.args[index])


def _called_name(node: ast.Call) -> str:
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""
