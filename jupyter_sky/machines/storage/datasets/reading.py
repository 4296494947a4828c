"""Reading of an object at any position, in pieces of one pinned version."""

from __future__ import annotations

import io
from typing import Any

from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.part_worker import read_part
from jupyter_sky.machines.storage.stores.retries import Retries
from jupyter_sky.machines.storage.stores.store import MIB, Span, Store, StoredObject

BUFFER_BYTES = 4 * MIB
"""Bytes of one request; small reads are served from what it brought."""


class ObjectReader(io.RawIOBase):
    """An object as a file that is read from anywhere.

    All reads are of the version that was opened: one that is replaced meanwhile raises
    `SkySourceChanged` instead of giving bytes of both.

    Parameters
    ----------
    store
        Store of the object.
    found
        The version to read.
    """

    def __init__(self, store: Store, found: StoredObject) -> None:
        self._store, self._found, self._place = store, found, 0
        self._connections, self._retries = Connections(), Retries()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; see `io.IOBase.seek`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._found.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        stop = min(self._place + len(view), self._found.size)
        if stop <= self._place:
            return 0
        span = Span(self._place, stop)
        data = self._retries.run(
            lambda: read_part(self._store.read(self._found, span), self._connections)
        )
        view[: len(data)] = data
        self._place += len(data)
        return len(data)


def open_object(
    store: Store,
    found: StoredObject,
    mode: str = "rb",
    encoding: str = "utf-8",
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Open an object for reading, as `open` does.

    Parameters
    ----------
    mode
        ``rb`` or ``r``; the other parameters are for ``r``.
    """
    binary = io.BufferedReader(ObjectReader(store, found), min(BUFFER_BYTES, max(found.size, 1)))
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding, errors, newline)
