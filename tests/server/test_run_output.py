"""Journals as files that grow, and as logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.interfaces.server import run_output
from jupyter_sky.interfaces.server.run_output import JournalCache, lines


def entry(kind: str, rank: int = 0, **content: Any) -> dict[str, Any]:
    return {"type": kind, "rank": rank, "time": 1.5, "content": content}


def text(said: str, rank: int = 0, name: str = "stdout") -> dict[str, Any]:
    return entry("stream", rank, name=name, text=said)


def test_a_log_has_each_line_with_its_node_and_time() -> None:
    found = lines([text("a\nb", 1), entry("error", 2, traceback=["x", "y"])])
    assert [(line["rank"], line["stream"], line["text"], line["at"]) for line in found] == [
        (1, "stdout", "a\n", 1.5),
        (1, "stdout", "b", 1.5),
        (2, "error", "x\n", 1.5),
        (2, "error", "y\n", 1.5),
    ]


# -- files that grow -----------------------------------------------------------------------------


def line(number: int, size: int = 0) -> bytes:
    return json.dumps(text(f"{number} {'x' * size}")).encode() + b"\n"


def numbers(entries: list[dict[str, Any]]) -> list[int]:
    return [int(found["content"]["text"].split()[0]) for found in entries]


def test_a_file_is_read_while_it_grows(tmp_path: Path) -> None:
    journals, path = JournalCache(), tmp_path / "r1.jsonl"
    assert journals.read(path, 0) == ([], 0), "it has printed nothing"
    path.write_bytes(line(0) + line(1) + line(2)[:9])
    entries, following = journals.read(path, 0)
    assert numbers(entries) == [0, 1] and following == 2
    assert journals.read(path, 2) == ([], 2), "the third is being written"
    path.write_bytes(line(0) + line(1) + line(2) + line(3))
    entries, following = journals.read(path, 2)
    assert numbers(entries) == [2, 3] and following == 4
    assert numbers(journals.read(path, 1)[0]) == [1, 2, 3]
    assert journals.read(path, 99) == ([], 99)


def test_a_long_file_comes_in_pieces_and_is_found_from_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_output, "INDEX_INTERVAL_BYTES", 500)
    monkeypatch.setattr(run_output, "MAX_RESPONSE_BYTES", 2000)
    path = tmp_path / "r1.jsonl"
    path.write_bytes(b"".join(line(number, 50) for number in range(200)))
    journals, seen, at = JournalCache(), list[int](), 0
    while True:
        entries, following = journals.read(path, at)
        if not entries:
            break
        assert len(entries) < 40
        seen += numbers(entries)
        at = following
    assert seen == list(range(200)) and at == 200
    assert numbers(journals.read(path, 150)[0])[0] == 150
    assert numbers(JournalCache().read(path, 150)[0])[0] == 150, (
        "also by one who has read nothing yet"
    )


def test_a_line_that_the_disk_has_cut_is_counted_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "r1.jsonl"
    path.write_bytes(line(0) + b'{"type": "str\n' + line(2))
    entries, following = JournalCache().read(path, 0)
    assert following == 3
    assert [found["text"] for found in lines(entries)] == ["0 ", "2 "]
