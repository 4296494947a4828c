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
from typing import IO, Any

from jupyter_sky.machines.storage.stores.answers import describe_error
from jupyter_sky.machines.storage.stores.checksums import crc32c, crc_to_hex
from jupyter_sky.machines.storage.stores.connections import Bytes
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.file_parts import read_file_part, write_file_part
from jupyter_sky.machines.storage.stores.files import FilesStore, FileUpload
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
Reply = tuple[dict[str, Any], Bytes]


def write_frame(stream: IO[bytes], header: dict[str, Any], payload: Bytes = b"") -> None:
    """Write a frame."""
    text = json.dumps(header | {"size": len(payload)}).encode()
    stream.write(len(text).to_bytes(4, "big") + text)
    stream.write(payload)
    stream.flush()


def read_frame(stream: IO[bytes]) -> tuple[dict[str, Any], bytes] | None:
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


def encode_object(found: StoredObject) -> list[Any]:
    """Return an object as a value for JSON."""
    return [found.key, found.size, found.version, dict(found.sums), found.modified]


def encode_upload(upload: FileUpload) -> dict[str, Any]:
    """Return an upload as a value for JSON."""
    return asdict(upload) | {"path": str(upload.path), "part_path": str(upload.part_path)}


def decode_upload(values: dict[str, Any]) -> FileUpload:
    """Return the upload that `encode_upload` encoded."""
    typed: dict[str, Any] = {name: Path(values[name]) for name in ("path", "part_path")}
    typed["condition"] = Condition(**values["condition"])
    return FileUpload(**values | typed)


class FileServer:
    """Operations on the files of this machine, by their names in a header."""

    def __init__(self, store: FilesStore) -> None:
        self._store = store
        self._listings: dict[int, Iterator[StoredObject]] = {}
        self._numbers = count(1)

    def answer(self, header: dict[str, Any], payload: bytes) -> Reply:
        """Carry out an operation; its error is an answer as well."""
        try:
            return getattr(self, f"_do_{header['do']}")(header, payload)
        except SkyStorageError as error:
            return describe_error(error), b""
        except Exception as error:
            return describe_error(SkyStorageError(f"{type(error).__name__}: {error}")), b""

    def _do_stat(self, header: dict[str, Any], __: bytes) -> Reply:
        return {"object": encode_object(self._store.stat(header["key"]))}, b""

    def _do_list(self, header: dict[str, Any], __: bytes) -> Reply:
        """Return one page; what the next one goes on with is kept under a number."""
        number = header["cursor"] or next(self._numbers)
        listing = self._listings.pop(number, None)
        if listing is None:
            listing = self._store.list(header["prefix"], header["after"])
        page = [encode_object(each) for each in islice(listing, PAGE_OBJECTS)]
        if len(page) < PAGE_OBJECTS:
            return {"objects": page, "cursor": 0}, b""
        self._listings[number] = listing
        return {"objects": page, "cursor": number}, b""

    def _do_sums(self, header: dict[str, Any], __: bytes) -> Reply:
        md5, crc = hashlib.md5(usedforsecurity=False), 0
        with self._store.path(header["key"]).open("rb") as file:
            while piece := file.read(MIB):
                md5.update(piece)
                crc = crc32c(piece, crc)
        return {"sums": {"md5": md5.hexdigest(), "crc32c": crc_to_hex(crc)}}, b""

    def _do_begin(self, header: dict[str, Any], __: bytes) -> Reply:
        upload = self._store.begin(
            header["key"],
            header["bytes"],
            part_size=header["part_size"],
            condition=Condition(**header["condition"]),
            upload_id=header["upload_id"],
        )
        assert isinstance(upload, FileUpload)
        return {"upload": encode_upload(upload)}, b""

    def _do_have(self, header: dict[str, Any], __: bytes) -> Reply:
        parts = decode_upload(header["upload"]).have().values()
        return {"parts": [[part.number, part.crc32c, part.tag] for part in parts]}, b""

    def _do_end(self, header: dict[str, Any], __: bytes) -> Reply:
        upload = decode_upload(header["upload"])
        parts = [Part(n, Span(start, stop), crc, "") for n, start, stop, crc in header["parts"]]
        with contextlib.suppress(FileNotFoundError):  # which `end` raises in its own words
            _sync(upload.part_path)
        written = self._store.end(upload, parts)
        _sync(upload.path.parent)
        return {"object": encode_object(written)}, b""

    def _do_abort(self, header: dict[str, Any], __: bytes) -> Reply:
        decode_upload(header["upload"]).abort()
        return {}, b""

    def _do_remove(self, header: dict[str, Any], __: bytes) -> Reply:
        self._store.remove(header["keys"])
        return {}, b""

    def _do_read(self, header: dict[str, Any], __: bytes) -> Reply:
        request = PartRequest("GET", header["url"], header["headers"], Span(*header["span"]))
        return {}, read_file_part(request)

    def _do_write(self, header: dict[str, Any], payload: bytes) -> Reply:
        request = PartRequest("PUT", header["url"], header["headers"], Span(*header["span"]))
        return {"tag": write_file_part(request, payload)}, b""


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

    def carry_out(header: dict[str, Any], payload: bytes) -> None:
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
