"""Run notebook cells on the clouds: ``%%sky`` above a cell says what the cell needs.

Nothing heavy is imported here: ``%load_ext jupyter_sky`` starts nothing and costs nothing. The
public names are listed in ``__init__.pyi`` and imported at their first use.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from jupyter_sky._version import __version__ as __version__
from jupyter_sky.base.lazy_names import attach
from jupyter_sky.base.moved_modules import refuse_moved_modules

_HIDDEN = (
    "AllocationStrategy Consistency DEFAULT_IMAGE NodeSpec SelectionStrategy WorkerExecutor "
    "barrier counter dict lock queue set sky"
).split()
"""Names that ``from jupyter_sky import *`` leaves out, most of them for the sake of builtins."""

_find_name, _list_names = attach(__name__, __file__, _HIDDEN)
refuse_moved_modules()


def __getattr__(name: str) -> Any:
    try:
        return _find_name(name)
    except AttributeError:
        if not name.startswith("_"):
            absent = import_module("jupyter_sky.execution.functions.calls.absent_names")
            if name in absent.REASONS:
                raise absent.absent_name(name) from None
        raise


def __dir__() -> list[str]:
    return sorted([*_list_names(), "__version__"])


class _Package(ModuleType):
    """Package that travels as a name to import: functions that use it are sent to nodes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package


def load_ipython_extension(shell: Any) -> None:
    """Register ``%%sky``, ``%sky`` and their completion with IPython."""
    from jupyter_sky.interfaces.magics.magic import load

    load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Unregister them, and close this process's session."""
    from jupyter_sky.interfaces.magics.magic import unload

    unload(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Return the place of a developer's build of the panel for JupyterLab."""
    return [{"src": "labextension", "dest": "jupyter-sky"}]


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "jupyter_sky"}]


def _load_jupyter_server_extension(server_app: Any) -> None:
    """Register the routes that the panel of JupyterLab asks."""
    from jupyter_sky.interfaces.server import load

    load(server_app)
