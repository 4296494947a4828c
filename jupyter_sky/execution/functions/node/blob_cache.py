"""Cache of large argument pieces on a node, in files named by content."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from jupyter_sky.base.messages import Buffers
from jupyter_sky.execution.functions.node.pool_context import MissingBlob
from jupyter_sky.execution.serialization.memory_files import map_file
from jupyter_sky.execution.serialization.payload import Blob

MAX_BYTES = 16 * 2**30
"""Most that is kept, if half of the disk is not less; what was used longest ago goes first."""


class BlobCache:
    """The blobs of a node. A restarted engine finds them again.

    Examples
    --------
    >>> import tempfile
    >>> blob_cache = BlobCache(Path(tempfile.mkdtemp()))
    >>> blob_cache.write_part("ab", 0, [b"some"], 4)
    True
    >>> bytes(blob_cache.open(Blob("ab", 4)))
    b'some'
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open: dict[str, tuple[BinaryIO, int]] = {}

    @property
    def identity(self) -> str:
        """Identity of this folder among those of all machines."""
        status = self.folder.stat()
        return f"{socket.gethostname()} {status.st_dev} {status.st_ino}"

    def has(self, name: str) -> bool:
        """Whether a blob is here, whole."""
        return (self.folder / name).exists()

    def write_part(self, name: str, start: int, buffers: Buffers, size: int) -> bool:
        """Write a part of a blob; say whether it is whole now."""
        if self.has(name):
            return True
        if name not in self._open:
            self._make_room(size)
            path = self.folder / f"{name}.{os.getpid()}"
            self._open[name] = open(path, "wb"), 0  # noqa: SIM115 - until it is whole
        file, written = self._open[name]
        file.seek(start)
        for data in buffers:
            written += file.write(data)
        self._open[name] = file, written
        if written < size:
            return False
        file.close()
        del self._open[name]
        Path(file.name).replace(self.folder / name)
        return True

    def open(self, blob: Blob) -> memoryview:
        """Map a blob copy-on-write: its memory file, or its file here.

        Raises
        ------
        MissingBlob
            It is not here.
        """
        if blob.file is not None:
            with suppress(OSError):
                return map_file(blob.file)
        try:
            with open(self.folder / blob.digest, "rb") as file:
                os.utime(file.fileno())
                flags = {"flags": mmap.MAP_PRIVATE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
                return memoryview(mmap.mmap(file.fileno(), blob.size, **flags))
        except FileNotFoundError:
            raise MissingBlob(blob.digest) from None

    def _make_room(self, size: int) -> None:
        kept = sorted(self.folder.iterdir(), key=lambda path: path.stat().st_mtime)
        total = size + sum(path.stat().st_size for path in kept)
        most = min(MAX_BYTES, total + shutil.disk_usage(self.folder).free // 2)
        for path in kept:
            if total <= most:
                break
            with suppress(OSError):
                total -= path.stat().st_size
                path.unlink()
