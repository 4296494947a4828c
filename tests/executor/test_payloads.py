"""Payloads of replies, as far as a notebook takes them over."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_sky.execution.cells.results import filter_payload, first_payload, page_text

PAGE = {"source": "page", "start": 3, "data": {"text/plain": "text", "text/html": "<b>"}}
INPUT = {"source": "set_next_input", "text": "x", "replace": True}
EDIT = {"source": "edit_magic", "filename": "a.py", "line_number": 1}
EXIT = {"source": "ask_exit", "keepkernel": False}


def test_trusted_payload_is_taken_over_except_the_end_of_the_kernel() -> None:
    assert filter_payload([PAGE, INPUT, EXIT, EDIT], trusted=True) == [PAGE, INPUT, EDIT]


def test_untrusted_payload_shows_text_and_replaces_nothing() -> None:
    assert filter_payload([PAGE, INPUT, EXIT, EDIT], trusted=False) == [
        {"source": "page", "start": 0, "data": {"text/plain": "text"}},
        {"source": "set_next_input", "text": "x", "replace": False},
    ]


@pytest.mark.parametrize(
    "payload",
    [
        None,
        5,
        [5],
        [{}],
        [{"source": "page"}],
        [{"source": "page", "data": {"text/html": "<b>"}}],
        [{"source": "set_next_input", "text": ["x"]}],
        [{"source": ["page"]}],
    ],
)
def test_malformed_payload_of_an_untrusted_machine(payload: Any) -> None:
    assert filter_payload(payload, trusted=False) == []


def test_the_first_engine_with_a_payload_is_heard() -> None:
    assert first_payload([[], [PAGE], [INPUT]]) == [PAGE]
    assert first_payload([[]]) == []


def test_text_of_a_page() -> None:
    assert page_text(PAGE) == "text"
    assert page_text(INPUT) is None
