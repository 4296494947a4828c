"""Division of objects that are downloaded."""

from __future__ import annotations

from .store import MIB, Span

PART_BYTES = 16 * MIB
"""Size of the parts in which objects are downloaded."""


def spans_of(size: int) -> list[Span]:
    """Return the parts of an object of some bytes; an empty one has none."""
    return [Span(start, min(start + PART_BYTES, size)) for start in range(0, size, PART_BYTES)]
