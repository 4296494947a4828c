"""The journal: every message that running cells print, kept on the head node, never capped."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, TextIO

KEPT = {
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "clear_output",
    "error",
}
"""Message types worth replaying. Widgets' traffic is not: their live side is gone by then."""


class Journal:
    """One file of JSON lines a run, in the order of arrival.

    Parameters
    ----------
    directory
        Where the files live; made with mode 0700, files with 0600.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open: dict[str, TextIO] = {}
        self.counts: dict[str, int] = {}

    def append(self, run: str, rank: int, message: dict[str, Any]) -> None:
        """Add one IOPub message of `run` if it is of a kept type."""
        kind = message["header"]["msg_type"]
        if kind not in KEPT:
            return
        entry = {
            "time": time.time(),
            "rank": rank,
            "type": kind,
            "content": message["content"],
        }
        file = self._open.get(run)
        if file is None:
            file = self._open[run] = open(self._path(run), "a", opener=_private)
        file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self.counts[run] = self.counts.get(run, 0) + 1

    def read(self, run: str, start: int, limit_bytes: int = 2**20) -> tuple[list[dict], int]:
        """Return entries of `run` from number `start`, and the number of the next one.

        At most about `limit_bytes` are returned at once (but at least one entry), so that the
        head never holds a whole flood; call again with the number returned.
        """
        if run in self._open:
            self._open[run].flush()
        entries: list[dict] = []
        size, number = 0, 0
        try:
            with open(self._path(run)) as file:
                for number, line in enumerate(file):  # noqa: B007 - the last number is used
                    if number < start:
                        continue
                    if entries and size + len(line) > limit_bytes:
                        break
                    entries.append(json.loads(line))
                    size += len(line)
        except FileNotFoundError:
            return [], start
        return entries, start + len(entries)

    def close(self, run: str) -> None:
        """Flush and close the file of a run that has ended."""
        file = self._open.pop(run, None)
        if file is not None:
            file.close()

    def flush(self) -> None:
        """Write out what is buffered."""
        for file in self._open.values():
            file.flush()

    def _path(self, run: str) -> Path:
        return self.directory / f"{run}.jsonl"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
