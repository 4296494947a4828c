"""Files of a notebook on a cluster: selection for ``--sync``, and the working folder."""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import site
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _

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

PIECE_BYTES = 4 * 2**20
"""Bytes of a file that are copied at a time."""
SECRET_FOLDERS = {".aws", ".azure", ".docker", ".gcloud", ".gnupg", ".kube", ".ssh"}
SECRET_FILES = (
    *(".env", ".env.*", "*.env", ".netrc", "_netrc", ".npmrc", ".pgpass", ".pypirc"),
    *(".git-credentials", "client_secret*.json", "credentials.json", "kaggle.json"),
    *("*.kdbx", "*.key", "*.p12", "*.pem", "*.pfx", "*.ppk"),
)
TEMPLATES = (".env.example", ".env.sample", ".env.template")
"""Files that look like secrets, and are there to be shared."""


def is_secret(name: str) -> bool:
    """Return whether a file or folder of this name commonly holds keys or passwords.

    Examples
    --------
    >>> [is_secret(name) for name in (".env", "id_rsa", "id_rsa.pub", "id_table.csv")]
    [True, True, False, False]
    """
    if name in SECRET_FOLDERS:
        return True
    if name.startswith("id_") and "." not in name:  # private keys of SSH
        return True
    matches = any(fnmatch.fnmatchcase(name, pattern) for pattern in SECRET_FILES)
    return matches and name not in TEMPLATES


@dataclass(frozen=True, slots=True)
class Manifest:
    """Files of the notebook's folder to be synced, and those left out.

    Attributes
    ----------
    files : dict
        ``{relative path: [bytes, modification time in ns, mode]}``.
    secrets, links : list of str
        Relative paths left out: of files and folders that commonly hold keys or passwords, and of
        symbolic links to folders or to something outside the notebook's folder.
    """

    files: dict[str, list[int]] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Sentences for the user about files left out."""
        notes: list[str] = []
        if secrets := self.secrets:
            notes.append(
                f"--sync left out {_join_names(secrets)}: keys or passwords by the name; one "
                f"that is named is sent: --sync {secrets[0]}"
            )
        if self.links:
            notes.append(
                f"--sync left out {_join_names(self.links)}: symbolic links to folders, or to what "
                "lies outside the notebook's folder"
            )
        return notes


def build_manifest(root: Path, paths: Iterable[str]) -> Manifest:
    """Return the files below a notebook's folder that are to be synced.

    Parameters
    ----------
    root
        The notebook's folder; paths are taken below it and keep their place.
    paths
        Files or folders. A file that is named here is taken whatever its name. Of a folder, version
        control, caches and virtual environments are left out, and keys, passwords and symbolic
        links that lead elsewhere.

    Raises
    ------
    SkyUsageError
        A path does not exist, or lies outside `root`.
    """
    manifest = Manifest()
    root = root.resolve()
    for text in paths:
        path = (root / text).resolve()
        if not path.exists():
            raise SkyUsageError(
                _("--sync {text}: there is no such file or folder in {root}").format(
                    text=text, root=root
                )
            )
        if path != root and root not in path.parents:
            raise SkyUsageError(
                _("--sync {text}: it lies outside the notebook's folder {root}").format(
                    text=text, root=root
                ),
                hint=_("only files below the notebook's folder keep their place on the cluster"),
            )
        for file in _files(root, path, manifest):
            status = file.stat()
            name = file.relative_to(root).as_posix()
            manifest.files[name] = [status.st_size, status.st_mtime_ns, status.st_mode & 0o777]
    named = [
        name for name in manifest.secrets if name not in manifest.files
    ]  # maybe beside its folder
    return Manifest(manifest.files, sorted(set(named)), sorted(set(manifest.links)))


def _files(root: Path, path: Path, manifest: Manifest) -> Iterator[Path]:
    """Yield the files of a path; add those left out to `found`."""
    if path.is_file():
        yield path
        return
    is_requested = is_secret(path.name)  # named by the user, with its contents
    for folder, names, files in os.walk(path):
        below = Path(folder)
        kept = []
        for name in sorted(set(names) - SKIPPED):
            if (below / name).is_symlink():
                manifest.links.append((below / name).relative_to(root).as_posix())
            elif is_secret(name) and not is_requested:
                manifest.secrets.append((below / name).relative_to(root).as_posix())
            else:
                kept.append(name)
        names[:] = kept
        for file in (below / name for name in sorted(files)):
            name = file.relative_to(root).as_posix()
            if not file.is_file():
                continue
            if not is_requested and is_secret(file.name):
                manifest.secrets.append(name)
            elif file.is_symlink() and not points_inside(file, root):
                manifest.links.append(name)
            else:
                yield file


def points_inside(link: Path, root: Path) -> bool:
    """Return whether a link leads to a file of a folder that would be sent by its own name."""
    target, root = link.resolve(), root.resolve()
    if not target.is_relative_to(root):
        return False
    parts = target.relative_to(root).parts
    return not any(part in SKIPPED or is_secret(part) for part in parts)


def _join_names(names: list[str], shown: int = 3) -> str:
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")


class Workspace:
    """Working folder of an engine, in the engine itself."""

    def __init__(self) -> None:
        self.root = Path.cwd()
        self.seen: dict[str, list[int]] = {}

    def missing(self, manifest: dict[str, list[int]]) -> list[str]:
        """Return the files of a manifest that are missing or differ in size or time."""
        return [name for name, facts in manifest.items() if not self._is_current(name, facts)]

    def _is_current(self, name: str, facts: list) -> bool:
        try:
            status = self._resolve_inside(name).stat()
        except OSError:
            return False
        return [status.st_size, status.st_mtime_ns] == facts[:2]

    def write(self, name: str, start: int, mode: int, buffers: Iterable) -> None:
        """Write one piece of a file at `start`; the first piece begins it anew."""
        path = self._resolve_inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if start == 0 and path.suffix == ".py":
            # it is found by whole seconds and size, which an edit may leave as they were
            Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)
        with open(path, "wb" if start == 0 else "r+b") as file:
            file.seek(start)
            for buffer in buffers:
                file.write(buffer)
        path.chmod(mode)

    def take(self, folder: str, manifest: dict[str, list[int]]) -> None:
        """Copy the missing files of a manifest from a folder below, and remove that link."""
        source = self._resolve_inside(folder)
        for name in self.missing(manifest):
            with open(source / name, "rb") as file:
                pieces = iter(partial(file.read, PIECE_BYTES), b"")
                self.write(name, 0, manifest[name][2], pieces)
            os.utime(self._resolve_inside(name), ns=(manifest[name][1], manifest[name][1]))
        source.unlink(missing_ok=True)

    def apply_sync(
        self, manifest: dict[str, list[int]], written: Iterable[str], paths: Iterable[str] = ()
    ) -> list[str]:
        """Remove files that are no longer synced, and forget changed modules.

        Parameters
        ----------
        manifest
            Files that are synced now.
        written
            Files of it that were written now; they get their times.
        paths
            Paths that the manifest was made from. Files below them that were synced earlier, have
            not been changed here since and are not in the manifest are removed.

        Returns
        -------
        list of str
            The modules that the next import reads anew.
        """
        for name in written:
            os.utime(self._resolve_inside(name), ns=(manifest[name][1], manifest[name][1]))
        changed = {name for name, facts in manifest.items() if self.seen.get(name) != facts}
        roots = [PurePosixPath(path) for path in paths]
        for name in set(self.seen) - set(manifest):
            if any(PurePosixPath(name).is_relative_to(root) for root in roots):
                facts = self.seen.pop(name)
                if self._is_current(name, facts):
                    self._resolve_inside(name).unlink()
                    changed.add(name)
        self.seen |= manifest
        return self._forget(changed)

    def _forget(self, changed: Iterable[str]) -> list[str]:
        """Forget the modules of changed files, each with the whole of its package."""
        files = {os.path.realpath(self._resolve_inside(name)) for name in changed}
        return _forget_modules(lambda file: file in files)

    def forget_below(self, folder: str) -> list[str]:
        """Forget the packages that were imported from a folder."""
        root = os.path.join(os.path.realpath(folder), "")
        return _forget_modules(lambda file: file.startswith(root))

    def add_paths(self, paths: Iterable[str]) -> None:
        """Put `paths` before the engine's own packages."""
        import_first(*paths)

    def _resolve_inside(self, name: str) -> Path:
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts:
            raise ValueError(f"{name} lies outside the working folder")
        return self.root / pure


def import_first(*paths: str) -> None:
    """Have this process import from folders of packages, before the engine's own."""
    for path in paths:
        if path not in sys.path:
            before = list(sys.path)
            site.addsitedir(path)  # honours .pth files
            added = [entry for entry in sys.path if entry not in before]
            sys.path[:] = added + before
    importlib.invalidate_caches()


def _forget_modules(is_changed: Callable[[str], bool]) -> list[str]:
    """Forget the modules of changed files, each with the whole of its package."""
    importlib.invalidate_caches()
    file_by_module = {
        name: os.path.realpath(file)
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) and name != "__main__"
    }
    packages = {name.partition(".")[0] for name, file in file_by_module.items() if is_changed(file)}
    forgotten = [name for name in file_by_module if name.partition(".")[0] in packages]
    for name in forgotten:
        del sys.modules[name]
    return forgotten
