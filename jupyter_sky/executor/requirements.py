"""The packages that a cell imports, for machines that come without them: as they are here.

A notebook whose imports work here is to work elsewhere unchanged. What a cell imports, and what the
values are made of that it takes along, is looked up among the packages installed here and asked of
the engines; what those lack is installed there in the same version. Modules that are no installed
package (a file beside the notebook) are for ``--sync``.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from functools import cache
from importlib import metadata

from .inputs import plain


def imported(code: str) -> set[str]:
    """Return the top-level modules that code imports anywhere, but for the standard library's.

    Examples
    --------
    >>> sorted(imported("import os, numpy as np\\nfrom sklearn.svm import SVC"))
    ['numpy', 'sklearn']
    """
    try:
        tree = ast.parse(plain(code))
    except SyntaxError:
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def made_of(types: Iterable[type]) -> set[str]:
    """Return the top-level modules that types are from, but for the standard library's.

    Examples
    --------
    >>> made_of([int, list])
    set()
    """
    names = {kind.__module__.partition(".")[0] for kind in types}
    return names - sys.stdlib_module_names - {"__main__"}


def pinned(modules: Iterable[str]) -> list[str]:
    """Return requirements for modules in the versions that are here; others are left out.

    Examples
    --------
    >>> pinned(["numpy"])  # doctest: +SKIP
    ['numpy==2.3.1']
    """
    known = _distributions()
    found = {name for module in modules for name in known.get(module, ())[:1]}
    return sorted(f"{name}=={metadata.version(name)}" for name in found)


@cache
def _distributions() -> dict[str, list[str]]:
    """Which installed packages each module comes from (looked up once: it reads every package)."""
    return {name: sorted(set(found)) for name, found in metadata.packages_distributions().items()}
