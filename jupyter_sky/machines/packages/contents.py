"""Files of an installed distribution, as they can be imported from a folder elsewhere."""

from __future__ import annotations

import ast
import importlib.util
import os
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from jupyter_sky.base.errors import SkyTransferError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.engines.node.file_cache import FileTree
from jupyter_sky.machines.engines.node.files import SKIPPED, is_secret, points_inside
from jupyter_sky.machines.engines.node.platforms import Platform, parse_version
from jupyter_sky.machines.packages.origins import InstallRecord

METADATA_FILES = ("METADATA", "WHEEL", "entry_points.txt", "top_level.txt")
"""Metadata that other packages look up; not the path that it was installed from."""
EXCLUDED = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json"}
NO_PACKAGES = {"benchmarks", "build", "conftest.py", "dist", "docs", "examples", "noxfile.py"}
NO_PACKAGES |= {"setup.py", "tasks.py", "test", "tests"}
"""Names beside packages in a project's folder that are not imported by those who use it."""


@dataclass(frozen=True, slots=True, eq=False)
class SentPackage:
    """A distribution that is sent as files.

    Attributes
    ----------
    files : dict
        Files of this machine by the path below a folder of packages.
    tags : frozenset of str
        Platforms that it was made for, as wheels name them; empty where it runs on all.
    built_here : bool
        Whether its compiled parts were built on this machine, for what is installed here.
    """

    name: str
    version: str
    files: dict[str, Path]
    tags: frozenset[str] = frozenset()
    built_here: bool = False

    @property
    def tree(self) -> FileTree:
        """Its files with their present contents.

        Raises
        ------
        SkyTransferError
            One of them cannot be read.
        """
        try:
            return FileTree.of(self.files)
        except OSError as error:
            raise SkyTransferError(
                _("{self_value} cannot be sent: {filename}: {strerror}").format(
                    self_value=self, filename=error.filename, strerror=error.strerror
                ),
                hint=_("make it readable, or install the package anew"),
            ) from None

    @property
    def is_compiled(self) -> bool:
        """Whether it can be imported on some machines only."""
        return self.built_here or bool(self.tags)

    @property
    def platforms(self) -> str:
        """The platforms of its compiled parts, in words."""
        platforms = sorted({tag.rpartition("-")[2] for tag in self.tags})
        return " or ".join(platforms) if platforms and not self.built_here else "this machine"

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


def package_files(
    distribution: metadata.Distribution, record: InstallRecord, modules: Iterable[str] = ()
) -> SentPackage:
    """List the files of a distribution to send; it has none if they cannot be determined.

    Parameters
    ----------
    modules
        Top-level modules of it that are known to be imported.
    """
    files = dict(
        _editable(distribution, record, modules) if record.source else _installed(distribution)
    )
    compiled = any(name.endswith(tuple(EXTENSION_SUFFIXES)) for name in files)
    tags = _tags(distribution) if compiled else frozenset[str]()
    built_here = compiled and (
        record.source is not None or any("-linux_" in tag for tag in tags) or not tags
    )
    return SentPackage(record.name, distribution.version, files, tags, built_here)


def _tags(distribution: metadata.Distribution) -> frozenset[str]:
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = (line.partition(":")[2].strip() for line in lines if line.startswith("Tag:"))
    return frozenset(tag for tag in tags if not tag.endswith("-any"))


def _installed(distribution: metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Yield the recorded files of a distribution that lie among the packages."""
    for entry in distribution.files or ():
        path = Path(str(distribution.locate_file(entry)))
        info = entry.parts[0].endswith((".dist-info", ".egg-info"))
        if ".." in entry.parts or entry.is_absolute() or entry.suffix == ".pyc":
            continue
        if (info and entry.name in EXCLUDED) or not path.is_file():
            continue
        yield entry.as_posix(), path


# -- editable ----------------------------------------------------------------------------------


def _editable(
    distribution: metadata.Distribution, record: InstallRecord, modules: Iterable[str]
) -> Iterator[tuple[str, Path]]:
    """Yield the files of the modules of an editable distribution, and its metadata."""
    source = record.source
    assert source is not None
    for module in sorted({*modules, *editable_modules(distribution, record)}):
        for place in _module_paths(module, source):
            yield from module_files(place, source)
    info = f"{record.name.replace('-', '_')}-{distribution.version}.dist-info"
    for entry in distribution.files or ():
        if entry.name in METADATA_FILES and len(entry.parts) == 2:
            yield f"{info}/{entry.name}", Path(str(distribution.locate_file(entry)))


def editable_modules(distribution: metadata.Distribution, record: InstallRecord) -> set[str]:
    """Return the top-level modules that an editable distribution provides."""
    names = {name for name in (distribution.read_text("top_level.txt") or "").split() if name}
    roots, mapped = _roots(distribution)
    names |= mapped
    for root in roots:
        if not names and record.source is not None:
            names |= _modules_in(root, is_project=root == record.source.resolve())
    return names - {"__pycache__"}


def provides_module(
    distribution: metadata.Distribution, record: InstallRecord, module: str
) -> bool:
    """Return whether a module is imported here from an editable distribution."""
    if record.source is None:
        return False
    places = _module_paths(module, record.source)
    roots, mapped = _roots(distribution)
    return bool(places) and (module in mapped or any(p.parent.resolve() in roots for p in places))


@lru_cache(maxsize=64)  # of an installation, whose object is made anew when that changes
def _roots(distribution: metadata.Distribution) -> tuple[tuple[Path, ...], Set[str]]:
    """Return the folders that an editable installation adds, and the names its finder maps."""
    roots, mapped = list[Path](), set[str]()
    for entry in distribution.files or ():
        path = Path(str(distribution.locate_file(entry)))
        if len(entry.parts) != 1 or not path.is_file():
            continue
        if entry.suffix == ".pth":
            for line in path.read_text(errors="replace").splitlines():
                if line.strip() and not line.startswith(("import ", "import\t", "#")):
                    roots.append(Path(line.strip()).resolve())
        elif entry.name.startswith("__editable__") and entry.suffix == ".py":
            mapped |= _finder_mapping(path)
    return tuple(roots), mapped


def _finder_mapping(finder: Path) -> set[str]:
    """Read the names that setuptools' finder maps, without running it."""
    try:
        tree = ast.parse(finder.read_text())
    except (OSError, SyntaxError, ValueError):
        return set()
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and target.id == "MAPPING":
            with suppress(ValueError):
                return {str(name).partition(".")[0] for name in ast.literal_eval(node.value)}
    return set()


def _modules_in(root: Path, is_project: bool) -> set[str]:
    """Return the modules in a folder of sources; a project's own folder holds other things too."""
    modules: set[str] = set()
    for path in root.iterdir() if root.is_dir() else ():
        if path.name.startswith(".") or path.name in SKIPPED:
            continue
        if is_project and path.name in NO_PACKAGES:
            continue
        if path.is_file() and path.suffix == ".py" and path.stem.isidentifier():
            modules.add(path.stem)
        elif path.is_dir() and path.name.isidentifier():
            modules |= {path.name} if (path / "__init__.py").is_file() or not is_project else set()
    return modules


def _module_paths(module: str, source: Path) -> list[Path]:
    """Return the folders or the file below a source that a module is imported from here."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return []
    if spec is None:
        return []
    origin = [spec.origin] if spec.has_location and spec.origin else []
    places = [Path(location) for location in (spec.submodule_search_locations or origin)]
    root = source.resolve()
    return [place for place in places if place.exists() and place.resolve().is_relative_to(root)]


def module_files(place: Path, source: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a module, but for caches, secrets and links that lead elsewhere."""
    if place.is_file():
        yield place.name, place
        return
    for folder, names, files in os.walk(place):
        names[:] = sorted(n for n in names if n not in SKIPPED and not is_secret(n))
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(".pyc") or is_secret(name) or not path.is_file():
                continue
            if path.is_symlink() and not points_inside(path, source):
                continue
            yield path.relative_to(place.parent).as_posix(), path


def is_supported(package: SentPackage, platform: Platform, here: Platform) -> bool:
    """Return whether a machine of a platform can import a package's compiled parts.

    What was built here needs the same suffix of extension modules and a C library no older.
    """
    if not package.built_here:
        return not package.tags or not package.tags.isdisjoint(platform.tags)
    old, new = (parse_version(each.libc_version) for each in (here, platform))
    return (here.suffix, here.libc) == (platform.suffix, platform.libc) and old <= new
