"""Files of a cluster brought to this machine, over the connection that cells use.

Pieces are requested a few at a time, so that memory stays bounded whatever the size of a file.
Each is checked against its hash. A file appears under its name when it is whole; what a lost
connection has left of it is gone on with the next time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from jupyter_sky.base.errors import SkyError, SkyTransferError, SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.transfer import WINDOW_CHUNKS, Progress
from jupyter_sky.machines.engines.wire.controller_requests import FilesReply, ReadFiles
from jupyter_sky.machines.engines.wire.messages import JupyterMessage
from jupyter_sky.machines.engines.wire.values import CHUNK_BYTES

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import ClusterHandle


FIRST_PIECE_BYTES = 64 * 1024
PIECE_SECONDS = 0.2
"""Longest time for a piece: the cluster's heartbeats wait behind it."""
REPLY_SECONDS = 120.0
COMPLETION_SECONDS = 0.5
ATTEMPTS = 3
"""Number of times that a file is begun, when it changes while it is read."""

PendingFiles = tuple[ReadFiles, Future[JupyterMessage]]
"""Request for files, and the future of its reply."""


class FileSource:
    """Files on one node of a cluster.

    The head node's are sent by the controller, also while a cell runs there; those of other nodes
    by their engines, after the cell that they run.
    """

    def __init__(self, cluster: ClusterHandle, rank: int = 0) -> None:
        self.cluster, self.rank = cluster, rank

    def find(self, path: str) -> FoundFiles:
        """Return the files behind a path or a pattern.

        Raises
        ------
        SkyTransferError
            It cannot be read.
        """
        found = self.receive(self.send(ReadFiles("find", path)))
        files = tuple(RemoteFile.parse(entry) for entry in found.files)
        return FoundFiles(path, files, bool(found.is_file), bool(found.found))

    def missing_error(self, path: str) -> SkyTransferError:
        """Return the error of a path that is not there, with those that are."""
        folder, __, name = path.rpartition("/")
        known: list[str] = []
        try:
            found = self.receive(self.send(ReadFiles("list", folder or ".")))
            known = [str(entry[0]) for entry in found.entries]
        except (SkyError, KeyError, TypeError, IndexError):
            folder = ""  # the folder is not there, either
        where = f"in {folder} on" if folder and known else "on"
        hint = suggest(name, known[:20]) if known else _("its folder is empty, or not there")
        return SkyTransferError(
            _("{path}: there is no such file {where} {name}").format(
                path=path, where=where, name=self.cluster.row.name
            ),
            hint=hint,
        )

    def send(self, request: ReadFiles) -> PendingFiles:
        """Send a request; `receive` waits for the reply."""
        link = self.cluster.connection
        link.use.record("files")
        if self.rank:
            return request, link.send_value_request(self.rank, request)
        return request, link.send_controller_request(request)

    def receive(self, pending: PendingFiles) -> FilesReply:
        """Return the reply to a request.

        Raises
        ------
        SkyTransferError
            The node refuses; says why.
        """
        link, (request, future) = self.cluster.connection, pending
        if self.rank:
            reply = link.engine_reply(request, link.wait(future))
        else:
            reply = link.controller_reply(request, future, _("send files"), REPLY_SECONDS)
        if reply.refused:
            raise SkyTransferError(str(reply.refused))
        return reply


def complete_path(cluster: ClusterHandle, fragment: str) -> list[str]:
    """Return the paths of a cluster's files that begin with a fragment; none when it is slow."""
    folder, slash, name = fragment.rpartition("/")
    request = ReadFiles("list", folder + slash or ".")
    try:
        found = cluster.connection.ask_controller(request, COMPLETION_SECONDS, False)
        entries = [(str(entry[0]), entry[1]) for entry in found.entries]
    except (SkyError, TypeError, IndexError):
        return []
    return [
        f"{folder}{slash}{entry}{'/' if kind == 'folder' else ''}"
        for entry, kind in entries
        if entry.startswith(name) and (name or not entry.startswith("."))
    ]


class FileChanged(SkyTransferError):
    """A file was changed while it was read."""


def copy_files(source: FileSource, planned: FileCopies, progress: Progress) -> None:
    """Bring files to their places.

    Raises
    ------
    SkyTransferError
        One cannot be read there or written here. Those before it are here.
    """
    total, done = sum(file.size for file in planned.copies), 0
    _check_space(planned, total)

    def advance(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        progress(done, max(done, total))

    for file, target in planned.copies.items():
        try:
            _copy_file(source, file, target, advance)
        except OSError as error:
            raise SkyTransferError(
                _("{target} cannot be written: {strerror}").format(
                    target=target, strerror=error.strerror or error
                )
            ) from error
    source.cluster.egress.add(done)


def _check_space(planned: FileCopies, total: int) -> None:
    target = next(iter(planned.copies.values()), None)
    if target is None:
        return
    folder = next(parent for parent in target.parents if parent.is_dir())
    if total > (free := shutil.disk_usage(folder).free):
        raise SkyTransferError(
            _("{total:.1f} GB do not fit: {folder} has {free:.1f} GB left").format(
                total=total / 1e9, folder=folder, free=free / 1e9
            ),
            hint=_("name a folder on another disk: --to FOLDER"),
        )


def _copy_file(
    source: FileSource, file: RemoteFile, target: Path, advance: Callable[[int], None]
) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        part = _part_path(file, target)
        try:
            read = _fill(source, file, part, advance)
        except FileChanged:
            part.unlink(missing_ok=True)
            again = source.find(file.path).files
            if attempt == ATTEMPTS - 1 or not again:
                raise
            file = replace(file, size=again[0].size, modified=again[0].modified)
            continue
        except SkyError:
            raise  # the same command goes on from here
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        os.chmod(part, read.mode | 0o600)
        os.utime(part, ns=(read.modified, read.modified))
        part.replace(target)
        return


def _part_path(file: RemoteFile, target: Path) -> Path:
    """Return the path of an unfinished copy, another one for each state of the file there."""
    state = f"{file.path} {file.size} {file.modified}"
    key = hashlib.blake2b(state.encode(), digest_size=4).hexdigest()
    return target.with_name(f".{target.name[:200]}.{key}.part")


def _fill(
    source: FileSource, file: RemoteFile, part: Path, advance: Callable[[int], None]
) -> RemoteFile:
    """Read what an unfinished copy lacks; return the file in the state in which it was read."""
    with _open_part(part) as out:
        size = os.fstat(out.fileno()).st_size
        begin = size if size <= file.size else 0
        out.seek(begin)
        out.truncate()
        advance(begin)
        flying: deque[tuple[int, int, PendingFiles]] = deque()
        piece, received = FIRST_PIECE_BYTES, time.monotonic()
        while begin < file.size or flying:
            while begin < file.size and len(flying) < WINDOW_CHUNKS:
                stop = min(begin + piece, file.size)
                request = source.send(ReadFiles("read", file.path, begin, stop))
                flying.append((begin, stop, request))
                begin = stop
            start, stop, request = flying.popleft()
            data, file = _check_piece(file, start, stop, source.receive(request))
            out.write(data)
            advance(len(data))
            now = time.monotonic()
            piece = _next_piece(len(data), now - received)
            received = now
    return file


def _open_part(part: Path) -> BinaryIO:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    return open(os.open(part, flags, 0o600), "r+b")


def _next_piece(nbytes: int, seconds: float) -> int:
    """Return the size of the next piece, by the rate of the last one.

    Examples
    --------
    >>> _next_piece(65536, 0.001), _next_piece(65536, 2.0)
    (1048576, 16384)
    """
    fitting = int(nbytes / max(seconds, 1e-6) * PIECE_SECONDS)
    return max(FIRST_PIECE_BYTES // 4, min(CHUNK_BYTES, fitting))


def _check_piece(
    file: RemoteFile, start: int, stop: int, piece: FilesReply
) -> tuple[memoryview, RemoteFile]:
    """Return a piece that is what was read there, and the file in the state of that moment."""
    from xxhash import xxh3_128

    data = memoryview(piece.buffers[0]).cast("B") if piece.buffers else memoryview(b"")
    if xxh3_128(data).hexdigest() != piece.digest or len(data) > stop - start:
        raise SkyTransferError(
            _("{path}: bytes from {start} on have arrived damaged").format(
                path=file.path, start=start
            )
        )
    state = piece.size, piece.modified
    if state == (file.size, file.modified) and len(data) == stop - start:
        return data, file
    if start == 0 and len(data) == state[0] == stop:  # all of it, at one moment
        return data, replace(file, size=len(data), modified=int(state[1] or 0))
    raise FileChanged(
        _("{path} changes while it is read").format(path=file.path),
        hint=_("bring it when the cell that writes it has ended"),
    )


# -- Places on this machine for files that come from a cluster: chosen and checked, nothing -------
#
# Without a destination files keep their place below the notebook's folder, as those of ``--sync``
# do in the other direction; with one they go there as ``cp`` would put them.

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
