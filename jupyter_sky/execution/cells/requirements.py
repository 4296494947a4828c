"""The modules that a cell needs: those that it imports, and those its values are made of."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable

from jupyter_sky.execution.cells.magic_code import parse_cell


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
    return installed_modules(names)


def type_modules(types: Iterable[type]) -> set[str]:
    """Return the top-level modules that types are from, but for the standard library's.

    Examples
    --------
    >>> type_modules([int, list])
    set()
    """
    return installed_modules(kind.__module__ for kind in types)


def installed_modules(modules: Iterable[str]) -> set[str]:
    """Return the top-level modules of some, but for the standard library's.

    Examples
    --------
    >>> installed_modules(["numpy.linalg", "os.path", "__main__"])
    {'numpy'}
    """
    names = {module.partition(".")[0] for module in modules}
    return names - sys.stdlib_module_names - {"__main__"}
