"""Names that the code of a cell reads, and those that it makes."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_sky.execution.cells.magic_code import parse_cell

SHELL_NAMES = frozenset({"In", "Out", "exit", "get_ipython", "open", "quit"})
"""Names of IPython in the namespace of a notebook."""
_RESULT_LISTS = ("Out", "_oh")
_RESULT = re.compile(r"_{1,3}|_\d+")
_OF_SHELL = re.compile(rf"__\w*|_i{{1,3}}|_i\d+|_[dio]h|_exit_code|{'|'.join(SHELL_NAMES)}")


def free_names(code: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the notebook's variables that a cell reads and does not itself make first.

    Parameters
    ----------
    code
        The body; of magics and ``!`` lines the Python in them.

    Examples
    --------
    >>> free_names("y = [x + n for n in data]; print(y)", {"x": 1, "data": [2], "n": 5})
    ['data', 'x']
    """
    return sorted(
        name
        for name in read_names(code)
        if name in namespace and (is_result(name) or not _OF_SHELL.fullmatch(name))
    )


def read_names(code: str) -> set[str]:
    """Return the names that code reads and does not itself make first, builtins among them.

    Examples
    --------
    >>> sorted(read_names("y = [x + n for n in data]; print(y)"))
    ['data', 'print', 'x']
    """
    tree = parse_cell(code)
    if tree is None:
        return set()
    reading = _NameCollector()
    for statement in tree.body:
        reading.visit(statement)
    return reading.names()


def is_result(name: str) -> bool:
    """Return whether IPython keeps the result of a cell under a name.

    Examples
    --------
    >>> [is_result(name) for name in ("_", "___", "_12", "_x")]
    [True, True, True, False]
    """
    return bool(_RESULT.fullmatch(name))


def reads_all_results(code: str) -> bool:
    """Return whether a cell reads the list of results as a whole.

    Examples
    --------
    >>> [reads_all_results(code) for code in ("Out", "len(_oh)", "Out[3]")]
    [True, True, False]
    """
    if not any(name in code for name in _RESULT_LISTS):
        return False
    tree, reading = parse_cell(code), _NameCollector()
    for statement in tree.body if tree else ():
        reading.visit(statement)
    return reading.reads_all_results


def assigned_names(code: str) -> set[str]:
    """Return the names that a cell assigns, defines or imports at its top level.

    Examples
    --------
    >>> sorted(assigned_names("import re; x = 1"))
    ['re', 'x']
    """
    tree = parse_cell(code)
    if tree is None:
        return set()
    reading = _NameCollector()
    for statement in tree.body:
        reading.visit(statement)
    return reading.made


class _NameCollector(ast.NodeVisitor):
    """Names that code reads before it has made them, statement by statement.

    Loops and ``with`` blocks count as run, branches only for what all of them make. What functions
    read counts at the end: they are called after the cell has made its own names, as a rule.
    """

    def __init__(self) -> None:
        self.made: set[str] = set()
        self.read: set[str] = set()
        self.later: set[str] = set()
        self.reads_all_results = False

    def names(self) -> set[str]:
        """Return the names that must come from elsewhere."""
        return self.read | (self.later - self.made)

    def visit_Name(self, node: ast.Name) -> None:
        self.reads_all_results |= node.id in _RESULT_LISTS
        if isinstance(node.ctx, ast.Load):
            self.read |= {node.id} - self.made
        elif isinstance(node.ctx, ast.Store):
            self.made.add(node.id)
        else:
            self.made.discard(node.id)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        number = getattr(node.slice, "value", None)
        is_result = isinstance(node.value, ast.Name) and node.value.id in _RESULT_LISTS
        if is_result and isinstance(number, int):
            self.read.add(f"_{number}")
        else:
            self.generic_visit(node)

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
