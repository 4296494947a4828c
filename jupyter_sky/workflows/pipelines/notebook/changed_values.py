"""Values of others that the code of a cell changes in place.

A task works on copies of its inputs. Where a cell changes an input and does not give it back, the
work is lost without a word; so such changes are found, also through other names of the same value,
as in ``for frame in [train, test]: frame["x"] = 0``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from jupyter_sky.execution.cells.magic_code import parse_cell

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
