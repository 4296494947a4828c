"""Default paths, resolved without importing traitlets when no setting overrides them.

A plain process that only asks for prices would else spend a fifth of its time on that machinery.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

LABEXTENSION = "jupyter-sky"
"""Folder of the panel below JupyterLab's extensions."""

_read_setting: Callable[[str], str] | None = None


def use_settings(read_setting: Callable[[str], str]) -> None:
    """Read paths from the settings object from now on; called by the module that defines it."""
    global _read_setting
    _read_setting = read_setting


def default_data_dir() -> str:
    """Return the directory of ledger, journals and catalog, unless a setting names another."""
    from jupyter_core.paths import jupyter_data_dir

    return os.path.join(jupyter_data_dir(), "sky")


def data_dir() -> Path:
    """Return ``Sky.data_dir``, of the strongest layer of the settings that has it.

    Examples
    --------
    >>> data_dir().name  # doctest: +SKIP
    'sky'
    """
    return Path(_path_setting("data_dir") or default_data_dir()).expanduser()


def offers_file() -> Path | None:
    """Return ``Sky.offers``, the file of the user's own offers, where one is named."""
    named = _path_setting("offers")
    return Path(named).expanduser() if named else None


def expand_path(path: str, name: str) -> str:
    """Return a path with ``~`` replaced.

    Raises
    ------
    SkyUsageError
        It is relative, so that it would lead into whatever folder is open.
    """
    expanded = os.path.expanduser(path)
    if not os.path.isabs(expanded):
        raise SkyUsageError(
            _("{name} {path!r} is a relative path, which every folder could answer for").format(
                name=name, path=path
            ),
            hint=_("give the whole path, such as {value}").format(value=os.path.join("~", path)),
        )
    return expanded


def check_private(path: str, name: str) -> None:
    """Raise SkyUsageError for a folder that other users could have filled."""
    if not hasattr(os, "getuid"):
        return
    try:
        status = os.stat(path)
    except OSError:  # it does not exist yet; other errors show when it is used
        return
    reason = ""
    if status.st_mode & stat.S_IWOTH:
        reason = "everybody may write it"
    elif os.getuid() not in (0, status.st_uid):
        reason = f"it belongs to another user (uid {status.st_uid})"
    if reason:
        raise SkyUsageError(
            _("{name} {path} is refused: {reason}, and what is there is trusted").format(
                name=name, path=path, reason=reason
            ),
            hint=_("take a folder below it, or chmod o-w {path}").format(path=path)
            if status.st_mode & 2
            else None,
        )


def _path_setting(name: str) -> str:
    """Return a setting that is a path, from the settings object if one exists."""
    if _read_setting is not None:
        return _read_setting(name)
    text = os.environ.get(f"SKY_{name.upper()}", "").strip()
    if not text:
        return ""
    path = expand_path(text, f"SKY_{name.upper()}")
    if name == "data_dir":
        check_private(path, f"SKY_{name.upper()}")
    return path


def missing_panel_reason() -> str:
    """Return why JupyterLab has no panel; nothing if it has."""
    from jupyter_core.paths import jupyter_path

    folders = jupyter_path("labextensions")
    if any(Path(folder, LABEXTENSION, "package.json").exists() for folder in folders):
        return ""
    return _(
        "jupyter_sky was installed from source without npm, so JupyterLab has "
        "no Sky panel. Install Node.js 20 or later and jupyter_sky again, or a "
        "released wheel."
    )
