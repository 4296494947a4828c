"""Local modules of the notebook on a node, in each process that runs calls or Dask's tasks."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jupyter_sky.machines.engines.node import file_cache

Modules = Iterable[tuple[str, str, Any]]
"""Name, digest of the files and pickled ``{path: (mode, content)}`` of modules."""


class SentModules:
    """Modules on the import path of this process, each in a folder of its own."""

    def __init__(self) -> None:
        self._folders: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def activate(self, modules: Modules) -> None:
        """Have modules imported from the given files, in place of others of their names."""
        for name, tree, data in modules:
            if self._folders.get(name, ("", ""))[0] == tree:
                continue
            with self._lock:
                self._activate(name, tree, data)

    def withdraw(self, files: Iterable[str]) -> None:
        """Have modules no longer imported from here whose files have been synced for cells.

        Parameters
        ----------
        files
            Paths below the working folder.
        """
        names = {path.partition("/")[0].removesuffix(".py") for path in files}
        with self._lock:
            for name in names & self._folders.keys():
                _, folder = self._folders.pop(name)
                sys.path[:] = [path for path in sys.path if path != folder]
                self._forget(name, "")

    def _activate(self, name: str, tree: str, data: Any) -> None:
        _, before = self._folders.get(name, ("", ""))
        folder = str(file_cache.cache_folder() / "trees" / tree)
        if not os.path.exists(folder):
            folder = _unpack(pickle.loads(data))
        sys.path[:] = [folder, *(path for path in sys.path if path not in (before, folder))]
        self._forget(name, folder)
        self._folders[name] = tree, folder

    @staticmethod
    def _forget(name: str, folder: str) -> None:
        """Forget a module that was imported from elsewhere than a folder."""
        for imported in [*sys.modules]:
            if imported.partition(".")[0] == name and not (folder and _lies_in(imported, folder)):
                del sys.modules[imported]
        importlib.invalidate_caches()


def _unpack(contents: Mapping[str, tuple[int, bytes]]) -> str:
    """Build the folder of an archive; return its path."""
    by_digest = {file_cache.content_digest(data): data for _, data in contents.values()}
    file_cache.store_contents(by_digest)
    entries = {
        path: (file_cache.content_digest(data), mode) for path, (mode, data) in contents.items()
    }
    return file_cache.build_folder(entries)


def _lies_in(module: str, folder: str) -> bool:
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and os.path.realpath(file).startswith(
        os.path.join(os.path.realpath(folder), "")
    )


sent_modules = SentModules()
"""Modules that have been sent to this process."""


def load_for_cell(modules: Modules, stream: Any, *buffers: Any) -> Any:
    """Unpickle an input of a cell; what the working folder has as well is imported from there."""
    sent_modules.activate(module for module in modules if not _is_in_working_folder(module[2]))
    return pickle.loads(stream, buffers=buffers)


def _is_in_working_folder(data: Any) -> bool:
    contents: Mapping[str, tuple[int, bytes]] = pickle.loads(data)
    try:
        return all(Path(path).read_bytes() == content for path, (_, content) in contents.items())
    except OSError:
        return False


def load_with_modules(modules: Modules, stream: Any, *buffers: Any) -> Any:
    """Unpickle a value that refers to sent modules."""
    sent_modules.activate(modules)
    return pickle.loads(stream, buffers=buffers)
