"""Journals of runs as growing files, and their entries as lines of a log."""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_sky.execution.cells.output_area import Entry, entry_text, split_lines

INDEX_INTERVAL_BYTES = 2**18
MAX_RESPONSE_BYTES = 2**20
"""About how much of a journal is answered at once: the rest comes with the next question."""
MAX_CACHED_FILES = 64


@dataclass(slots=True)
class _JournalFile:
    """Index of the entries of a growing file, as far as it has been read."""

    path: Path
    count: int = 0
    size: int = 0
    numbers: list[int] = field(default_factory=lambda: [0])
    offsets: list[int] = field(default_factory=lambda: [0])

    def read(self, start: int) -> tuple[list[Entry], int]:
        """Return entries from a number on, and the number of the next."""
        entries: list[Entry] = []
        taken = 0
        mark = bisect_right(self.numbers, start) - 1
        number, offset = self.numbers[mark], self.offsets[mark]
        with self.path.open("rb") as file:
            file.seek(offset)
            for line in file:
                if not line.endswith(b"\n"):  # it is being written
                    break
                offset += len(line)
                number += 1
                self._note(number, offset)
                if number <= start:
                    continue
                try:
                    entries.append(json.loads(line))
                except ValueError:  # cut by a full disk
                    entries.append({"type": "lost"})
                taken += len(line)
                if taken > MAX_RESPONSE_BYTES:
                    break
        return entries, max(start, number)

    def _note(self, number: int, offset: int) -> None:
        if number <= self.count:
            return
        self.count, self.size = number, offset
        if offset - self.offsets[-1] > INDEX_INTERVAL_BYTES:
            self.numbers.append(number)
            self.offsets.append(offset)


class JournalCache:
    """The journals of runs that are files on this machine.

    Examples
    --------
    >>> entries, following = Journals().read(Path("journal/r1.jsonl"), 0)  # doctest: +SKIP
    """

    def __init__(self) -> None:
        self._files: OrderedDict[Path, _JournalFile] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path, start: int) -> tuple[list[Entry], int]:
        """Return entries from number `start` on, and the number of the next; about 1 MB at once."""
        with self._lock:
            file = self._files.setdefault(path, _JournalFile(path))
            self._files.move_to_end(path)
            while len(self._files) > MAX_CACHED_FILES:
                self._files.popitem(last=False)
            try:
                return file.read(start)
            except FileNotFoundError:  # nothing has been printed
                return [], start


# -- as a log ----------------------------------------------------------------------------------


def lines(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    r"""Return entries as lines of text; one that does not end in a line break goes on in the next.

    Examples
    --------
    >>> content = {"name": "stdout", "text": "one\ntwo"}
    >>> entry = {"type": "stream", "rank": 1, "time": 7.0, "content": content}
    >>> [(line["rank"], line["text"]) for line in lines([entry])]
    [(1, 'one\n'), (1, 'two')]
    """
    found = []
    for entry in entries:
        label = {"rank": entry.get("rank", 0), "stream": _stream(entry), "at": entry.get("time")}
        found += [label | {"text": line} for line in split_lines(entry_text(entry))]
    return found


def _stream(entry: Entry) -> str:
    if entry["type"] == "stream":
        return entry["content"]["name"]
    return "error" if entry["type"] == "error" else "result"
