"""Outputs of a cell as a notebook keeps them, from the entries of its journal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

Entry = dict[str, Any]
"""Message of an engine in a journal: its ``type``, ``content``, and the ``rank`` of the engine."""

_AFTER_LINE_BREAK = re.compile(r"(?<=\n)")


@dataclass(slots=True)
class OutputArea:
    """Outputs as a notebook keeps them, made of entries of a journal in their order.

    Attributes
    ----------
    is_multi_rank : bool
        Whether several engines print: each line then begins with the rank of its engine.
    shown : list of dict
        The outputs.
    cleared : bool
        Whether the cell has cleared what it had shown before the first of these.

    Examples
    --------
    >>> entry = {"type": "stream", "rank": 0, "content": {"name": "stdout", "text": "a"}}
    >>> OutputArea.of([entry, entry]).shown
    [{'output_type': 'stream', 'name': 'stdout', 'text': 'aa'}]
    """

    is_multi_rank: bool = False
    shown: list[dict[str, Any]] = field(default_factory=list)
    cleared: bool = False
    _clearing: bool = False
    _open: int | None = None

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Self:
        """Return the outputs of entries."""
        listed = list(entries)
        ranks = {entry.get("rank", 0) for entry in listed if entry["type"] == "stream"}
        area = cls(len(ranks) > 1)
        for entry in listed:
            area.add(entry)
        return area

    def add(self, entry: Entry) -> None:
        """Show one entry."""
        kind, content = entry["type"], entry.get("content", {})
        if kind == "clear_output":
            self._clear(content)
            return
        if self._clearing and kind in ("stream", "display_data", "execute_result", "error"):
            self._clear({})
        if kind == "stream":
            self._stream(entry.get("rank", 0), content["name"], content["text"])
        elif kind == "error":
            named = {key: content.get(key, "") for key in ("ename", "evalue")}
            lines = content.get("traceback", [])
            self.shown.append({"output_type": "error", **named, "traceback": lines})
        elif kind == "update_display_data":
            self._update(content)
        elif kind == "display_data":
            self.shown.append({"output_type": kind, **output_data(content)})
        elif kind == "execute_result":
            self.add_result(content)

    def add_result(self, content: Mapping[str, Any]) -> None:
        """Show the value of the last expression."""
        # as a display: its count is the engine's own, not the notebook's
        self.shown.append({"output_type": "display_data", **output_data(content)})

    def add_unmatched_update(self, content: Mapping[str, Any]) -> None:
        """Show the update of a display that came before the first of these entries."""
        self.shown.append({"output_type": "update_display_data", **output_data(content)})

    def _clear(self, content: Mapping[str, Any]) -> None:
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
        marked = [
            line if own and not position else f"[{rank}] {line}"
            for position, line in enumerate(split_lines(text))
        ]
        self._open = None if text.endswith("\n") else rank
        return "".join(["\n" if cut else "", *marked])

    def _update(self, content: Mapping[str, Any]) -> None:
        """Replace outputs of the same display id."""
        name = _display_id(content)
        outputs = [output for output in self.shown if name and _display_id(output) == name]
        for output in outputs:
            output |= output_data(content)
        if not outputs:
            self.add_unmatched_update(content)


def output_data(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a message and the output of a notebook have in common."""
    kept = {"data": content.get("data", {}), "metadata": content.get("metadata", {})}
    name = _display_id(content)
    return kept | ({"transient": {"display_id": name}} if name else {})


def _display_id(content: Mapping[str, Any]) -> str | None:
    return (content.get("transient") or {}).get("display_id")


def split_lines(text: str) -> list[str]:
    r"""Return the lines of a text with their line breaks.

    Only a line feed ends a line: a carriage return goes back to its begin.

    Examples
    --------
    >>> split_lines("10 %\r20 %\nend")
    ['10 %\r20 %\n', 'end']
    """
    return [line for line in _AFTER_LINE_BREAK.split(text) if line]


def entry_text(entry: Entry) -> str:
    r"""Return what an entry shows, as text.

    Examples
    --------
    >>> entry_text({"type": "execute_result", "content": {"data": {"text/plain": "42"}}})
    '42\n'
    """
    content = entry.get("content", {})
    if entry["type"] == "stream":
        return content["text"]
    if entry["type"] == "error":
        return "\n".join(content.get("traceback", [])) + "\n"
    text = content.get("data", {}).get("text/plain", "")
    return f"{text}\n" if text else ""
