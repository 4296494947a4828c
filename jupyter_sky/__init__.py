"""Run notebook cells on the clouds: ``%%sky`` above a cell says what the cell needs.

Nothing heavy is imported here: ``%load_ext jupyter_sky`` starts nothing and costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from . import accelerators, catalog, preemption, tracker
    from .api import (
        alias,
        cancel,
        check,
        config,
        cost,
        down,
        get,
        handle,
        logs,
        meter,
        offers,
        plan,
        put,
        run,
        search,
        status,
        up,
        vars,
        wait,
    )
    from .dag import Dag, Task
    from .errors import SkyError
    from .resources import Resources

_VERBS = (
    "alias cancel check config cost down get handle logs meter offers plan put run search status "
    "up vars wait"
).split()
_ROOMS = ("accelerators", "catalog", "preemption", "tracker")
_CLASSES = {"Dag": "dag", "Resources": "resources", "Task": "dag"}

__all__ = [
    "Dag",
    "Resources",
    "SkyError",
    "Task",
    "__version__",
    "accelerators",
    "alias",
    "cancel",
    "catalog",
    "check",
    "config",
    "cost",
    "down",
    "get",
    "handle",
    "logs",
    "meter",
    "offers",
    "plan",
    "preemption",
    "put",
    "run",
    "search",
    "status",
    "tracker",
    "up",
    "vars",
    "wait",
]


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return getattr(import_module(".api", __name__), name)
    if name in _ROOMS:
        return import_module(f".{name}", __name__)
    if name in _CLASSES:
        return getattr(import_module(f".{_CLASSES[name]}", __name__), name)
    if name.startswith("Sky"):
        return getattr(import_module(".errors", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    """This package: importing its module ``config`` or ``offers`` must not hide the verb."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _VERBS and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted({*globals(), *_VERBS, *_ROOMS, *_CLASSES})


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%sky``, ``%sky`` and their completion with IPython."""
    from .magics.magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Take them back."""
    from .magics.magic import unload

    unload(shell)
