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
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from jupyter_sky.base.errors import SkyError, SkyTransferError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.execution.files.file_targets import FileCopies, FoundFiles, RemoteFile
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
