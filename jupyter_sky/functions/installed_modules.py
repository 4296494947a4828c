"""Modules that are installed, and so are not sent to nodes with calls."""

from __future__ import annotations

import sysconfig
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parents[1]


@lru_cache(10_000)
def is_installed(path: Path) -> bool:
    """Return whether a module's file or folder belongs to Python, to a package, or to this one.

    Examples
    --------
    >>> is_installed(Path(sysconfig.__file__)), is_installed(Path("mine.py"))
    (True, False)
    """
    if not {"site-packages", "dist-packages"}.isdisjoint(path.parts):
        return True
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    homes = [PACKAGE, *(Path(home) for home in map(sysconfig.get_path, names) if home)]
    return any(path.resolve().is_relative_to(home.resolve()) for home in homes)
