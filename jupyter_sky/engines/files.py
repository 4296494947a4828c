"""Files of a notebook on a cluster: what ``--sync`` sends, and what it skips."""

from __future__ import annotations

import importlib.util
import os
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from ..errors import SkyUsageError

SKIPPED = {
    ".git",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".venv",
    "__pycache__",
    "node_modules",
}


def manifest(root: Path, paths: Iterable[str]) -> dict[str, list]:
    """Return ``{relative path: [bytes, modification time in ns, mode]}`` of the files to sync.

    Parameters
    ----------
    root
        The notebook's folder; paths are taken below it and keep their place.
    paths
        Files or folders. Version control, caches and virtual environments are left out.

    Raises
    ------
    SkyUsageError
        A path does not exist, or lies outside `root`.
    """
    found: dict[str, list] = {}
    root = root.resolve()
    for text in paths:
        path = (root / text).resolve()
        if not path.exists():
            raise SkyUsageError(f"--sync {text}: there is no such file or folder in {root}")
        if path != root and root not in path.parents:
            raise SkyUsageError(
                f"--sync {text}: it lies outside the notebook's folder {root}",
                hint="only files below the notebook's folder keep their place on the cluster",
            )
        for file in _files(path):
            status = file.stat()
            name = file.relative_to(root).as_posix()
            found[name] = [status.st_size, status.st_mtime_ns, status.st_mode & 0o777]
    return found


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    for folder, names, files in os.walk(path):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        for name in sorted(files):
            file = Path(folder, name)
            if file.is_file():
                yield file


class Workspace:
    """The working folder of an engine, as seen by the engine itself."""

    def __init__(self) -> None:
        self.root = Path.cwd()
        self.seen: dict[str, list] = {}

    def missing(self, wanted: dict[str, list]) -> list[str]:
        """Return the files of `wanted` that are not here with that size and that time."""
        return [name for name, facts in wanted.items() if not self._has(name, facts)]

    def _has(self, name: str, facts: list) -> bool:
        try:
            status = self._inside(name).stat()
        except OSError:
            return False
        return [status.st_size, status.st_mtime_ns] == facts[:2]

    def write(self, name: str, start: int, mode: int, buffers: Iterable) -> None:
        """Write one piece of a file at `start`; the first piece begins it anew."""
        path = self._inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if start == 0 and path.suffix == ".py":
            # it is found by whole seconds and size, which an edit may leave as they were
            Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)
        with open(path, "wb" if start == 0 else "r+b") as file:
            file.seek(start)
            for buffer in buffers:
                file.write(buffer)
        path.chmod(mode)

    def settle(
        self, wanted: dict[str, list], written: Iterable[str], paths: Iterable[str] = ()
    ) -> list[str]:
        """Make the folder agree with what was synced, and forget modules that have changed.

        Parameters
        ----------
        wanted
            The manifest.
        written
            Files of it that were written now; they get their times.
        paths
            What the manifest was made from. Files below that were brought earlier, have not been
            touched here since and are no longer wanted are removed.

        Returns
        -------
        list of str
            The modules that the next import reads anew.
        """
        for name in written:
            os.utime(self._inside(name), ns=(wanted[name][1], wanted[name][1]))
        changed = {name for name, facts in wanted.items() if self.seen.get(name) != facts}
        roots = [PurePosixPath(path) for path in paths]
        for name in set(self.seen) - set(wanted):
            if any(PurePosixPath(name).is_relative_to(root) for root in roots):
                facts = self.seen.pop(name)
                if self._has(name, facts):
                    self._inside(name).unlink()
                    changed.add(name)
        self.seen |= wanted
        return self._forget(changed)

    def _forget(self, changed: Iterable[str]) -> list[str]:
        """Forget the modules of changed files, each with the whole of its package."""
        importlib.invalidate_caches()
        files = {os.path.realpath(self._inside(name)) for name in changed}
        here = {
            name: os.path.realpath(file)
            for name, module in list(sys.modules.items())
            if (file := getattr(module, "__file__", None)) and name != "__main__"
        }
        packages = {name.partition(".")[0] for name, file in here.items() if file in files}
        forgotten = [name for name in here if name.partition(".")[0] in packages]
        for name in forgotten:
            del sys.modules[name]
        return forgotten

    def add_paths(self, paths: Iterable[str]) -> None:
        """Put `paths` before the engine's own packages."""
        for path in paths:
            if path not in sys.path:
                before = list(sys.path)
                site.addsitedir(path)  # honours .pth files
                added = [entry for entry in sys.path if entry not in before]
                sys.path[:] = added + before
        importlib.invalidate_caches()

    def _inside(self, name: str) -> Path:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts:
            raise ValueError(f"{name} lies outside the working folder")
        return self.root / pure
