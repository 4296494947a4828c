"""The modules that a cell needs: those that it imports, and those its values are made of."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable

from .magic_code import parse_cell


def imported_modules(code: str) -> set[str]:
    r"""Return the top-level modules that code imports anywhere, but for the standard library's.

    Examples
    --------
    >>> sorted(imported_modules("import os, numpy as np\nfrom sklearn.svm import SVC"))
    ['numpy', 'sklearn']
    """
    tree = parse_cell(code)
    if tree is None:
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def type_modules(types: Iterable[type]) -> set[str]:
    """Return the top-level modules that types are from, but for the standard library's.

    Examples
    --------
    >>> type_modules([int, list])
    set()
    """
    names = {kind.__module__.partition(".")[0] for kind in types}
    return names - sys.stdlib_module_names - {"__main__"}
