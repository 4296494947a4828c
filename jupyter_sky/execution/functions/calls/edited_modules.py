"""Functions of modules whose files have been edited since their definitions were first sent.

Definitions of a function's own module travel as they are in this process. Once the file has
changed, nodes import the module as it is in the file, like every other local module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

_first_states: dict[str, tuple[int, int]] = {}
"""Modification time (ns) and size of the files of modules when they were first looked at."""


def is_edited(module: str | None) -> bool:
    """Return whether the file of a module has changed since this was first asked."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if module is None or module == "__main__" or file is None:
        return False
    try:
        status = os.stat(file)
    except OSError:
        return False
    state = status.st_mtime_ns, status.st_size
    return _first_states.setdefault(module, state) != state


def definition(function: Callable[..., Any]) -> Any:
    """Return what pickles as the name of a function, if it has one; else the function itself."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module not in sys.modules or _find(module, name) is not function:
        return function
    return _Definition(module, name)


class _Definition:
    """Name of a function, which nodes import."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def __reduce__(self) -> tuple[Any, ...]:
        return _find, (self._module, self._name)


def _find(module: str, name: str) -> Any:
    """Return a function of a module; of a lazy one, the function itself."""
    from jupyter_sky.execution.functions.calls.lazy_calls import Function

    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found.local if isinstance(found, Function) else found
