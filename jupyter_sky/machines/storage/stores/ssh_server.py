"""Entry point on a host of ``ssh:`` addresses: operations on its files, by frames on its streams.

It needs Python 3.11 and google-crc32c, and holds no credentials. A frame is the length of a header
in four bytes, the header in JSON, and as many bytes as its ``size`` says.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import IO

from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.messages import Done, Message, Receiver, handles
from jupyter_sky.machines.storage.stores.answers import describe_error
from jupyter_sky.machines.storage.stores.checksums import crc32c, crc_to_hex
from jupyter_sky.machines.storage.stores.connections import Bytes
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.file_parts import read_file_part, write_file_part
from jupyter_sky.machines.storage.stores.files import FilesStore, FileUpload
from jupyter_sky.machines.storage.stores.ssh_messages import (
    AbortUpload,
    BeginUpload,
    ComputeSums,
    EndUpload,
    FileOperation,
    FindParts,
    ListPage,
    ObjectRecord,
    ObjectReply,
    PageReply,
    PartReply,
    PartsReply,
    ReadPart,
    Remove,
    Stat,
    SumsReply,
    TagReply,
    UploadReply,
    WritePart,
)
from jupyter_sky.machines.storage.stores.store import (
    MIB,
    Condition,
    Part,
    PartRequest,
    Span,
    StoredObject,
)

PAGE_OBJECTS = 1000
"""Objects of one answer to a listing."""
IDLE_SECONDS = 600.0
"""Time without a frame after which the process ends; the next operation starts another."""
THREADS = 8


def write_frame(stream: IO[bytes], header: JsonObject, payload: Bytes = b"") -> None:
    """Write a frame."""
    text = json.dumps(header | {"size": len(payload)}).encode()
    stream.write(len(text).to_bytes(4, "big") + text)
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[JsonObject, bytes] | None:
    """Read a frame; None at the end of the stream, also in the middle of a frame."""
    length = stream.read(4)
    if len(length) < 4:
        return None
    text = stream.read(int.from_bytes(length, "big"))
    try:
        header = json.loads(text)
    except ValueError:
        return None
    payload = stream.read(header["size"])
    return (header, payload) if len(payload) == header["size"] else None


def encode_object(found: StoredObject) -> ObjectRecord:
    """Return an object as a value for JSON."""
    return (found.key, found.size, found.version, dict(found.sums), found.modified)


def encode_upload(upload: FileUpload) -> JsonObject:
    """Return an upload as a value for JSON."""
    return asdict(upload) | {"path": str(upload.path), "part_path": str(upload.part_path)}


def decode_upload(values: JsonObject) -> FileUpload:
    """Return the upload that `encode_upload` encoded."""
    typed: JsonObject = {name: Path(values[name]) for name in ("path", "part_path")}
    typed["condition"] = Condition(**values["condition"])
    return FileUpload(**values | typed)


class FileServer(Receiver):
    """Operations on the files of this machine, by their names in a header."""

    def __init__(self, store: FilesStore) -> None:
        self._store = store
        self._listings: dict[int, Iterator[StoredObject]] = {}
        self._numbers = count(1)

    def answer(self, header: JsonObject, payload: bytes) -> tuple[JsonObject, Bytes]:
        """Carry out an operation; its error is an answer as well."""
        try:
            operation = self.decode(header, (payload,), op_key=FileOperation.op_key)
            reply: Message = self.dispatch(operation)
            return reply.encode(), reply.attached[0] if reply.attached else b""
        except SkyStorageError as error:
            return describe_error(error), b""
        except Exception as error:
            return describe_error(SkyStorageError(f"{type(error).__name__}: {error}")), b""

    @handles(Stat)
    def _stat(self, operation: Stat) -> ObjectReply:
        return ObjectReply(encode_object(self._store.stat(operation.key)))

    @handles(ListPage)
    def _list(self, operation: ListPage) -> PageReply:
        """Return one page; what the next one goes on with is kept under a number."""
        number = operation.cursor or next(self._numbers)
        listing = self._listings.pop(number, None)
        if listing is None:
            listing = self._store.list(operation.prefix, operation.after)
        page = [encode_object(each) for each in islice(listing, PAGE_OBJECTS)]
        if len(page) < PAGE_OBJECTS:
            return PageReply(page, 0)
        self._listings[number] = listing
        return PageReply(page, number)

    @handles(ComputeSums)
    def _compute_sums(self, operation: ComputeSums) -> SumsReply:
        md5, crc = hashlib.md5(usedforsecurity=False), 0
        with self._store.path(operation.key).open("rb") as file:
            while piece := file.read(MIB):
                md5.update(piece)
                crc = crc32c(piece, crc)
        return SumsReply({"md5": md5.hexdigest(), "crc32c": crc_to_hex(crc)})

    @handles(BeginUpload)
    def _begin(self, operation: BeginUpload) -> UploadReply:
        upload = self._store.begin(
            operation.key,
            operation.bytes,
            part_size=operation.part_size,
            condition=Condition(**operation.condition),
            upload_id=operation.upload_id,
        )
        assert isinstance(upload, FileUpload)
        return UploadReply(encode_upload(upload))

    @handles(FindParts)
    def _find_parts(self, operation: FindParts) -> PartsReply:
        parts = decode_upload(operation.upload).have().values()
        return PartsReply([(part.number, part.crc32c, part.tag) for part in parts])

    @handles(EndUpload)
    def _end(self, operation: EndUpload) -> ObjectReply:
        upload = decode_upload(operation.upload)
        parts = [Part(n, Span(start, stop), crc, "") for n, start, stop, crc in operation.parts]
        with contextlib.suppress(FileNotFoundError):  # which `end` raises in its own words
            _sync(upload.part_path)
        written = self._store.end(upload, parts)
        _sync(upload.path.parent)
        return ObjectReply(encode_object(written))

    @handles(AbortUpload)
    def _abort(self, operation: AbortUpload) -> Done:
        decode_upload(operation.upload).abort()
        return Done()

    @handles(Remove)
    def _remove(self, operation: Remove) -> Done:
        self._store.remove(operation.keys)
        return Done()

    @handles(ReadPart)
    def _read(self, operation: ReadPart) -> PartReply:
        request = PartRequest("GET", operation.url, operation.headers, Span(*operation.span))
        return PartReply((memoryview(read_file_part(request)),))

    @handles(WritePart)
    def _write(self, operation: WritePart) -> TagReply:
        request = PartRequest("PUT", operation.url, operation.headers, Span(*operation.span))
        return TagReply(write_file_part(request, operation.buffers[0]))


def _sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main() -> None:
    """Serve frames from standard input until it ends, or nothing has come for long."""
    server, lock = FileServer(FilesStore()), threading.Lock()
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer

    def carry_out(header: JsonObject, payload: bytes) -> None:
        answer, data = server.answer(header, payload)
        with lock, contextlib.suppress(OSError):
            write_frame(outgoing, answer | {"id": header["id"]}, data)

    def watch_idleness() -> threading.Timer:
        timer = threading.Timer(IDLE_SECONDS, os._exit, (0,))
        timer.daemon = True
        timer.start()
        return timer

    timer = watch_idleness()
    with ThreadPoolExecutor(THREADS) as pool:
        while (frame := read_frame(incoming)) is not None:
            timer.cancel()
            timer = watch_idleness()
            pool.submit(carry_out, *frame)


if __name__ == "__main__":
    main()
