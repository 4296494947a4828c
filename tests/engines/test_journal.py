"""The journal: everything that cells print, by number, at linear cost."""

from __future__ import annotations

import json
import resource
import time
import tracemalloc
from pathlib import Path

import pytest

from jupyter_sky.machines.engines.controller.journal import RECORDED_TYPES, Journal


def stream(text: str, kind: str = "stream") -> tuple[str, bytes]:
    return kind, json.dumps({"name": "stdout", "text": text}).encode()


def texts(entries: list[dict]) -> list[str]:
    return [entry["content"]["text"] for entry in entries]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


def test_entries_come_back_in_order_from_any_number(journal: Journal) -> None:
    for number in range(10):
        journal.append("r", number % 2, *stream(f"line {number}\n"))
    entries, following = journal.read("r", 4)
    assert texts(entries) == [f"line {number}\n" for number in range(4, 10)]
    assert [entry["rank"] for entry in entries] == [0, 1, 0, 1, 0, 1]
    assert following == 10
    assert journal.read("r", 10) == ([], 10)
    assert journal.count("r") == 10


def test_reader_follows_appended_entries(journal: Journal) -> None:
    journal.append("r", 0, *stream("a"))
    _, following = journal.read("r", 0)
    journal.append("r", 0, *stream("b"))
    assert texts(journal.read("r", following)[0]) == ["b"]


def test_a_question_behind_the_end_writes_the_file_for_others(journal: Journal) -> None:
    journal.append("r", 0, "stream", b'{"name":"stdout","text":"last"}')
    assert journal.read("r", 10**9) == ([], 10**9)
    assert b"last" in journal.path("r").read_bytes()


def test_a_run_that_printed_nothing_has_no_file(journal: Journal) -> None:
    assert journal.read("nothing", 0) == ([], 0)
    assert list(journal.directory.iterdir()) == []


def test_only_output_messages_are_recorded(journal: Journal) -> None:
    for kind in [*sorted(RECORDED_TYPES), "comm_msg", "status", "execute_input"]:
        journal.append("r", 0, *stream("x", kind))
    assert {entry["type"] for entry in journal.read("r", 0)[0]} == RECORDED_TYPES


@pytest.mark.parametrize(
    "text", ["π ≈ 3 🚀", "a\r\x1b[31mb\x00c", "line\u2028separator\u0085", "\ud800 alone", ""]
)
def test_any_text_survives(journal: Journal, text: str) -> None:
    journal.append("r", 0, *stream(text))
    journal.append("r", 0, *stream("next"))
    assert texts(journal.read("r", 0)[0]) == [text, "next"]


def test_bytes_that_are_no_text_end_no_reading(journal: Journal) -> None:
    journal.append("r", 0, "stream", b'{"name":"stdout","text":"Zo\xe9"}')
    journal.append("r", 0, *stream("next"))
    assert texts(journal.read("r", 0)[0]) == ["Zo\ufffd", "next"]


def test_content_on_several_lines_is_one_entry(journal: Journal) -> None:
    journal.append("r", 0, "stream", b'{"name": "stdout",\n "text": "indented"}')
    journal.append("r", 0, *stream("next"))
    assert texts(journal.read("r", 0)[0]) == ["indented", "next"]


def test_large_output_is_not_copied(journal: Journal) -> None:
    kind, content = stream("x" * 20_000_000)
    tracemalloc.start()
    journal.append("r", 0, kind, memoryview(content))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
    journal.close("r")
    assert len(texts(journal.read("r", 0)[0])[0]) == 20_000_000


def test_an_answer_is_bounded_but_never_empty(journal: Journal) -> None:
    for size in (10, 3_000_000, 10, 10):
        journal.append("r", 0, *stream("x" * size))
    sizes, start = [], 0
    while True:
        entries, start = journal.read("r", start, limit_bytes=1000)
        if not entries:
            break
        sizes.append([len(text) for text in texts(entries)])
    assert sizes == [[10], [3_000_000], [10, 10]]


def test_journal_tail_is_read_by_index(journal: Journal) -> None:
    for _ in range(60_000):
        journal.append("r", 0, *stream("x" * 1000))
    journal.flush()
    begun = time.perf_counter()
    with journal.path("r").open("rb") as file:
        assert sum(1 for _ in file) == journal.count("r")
    scan = time.perf_counter() - begun
    begun = time.perf_counter()
    for start in range(59_900, 60_000, 10):
        assert len(journal.read("r", start)[0]) == 60_000 - start
    assert (time.perf_counter() - begun) / 10 < scan / 2


def test_a_forgotten_run_is_still_readable(journal: Journal) -> None:
    for number in range(1000):
        journal.append("r", 0, *stream(f"{number}" * 500))
    journal.forget("r")
    assert journal.open_runs() == set()
    assert texts(journal.read("r", 990)[0]) == [f"{number}" * 500 for number in range(990, 1000)]
    journal.append("r", 0, *stream("later"))
    assert texts(journal.read("r", 1000)[0]) == ["later"]


def test_files_are_private_and_closed_after_the_end(journal: Journal) -> None:
    journal.append("a", 0, *stream("x"))
    journal.append("b", 0, *stream("x"))
    assert journal.directory.stat().st_mode & 0o777 == 0o700
    assert journal.path("a").stat().st_mode & 0o777 == 0o600
    journal.close("a")
    journal.append("a", 0, *stream("late, from a thread"))
    assert texts(journal.read("a", 0)[0]) == ["x", "late, from a thread"]
    assert journal.count("a") == 2
    assert journal.open_runs() == {"a", "b"}
    journal.flush(running=["b"])
    assert journal.open_runs() == {"b"}


def test_full_disk_does_not_break_controller(journal: Journal) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        for _ in range(100):
            journal.append("full", 0, *stream("x" * 1000))
        journal.flush()
        journal.close("full")
        assert 10 < len(journal.read("full", 0)[0]) < 50
        journal.append("r", 0, *stream("others go on"))
        assert texts(journal.read("r", 0)[0]) == ["others go on"]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
