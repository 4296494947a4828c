"""Printed output of a run, from its journal: as outputs of a notebook, or as lines of a log."""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Entry = dict[str, Any]

INDEX_INTERVAL_BYTES = 2**18
MAX_RESPONSE_BYTES = 2**20
"""About how much of a journal is answered at once: the rest comes with the next question."""
MAX_CACHED_FILES = 64

_TEXT_STREAMS = re.compile(r"(?<=\n)")


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


# -- as outputs --------------------------------------------------------------------------------


@dataclass(slots=True)
class OutputArea:
    """Outputs as a notebook keeps them, made of entries of a journal in their order.

    Attributes
    ----------
    cleared : bool
        Whether the cell has cleared what it had shown before the first of these.
    """

    is_multi_rank: bool = False
    shown: list[dict[str, Any]] = field(default_factory=list)
    cleared: bool = False
    _clearing: bool = False
    _open: int | None = None

    def add(self, entry: Entry) -> None:
        """Show one entry."""
        kind, content = entry["type"], entry.get("content", {})
        if kind == "clear_output":
            self._clear(content)
            return
        if self._clearing and kind in ("stream", "display_data", "execute_result", "error"):
            self._clear({})
        if kind == "stream":
            self._stream(entry["rank"], content["name"], content["text"])
        elif kind == "error":
            named = {key: content.get(key, "") for key in ("ename", "evalue")}
            lines = content.get("traceback", [])
            self.shown.append({"output_type": "error", **named, "traceback": lines})
        elif kind == "update_display_data":
            self._update(content)
        elif kind in ("display_data", "execute_result"):
            # its count is the engine's own, not the notebook's
            self.shown.append({"output_type": "display_data", **_data(content)})

    def _clear(self, content: dict[str, Any]) -> None:
        self._clearing = bool(content.get("wait"))
        if not self._clearing:
            self.shown.clear()
            self.cleared = True

    def _stream(self, rank: int, name: str, text: str) -> None:
        last = self.shown[-1] if self.shown else {}
        if self.is_multi_rank:
            text = self._prefixed(rank, text, last.get("name") == name)
        if last.get("output_type") == "stream" and last["name"] == name:
            last["text"] += text
        else:
            self.shown.append({"output_type": "stream", "name": name, "text": text})

    def _prefixed(self, rank: int, text: str, continues: bool) -> str:
        """Begin each line with the rank of its engine."""
        own = continues and self._open == rank
        cut = continues and self._open not in (None, rank)
        lines = [line for line in _TEXT_STREAMS.split(text) if line]
        marked = [line if own and not i else f"[{rank}] {line}" for i, line in enumerate(lines)]
        self._open = None if text.endswith("\n") else rank
        return "".join(["\n" if cut else "", *marked])

    def _update(self, content: dict[str, Any]) -> None:
        """Replace outputs of the same display id; those before the first entry are not here."""
        name = content.get("transient", {}).get("display_id")
        found = [out for out in self.shown if out.get("transient", {}).get("display_id") == name]
        for out in found:
            out |= _data(content)
        if not found:
            self.shown.append({"output_type": "update_display_data", **_data(content)})


def _data(content: dict[str, Any]) -> dict[str, Any]:
    kept = {"data": content.get("data", {}), "metadata": content.get("metadata", {})}
    name = content.get("transient", {}).get("display_id")
    return kept | ({"transient": {"display_id": name}} if name else {})


def outputs(entries: Iterable[Entry]) -> OutputArea:
    """Return entries as outputs; where several nodes print, each line begins with its rank.

    Examples
    --------
    >>> entry = {"type": "stream", "rank": 0, "content": {"name": "stdout", "text": "a"}}
    >>> outputs([entry, entry]).shown
    [{'output_type': 'stream', 'name': 'stdout', 'text': 'aa'}]
    """
    listed = list(entries)
    found = OutputArea(len({entry["rank"] for entry in listed if entry["type"] == "stream"}) > 1)
    for entry in listed:
        found.add(entry)
    return found


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
        stream, text = _text(entry)
        said = {"rank": entry.get("rank", 0), "stream": stream, "at": entry.get("time")}
        found += [said | {"text": line} for line in _TEXT_STREAMS.split(text) if line]
    return found


def _text(entry: Entry) -> tuple[str, str]:
    kind, content = entry["type"], entry.get("content", {})
    if kind == "stream":
        return content["name"], content["text"]
    if kind == "error":
        return "error", "\n".join(content.get("traceback", [])) + "\n"
    text = content.get("data", {}).get("text/plain", "")
    return "result", f"{text}\n" if text else ""
