"""Buffers of parts, used again because new ones cost zeros and page faults."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jupyter_sky.machines.storage.stores.store import MIB

KEPT = MIB
"""Smallest size of a buffer that is worth keeping."""


class Buffers:
    """Buffers that are lent to one user after another.

    Together they are no larger than twice what was lent at once: those of another size are let go
    before a new one is made.
    """

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self._lock = threading.Lock()

    @contextmanager
    def lend(self, size: int) -> Iterator[bytearray]:
        """Lend a buffer of at least `size` bytes."""
        if size < KEPT:
            yield bytearray(size)
            return
        buffer = self._find(size) or bytearray(size)
        try:
            yield buffer
        finally:
            with self._lock:
                self._free.append(buffer)

    def _find(self, size: int) -> bytearray | None:
        """Return a free buffer that fits; let go of the others where none does."""
        with self._lock:
            for number, free in enumerate(self._free):
                if size <= len(free) <= 2 * size:
                    return self._free.pop(number)
            self._free.clear()
            return None
