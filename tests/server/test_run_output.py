"""Journals as outputs and as logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_sky.executor.output_area import OutputArea
from jupyter_sky.executor.untrusted_output import filter_entries
from jupyter_sky.server import run_output
from jupyter_sky.server.run_output import JournalCache, lines


def entry(kind: str, rank: int = 0, **content: Any) -> dict[str, Any]:
    return {"type": kind, "rank": rank, "time": 1.5, "content": content}


def text(said: str, rank: int = 0, name: str = "stdout") -> dict[str, Any]:
    return entry("stream", rank, name=name, text=said)


def shown(*entries: dict[str, Any]) -> list[Any]:
    return [out.get("text") or out.get("data") or out for out in OutputArea.of(entries).shown]


def test_text_of_one_stream_is_one_output() -> None:
    found = OutputArea.of([text("a\n"), text("b"), text("!", name="stderr"), text("c")]).shown
    assert [(out["name"], out["text"]) for out in found] == [
        ("stdout", "a\nb"),
        ("stderr", "!"),
        ("stdout", "c"),
    ]


def test_lines_of_several_nodes_say_whose_they_are() -> None:
    assert shown(text("a\nb\n", 0), text("c\n", 1)) == ["[0] a\n[0] b\n[1] c\n"]
    # one that is not at its end is ended where another node begins, and not where it goes on
    assert shown(text("a", 0), text("b\n", 0), text("c", 1), text("d\n", 0)) == [
        "[0] ab\n[1] c\n[0] d\n"
    ]


def test_results_and_errors_are_outputs_of_a_notebook() -> None:
    traceback = ["Traceback", "ValueError: no"]
    found = OutputArea.of(
        [
            entry("execute_result", data={"text/plain": "42"}, metadata={}, execution_count=9),
            entry("error", ename="ValueError", evalue="no", traceback=traceback),
        ]
    ).shown
    assert found == [
        {"output_type": "display_data", "data": {"text/plain": "42"}, "metadata": {}},
        {
            "output_type": "error",
            "ename": "ValueError",
            "evalue": "no",
            "traceback": traceback,
        },
    ]


def test_updates_replace_and_clearing_clears() -> None:
    bar = {"transient": {"display_id": "d1"}, "metadata": {}}
    first = entry("display_data", data={"text/plain": "10 %"}, **bar)
    then = entry("update_display_data", data={"text/plain": "90 %"}, **bar)
    assert shown(first, text("a"), then) == [{"text/plain": "90 %"}, "a"]
    (alone,) = OutputArea.of([then]).shown
    assert alone["output_type"] == "update_display_data", "what it replaces was answered before"
    assert alone["transient"] == {"display_id": "d1"}
    cleared = OutputArea.of([text("old"), entry("clear_output", wait=False), text("new")])
    assert cleared.cleared and [out["text"] for out in cleared.shown] == ["new"]
    waiting = OutputArea.of([text("old"), entry("clear_output", wait=True)])
    assert not waiting.cleared and [out["text"] for out in waiting.shown] == ["old"]
    waiting.add(text("new"))
    assert waiting.cleared and [out["text"] for out in waiting.shown] == ["new"]


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
    assert following == 3 and shown(*entries) == ["0 2 "]
    assert [found["text"] for found in lines(entries)] == ["0 ", "2 "]


def test_entries_of_untrusted_runs_are_text_and_pictures() -> None:
    data = {"text/html": "<script>", "text/plain": "5", "image/svg+xml": "<svg onload=x()>"}
    content = {"data": data, "metadata": {"isolated": True}, "transient": {"display_id": "a"}}
    entries = [
        {"type": "display_data", "rank": 0, "content": content},
        {"type": "stream", "rank": 0, "content": {"name": "stdout", "text": "said"}},
        {"type": "execute_result", "rank": 0, "content": {"data": "nonsense"}},
    ]
    shown = OutputArea.of(filter_entries(entries)).shown
    assert [out.get("data", out.get("text")) for out in shown] == [{"text/plain": "5"}, "said", {}]
    assert "script" not in str(shown) and "isolated" not in str(shown)
