"""Buckets, objects, uploads and bytes of a store."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import google_crc32c

from jupyter_sky.machines.storage.stores.checksums import combine_crc32c

PIECE = 1024**2


def crc_base64(value: int) -> str:
    """Return a CRC as headers hold it."""
    return base64.b64encode(value.to_bytes(4, "big")).decode()


@dataclass(frozen=True)
class Segment:
    """Bytes in a file, or `size` zeros that were forgotten."""

    path: Path | None
    offset: int
    size: int


@dataclass(frozen=True)
class Content:
    """Bytes that arrived in one request."""

    segments: tuple[Segment, ...]
    size: int
    crc32c: int
    md5: str
    sha256: str = ""


@dataclass
class StoredVersion:
    """One version of an object."""

    key: str
    content: Content
    etag: str
    generation: int
    full_crc: bool
    modified: float = field(default_factory=time.time)
    storage_class: str = "STANDARD"
    restore: str = ""
    """Restored copy of an archived object: ``""`` for none, ``running``, ``done``."""
    metadata: dict[str, str] = field(default_factory=dict)
    md5: str = ""

    @property
    def is_restoring(self) -> bool:
        """Whether a restored copy is being made."""
        return self.restore == "running"


@dataclass
class OpenUpload:
    """An upload that has not been completed."""

    id: str
    key: str
    checksum: str
    parts: dict[int, Content] = field(default_factory=dict)
    begun: float = field(default_factory=time.time)


@dataclass
class Bucket:
    """A bucket with its objects, open uploads, and Azure's blocks by key and id."""

    name: str
    objects: dict[str, StoredVersion] = field(default_factory=dict)
    uploads: dict[str, OpenUpload] = field(default_factory=dict)
    blocks: dict[str, dict[str, Content]] = field(default_factory=dict)
    requester_pays: bool = False
    protected: set[str] = field(default_factory=set)
    """Keys that nobody may delete."""
    settings: dict[str, str] = field(default_factory=dict)


class ContentFiles:
    """Receives bytes to files of a folder, or counts and forgets them.

    Parameters
    ----------
    folder : Path or None
        None forgets; reads then yield zeros.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._names = itertools.count()
        self._lock = threading.Lock()

    def receive(self, pieces: Iterator[bytes], with_sha256: bool = False) -> Content:
        """Store what arrives and return it with its checksums."""
        if self.folder is None:
            return self._forget(pieces, with_sha256)
        with self._lock:
            path = self.folder / f"{next(self._names):08d}"
        crc, md5, sha, size = 0, hashlib.md5(), hashlib.sha256(), 0
        with path.open("wb") as file:
            for piece in pieces:
                file.write(piece)
                crc, size = google_crc32c.extend(crc, piece), size + len(piece)
                md5.update(piece)
                if with_sha256:
                    sha.update(piece)
        return Content((Segment(path, 0, size),), size, crc, md5.hexdigest(), sha.hexdigest())

    def _forget(self, pieces: Iterator[bytes], with_sha256: bool) -> Content:
        crc, sha, size = 0, hashlib.sha256(), 0
        for piece in pieces:
            crc, size = google_crc32c.extend(crc, piece), size + len(piece)
            if with_sha256:
                sha.update(piece)
        md5 = hashlib.md5(crc.to_bytes(4, "big")).hexdigest()  # stands for that of the bytes
        return Content((Segment(None, 0, size),), size, crc, md5, sha.hexdigest())

    def join(self, contents: list[Content]) -> Content:
        """Return the content of a completed upload; its checksum is read back from the disk."""
        segments = tuple(segment for content in contents for segment in content.segments)
        size = sum(content.size for content in contents)
        if self.folder is None:
            crc = combine_crc32c((content.crc32c, content.size) for content in contents)
        else:
            crc = 0
            for piece in read_pieces(segments, 0, size):
                crc = google_crc32c.extend(crc, piece)
        digests = b"".join(bytes.fromhex(content.md5) for content in contents)
        return Content(segments, size, crc, f"{hashlib.md5(digests).hexdigest()}-{len(contents)}")

    def cut(self, content: Content, start: int, stop: int) -> Content:
        """Return a span of a content, as a copy inside the store does."""
        return self.receive(read_pieces(content.segments, start, stop))


def read_pieces(segments: tuple[Segment, ...], start: int, stop: int) -> Iterator[bytes]:
    """Yield the bytes of a span."""
    base = 0
    for segment in segments:
        low, high = max(start - base, 0), min(stop - base, segment.size)
        base += segment.size
        if low >= high:
            continue
        if segment.path is None:
            for offset in range(low, high, PIECE):
                yield _ZEROS[: min(PIECE, high - offset)]
            continue
        with segment.path.open("rb") as file:
            file.seek(segment.offset + low)
            yield from _read_up_to(file, high - low)


def spoil(content: Content) -> None:
    """Change one bit of what is stored."""
    segment = next(segment for segment in content.segments if segment.path and segment.size)
    with open(segment.path or os.devnull, "r+b") as file:
        file.seek(segment.offset + segment.size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def _read_up_to(file: BinaryIO, size: int) -> Iterator[bytes]:
    while size:
        piece = file.read(min(PIECE, size))
        if not piece:
            return
        size -= len(piece)
        yield piece


_ZEROS = bytes(PIECE)
