"""Packages that a notebook has sent to an engine as files."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from jupyter_sky.machines.engines.node import file_cache
from jupyter_sky.machines.engines.node.file_cache import FileEntries, FileReceiver, tree_digest
from jupyter_sky.machines.engines.node.files import Workspace


class SentPackages:
    """Folders of sent packages on the import path of an engine, by package.

    Attributes
    ----------
    digests : dict of str to str
        What each package is made of, by its name.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.receiver = FileReceiver()
        self.digests: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def activate(self, packages: Mapping[str, FileEntries]) -> None:
        """Put the files of packages on the import path, in place of earlier ones."""
        self.receiver.finish(digest for known in packages.values() for digest, _ in known.values())
        for name, known in packages.items():
            folder, old = file_cache.build_folder(known), self._folders.get(name)
            if folder == old:
                continue
            if old is not None:
                sys.path[:] = [path for path in sys.path if path != old]
                self.workspace.forget_below(old)
            self.workspace.add_paths([folder])
            self._folders[name], self.digests[name] = folder, tree_digest(known)
