"""Modules that are installed, and so are not sent to nodes with calls."""

from __future__ import annotations

import sysconfig
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2]


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
    place = path.resolve()
    return any(place.is_relative_to(home) for home in _homes())


@lru_cache(1)
def _homes() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    homes = [PACKAGE, *(Path(home) for home in map(sysconfig.get_path, names) if home)]
    return tuple(home.resolve() for home in homes)
