"""Where files are, told without the machinery of settings where nobody has set anything.

A plain process that only asks for prices would else spend a fifth of its time on that machinery.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def default_data_dir() -> str:
    """Directory of the ledger, the journals and the catalog, unless a setting says another."""
    from jupyter_core.paths import jupyter_data_dir

    return os.path.join(jupyter_data_dir(), "sky")


def data_dir() -> Path:
    """``Sky.data_dir``, of whichever layer of the settings is the strongest.

    Examples
    --------
    >>> data_dir().name  # doctest: +SKIP
    'sky'
    """
    return Path(_setting("data_dir") or default_data_dir()).expanduser()


def offers_file() -> Path | None:
    """``Sky.offers``: the file of the user's own offers, where one is named."""
    named = _setting("offers")
    return Path(named).expanduser() if named else None


def _setting(name: str) -> str:
    """A setting that is a text: of the settings object when it is there or anything needs it."""
    if "jupyter_sky.config" in sys.modules or _set_in_project():
        from .config import Sky

        return getattr(Sky.load(), name)
    return os.environ.get(f"SKY_{name.upper()}", "").strip()


def _set_in_project() -> bool:
    """Whether the nearest pyproject.toml may hold settings of ours."""
    folder = os.getcwd()
    while True:
        try:
            with open(os.path.join(folder, "pyproject.toml"), "rb") as file:
                return b"jupyter_sky]" in file.read()
        except OSError:
            parent = os.path.dirname(folder)
            if parent == folder:
                return False
            folder = parent
