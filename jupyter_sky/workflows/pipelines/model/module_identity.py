"""Identity of the modules that code imports: packages by version, others by their content."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata

from jupyter_sky.base.remote.package_names import normalized_name
from jupyter_sky.base.translation import _
from jupyter_sky.execution.serialization.local_modules import (
    imports_of_files,
    is_local_module,
    module_tree,
)
from jupyter_sky.machines.packages.plan import distributions_of, editable_owner
from jupyter_sky.workflows.pipelines.model.identity import digest_of, tree_identity


@dataclass(frozen=True, slots=True)
class ImportedModules:
    """Modules that code imports, and those that these import in turn.

    Attributes
    ----------
    packages
        Version of each installed package, by name.
    modules
        Names of the modules that are no packages, or packages that can be edited: their content
        counts.
    unknown
        Names of modules that are not here.
    """

    packages: dict[str, str]
    modules: tuple[str, ...]
    unknown: tuple[str, ...]

    @property
    def problem(self) -> str:
        """Why the modules cannot be identified; empty where they can."""
        if not self.unknown:
            return ""
        words = _("module {name} is not here: its version is not known")
        return words.format(name=self.unknown[0])


def find_modules(names: Iterable[str], installed: Iterable[str] = ()) -> ImportedModules:
    """Return what modules of the given names are here; those of Python itself are left out.

    Parameters
    ----------
    names
        As in ``import``.
    installed
        Packages with their versions that are installed for the task, such as ``torch==2.5``: their
        modules need not be here.

    Examples
    --------
    >>> found = find_modules(["os.path", "numpy.linalg", "nowhere"])
    >>> list(found.packages), found.modules, found.unknown
    (['numpy'], (), ('nowhere',))
    """
    packages: dict[str, str] = {}
    modules: set[str] = set()
    unknown: set[str] = set()
    waiting = {name.partition(".")[0] for name in names}
    named = {normalized_name(text).replace("-", "_") for text in installed}
    seen = {*sys.stdlib_module_names, "__main__", ""}
    waiting = {name.partition(".")[0] for name in names}
    while waiting := waiting - seen:
        name = waiting.pop()
        seen.add(name)
        is_local = is_local_module(name) or bool(editable_owner(name))
        if is_local and (tree := module_tree(name, also_editable=True)):
            modules.add(name)
            waiting |= imports_of_files(tree)
        elif owner := distributions_of([name]).get(name):
            packages[owner] = metadata.version(owner)
        elif name.lower() not in named:
            unknown.add(name)
    return ImportedModules(
        dict(sorted(packages.items())), tuple(sorted(modules)), tuple(sorted(unknown))
    )


def module_identity(name: str) -> str:
    """Return a digest of the files of a module that comments and docstrings do not change.

    Raises
    ------
    OSError
        It is not here any more, or is too large.
    """
    tree = module_tree(name, also_editable=True)
    if tree is None:
        raise FileNotFoundError(name)
    parts = [
        f"{path}\n{_file_identity(path.endswith('.py'), file.read_bytes())}"
        for path, file in sorted(tree.files.items())
    ]
    return digest_of("\n".join(parts).encode())


@lru_cache(1000)
def _file_identity(is_code: bool, content: bytes) -> str:
    if is_code:
        try:
            return tree_identity(ast.parse(content))
        except (SyntaxError, ValueError):
            pass
    return digest_of(content)
