"""Large parts of results in memory files, until the notebook has read them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from jupyter_sky.execution.serialization.memory_files import MemoryFile, machine_identity
from jupyter_sky.execution.serialization.payload import Blob, Payload, Segment

CHECK_SECONDS = 5.0
"""Time after which files whose reader is gone are closed."""


class ResultFiles:
    """Memory files of results, by descriptor.

    Parameters
    ----------
    on_first
        Called when there is a file again after there was none.
    """

    def __init__(self, on_first: Callable[[], object] = lambda: None) -> None:
        self._files: dict[int, tuple[MemoryFile, int]] = {}
        self._lock = threading.Lock()
        self._on_first = on_first

    def store_of(self, reader: tuple[str, int]) -> ReaderStore | None:
        """Return the store for the results of one notebook; None if it is on another machine."""
        machine, pid = reader
        return ReaderStore(self, pid) if machine and machine == machine_identity() else None

    def keep(self, file: MemoryFile, pid: int) -> None:
        """Keep a file until the process `pid` has read it."""
        with self._lock:
            is_first = not self._files
            self._files[file.name.descriptor] = file, pid
        if is_first:
            self._on_first()

    def adopt(self, payload: Payload, pid: int) -> Payload:
        """Take over the files of a payload from a child process; `pid` is their reader.

        Raises
        ------
        OSError
            The process is gone.
        """
        return tuple(self._adopt(segment, pid) for segment in payload)

    def _adopt(self, segment: Segment, pid: int) -> Segment:
        if not isinstance(segment, Blob) or segment.file is None:
            return segment
        file = MemoryFile.adopt(segment.file)
        self.keep(file, pid)
        return replace(segment, file=file.name)

    def release(self, descriptors: Iterable[int]) -> None:
        """Close files that have been read."""
        with self._lock:
            for descriptor in descriptors:
                self._files.pop(descriptor, None)

    def release_all(self) -> None:
        """Close all files."""
        self.release(list(self._files))

    def release_orphans(self) -> bool:
        """Close files whose reader is gone; return whether any file is left."""
        with self._lock:
            readers = {pid for _, pid in self._files.values()}
            alive = {pid for pid in readers if os.path.exists(f"/proc/{pid}")}
            self._files = {key: entry for key, entry in self._files.items() if entry[1] in alive}
            return bool(self._files)


class ReaderStore:
    """Store for the large segments of results that one process reads."""

    def __init__(self, files: ResultFiles, pid: int) -> None:
        self._files, self.pid = files, pid

    def add(self, segment: memoryview) -> Blob | None:
        """Return a segment as a blob with a memory file, if there can be one."""
        file = MemoryFile.write(segment)
        if file is None:
            return None
        self._files.keep(file, self.pid)
        return Blob("", segment.nbytes, file.name)
