"""Modules of this machine that calls use: their files travel with the calls.

A module is local if its file belongs to no installed package: a file beside the notebook or
script. What a pickle refers to by name is found by a search for that name in the pickle, and what
such modules import by their sources. Each module is an archive, sent to each node once; an edit
makes another archive, so the next call sees it.
"""

from __future__ import annotations

import ast
import dis
import importlib.util
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import CodeType
from typing import Any

from jupyter_sky.base.translation import _
from jupyter_sky.execution.serialization.payload import (
    ArgumentBlobs,
    Blob,
    Payload,
    digest,
    dumps,
    split,
)
from jupyter_sky.machines.engines.node.file_cache import FileTree
from jupyter_sky.machines.engines.node.sent_modules import load_for_cell, load_with_modules
from jupyter_sky.machines.engines.wire.values import Parcel
from jupyter_sky.machines.packages.installed_modules import is_installed

DATA_FILE_BYTES = 2**20
"""Largest file of a package, other than its code, that is sent with it."""
MODULE_BYTES = 64 * 2**20
"""Largest module that is sent."""
SLOW_SECONDS = 0.01
"""Time to look at the files of a large package above which the result is used for `REUSE_FACTOR`
times as long: calls spend a twentieth of their time on it at most."""
REUSE_FACTOR = 20
LARGE_PACKAGE_FILES = 64
"""Number of files from which on a package is large. Smaller ones are slow to look at only where the
machine is busy: an edit of theirs counts from the next call on."""
_CODE_SUFFIXES = (".py", *EXTENSION_SUFFIXES)


@dataclass(frozen=True, slots=True)
class ModuleArchive:
    """Files of a module as one blob.

    Attributes
    ----------
    tree : str
        Digest of the files.
    data : memoryview
        Pickled ``{path: (mode, content)}``.
    """

    name: str
    tree: str
    blob: Blob
    data: memoryview = field(repr=False, compare=False)


Archives = tuple[ModuleArchive, ...]


class LocalModules:
    """Local modules as they are now; one object serves the calls of one statement.

    Parameters
    ----------
    provided
        Top-level modules that nodes have by other means, such as the image of their pool.
    """

    def __init__(self, provided: Iterable[str] = ()) -> None:
        self._provided = frozenset(provided)
        self._loaded = loaded_local_modules()
        self._archives: dict[str, Archives] = {}

    def needed_by(
        self,
        stream: bytes | memoryview,
        function: Callable[..., Any] | None = None,
        by_value: str | None = None,
    ) -> Archives:
        """Return the archives that a pickle needs, sorted by name.

        Parameters
        ----------
        function
            Function in it whose own imports count, those that have not been made here too.
        by_value
            Module whose definitions are pickled by value.
        """
        mentioned = mentioned_modules(stream, self._loaded) if self._loaded else set[str]()
        names = {name.partition(".")[0] for name in mentioned - {by_value}}
        code = getattr(function, "__code__", None)
        if code is not None:
            names |= {name for name in _imports_of_code(code) if name not in sys.modules}
        return self._with_imports(names - self._provided)

    def loaded(self) -> Archives:
        """Return the archives of all local modules that are imported here."""
        return self._with_imports(self._loaded - self._provided)

    def _with_imports(self, names: Iterable[str]) -> Archives:
        return merge(*(self._archive_with_imports(name) for name in names))

    def _archive_with_imports(self, name: str) -> Archives:
        """Return the archives of a module and of the local ones that it imports."""
        if name in self._archives:
            return self._archives[name]
        archives: dict[str, ModuleArchive] = {}
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in archives or each in self._provided:
                continue
            tree = _current_tree(each)
            if tree is None:
                continue
            archives[each] = _archive(each, tree)
            waiting += imports_of_files(tree)
        self._archives[name] = tuple(archives.values())
        return self._archives[name]


# -- modules that are mentioned --------------------------------------------------------------------


def mentioned_modules(stream: bytes | memoryview, names: frozenset[str]) -> set[str]:
    """Return the strings of a pickle that are one of `names`, or a module below one.

    Examples
    --------
    >>> sorted(mentioned_modules(pickle.dumps([dis.dis, "ast.x"]), frozenset({"ast", "dis"})))
    ['ast.x', 'dis']
    """
    mentioned: set[str] = set()
    for match in _name_pattern(names).finditer(stream):
        text = bytes(stream[match.end() : match.end() + match[1][0]]).decode(errors="replace")
        if text.partition(".")[0] in names:
            mentioned.add(text)
    return mentioned


@lru_cache(16)
def _name_pattern(names: frozenset[str]) -> re.Pattern[bytes]:
    """Return a pattern for the heads of short strings in a pickle that begin with a name."""
    choices = b"|".join(re.escape(name.encode()) for name in names)
    return re.compile(b"\x8c(.)(?=" + choices + b")", re.DOTALL)


@lru_cache(1000)
def _imports_of_code(code: CodeType) -> frozenset[str]:
    """Return the top-level modules that a function, or one inside it, imports when it runs."""
    names = {
        str(each.argval).partition(".")[0]
        for each in dis.get_instructions(code)
        if each.opname == "IMPORT_NAME" and each.argval
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _imports_of_code(constant)
    return frozenset(names - sys.stdlib_module_names)


def imports_of_files(tree: FileTree) -> set[str]:
    """Return the top-level modules that sources import anywhere."""
    names: set[str] = set()
    for name, (content, __) in tree.entries.items():
        if name.endswith(".py"):
            names |= _imports_of_source(tree.files[name], content)
    return names


@lru_cache(10_000)
def _imports_of_source(path: Path, _content: str) -> frozenset[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names - sys.stdlib_module_names)


# -- modules that are local ------------------------------------------------------------------------

_local: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())


def loaded_local_modules() -> frozenset[str]:
    """Return the top-level names of the imported modules whose files belong to no package."""
    global _local
    known = tuple(sys.modules)
    if known != _local[0]:
        _local = known, frozenset(name for name in known if "." not in name and _is_local(name))
    return _local[1]


def _is_local(name: str) -> bool:
    return name not in ("__main__", "__mp_main__") and bool(_places(name))


def is_local_module(name: str) -> bool:
    """Return whether a top-level module is found here, and belongs to no installed package."""
    return name.isidentifier() and _is_local(name)


def module_tree(name: str, also_editable: bool = False) -> FileTree | None:
    """Return the files of a local top-level module as they are now.

    Of packages, keys and passwords, links that lead elsewhere and files above `DATA_FILE_BYTES`
    that are no code are left out.

    Parameters
    ----------
    also_editable
        Whether a module of an editable distribution counts as local.

    Returns
    -------
    FileTree or None
        None if the module is not local, larger than `MODULE_BYTES` or cannot be read.
    """
    from jupyter_sky.machines.packages.contents import module_files

    files: dict[str, Path] = {}
    size = 0
    try:
        for place in _places(name, also_editable):
            for below, path in module_files(place, place):
                length = path.stat().st_size
                if path.suffix in _CODE_SUFFIXES or length <= DATA_FILE_BYTES:
                    files.setdefault(below, path)
                    size += length
        return FileTree.of(files) if files and size <= MODULE_BYTES else None
    except OSError:
        return None


_trees: dict[str, tuple[float, FileTree | None]] = {}


def _current_tree(name: str) -> FileTree | None:
    """Return `module_tree`; of a large package, that of a moment ago where looking takes long."""
    begun = time.monotonic()
    until, tree = _trees.get(name, (0.0, None))
    if begun < until:
        return tree
    tree = module_tree(name)
    seconds = time.monotonic() - begun
    is_large = tree is None or len(tree.files) >= LARGE_PACKAGE_FILES
    if is_large and seconds > SLOW_SECONDS:
        _trees[name] = begun + REUSE_FACTOR * seconds, tree
    return tree


def _places(name: str, also_editable: bool = False) -> tuple[Path, ...]:
    """Return the file or the folders of a local top-level module; none if it is not local."""
    places = [place for place in _module_places(name) if not is_installed(place)]
    if not places or (not also_editable and _editable_owner(name)):
        return ()
    return tuple(places)


def _module_places(name: str) -> Iterator[Path]:
    module = sys.modules.get(name)
    folders, file = getattr(module, "__path__", None), getattr(module, "__file__", None)
    if module is None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError, AttributeError):
            return
        if spec is None:
            return
        folders = spec.submodule_search_locations
        file = spec.origin if spec.has_location else None
    for text in folders if folders is not None else [file]:
        if isinstance(text, str) and (path := Path(text)).exists():
            yield path


def _editable_owner(name: str) -> str:
    """Return the editable distribution of a module: `Image(pip=...)` sends those."""
    from jupyter_sky.machines.packages.plan import editable_owner

    return editable_owner(name)


# -- archives --------------------------------------------------------------------------------------


_archives: dict[str, ModuleArchive] = {}
"""Last archive of each module."""


def _archive(name: str, tree: FileTree) -> ModuleArchive:
    known = _archives.get(name)
    if known is not None and known.tree == tree.digest:
        return known
    contents = {
        path: (mode, tree.files[path].read_bytes())
        for path, (__, mode) in sorted(tree.entries.items())
    }
    data = memoryview(pickle.dumps(contents, protocol=5))
    archive = ModuleArchive(name, tree.digest, Blob(digest(data), data.nbytes), data)
    _archives[name] = archive
    return archive


def merge(*groups: Archives) -> Archives:
    """Return the archives of all groups, each once, sorted by name."""
    archives = {archive.name: archive for group in groups for archive in group}
    return tuple(archives[name] for name in sorted(archives))


def with_modules(parcel: Parcel, archives: Archives, blobs: ArgumentBlobs) -> Payload:
    """Return a payload that puts modules on the import path, then unpickles the parcel."""
    if not archives:
        return split(parcel, blobs)
    segments = [*split(Parcel.pickled(_WithModules(parcel.segments, archives)), blobs)]
    for place, archive in enumerate(archives, 1):
        # a blob whatever its size: a node has it once, each call names it
        segments[place] = blobs.put(archive.blob, archive.data)
    return tuple(segments)


def dumps_with_modules(data: bytes, archives: Archives) -> bytes:
    """Return a pickle that puts modules on the import path, then unpickles another pickle."""
    return dumps(_WithModules((memoryview(data),), archives)) if archives else data


def input_with_modules(parcel: Parcel, archives: Archives) -> Parcel:
    """Return a parcel of an input of a cell that has its modules imported where it is opened."""
    if not archives:
        return parcel
    packed = Parcel.pickled(_WithModules(parcel.segments, archives, load_for_cell))
    return replace(packed, codes=parcel.codes, names=parcel.names)


class _WithModules:
    """Segments of a pickled value and the archives that it needs, for a function that loads it."""

    def __init__(
        self,
        segments: tuple[memoryview, ...],
        archives: Archives,
        load: Callable[..., Any] = load_with_modules,
    ) -> None:
        self._segments, self._archives, self._load = segments, archives, load

    def __reduce__(self) -> tuple[Any, ...]:
        buffers = [pickle.PickleBuffer(segment) for segment in self._segments]
        return self._load, (as_sent(self._archives), *buffers)


def as_sent(archives: Archives) -> list[tuple[str, str, pickle.PickleBuffer]]:
    """Return archives as `SentModules.activate` takes them."""
    return [(a.name, a.tree, pickle.PickleBuffer(a.data)) for a in archives]


# -- advice ----------------------------------------------------------------------------------------


def missing_module_advice(name: str) -> str:
    """Return how nodes get a module that they lack; empty if it is not found here either."""
    from jupyter_sky.machines.packages.plan import distributions_of

    top = name.partition(".")[0]
    if is_local_module(top):
        remedy = f'Image(includes=["{_places(top)[0]}"])'
        if module_tree(top) is None:
            return _(
                "{top} lies on this machine and is too large to travel with calls: {remedy}"
            ).format(top=top, remedy=remedy)
        return _(
            "{top} lies on this machine and travels with calls that name it: "
            "import {top} where the function is defined, or {remedy}"
        ).format(top=top, remedy=remedy)
    if owner := distributions_of([top]).get(top):
        return _('{owner} is installed here, not there: Image(pip=["{owner}"])').format(owner=owner)
    return ""
