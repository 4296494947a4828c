"""Inputs of a cell: named with ``-i``, or found by reading the cell (``--auto``)."""

from __future__ import annotations

import ast
import os
import symtable
from collections.abc import Iterable, Mapping
from typing import Any

from ..cell_options.values import CellInput, CellOptions
from ..config.settings import Sky
from ..engines.wire.values import Parcel
from ..errors import SkyUsageError, suggest
from .transfer import RemoteValue, is_inline
from .values import Sending

_SHELL_SYNTAX = {"In", "Out", "exit", "get_ipython", "open", "quit"}


def collect_inputs(
    options: CellOptions, code: str, namespace: Mapping[str, Any], config: Sky
) -> Sending:
    """Evaluate and pickle the inputs of a cell.

    Raises
    ------
    SkyUsageError
        A name or an environment variable does not exist here.
    SkyTransferError
        A value cannot be pickled; says which part of it, and why.
    """
    inputs, notes = list(options.inputs), list[str]()
    if config.auto_inputs if options.auto is None else options.auto:
        named = {item.name for item in inputs}
        found = [name for name in free_names(code, namespace) if name not in named]
        inputs += [CellInput(name, name) for name in found]
        if found:
            notes.append(f"sent by --auto: {', '.join(found)}")
    inline: dict[str, dict[str, Any]] = {}
    large: dict[str, Parcel] = {}
    remote: dict[str, list[RemoteValue]] = {}
    types: list[type] = []
    for item in inputs:
        value = _evaluate(item.expression, namespace)
        handles = value if isinstance(value, list) else [value]
        if handles and all(isinstance(handle, RemoteValue) for handle in handles):
            remote[item.name] = handles
            continue
        types.append(type(value))
        parcel = Parcel.of(value, item.expression)
        if is_inline(parcel):
            inline[item.name] = parcel.inline()
        else:
            large[item.name] = parcel
    env = {name: _read_variable(name) for name in options.env}
    return Sending(code, options, inline, large, remote, env, tuple(notes), tuple(types))


def _read_variable(name: str) -> str:
    """Return an environment variable of this machine."""
    if name not in os.environ:
        raise SkyUsageError(
            f"--env {name}: it is not set here",
            hint=f"set it before the kernel starts, or os.environ[{name!r}] = getpass()",
        )
    return os.environ[name]


def _evaluate(expression: str, namespace: Mapping[str, Any]) -> Any:
    if expression in namespace:
        return namespace[expression]
    if expression.isidentifier():
        names = [
            name for name in namespace if not name.startswith("_") and name not in _SHELL_SYNTAX
        ]
        raise SkyUsageError(
            f"-i {expression}: there is no variable {expression!r} in this notebook",
            hint=suggest(expression, names) if names else "run the cell that makes it first",
        )
    try:
        return eval(expression, dict(namespace))
    except Exception as error:
        raise SkyUsageError(f"-i {expression}: {type(error).__name__}: {error}") from None


def free_names(code: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the notebook's variables that a cell reads and does not itself make first.

    Parameters
    ----------
    code
        The body, as Python (magics and ``!`` lines are skipped).

    Examples
    --------
    >>> free_names("y = [x + n for n in data]; print(y)", {"x": 1, "data": [2], "n": 5})
    ['data', 'x']
    """
    try:
        tree = ast.parse(to_plain_python(code))
    except SyntaxError:
        return []
    reading = _NameCollector()
    for statement in tree.body:
        reading.visit(statement)
    return sorted(
        name
        for name in reading.names()
        if name in namespace and not name.startswith("_") and name not in _SHELL_SYNTAX
    )


def assigned_names(code: str) -> set[str]:
    """Return the names that a cell assigns, defines or imports at its top level.

    Examples
    --------
    >>> sorted(assigned_names("import re; x = 1"))
    ['re', 'x']
    """
    try:
        tree = ast.parse(to_plain_python(code))
    except SyntaxError:
        return set()
    reading = _NameCollector()
    for statement in tree.body:
        reading.visit(statement)
    return reading.made


def to_plain_python(code: str) -> str:
    """Return the code with IPython's own syntax turned into Python."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(code)


class _NameCollector(ast.NodeVisitor):
    """Names that code reads before it has made them, statement by statement.

    Loops and ``with`` blocks count as run, branches only for what all of them make. What functions
    read counts at the end: they are called after the cell has made its own names, as a rule.
    """

    def __init__(self) -> None:
        self.made: set[str] = set()
        self.read: set[str] = set()
        self.later: set[str] = set()

    def names(self) -> set[str]:
        """Return the names that must come from elsewhere."""
        return self.read | (self.later - self.made)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self.read |= {node.id} - self.made
        elif isinstance(node.ctx, ast.Store):
            self.made.add(node.id)
        else:
            self.made.discard(node.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._each(node.value, *node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._each(node.annotation, node.value)
        if node.value is not None:
            self.visit(node.target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.read |= {node.target.id} - self.made
        self._each(node.value, node.target)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self._each(node.value, node.target)

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._each(node.iter, node.target, *node.body, *node.orelse)

    visit_AsyncFor = visit_For

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._branches(node.body, node.orelse)

    def visit_Match(self, node: ast.Match) -> None:
        self.visit(node.subject)
        self._branches(*([case] for case in node.cases), [])

    def visit_match_case(self, node: ast.match_case) -> None:
        bound = {
            name
            for pattern in ast.walk(node.pattern)
            for name in (getattr(pattern, "name", None), getattr(pattern, "rest", None))
            if isinstance(name, str)
        }
        self.made |= bound
        self._each(node.pattern, node.guard, *node.body)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._each(node.type)
        before = set(self.made)
        self.made |= {node.name} if node.name else set()
        self._each(*node.body)
        self.made = before

    def visit_alias(self, node: ast.alias) -> None:
        self.made.add((node.asname or node.name).partition(".")[0])

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        arguments = node.args
        self._each(*node.decorator_list, *arguments.defaults, *arguments.kw_defaults)
        self._inside(node)
        self.made.add(node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._each(*node.args.defaults, *node.args.kw_defaults)
        self._inside(ast.Expr(node))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._each(*node.decorator_list, *node.bases, *(word.value for word in node.keywords))
        inside = _NameCollector()
        inside.made = set(self.made)
        inside._each(*node.body)
        self.read |= inside.read
        self.later |= inside.later
        self.made.add(node.name)

    def _comprehension(self, node: Any) -> None:
        before = set(self.made)
        for generator in node.generators:
            self._each(generator.iter, generator.target, *generator.ifs)
        self._each(*(getattr(node, part, None) for part in ("elt", "key", "value")))
        targets = (part for generator in node.generators for part in ast.walk(generator.target))
        self.made -= {part.id for part in targets if isinstance(part, ast.Name)} - before

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def _each(self, *nodes: ast.AST | None) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _branches(self, *branches: Iterable[ast.AST]) -> None:
        before, after = self.made, []
        for branch in branches:
            self.made = set(before)
            self._each(*branch)
            after.append(self.made)
        self.made = set.intersection(*after)

    def _inside(self, node: ast.stmt) -> None:
        """Note the globals that a function reads when it is called."""
        text = ast.unparse(ast.Module([node], []))
        pending = symtable.symtable(text, "cell", "exec").get_children()
        while pending:
            table = pending.pop()
            pending += table.get_children()
            symbols = table.get_symbols()
            self.later |= {s.get_name() for s in symbols if s.is_referenced() and s.is_global()}
