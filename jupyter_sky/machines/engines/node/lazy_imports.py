"""Faster imports: without garbage collection, lazily, or blocked where unneeded.

``import ipyparallel.engine.app`` also runs ``ipyparallel/__init__.py``, which loads clients,
launchers and cluster managers: a quarter of the time in which an engine starts, for nothing that
an engine needs. Deferred, its modules are found as ever, and a cell that writes
``ipyparallel.Client`` gets it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from typing import Any


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection during imports, which saves a tenth of their time."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def blocked_import(name: str) -> Iterator[None]:
    """Make imports of a package fail for the length of the context."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


def make_lazy(name: str) -> None:
    """Defer the ``__init__`` of a package until an attribute other than a module is accessed.

    Parameters
    ----------
    name
        A package at the top; if it is imported already it stays as it is.

    Examples
    --------
    >>> make_lazy("ipyparallel")  # doctest: +SKIP
    """
    spec = find_spec(name)
    if name in sys.modules or spec is None or spec.loader is None:
        return
    module, loader, lock = module_from_spec(spec), spec.loader, threading.RLock()
    waiting = True

    def __getattr__(attribute: str) -> Any:
        nonlocal waiting
        # of the questions of import itself, only `from package import *` is about what it defines
        if attribute.startswith("__") and attribute not in ("__all__", "__version__"):
            raise AttributeError(attribute)
        with lock:
            if waiting and find_spec(f"{name}.{attribute}") is not None:
                return import_module(f"{name}.{attribute}")
            if waiting:
                waiting = False
                loader.exec_module(module)
        if attribute in vars(module):
            return vars(module)[attribute]
        raise AttributeError(f"module {name!r} has no attribute {attribute!r}")

    vars(module)["__getattr__"] = __getattr__
    sys.modules[name] = module
