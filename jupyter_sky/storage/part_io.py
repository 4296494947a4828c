"""Parts of objects between files and stores, several at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ..errors import SkyCancelled
from .store import Checksums, PartRequest

PIECE_BYTES = 2**20
CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of one part: the checksum of its bytes, and its name in the store."""

    crc32c: int | None
    tag: str


def checksums(data: bytes, wanted: str) -> Checksums:
    """Return the checksums of a part that a store wants."""
    import hashlib

    import google_crc32c

    md5 = hashlib.md5(data, usedforsecurity=False).digest() if wanted == "md5" else b""
    return Checksums(google_crc32c.value(data), md5)


def read_part(request: PartRequest) -> bytes:
    """Return the bytes that a request reads."""
    with open(unquote(request.url.removeprefix("file:")), "rb") as file:
        file.seek(request.span.start)
        return file.read(request.span.size)


def write_part(request: PartRequest, data: bytes) -> str:
    """Write bytes; return the tag that the store gives them."""
    with open(unquote(request.url.removeprefix("file:")), "r+b") as file:
        file.seek(request.span.start)
        file.write(data)
        return ""


def carry_parts(
    jobs: Sequence[tuple[PartRequest, Path]],
    report: Callable[[int], None],
    cancelled: threading.Event,
) -> list[PartResult]:
    """Carry out requests: those that read write to their file, those that write read from it."""
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        return list(pool.map(lambda job: _carry(*job, report, cancelled), jobs))


def _carry(
    request: PartRequest,
    path: Path,
    report: Callable[[int], None],
    cancelled: threading.Event,
) -> PartResult:
    other = Path(unquote(request.url.removeprefix("file:")))
    source, target = (other, path) if request.method == "GET" else (path, other)
    left, place = request.span.size, request.span.start
    with source.open("rb") as reader, open(target, "r+b") as writer:
        reader.seek(place)
        writer.seek(place)
        while left:
            if cancelled.is_set():
                raise SkyCancelled("the transfer was cancelled")
            piece = reader.read(min(PIECE_BYTES, left))
            if not piece:
                raise OSError(f"{source} is shorter than it was")
            writer.write(piece)
            report(len(piece))
            left -= len(piece)
        if request.method == "PUT":
            writer.flush()
            os.fsync(writer.fileno())
    return PartResult(None, "")
