"""Spans of files on the machine that carries out a request, addressed by ``file:``."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from urllib.parse import quote, unquote

from .checksums import crc32c, crc_to_hex
from .errors import (
    SkyDiskFull,
    SkyObjectMissing,
    SkySourceChanged,
    SkyStorageError,
    SkyStoragePermission,
)
from .store import PartRequest, Span

VERSION_HEADER = "If-Match"
DONE_HEADER = "Sky-Part-Number"
"""Number of a part that is noted as done; absent where a file is written at once."""

_KINDS = {
    errno.ENOENT: SkyObjectMissing,
    errno.EACCES: SkyStoragePermission,
    errno.EPERM: SkyStoragePermission,
    errno.EROFS: SkyStoragePermission,
    errno.ENOSPC: SkyDiskFull,
    errno.EDQUOT: SkyDiskFull,
}


def file_url(path: Path) -> str:
    """Return the address of a path."""
    return "file:" + quote(os.fsencode(path))


def file_path(url: str) -> Path:
    """Return the path of an address that `file_url` made."""
    return Path(os.fsdecode(unquote(url.removeprefix("file:"), errors="surrogateescape")))


def file_version(status: os.stat_result) -> str:
    """Return what changes whenever the content of a file does."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"


def file_error(error: OSError, subject: str) -> SkyStorageError:
    """Return the error that a failure of the file system stands for."""
    kind = _KINDS.get(error.errno or 0, SkyStorageError)
    return kind(f"{subject}: {error.strerror or error}")


def done_path(path: Path) -> Path:
    """Return the list of the parts of `path` that are written."""
    return path.with_name(path.name + ".done")


def read_file_part(request: PartRequest) -> bytes:
    """Return a span of a file, of the version that the request names."""
    path = file_path(request.url)
    wanted = request.headers.get(VERSION_HEADER)
    try:
        with path.open("rb", buffering=0) as file:
            data = _read_span(file.fileno(), request.span)
            # looked at after the bytes were read: a change before or meanwhile is seen
            if wanted and file_version(os.fstat(file.fileno())) != wanted:
                raise SkySourceChanged(f"{path} has changed since it was listed")
    except OSError as error:
        raise file_error(error, str(path)) from error
    if len(data) != request.span.size:
        raise SkySourceChanged(f"{path} is shorter than it was")
    return data


def write_file_part(request: PartRequest, data: bytes) -> str:
    """Write a span of a file and return its checksum; a part is noted as done afterwards."""
    path = file_path(request.url)
    tag = crc_to_hex(crc32c(data))
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
        raise file_error(error, str(path)) from error
    return tag


def _read_span(descriptor: int, span: Span) -> bytes:
    data = os.pread(descriptor, span.size, span.start)
    while len(data) < span.size:
        more = os.pread(descriptor, span.size - len(data), span.start + len(data))
        if not more:
            break
        data += more
    return data


def _write_span(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
