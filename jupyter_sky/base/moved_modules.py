"""Modules that have moved, by the names of the version before.

Nothing can be imported at an old path; an import of one is refused with the new name. The table has
the new module of each old one, and of each class whose module was divided.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "jupyter_sky"


@cache
def moved_modules() -> Mapping[str, str]:
    """Return the new name of each module by its old one, both below the package."""
    from pathlib import Path  # not at the import of jupyter_sky

    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    lines = (line.split(":") for line in text.splitlines() if line and not line.startswith("#"))
    return {old: new.strip() for new, olds in lines for old in olds.split()}


def new_name(module: str) -> str:
    """Return the name of a module of this version by that of the version before.

    Examples
    --------
    >>> new_name("jupyter_sky.errors"), new_name("json")
    ('jupyter_sky.base.errors', 'json')
    """
    package, __, old = module.partition(".")
    moved = moved_modules().get(old) if package == PACKAGE else None
    return f"{PACKAGE}.{moved}" if moved else module


class _MovedModules:
    """Finder, after all others, that refuses modules of the version before with their new name."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise for a module that has moved; None for any other name."""
        if not name.startswith(f"{PACKAGE}."):
            return None
        moved = new_name(name)
        if moved == name:
            return None
        package = sys.modules[PACKAGE]
        last = name.rpartition(".")[2]
        use = f"import jupyter_sky, use jupyter_sky.{last}"
        hint = use if last in dir(package) else "import from jupyter_sky"
        raise ModuleNotFoundError(f"{name} is now {moved}; {hint}", name=name)


def refuse_moved_modules() -> None:
    """Let imports of old names fail with the new name."""
    if not any(finder is _MovedModules for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules)
