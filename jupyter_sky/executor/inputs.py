"""What a cell takes along: named with ``-i``, or found by reading the cell (``--auto``)."""

from __future__ import annotations

import ast
import builtins
import os
import symtable
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..config import Sky
from ..engines.values import Parcel
from ..errors import SkyUsageError, suggest
from .request import CellOptions, Input
from .transfer import RemoteValue, inline, is_inline

_SHELL = {"In", "Out", "exit", "get_ipython", "open", "quit"}


@dataclass(slots=True)
class Sending:
    """Inputs ready to go: pickled before any money is spent.

    Attributes
    ----------
    inline
        Small values, which ride with the cell.
    large
        Parcels that go ahead of it.
    handles
        Values that are on a cluster already: one, or one for each engine.
    env
        Environment variables; they go to the engine and nowhere else.
    notes
        What the user should know.
    """

    inline: dict[str, dict[str, Any]] = field(default_factory=dict)
    large: dict[str, Parcel] = field(default_factory=dict)
    handles: dict[str, list[RemoteValue]] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def collect(options: CellOptions, code: str, namespace: Mapping[str, Any], config: Sky) -> Sending:
    """Evaluate and pickle what a cell takes along.

    Raises
    ------
    SkyUsageError
        A name or an environment variable does not exist here.
    SkyTransferError
        A value cannot be pickled; says which part of it, and why.
    """
    sending, inputs = Sending(), list(options.inputs)
    auto = config.auto if options.auto is None else options.auto
    if auto:
        named = {item.name for item in inputs}
        found = [name for name in names_read(code, namespace) if name not in named]
        inputs += [Input(name, name) for name in found]
        if found:
            sending.notes.append(f"sent by --auto: {', '.join(found)}")
    for item in inputs:
        value = _evaluate(item.expression, namespace)
        handles = value if isinstance(value, list) else [value]
        if handles and all(isinstance(handle, RemoteValue) for handle in handles):
            sending.handles[item.name] = handles
            continue
        parcel = Parcel.of(value, item.expression)
        if is_inline(parcel):
            sending.inline[item.name] = inline(parcel)
        else:
            sending.large[item.name] = parcel
    for name in options.env:
        if name not in os.environ:
            raise SkyUsageError(
                f"--env {name}: it is not set here",
                hint=f"set it before the kernel starts, or os.environ[{name!r}] = getpass()",
            )
        sending.env[name] = os.environ[name]
    return sending


def _evaluate(expression: str, namespace: Mapping[str, Any]) -> Any:
    if expression in namespace:
        return namespace[expression]
    if expression.isidentifier():
        names = [name for name in namespace if not name.startswith("_") and name not in _SHELL]
        raise SkyUsageError(
            f"-i {expression}: there is no variable {expression!r} in this notebook",
            hint=suggest(expression, names) if names else "run the cell that makes it first",
        )
    try:
        return eval(expression, dict(namespace))
    except Exception as error:
        raise SkyUsageError(f"-i {expression}: {type(error).__name__}: {error}") from None


def names_read(code: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the notebook's variables that a cell reads and does not itself make first.

    Parameters
    ----------
    code
        The body, as Python (magics and ``!`` lines are skipped).

    Examples
    --------
    >>> names_read("y = [x + n for n in data]; print(y)", {"x": 1, "data": [2], "n": 5})
    ['data', 'x']
    """
    try:
        tree = ast.parse(_plain(code))
    except SyntaxError:
        return []
    read = set(_free(code_block=_plain(code)))
    made_first = _made_before_read(tree)
    return sorted(
        name
        for name in read - made_first
        if name in namespace and not name.startswith("_") and not hasattr(builtins, name)
    )


def _plain(code: str) -> str:
    """Return the code with IPython's own syntax turned into Python."""
    from IPython.core.inputtransformer2 import TransformerManager

    return TransformerManager().transform_cell(code)


def _free(code_block: str) -> Iterable[str]:
    """Names that the code refers to at its top level or as globals of its functions."""
    pending = [symtable.symtable(code_block, "cell", "exec")]
    while pending:
        table = pending.pop()
        pending += table.get_children()
        for symbol in table.get_symbols():
            outermost = table.get_type() == "module"
            if symbol.is_referenced() and (outermost or symbol.is_global()):
                yield symbol.get_name()


def _made_before_read(tree: ast.Module) -> set[str]:
    """Names whose first top-level statement to mention them only assigns them."""
    made: set[str] = set()
    read: set[str] = set()
    for statement in tree.body:
        loads, stores = set(), set()
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                (stores if isinstance(node.ctx, ast.Store) else loads).add(node.id)
            elif isinstance(node, ast.alias):
                stores.add((node.asname or node.name).partition(".")[0])
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                stores.add(node.name)
        if isinstance(statement, ast.AugAssign):
            loads |= stores
        read |= loads - made
        made |= stores - read
    return made
