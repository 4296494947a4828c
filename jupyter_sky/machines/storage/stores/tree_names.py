"""Keys of objects as paths of files: which keys a folder can hold, and where they go.

A key is any text; a path is not. Nothing is renamed silently, and no key leads out of its folder.
"""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

MAX_NAME_BYTES = 255
"""Longest name of a file on the file systems of Linux, macOS and Windows."""
MAX_PATH_BYTES = 3500
"""Longest relative path: systems allow 4,096 bytes with the folder before it."""

FoldName = Callable[[str], str]
"""Function that gives equal texts for names that a file system takes for one."""


@dataclass(frozen=True, slots=True)
class TreeNames:
    """Paths of the objects of a dataset.

    Attributes
    ----------
    files
        Relative path of each key.
    folders
        Paths of markers: empty objects whose key ends with ``/``.
    """

    files: dict[str, str]
    folders: tuple[str, ...]


def exact_name(name: str) -> str:
    """Return a name as it is: for file systems that keep all names apart, as those of Linux."""
    return name


def folded_name(name: str) -> str:
    """Return a name without case, composed: for the file systems of macOS and Windows.

    Examples
    --------
    >>> folded_name("Cafe\N{COMBINING ACUTE ACCENT}") == folded_name("CAFÉ")
    True
    """
    return unicodedata.normalize("NFC", name).casefold()


def fold_of_platform(platform: str = sys.platform) -> FoldName:
    """Return how the file systems of a platform compare names."""
    return folded_name if platform in ("darwin", "win32") else exact_name


def map_keys(
    source: str,
    prefix: str,
    sizes: Iterable[tuple[str, int]],
    fold: FoldName = exact_name,
) -> TreeNames:
    """Return the paths at which the objects below a prefix go into a folder.

    Parameters
    ----------
    source
        URI of the dataset, for messages.
    prefix
        Beginning of the keys that their paths do not have.
    sizes
        Keys and sizes.
    fold
        Comparison of names on the file system.

    Raises
    ------
    SkyUsageError
        A folder cannot hold these keys; names them.

    Examples
    --------
    >>> map_keys("s3://b/x/", "x/", [("x/a/1.txt", 9), ("x/logs/", 0)])
    TreeNames(files={'x/a/1.txt': 'a/1.txt'}, folders=('logs',))
    """
    files, folders = dict[str, str](), list[str]()
    for key, size in sizes:
        path = key.removeprefix(prefix)
        if path.endswith("/") and size == 0:
            folders.append(path.rstrip("/"))
        elif path:
            files[key] = path
    for path in [*files.values(), *filter(None, folders)]:
        if reason := path_error(path):
            raise _names_error(source, [path], reason)
    _check_twins(source, files.values(), fold)
    _check_folders(source, files.values(), fold)
    return TreeNames(files, tuple(filter(None, folders)))


def path_error(path: str) -> str:
    """Return why a folder of files cannot hold a key; nothing if it can.

    Examples
    --------
    >>> path_error("../../etc/passwd")
    'it climbs out of its folder'
    """
    parts = path.split("/")
    if ".." in parts:
        return "it climbs out of its folder"
    if path.startswith("/"):
        return "it begins with /"
    if "" in parts[:-1]:
        return "it has // inside, an empty name"
    if path.endswith("/"):
        return "it ends with /, and is not empty"
    if "." in parts:
        return "it has a part ."
    if "\0" in path:
        return "it has a zero byte"
    encoded = path.encode("utf-8", "surrogatepass")
    if any(len(part.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES for part in parts):
        return f"a name of a file has at most {MAX_NAME_BYTES} bytes"
    if len(encoded) > MAX_PATH_BYTES:
        return f"a path has at most {MAX_PATH_BYTES:,} bytes"
    if os.sep != "/" and os.sep in path:
        return f"it has {os.sep} inside"
    return ""


def _check_twins(source: str, paths: Iterable[str], fold: FoldName) -> None:
    seen: dict[str, str] = {}
    for path in paths:
        other = seen.setdefault(fold(path), path)
        if other != path:
            raise _names_error(source, [other, path], "one file here: case and accents are equal")


def _check_folders(source: str, paths: Iterable[str], fold: FoldName) -> None:
    """Refuse an object and a folder of one name."""
    by_name = {fold(path): path for path in paths}
    for path in by_name.values():
        parts = path.split("/")
        for count in range(1, len(parts)):
            if other := by_name.get(fold("/".join(parts[:count]))):
                raise _names_error(
                    source, [other, path], "the one is a file where the other needs a folder"
                )


def _names_error(source: str, paths: list[str], reason: str) -> SkyUsageError:
    shown = " and ".join(repr(_shorten(path)) for path in paths)
    return SkyUsageError(
        _("{source}: {shown} cannot be in a folder: {reason}").format(
            source=source, shown=shown, reason=reason
        ),
        hint=_(
            "bring another prefix without it, copy it to another key first, or "
            "read it by its key: sky.Storage(uri).open(key)"
        ),
    )


def _shorten(path: str, limit: int = 80) -> str:
    return path if len(path) <= limit else f"{path[: limit - 1]}…"
