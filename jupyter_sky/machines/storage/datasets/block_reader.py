"""Reading of objects by blocks: fetched once, several at a time, ahead of a reader in sequence."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.dataset import CachedObject
from jupyter_sky.machines.storage.stores.errors import Remedy, SkyStorageError, backoff, remedy_of
from jupyter_sky.machines.storage.stores.part_worker import read_part
from jupyter_sky.machines.storage.stores.store import MIB, PartRequest
from jupyter_sky.machines.storage.stores.traffic import Tally

BLOCK_BYTES = 4 * MIB
CACHED_BLOCKS = 16
"""Blocks that are kept; the kernel's page cache keeps the files themselves."""
BLOCKS_AHEAD = 4
CONCURRENCY = 8
ATTEMPTS = 8

RequestSource = Callable[[CachedObject, int], PartRequest]
"""Returns a signed request for a block, by the object and the block's number from 0."""


def block_count(size: int) -> int:
    """Return the number of blocks of an object.

    Examples
    --------
    >>> [block_count(size) for size in (0, 1, BLOCK_BYTES, BLOCK_BYTES + 1)]
    [0, 1, 1, 2]
    """
    return -(-size // BLOCK_BYTES)


class BlockReader:
    """Reader of objects whose requests come from elsewhere.

    Parameters
    ----------
    request
        Source of requests; it may wait.

    Attributes
    ----------
    tally : Tally
        Requests and bytes that the store bills, those in vain included.
    """

    def __init__(self, request: RequestSource) -> None:
        self._request, self.tally = request, Tally()
        self._blocks: OrderedDict[tuple[str, int], Future[bytes]] = OrderedDict()
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(CONCURRENCY, "sky-block")
        self._connections = Connections()

    def read(self, found: CachedObject, start: int, size: int) -> bytes:
        """Return up to `size` bytes of an object from `start` on.

        Raises
        ------
        SkyStorageError
            They cannot be read: the object has changed, or the store refuses.
        """
        stop = min(start + size, found.size)
        if start >= stop:
            return b""
        first, last = start // BLOCK_BYTES, (stop - 1) // BLOCK_BYTES
        blocks = [self._block(found, number) for number in range(first, last + 1)]
        self._read_ahead(found, last)
        pieces = []
        for number, block in enumerate(blocks, first):
            begin = number * BLOCK_BYTES
            pieces.append(block.result()[max(0, start - begin) : stop - begin])
        return b"".join(pieces)

    def _block(self, found: CachedObject, number: int) -> Future[bytes]:
        """Return a block that is there or on its way; one that has failed is fetched again."""
        key = found.identity, number
        with self._lock:
            block = self._blocks.get(key)
            if block is None or (block.done() and block.exception() is not None):
                block = self._blocks[key] = self._threads.submit(self._fetch, found, number)
            self._blocks.move_to_end(key)
            while len(self._blocks) > CACHED_BLOCKS:
                self._blocks.popitem(last=False)
            return block

    def _read_ahead(self, found: CachedObject, number: int) -> None:
        """Begin to fetch the next blocks of an object that is read in sequence."""
        with self._lock:
            in_sequence = (found.identity, number - 1) in self._blocks
        if in_sequence:
            last = min(number + BLOCKS_AHEAD, block_count(found.size) - 1)
            for ahead in range(number + 1, last + 1):
                self._block(found, ahead)

    def _fetch(self, found: CachedObject, number: int) -> bytes:
        attempt = 0
        while True:
            tally = Tally()
            try:
                return bytes(
                    read_part(self._request(found, number), self._connections, tally=tally)
                )
            except SkyStorageError as error:
                attempt += 1
                passing = remedy_of(error) in (Remedy.RETRY, Remedy.SLOW_DOWN)
                if not passing or attempt == ATTEMPTS:
                    raise
                time.sleep(backoff(attempt, getattr(error, "retry_after", 0.0), random.random()))
            finally:
                with self._lock:
                    self.tally.requests += tally.requests
                    self.tally.received += tally.received
