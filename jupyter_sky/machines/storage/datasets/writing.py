"""Writing of an object by this process, part by part, published whole."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO

from jupyter_sky.machines.storage.stores.checksums import crc32c
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import Retries, SkyRequestExpired
from jupyter_sky.machines.storage.stores.part_worker import write_part
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    MIB,
    Checksums,
    Condition,
    Part,
    Store,
    StoredObject,
    Upload,
    learn_clocks,
    part_count,
    part_span,
)

SPOOL_BYTES = 64 * MIB
"""Bytes of an object that is being written which are kept in memory; more go to a file."""


def write_object(
    store: Store, key: str, data: bytes | str | Path | BinaryIO, condition: Condition = ALWAYS
) -> StoredObject:
    """Write an object; nobody sees it before it is complete.

    Parameters
    ----------
    store, key
        Where.
    data
        Content, text, the path of a file, or a file that can be read from its beginning.
    condition
        Checked by the store at the moment of publication.
    """
    if isinstance(data, Path):
        with data.open("rb") as file:
            return _write_file(store, key, file, condition)
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes | bytearray | memoryview):
        data = io.BytesIO(data)
    return _write_file(store, key, data, condition)


def _write_file(store: Store, key: str, file: BinaryIO, condition: Condition) -> StoredObject:
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    upload = store.begin(key, size, condition=condition)
    connections, parts = Connections(), list[Part]()
    try:
        for number in range(1, part_count(size, upload.part_size) + 1):
            span = part_span(number, size, upload.part_size)
            piece = file.read(span.size)
            sums = _checksums(piece, store.capability.part_checksum)
            tag = _write_part(store, upload, number, sums, piece, connections)
            parts.append(Part(number, span, sums.crc32c, tag))
        return store.end(upload, parts)
    except BaseException:
        upload.abort()
        raise
    finally:
        connections.close()


def _write_part(
    store: Store,
    upload: Upload,
    number: int,
    sums: Checksums,
    piece: bytes,
    connections: Connections,
) -> str:
    def send() -> str:
        return write_part(upload.write(number, sums), piece, connections)

    try:
        return Retries().run(send)
    except SkyRequestExpired:
        if not learn_clocks(store):
            raise
    return Retries().run(send)


def _checksums(piece: bytes, wanted: str) -> Checksums:
    """Return the checksums of a part that a store wants."""
    with_md5 = wanted == "md5"
    md5 = hashlib.md5(piece, usedforsecurity=False).digest() if with_md5 else b""
    return Checksums(crc32c(piece), md5)


class ObjectWriter(io.RawIOBase):
    """A file that becomes an object when it is closed, unless its block has raised.

    Parameters
    ----------
    publish
        Called with the content, a file at its beginning.
    """

    def __init__(self, publish: Callable[[Any], object]) -> None:
        self._publish = publish
        self._file = SpooledTemporaryFile(SPOOL_BYTES)  # noqa: SIM115 - closed with this file
        self._failed = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Add bytes at the end."""
        return self._file.write(data)

    def close(self) -> None:
        """Publish what was written."""
        if self.closed:
            return
        super().close()
        try:
            if not self._failed:
                self._publish(self._file)
        finally:
            self._file.close()

    def discard(self) -> None:
        """Publish nothing when it is closed."""
        self._failed = True

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self.discard()
        self.close()


class TextWriter(io.TextIOWrapper):
    """Text that becomes an object when it is closed, unless its block has raised."""

    def __init__(self, writer: ObjectWriter, encoding: str = "utf-8", **text: Any) -> None:
        super().__init__(writer, encoding, **text)  # type: ignore[arg-type]
        self._writer = writer

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            self._writer.discard()
        self.close()
