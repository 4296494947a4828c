"""Requests whose signature is valid, and their answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .state import Content


@dataclass
class Call:
    """A request whose signature is valid."""

    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    payload_hash: str
    body: Iterator[bytes]
    trailers: dict[str, str] = field(default_factory=dict)


@dataclass
class Answer:
    """A response: bytes, or pieces whose size is known."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    pieces: Iterator[bytes] | None = None
    size: int = 0
    stored: Content | None = None


NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"
"""Of all answers of Amazon's dialect but errors."""


def amazon_answer(text: str, headers: dict[str, str] | None = None) -> Answer:
    """Return an answer in the XML of Amazon's dialect; the namespace is that of the root."""
    name, end, rest = text.partition(">")
    return xml_answer(f'{name} xmlns="{NAMESPACE}"{end}{rest}', headers)


def xml_answer(text: str, headers: dict[str, str] | None = None) -> Answer:
    """Return an answer in XML."""
    body = f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()
    return Answer(200, {"Content-Type": "application/xml", **(headers or {})}, body)
