# pyright: strict
"""Source lines of functions that travel by value, for tracebacks and `inspect` at the other end.

A pickled function names the cell or file of its code, which the other machine does not have. Its
own lines are sent with it, at their place, and registered with `linecache`; no other line of the
cell is.
"""

from __future__ import annotations

import inspect
import linecache
import os
import pickle
from collections.abc import Iterable, Sequence
from types import CodeType
from typing import Any, NotRequired, TypedDict

from jupyter_sky.machines.engines.wire.values import INLINE_BYTES, Parcel


class CodeSource(TypedDict):
    """Lines of one cell or file.

    Keys
    ----
    filename : str
        Name that the code objects have.
    blocks : list
        Number of the first line, from 1, and text of each block.
    cell : int
        Number of the cell, where it is one.
    """

    filename: str
    blocks: list[tuple[int, str]]
    cell: NotRequired[int]


def with_sources(described: dict[str, Any], parcel: Parcel) -> dict[str, Any]:
    """Return the description of a parcel with the sources of the functions in it."""
    sources = find_sources(parcel.codes)
    return {**described, "sources": sources} if sources else described


def find_sources(codes: Iterable[CodeType]) -> list[CodeSource]:
    """Return the source lines of code objects, as far as they are known here and not too many."""
    blocks: dict[str, dict[int, str]] = {}
    size = 0
    for code in codes:
        first, lines = code.co_firstlineno, linecache.getlines(code.co_filename)
        if first in blocks.get(code.co_filename, ()) or not 0 < first <= len(lines):
            continue
        text = _block(lines[first - 1 :])
        size += len(text)
        if text and size <= INLINE_BYTES:
            blocks.setdefault(code.co_filename, {})[first] = text
    cells = _cell_numbers()
    sources: list[CodeSource] = []
    for filename, texts in blocks.items():
        source = CodeSource(filename=filename, blocks=list(texts.items()))
        if filename in cells:
            source["cell"] = cells[filename]
        sources.append(source)
    return sources


def carry_sources(parcel: Parcel) -> Parcel:
    """Return a parcel that makes the sources of its functions known where it is opened."""
    sources = find_sources(parcel.codes)
    return Parcel.pickled(_WithSources(parcel.segments, sources)) if sources else parcel


class _WithSources:
    """Segments of a pickled value with the sources of its functions."""

    def __init__(self, segments: tuple[memoryview, ...], sources: list[CodeSource]) -> None:
        self._segments, self._sources = segments, sources

    def __reduce__(self) -> tuple[Any, ...]:
        buffers = [pickle.PickleBuffer(segment) for segment in self._segments]
        return load_with_sources, (self._sources, *buffers)


def load_with_sources(sources: Sequence[CodeSource], stream: Any, *buffers: Any) -> Any:
    """Rebuild a value, after the sources of its functions are known."""
    register_sources(sources)
    return pickle.loads(stream, buffers=buffers)


def register_sources(sources: Sequence[CodeSource]) -> None:
    """Make source lines that came from elsewhere known in this process."""
    for source in sources:
        filename = str(source["filename"])
        known = linecache.cache.get(filename, ())
        if os.path.exists(filename) or (known and (len(known) < 4 or known[1] is not None)):
            continue  # a file of this machine
        lines = list(known[2]) if known else []
        for first, text in source["blocks"]:
            block = text.splitlines(keepends=True)
            lines += ["\n"] * (first - 1 + len(block) - len(lines))
            for number, line in enumerate(block, first - 1):
                if not lines[number].strip():
                    lines[number] = line
        linecache.cache[filename] = (sum(map(len, lines)), None, lines, filename)
        if "cell" in source:
            _cell_numbers()[filename] = int(source["cell"])


def _block(lines: Sequence[str]) -> str:
    try:
        return "".join(inspect.getblock(lines))
    except (SyntaxError, ValueError):
        return ""


def _cell_numbers() -> dict[str, int]:
    """Return the cells of this process by the names of their code.

    IPython names cells in tracebacks by this mapping, and has no public way to add to it.
    """
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    return {} if shell is None else getattr(shell.compile, "_filename_map", {})
