"""Journal: every output message of cells, kept on the head node without a limit."""

from __future__ import annotations

import json
import os
import re
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from jupyter_sky.machines.engines.wire.messages import RECORDED_TYPES

INDEX_STEP_BYTES = 2**18
"""A place in the file is remembered about this often."""


@dataclass(slots=True)
class _Index:
    """Sparse index of one file: ascending entry numbers and their byte offsets."""

    count: int = 0
    size: int = 0
    numbers: list[int] = field(default_factory=lambda: [0])
    offsets: list[int] = field(default_factory=lambda: [0])

    def add(self, length: int) -> None:
        if self.size - self.offsets[-1] > INDEX_STEP_BYTES:
            self.numbers.append(self.count)
            self.offsets.append(self.size)
        self.count, self.size = self.count + 1, self.size + length


class Journal:
    """Output messages in one file of JSON lines a run, in the order of arrival.

    What the disk refuses is lost, not an error: cells and the lease matter more than their log.

    Parameters
    ----------
    directory
        Where the files live; made with mode 0700, files with 0600.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open: dict[str, BinaryIO] = {}
        self._indices: dict[str, _Index] = {}

    def append(self, run: str, rank: int, kind: str, content: bytes | memoryview) -> None:
        """Add one IOPub message of `run` if it is of a kept type.

        Parameters
        ----------
        content
            Its content as a session packs it: JSON on one line. It is written as it is, however
            large: unpacked and packed again it would be held five times.
        """
        if kind not in RECORDED_TYPES:
            return
        if re.search(rb"\n", content):  # no session packs it so, but a program may
            content = bytes(content).replace(b"\n", b" ")  # between tokens: in texts it is escaped
        facts = {"time": time.time(), "rank": rank, "type": kind}
        start = json.dumps(facts, separators=(",", ":")).encode()[:-1] + b',"content":'
        try:
            file = self._open.get(run)
            if file is None:
                self._index(run)
                file = open(self.path(run), "ab", opener=_open_private)  # noqa: SIM115 - until close
                self._open[run] = file
            for part in (start, content, b"}\n"):
                file.write(part)
        except OSError:
            return
        self._indices[run].add(len(start) + len(content) + 2)

    def count(self, run: str) -> int:
        """Return how many entries a run has."""
        return self._index(run).count

    def read(self, run: str, start: int, limit_bytes: int = 2**20) -> tuple[list[dict], int]:
        """Return entries of `run` from number `start`, and the number of the next one.

        At most about `limit_bytes` are returned at once (but at least one entry), so that the
        controller never holds a whole flood; call again with the number returned.
        """
        index = self._index(run)
        if run in self._open:  # also where nothing is returned: others read the file itself
            _attempt(self._open[run].flush)
        if start >= index.count:
            return [], start
        entries: list[dict] = []
        size, mark = 0, bisect_right(index.numbers, start) - 1
        try:
            with open(self.path(run), "rb") as file:
                file.seek(index.offsets[mark])
                for number, line in enumerate(file, index.numbers[mark]):
                    if number < start:
                        continue
                    if entries and size + len(line) > limit_bytes:
                        break
                    # a session packs a lone surrogate as a byte that is no UTF-8
                    entries.append(json.loads(line.decode(errors="replace")))
                    size += len(line)
        except (OSError, ValueError):  # a line that the disk has cut
            pass
        return entries, start + len(entries)

    def close(self, run: str) -> None:
        """Flush and close the file of a run that has ended."""
        file = self._open.pop(run, None)
        if file is not None:
            _attempt(file.close)

    def flush(self, running: Iterable[str] | None = None) -> None:
        """Write buffers to disk; close the files of runs that are not among `running`."""
        for run, file in list(self._open.items()):
            if running is None or run in running:
                _attempt(file.flush)
            else:
                self.close(run)

    def forget(self, run: str) -> None:
        """Drop the state of a run except its file."""
        self.close(run)
        self._indices.pop(run, None)

    def _index(self, run: str) -> _Index:
        """Return the index of a run's file, rebuilt from the file if needed."""
        index = self._indices.get(run)
        if index is None:
            index = self._indices[run] = _Index()
            try:
                with open(self.path(run), "rb") as file:
                    for line in file:
                        index.add(len(line))
            except OSError:  # it has printed nothing
                pass
        return index

    def open_runs(self) -> set[str]:
        """Return the runs whose files are open."""
        return set(self._open)

    def path(self, run: str) -> Path:
        """Return the file of a run."""
        return self.directory / f"{run}.jsonl"


def _attempt(act: Callable[[], object]) -> None:
    try:
        act()
    except OSError:  # the disk is full
        pass


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
