"""Spans of files on the machine that carries out a request, addressed by ``file:``."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.checksums import crc32c, crc_to_hex
from jupyter_sky.machines.storage.stores.connections import Bytes
from jupyter_sky.machines.storage.stores.errors import (
    SkyDiskFull,
    SkyObjectMissing,
    SkySourceChanged,
    SkyStorageError,
    SkyStoragePermission,
)
from jupyter_sky.machines.storage.stores.store import PartRequest, Span

VERSION_HEADER = "If-Match"
DONE_HEADER = "Sky-Part-Number"
"""Number of a part that is noted as done; absent where a file is written at once."""
SUM_HEADER = "Sky-Part-Sum"
"""CRC-32C of the bytes where it is known already, in hexadecimal."""

_KINDS = {
    errno.ENOENT: SkyObjectMissing,
    errno.EACCES: SkyStoragePermission,
    errno.EPERM: SkyStoragePermission,
    errno.EROFS: SkyStoragePermission,
    errno.ENOSPC: SkyDiskFull,
    errno.EDQUOT: SkyDiskFull,
}


def file_url(path: Path | str) -> str:
    """Return the address of a path; nothing is quoted, as only `file_path` reads it."""
    return f"file:{path}"


def file_path(url: str) -> str:
    """Return the path of an address that `file_url` made."""
    return url[len("file:") :]


def file_version(status: os.stat_result) -> str:
    """Return what changes whenever the content of a file does."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


def file_error(error: OSError, subject: str) -> SkyStorageError:
    """Return the error that a failure of the file system stands for."""
    kind = _KINDS.get(error.errno or 0, SkyStorageError)
    return kind(f"{subject}: {error.strerror or error}")


def done_path(path: Path | str) -> Path:
    """Return the list of the parts of `path` that are written."""
    return Path(f"{path}.done")


def read_file_part(request: PartRequest, into: bytearray | None = None) -> Bytes:
    """Return a span of a file, of the version that the request names, in a buffer if it fits."""
    path = file_path(request.url)
    wanted = request.headers.get(VERSION_HEADER)
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            data = _read_span(descriptor, request.span, into)
            # looked at after the bytes were read: a change before or meanwhile is seen
            if wanted and file_version(os.fstat(descriptor)) != wanted:
                raise SkySourceChanged(
                    _("{path} has changed since it was listed").format(path=path)
                )
        finally:
            os.close(descriptor)
    except OSError as error:
        raise file_error(error, path) from error
    if len(data) != request.span.size:
        raise SkySourceChanged(_("{path} is shorter than it was").format(path=path))
    return data


def write_file_part(request: PartRequest, data: Bytes) -> str:
    """Write a span of a file and return its checksum; a part is noted as done afterwards."""
    path = file_path(request.url)
    tag = request.headers.get(SUM_HEADER) or crc_to_hex(crc32c(data))
    number = request.headers.get(DONE_HEADER)
    flags = os.O_WRONLY | os.O_CREAT | (0 if number else os.O_TRUNC)
    try:
        descriptor = os.open(path, flags, 0o666)
        try:
            _write_span(descriptor, data, request.span.start)
        finally:
            os.close(descriptor)
        if number:
            with done_path(path).open("a") as done:
                done.write(f"{number} {tag}\n")
    except OSError as error:
        raise file_error(error, path) from error
    return tag


def _read_span(descriptor: int, span: Span, into: bytearray | None) -> Bytes:
    """Return what the file has of a span."""
    if into is None or span.size > len(into):
        into = bytearray(span.size)
    view, size = memoryview(into)[: span.size], 0
    while size < span.size:
        count = os.preadv(descriptor, [view[size:]], span.start + size)
        if not count:
            break
        size += count
    return view[:size]


def _write_span(descriptor: int, data: Bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
