"""``clusters/NAME/files``, ``.../download``, ``runs/ID/files``: files of head nodes, listed, sent.

Only what lies in the cluster's own folder is answered. Files are sent piece by piece as they are
read there; folders as a zip archive that is written on the way, and is nowhere on a disk.
"""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jupyter_sky.base.errors import SkyError, SkyTransferError, SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.files.file_transfer import RemoteFile
from jupyter_sky.interfaces.server.handler import SkyHandler, authorized
from jupyter_sky.interfaces.server.service import NotFound
from jupyter_sky.machines.engines.wire.controller_requests import FilesReply, ReadFiles

if TYPE_CHECKING:
    from jupyter_sky.interfaces.server.service import SkyService

_NAME = r"clusters/([^/]+)"
PIECE_BYTES = 2**18
_SAME_CLOCK_SECONDS, _OTHER_CLOCK_SECONDS = 0.05, 2.0
"""Seconds by which times of files may lie outside of their run, by the clock that wrote them."""
_EARLIEST_ZIP_TIME = 315_532_800 + 86_400
"""Archives know no time before 1980, in any time zone."""


class HeadFiles:
    """Files of the head node of one cluster, asked of its controller.

    Parameters
    ----------
    name
        Name of the cluster, which must be up.
    """

    def __init__(self, service: SkyService, name: str) -> None:
        self._service, self._row = service, service.live_cluster(name)

    @property
    def is_local(self) -> bool:
        """Whether the head node is this machine."""
        return runs_here(self._row.cloud)

    def ask(self, request: ReadFiles) -> FilesReply:
        """Return the reply to a request.

        Raises
        ------
        SkyUsageError
            The controller refuses; says why.
        """
        found = self._service.ask(self._row, replace(request, is_confined=True))
        if found.refused:
            raise SkyUsageError(str(found.refused))
        return found

    def find(self, path: str) -> tuple[list[RemoteFile], bool]:
        """Return the files behind a path, and whether it is that of one file."""
        found = self.ask(ReadFiles("find", path))
        if not found.found:
            raise NotFound(_("{path}: there is no such file or folder").format(path=path))
        return [RemoteFile.parse(entry) for entry in found.files], found.is_file

    def read(self, file: RemoteFile) -> Iterator[bytes]:
        """Yield the bytes of a file.

        Raises
        ------
        SkyTransferError
            It changes while it is read.
        """
        for start in range(0, file.size, PIECE_BYTES):
            stop = min(start + PIECE_BYTES, file.size)
            state = self.ask(ReadFiles("read", file.path, start, stop))
            data = bytes(state.buffers[0]) if state.buffers else b""
            is_same = (state.size, state.modified) == (file.size, file.modified)
            if not is_same or len(data) != stop - start:
                text = _("{path} changes while it is read").format(path=file.path)
                raise SkyTransferError(text)
            yield data


def list_files(service: SkyService, name: str, path: str) -> dict[str, Any]:
    """Return the entries of a folder: name, kind, size in bytes, time of the last change."""
    found = HeadFiles(service, name).ask(ReadFiles("list", path or "."))
    return _described(path, found)


def list_run_files(service: SkyService, run_id: str) -> dict[str, Any]:
    """Return the files of a cluster that were last changed while a run was going on."""
    run = service.run(run_id)
    if not run.cluster:
        raise NotFound(_("run {run_id} has no cluster yet").format(run_id=run_id))
    source = HeadFiles(service, run.cluster)
    slack = _SAME_CLOCK_SECONDS if source.is_local else _OTHER_CLOCK_SECONDS
    ended = service.describe(run)["ended"] or time.time()
    request = ReadFiles("changed", ".", since=run.started - slack, until=ended + slack)
    found = source.ask(request)
    return _described("", found)


def _described(path: str, found: FilesReply) -> dict[str, Any]:
    keys = ("name", "kind", "size", "modified")
    entries = [dict(zip(keys, entry, strict=True)) for entry in found.entries]
    return {"path": path, "entries": entries, "more": found.more}


class _Pipe(io.RawIOBase):
    """Stream that keeps what is written until it is taken."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def writable(self) -> bool:
        """Return that it can be written."""
        return True

    def write(self, data: Any) -> int:
        """Keep some bytes."""
        self._written.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        """Return what has been written since the last time."""
        taken, self._written = b"".join(self._written), []
        return taken


def zip_files(source: HeadFiles, files: list[RemoteFile]) -> Iterator[bytes]:
    """Yield a zip archive of files, without compression."""
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for file in files:
            at = max(file.modified / 1e9, _EARLIEST_ZIP_TIME)
            entry = zipfile.ZipInfo(file.place, time.localtime(at)[:6])
            entry.external_attr = file.mode << 16
            with archive.open(entry, "w", force_zip64=True) as member:
                for piece in source.read(file):
                    member.write(piece)
                    yield pipe.take()
    yield pipe.take()


class FilesHandler(SkyHandler):
    """Handler that lists a folder of a cluster."""

    @authorized
    async def get(self, name: str) -> None:
        """Return the entries of ``?path=``, the folder of the cluster without it."""
        path = self.get_query_argument("path", "")
        await self.answer(list_files, self.service, name, path)


class RunFilesHandler(SkyHandler):
    """Handler that lists the files of a run."""

    @authorized
    async def get(self, run_id: str) -> None:
        """Return the files that were last changed while the run was going on."""
        await self.answer(list_run_files, self.service, run_id)


class DownloadHandler(SkyHandler):
    """Handler that sends a file, or a folder as an archive."""

    @authorized
    async def get(self, name: str) -> None:
        """Send what lies at ``?path=``."""
        path = self.get_query_argument("path", "")
        run = self.service.run_in_thread
        try:
            source = await run(HeadFiles, self.service, name)
            files, is_file = await run(source.find, path)
        except SkyError as error:
            self.refuse(error)
            return
        title = PurePosixPath(path).name or name
        if is_file:
            self.set_header("Content-Length", str(files[0].size))
        self._set_headers(title if is_file else f"{title}.zip")
        pieces = source.read(files[0]) if is_file else zip_files(source, files)
        try:
            while (piece := await run(next, pieces, None)) is not None:
                self.write(piece)
                await self.flush()
        except SkyError as error:
            # too late for a status: the browser sees that not all has come
            self.log.warning("download of %s from cluster %s: %s", path, name, error)
            self.request.connection.stream.close()  # type: ignore[union-attr]
            return
        self.finish()

    def _set_headers(self, title: str) -> None:
        self.set_header("Content-Type", "application/octet-stream")
        self.set_header("Content-Disposition", f"attachment; filename*=UTF-8''{quote(title)}")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Cache-Control", "no-store")


HANDLERS = [
    (rf"{_NAME}/files", FilesHandler),
    (rf"{_NAME}/download", DownloadHandler),
    (r"runs/([^/]+)/files", RunFilesHandler),
]
