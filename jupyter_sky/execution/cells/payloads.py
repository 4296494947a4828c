"""Payloads of replies: pages and next inputs that a front end shows beside the outputs.

``len?``, ``%load`` and ``set_next_input`` answer with payloads. They come with the reply of the
engine and go into the reply of the notebook's own kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SHOWN_SOURCES = frozenset({"page", "set_next_input", "edit_magic"})
"""Payloads that a notebook takes over. Another one, ``ask_exit``, would end its own kernel."""


def filter_payload(payload: Any, trusted: bool) -> list[dict[str, Any]]:
    """Return the parts of an engine's payload that reach the front end.

    A machine that is not trusted can show a page of text or propose an input, which stands in a
    cell of its own: it must not replace one that the user would run again.

    Examples
    --------
    >>> filter_payload([{"source": "set_next_input", "text": "x", "replace": True}], False)
    [{'source': 'set_next_input', 'text': 'x', 'replace': False}]
    """
    received = payload if isinstance(payload, list) else ()
    parts = [part for part in received if isinstance(part, dict)]
    parts = [part for part in parts if str(part.get("source")) in SHOWN_SOURCES]
    if trusted:
        return parts
    return [inert for part in parts if (inert := _inert_part(part)) is not None]


def _inert_part(part: dict[str, Any]) -> dict[str, Any] | None:
    text = part.get("text") if part["source"] == "set_next_input" else page_text(part)
    if not isinstance(text, str):
        return None
    if part["source"] == "set_next_input":
        return {"source": "set_next_input", "text": text, "replace": False}
    return {"source": "page", "start": 0, "data": {"text/plain": text}}


def page_text(part: dict[str, Any]) -> str | None:
    """Return the text of a page; None for other parts of a payload."""
    data = part.get("data") if part.get("source") == "page" else None
    text = data.get("text/plain") if isinstance(data, dict) else None
    return text if isinstance(text, str) else None


def first_payload(payloads: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the payload of the first engine that has one: a front end shows one page."""
    return next((payload for payload in payloads if payload), [])
