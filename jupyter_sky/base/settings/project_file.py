"""Settings of a project: ``[tool.jupyter_sky]`` of the nearest pyproject.toml.

A project file comes with a folder, and a folder may come from anybody. So a file counts only where
this user or root has written it, and it may set only what belongs to a cell
(`jupyter_sky.base.settings.settings.Sky`, traits tagged ``project``). A Jupyter server reads none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

NAME = "pyproject.toml"
MAX_BYTES = 1_000_000
_TABLE_MARKER = b"jupyter_sky"

_is_ignored = 0


class ProjectFile(NamedTuple):
    """The project file of a folder.

    Attributes
    ----------
    path : Path or None
        None where there is none that counts.
    text : bytes
        Its content.
    notice : str
        A sentence about a file whose settings are ignored; empty without one.
    """

    path: Path | None = None
    text: bytes = b""
    notice: str = ""


@contextmanager
def ignore_project_files() -> Iterator[None]:
    """Read no project file in this process: for servers, which are opened in any folder."""
    global _is_ignored
    _is_ignored += 1
    try:
        yield
    finally:
        _is_ignored -= 1


def find_project_file(directory: Path | None = None) -> ProjectFile:
    """Return the nearest project file, from the current folder (or `directory`) upward.

    The search ends at the home folder, and at a folder that another user owns or that everybody
    may write.
    """
    if _is_ignored:
        return ProjectFile()
    try:
        folder = Path.cwd() if directory is None else directory.resolve()
        home = Path.home().resolve()
    except (OSError, RuntimeError):  # it has been removed, or this user has no home
        return ProjectFile()
    for parent in (folder, *folder.parents):
        path = parent / NAME
        try:
            content = _read(path)
            reason = _distrust_reason(parent.stat(), f"the folder {parent}")
        except OSError:
            content, reason = None, ""
        if content is not None:
            text, doubt = content
            doubt = reason or doubt
            if not doubt:
                return ProjectFile(path, text)
            return ProjectFile(notice=_notice(path, doubt) if _TABLE_MARKER in text else "")
        if reason or parent == home:
            break
    return ProjectFile()


def _read(path: Path) -> tuple[bytes, str] | None:
    """Return what a file says, and why it does not count; None where there is none."""
    try:
        link = path.lstat()
        # a pipe must not be waited for
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return None
    except OSError as error:
        return _TABLE_MARKER, f"it cannot be read ({error.strerror})"
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return b"", "it is not a file"
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        return text, f"it is larger than {MAX_BYTES:,} bytes"
    return text, _distrust_reason(status, "it") or _owned_by_another(link, "it is a link that")


def _distrust_reason(status: os.stat_result, what: str) -> str:
    """Say why a file or folder may have been written by another user; empty if it cannot."""
    if not hasattr(os, "getuid"):
        return ""
    if status.st_mode & stat.S_IWOTH:
        return f"everybody may write {what}"
    return _owned_by_another(status, what)


def _owned_by_another(status: os.stat_result, what: str) -> str:
    if not hasattr(os, "getuid") or status.st_uid in (0, os.getuid()):
        return ""
    return f"{what} belongs to another user (uid {status.st_uid})"


def _notice(path: Path, why: str) -> str:
    return f"the settings in {path} are ignored: {why}"
