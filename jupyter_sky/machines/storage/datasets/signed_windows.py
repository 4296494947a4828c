"""Signed requests for the blocks of a mounted dataset, asked for a window of blocks at a time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.datasets.block_reader import BLOCK_BYTES, block_count
from jupyter_sky.machines.storage.datasets.machine_data import (
    EXPIRY_MARGIN_SECONDS,
    NOTEBOOK_SILENCE_SECONDS,
)
from jupyter_sky.machines.storage.datasets.mounted_tree import MountedTree
from jupyter_sky.machines.storage.stores.dataset import CachedObject
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.store import PartRequest, Span

WINDOW_BLOCKS = 32
"""Blocks whose requests are asked for at once: 128 MiB of one object."""
OBJECTS_AHEAD = 64
"""Objects behind the one that is read whose first requests are asked for as well."""
KEPT_WINDOWS = 2048

Window = tuple[str, int]
"""Identity of an object, and number of a window in it from 0."""


def window_spans(size: int, number: int) -> list[Span]:
    """Return the spans of the blocks of one window of an object.

    Examples
    --------
    >>> window_spans(BLOCK_BYTES + 5, 0)
    [Span(start=0, stop=4194304), Span(start=4194304, stop=4194309)]
    """
    first = number * WINDOW_BLOCKS
    blocks = range(first, min(first + WINDOW_BLOCKS, block_count(size)))
    return [Span(n * BLOCK_BYTES, min((n + 1) * BLOCK_BYTES, size)) for n in blocks]


class SignedWindows:
    """Requests that have come, and windows whose requests are wanted.

    Parameters
    ----------
    tree
        The dataset.
    ask
        Called with windows that nobody has asked for yet.
    silence
        Seconds without an answer after which a read fails.
    """

    def __init__(
        self,
        tree: MountedTree,
        ask: Callable[[list[Window]], None],
        silence: float = NOTEBOOK_SILENCE_SECONDS,
    ) -> None:
        self._tree, self._ask, self._silence = tree, ask, silence
        self._requests: OrderedDict[Window, Sequence[PartRequest]] = OrderedDict()
        self._wanted: set[Window] = set()
        self._refusals: list[str] = []
        self._condition = threading.Condition()

    def add(self, windows: Mapping[Window, Sequence[PartRequest]]) -> None:
        """Take requests that have been signed."""
        with self._condition:
            self._requests.update(windows)
            self._wanted -= windows.keys()
            while len(self._requests) > KEPT_WINDOWS:
                self._requests.popitem(last=False)
            self._condition.notify_all()

    def refuse(self, reason: str) -> None:
        """Let all reads that wait now fail."""
        with self._condition:
            self._refusals.append(reason)
            self._wanted.clear()
            self._condition.notify_all()

    def request(self, found: CachedObject, block: int) -> PartRequest:
        """Return a request for a block that lasts; wait for it to be signed.

        Raises
        ------
        SkyStorageError
            The notebook cannot sign it, or says nothing.
        """
        window = found.identity, block // WINDOW_BLOCKS
        until = time.monotonic() + self._silence
        with self._condition:
            refused_before = len(self._refusals)
            while True:
                requests = self._requests.get(window, ())
                if requests:
                    request = requests[block % WINDOW_BLOCKS]
                    if request.expires > time.time() + EXPIRY_MARGIN_SECONDS:
                        return request
                if len(self._refusals) > refused_before:
                    raise SkyStorageError(self._refusals[-1])
                if time.monotonic() > until:
                    raise SkyStorageError(_("the notebook, which signs requests, is gone"))
                if window in self._wanted:
                    self._condition.wait(1.0)
                else:
                    self._want(found, window)

    def _want(self, found: CachedObject, window: Window) -> None:
        ahead = self._tree.following(found, OBJECTS_AHEAD) if window[1] == 0 else ()
        wanted = [window, *self._first_windows(ahead)]
        self._wanted.update(wanted)
        self._ask(wanted)

    def _first_windows(self, objects: Iterable[CachedObject]) -> list[Window]:
        """Return the windows of small objects that nobody has asked for."""
        small = {(each.identity, 0): None for each in objects if 0 < each.size <= BLOCK_BYTES}
        return [each for each in small if each not in self._requests and each not in self._wanted]
