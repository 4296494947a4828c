"""Places on this machine for files that come from a cluster: chosen and checked, nothing written.

Without a destination files keep their place below the notebook's folder, as those of ``--sync`` do
in the other direction; with one they go there as ``cp`` would put them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from jupyter_sky.base.errors import SkyTransferError, SkyUsageError
from jupyter_sky.base.translation import _

SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a cluster.

    Attributes
    ----------
    path
        Path by which it is read there.
    place
        Path below a destination.
    size
        Bytes.
    modified
        Time of its last change, unix ns.
    mode
        Permissions.
    """

    path: str
    place: str
    size: int
    modified: int
    mode: int

    @classmethod
    def parse(cls, entry: Any) -> RemoteFile:
        """Read an entry of a cluster's answer, which is not trusted."""
        match entry:
            case [str(path), str(place), int(size), int(modified), int(mode)]:
                if min(size, modified, mode) >= 0:
                    return cls(path, place, size, modified, mode & 0o777)
        raise SkyTransferError(_("the cluster's list of files cannot be read"))


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files of a cluster behind a path or a pattern.

    Attributes
    ----------
    is_file
        Whether the path is that of one file.
    exists
        Whether there is anything of that name, perhaps an empty folder.
    """

    path: str
    files: tuple[RemoteFile, ...]
    is_file: bool
    exists: bool

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class FileCopies:
    """Copies to be made, and those that need not be.

    Attributes
    ----------
    copies
        Targets of the files to be brought.
    present
        Targets that have the same size and time as the file there: they are left as they are.
    """

    copies: Mapping[RemoteFile, Path]
    present: tuple[Path, ...] = ()


def choose_targets(
    found: FoundFiles, folder: Path, destination: str | None = None
) -> dict[RemoteFile, Path]:
    """Return the place of each file on this machine.

    Parameters
    ----------
    folder
        Folder of the notebook.
    destination
        File or folder; None to keep the files' place below `folder`.

    Raises
    ------
    SkyTransferError
        A name would lie outside the destination.

    Examples
    --------
    >>> file = RemoteFile("out/model.pt", "model.pt", 1, 0, 0o644)
    >>> found = FoundFiles("out/model.pt", (file,), True, True)
    >>> [choose_targets(found, Path("/home"), to)[file].as_posix() for to in (None, "best.pt")]
    ['/home/out/model.pt', '/home/best.pt']
    """
    if destination is None:
        return _below(folder, {file: _kept_place(file, found.path) for file in found.files})
    target = folder / os.path.expanduser(destination)
    names_folder = destination.endswith(("/", os.sep)) or target.is_dir()
    if found.is_file and not names_folder:
        return _below(target.parent, {file: target.name for file in found.files})
    places = {file: file.place for file in found.files}
    if len(set(places.values())) < len(places):  # */loss.csv: each beside its own folder
        places = {file: _kept_place(file, found.path) for file in found.files}
    return _below(target, places)


def _kept_place(file: RemoteFile, path: str) -> str:
    """Return the path of a file where it is one below the cluster's folder."""
    named = PurePosixPath(path)
    outside = named.is_absolute() or ".." in named.parts or path.startswith("~")
    return file.place if outside else file.path


def _below(root: Path, places: Mapping[RemoteFile, str]) -> dict[RemoteFile, Path]:
    """Return places below a folder; links that lead out of it are not followed."""
    targets, within = {}, root.resolve()
    for file, place in places.items():
        parts, target = PurePosixPath(place).parts, root / place
        inside = parts and "\0" not in place and ".." not in parts
        if not inside or not target.parent.resolve().is_relative_to(within):
            raise SkyTransferError(
                _("{place!r} would lie outside {root}: nothing was written").format(
                    place=place, root=root
                ),
                hint=_("name another folder, such as --to results/"),
            )
        targets[file] = target
    return targets


def plan_copies(
    targets: Mapping[RemoteFile, Path], replaces: Sequence[Path] | None = ()
) -> FileCopies:
    """Return the copies to be made.

    Parameters
    ----------
    replaces
        Files that may be replaced; None for all.

    Raises
    ------
    SkyUsageError
        Other files are in the way; names them.
    """
    copies: dict[RemoteFile, Path] = {}
    present: list[Path] = []
    in_the_way: list[Path] = []
    for file, target in targets.items():
        if target.is_dir():
            raise SkyUsageError(
                _("{target} is a folder: the file {path} cannot take its place").format(
                    target=target, path=file.path
                ),
                hint=_("name another place, such as --to results/"),
            )
        if is_same(file, target):
            present.append(target)
            continue
        if os.path.lexists(target) and replaces is not None and target not in replaces:
            in_the_way.append(target)
        copies[file] = target
    if in_the_way:
        raise SkyUsageError(
            _("here already, and different: {in_the_way}; nothing was written").format(
                in_the_way=join_names(in_the_way)
            ),
            hint=_("--force replaces them, --to FOLDER puts the copies elsewhere"),
        )
    return FileCopies(copies, tuple(present))


def is_same(file: RemoteFile, target: Path) -> bool:
    """Return whether a file here has the size and the time of one there."""
    try:
        facts = target.lstat()
    except OSError:
        return False
    return (facts.st_size, facts.st_mtime_ns) == (file.size, file.modified)


def join_names(paths: Sequence[Path]) -> str:
    """Return the first few paths, and how many more there are."""
    more = len(paths) - SHOWN_NAMES
    names = ", ".join(map(str, paths[:SHOWN_NAMES]))
    return _("{names} and {more} more").format(names=names, more=more) if more > 0 else names
