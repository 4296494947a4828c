"""Outputs on their way to the cell: in order, linear, capped, told apart."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jupyter_sky.execution.cells.relay import BATCH_BYTES, Relay

NAMES = {"stdout": "", "stderr": "!"}


class Recorder:
    """A display that remembers."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def status(self, status: Any) -> None:
        raise AssertionError("a relay shows no status")

    def send(self, kind: str, content: Any, metadata: Any = None, buffers: Any = None) -> None:
        self.sent.append((kind, content))

    def comm(self, message: Any, engine: str, client: Any) -> None:
        self.sent.append(("comm", engine))

    def text(self, name: str = "stdout") -> str:
        """All text of one stream."""
        return "".join(c["text"] for k, c in self.sent if k == "stream" and c["name"] == name)


class Cell:
    """A relay with engines that print."""

    def __init__(
        self, ranks: int = 1, cap: int = 10_000_000, shows_final_error: bool = True
    ) -> None:
        self.display = Recorder()
        self.relay = Relay(
            self.display,
            range(ranks),
            cap,
            "%sky logs 7",
            shows_final_error,
            lambda origin: f"install {origin['module']}" if "module" in origin else "",
        )
        self.relay.release()
        self.sinks = [
            self.relay.engine_receiver(rank, f"engine{rank}", None) for rank in range(ranks)
        ]

    def says(self, kind: str, content: dict[str, Any], rank: int = 0, facts: Any = None) -> None:
        """Receive one message."""
        metadata = {} if facts is None else {"sky": facts}
        message = {"header": {"msg_type": kind}, "content": content, "metadata": metadata}
        self.sinks[rank](message)

    def fails(self, name: str, rank: int = 0, final: bool = True, **origin: str) -> None:
        """Receive an error."""
        content = {"ename": name, "evalue": "", "traceback": [f"{name} on {rank}"]}
        self.says("error", content, rank, {"final": final, "error": origin})

    def prints(self, text: str, rank: int = 0, name: str = "stdout") -> None:
        """Receive a piece of text."""
        self.says("stream", {"name": name, "text": text}, rank)

    def shows(self, text: str, rank: int = 0, kind: str = "display_data", **more: str) -> None:
        """Receive a display."""
        self.says(kind, {"data": {"text/plain": text, **more}, "metadata": {}}, rank)

    def end(self) -> Recorder:
        """End the cell."""
        self.relay.finish()
        return self.display


def test_messages_keep_their_order() -> None:
    cell = Cell()
    cell.prints("one\n")
    cell.prints("two\n", name="stderr")
    cell.prints("three\n")
    cell.shows("picture")
    cell.prints("four\n")
    cell.says("clear_output", {"wait": True})
    cell.says("comm_msg", {"comm_id": "c"})
    cell.shows("5", kind="execute_result")
    kinds = [
        content["text"].strip() if kind == "stream" else kind for kind, content in cell.end().sent
    ]
    assert kinds == [
        "one",
        "two",
        "three",
        "display_data",
        "four",
        "clear_output",
        "comm",
        "execute_result",
    ]


def test_nothing_is_shown_before_the_status_line() -> None:
    cell = Cell()
    relay = cell.relay = Relay(cell.display, [0], 1000, "")
    cell.sinks = [relay.engine_receiver(0, "e", None)]
    cell.prints("early\n")
    cell.shows("picture")
    assert cell.display.sent == []
    relay.release()
    assert [kind for kind, _ in cell.display.sent] == ["stream", "display_data"]


def test_many_small_texts_are_few_messages() -> None:
    cell = Cell()
    for number in range(4000):
        cell.prints(f"{number}\n")
    display = cell.end()
    assert [int(line) for line in display.text().split()] == list(range(4000))
    assert len(display.sent) < 100
    assert cell.relay.shown == 4000  # what a replay would skip


def test_text_does_not_wait_for_more() -> None:
    cell = Cell()
    cell.prints("at once")
    assert cell.display.text() == "at once"
    cell.prints(" and soon")
    deadline = time.monotonic() + 2
    while cell.display.text() != "at once and soon":
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_large_text_is_not_gathered() -> None:
    cell = Cell()
    cell.prints("x")
    cell.prints("y" * (BATCH_BYTES + 1))
    assert len(cell.display.text()) == BATCH_BYTES + 2


def test_an_output_that_cannot_be_shown_does_no_harm() -> None:
    cell = Cell()
    cell.says("display_data", {}, 0)
    cell.sinks[0]({"header": {"msg_type": "stream"}})  # not a message at all
    cell.prints("goes on")
    assert cell.end().text() == "goes on"


# -- several engines -----------------------------------------------------------------------------


def test_one_that_prints_alone_has_no_prefix() -> None:
    cell = Cell(ranks=2)
    cell.prints("a\nb\n", rank=1)
    assert cell.end().text() == "a\nb\n"


def test_several_that_print_are_told_apart() -> None:
    cell = Cell(ranks=2)
    cell.prints("a\nb", rank=0)
    cell.prints("c\n", rank=0)
    cell.prints("x\r\n\ny\n", rank=1)
    assert cell.end().text() == "[0] a\n[0] bc\n[1] x\r\n[1] \n[1] y\n"


def test_unfinished_lines_do_not_mix() -> None:
    cell = Cell(ranks=2)
    cell.prints("left ", rank=0)
    cell.prints("right\n", rank=1)
    cell.prints("more\n", rank=0)
    assert cell.end().text() == "[0] left \n[1] right\n[0] more\n"


def test_progress_bars_stay_in_their_line() -> None:
    cell = Cell(ranks=2)
    for percent in (10, 20):
        for rank in (0, 1):
            cell.prints(f"\r{percent}%", rank, "stderr")
    text = cell.end().text("stderr")
    assert "\n" not in text
    assert [piece for piece in text.split("\r") if "%" in piece][-2:] == ["[0] 20%", "[1] 20%"]


def test_one_result_is_shown_as_it_is() -> None:
    cell = Cell(ranks=2)
    cell.shows("42", rank=1, kind="execute_result")
    [(kind, content)] = cell.end().sent
    assert (kind, content["data"]) == ("execute_result", {"text/plain": "42"})


def test_several_results_say_whose_they_are_by_rank() -> None:
    cell = Cell(ranks=3)
    cell.shows("1", rank=2, kind="execute_result")
    cell.shows("a\nb", rank=0, kind="execute_result")
    cell.shows("table", rank=1, kind="execute_result", **{"text/html": "<table>"})
    texts = [
        c["text"] if kind == "stream" else c["data"]["text/plain"] for kind, c in cell.end().sent
    ]
    assert texts == ["[0]\na\nb", "[1]\n", "table", "[2] 1"]


# -- errors --------------------------------------------------------------------------------------


def test_errors_are_shown_where_they_stand() -> None:
    cell = Cell()
    cell.prints("one\n")
    cell.fails("Shown", final=False)
    cell.prints("two\n")
    cell.fails("Final", module="absent")
    cell.shows("figure")
    sent = [(kind, content.get("traceback")) for kind, content in cell.end().sent]
    assert sent == [
        ("stream", None),
        ("error", ["Shown on 0"]),
        ("stream", None),
        ("error", ["Final on 0", "install absent"]),
        ("display_data", None),
    ]
    assert cell.relay.shown == 5


def test_an_error_that_the_caller_receives_is_not_shown() -> None:
    cell = Cell(shows_final_error=False)
    cell.fails("Shown", final=False)
    cell.fails("Final")
    assert [content["ename"] for _, content in cell.end().sent] == ["Shown"]


def test_one_error_of_several_engines_is_shown() -> None:
    cell = Cell(ranks=3)
    cell.fails("Final", rank=2)
    cell.fails("Final", rank=1)
    assert not cell.display.sent
    assert [content["traceback"] for _, content in cell.end().sent] == [["Final on 1"]]


@pytest.mark.parametrize("facts", [None, 5, {"final": True}, {"error": None}])
def test_error_without_facts_is_shown(facts: Any) -> None:
    cell = Cell()
    cell.says("error", {"ename": "E", "evalue": "", "traceback": ["E"]}, 0, facts)
    assert [kind for kind, _ in cell.end().sent] == ["error"]


# -- floods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [100, 10_000, 1_000_000])
def test_the_middle_of_a_flood_is_left_out_and_counted(piece: int) -> None:
    cell, cap = Cell(cap=200_000), 200_000
    for number in range(1_000_000 // piece):
        cell.prints(f"{number:<{piece - 1}}\n")
    cell.prints("the end\n")
    display = cell.end()
    shown = display.text()
    assert shown.startswith("0 ") and shown.endswith("the end\n")
    assert cap <= len(shown) <= cap + 2 * BATCH_BYTES
    notes = display.text("stderr")
    assert "more than 0.1 MB" in notes and "%sky logs 7" in notes
    assert f"{(1_000_008 - len(shown)) / 1e6:.1f} MB left out" in notes
    assert len(display.sent) < 100


def test_text_within_the_cap_is_whole() -> None:
    cell = Cell(cap=200_000)
    for number in range(1999):
        cell.prints(f"{number:<99}\n")
    display = cell.end()
    assert len(display.text()) == 199_900
    assert "left out" not in display.text("stderr")


def test_a_cap_of_nothing_shows_nothing() -> None:
    cell = Cell(cap=0)
    cell.prints("text")
    display = cell.end()
    assert display.text() == "" and "%sky logs 7" in display.text("stderr")


def test_threads_are_heard_after_a_flood() -> None:
    cell = Cell(cap=2000)
    cell.prints("x" * 10_000)
    display = cell.end()
    cell.prints("late\n")
    time.sleep(0.1)
    assert display.text().endswith("late\n")


# -- replay --------------------------------------------------------------------------------------


def test_a_journal_is_shown_again() -> None:
    cell = Cell()
    cell.relay.replay(
        [
            {"type": "stream", "rank": 0, "content": {"name": "stdout", "text": "one\n"}},
            {
                "type": "execute_result",
                "rank": 0,
                "content": {"data": {"text/plain": "2"}, "metadata": {}, "execution_count": 9},
            },
            {"type": "error", "rank": 0, "content": {"traceback": ["Traceback", "ValueError: 3"]}},
        ]
    )
    (first, result, error) = cell.end().sent
    assert first[1]["text"] == "one\n"
    assert result == ("display_data", {"data": {"text/plain": "2"}, "metadata": {}})
    assert error[1] == {"name": "stderr", "text": "Traceback\nValueError: 3\n"}
