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
from .store import PartRequest

PIECE_BYTES = 2**20
CONCURRENCY = 8


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of one part: the checksum of its bytes, and its name in the store."""

    crc32c: int | None
    tag: str


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
