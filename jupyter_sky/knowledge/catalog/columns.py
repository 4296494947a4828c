"""Columns of one table as numpy arrays, decoded when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.knowledge.catalog.schema import columns as kinds_of

if TYPE_CHECKING:
    import pyarrow as pa


class Columns:
    """A table, column by column.

    Numbers are float64 with NaN for what is not known. Strings are codes into `words`.

    Parameters
    ----------
    table : str
        Its name in the schema.
    values : mapping or callable
        Gives the numbers, flags or codes of a column by its name.
    words : mapping
        Strings that the codes of each column stand for.
    length : int
        Number of rows.
    """

    def __init__(
        self,
        table: str,
        values: Callable[[str], np.ndarray],
        words: Mapping[str, list[str]],
        length: int,
    ) -> None:
        self.table, self.kinds = table, kinds_of(table)
        self._read, self._all_words, self._length = values, words, length
        self._values: dict[str, np.ndarray] = {}
        self._at: dict[str, dict[str, int]] = {}

    @classmethod
    def of_arrow(cls, table: str, rows: pa.Table) -> Columns:
        """Return the columns of an Arrow table; each is decoded when it is first read."""
        kinds = kinds_of(table)

        def chunk(name: str) -> pa.Array:
            column = rows.column(name)
            return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

        words = {
            name: chunk(name).dictionary.to_pylist() for name, kind in kinds.items() if kind == "s"
        }
        return cls(table, lambda name: _array(chunk(name), kinds[name]), words, rows.num_rows)

    def __len__(self) -> int:
        return self._length

    def values(self, name: str) -> np.ndarray:
        """Return numbers, flags, or the codes of strings."""
        if name not in self._values:
            self._values[name] = self._read(name)
        return self._values[name]

    def categories(self, name: str) -> list[str]:
        """Return the strings that the codes of a column stand for."""
        return self._all_words[name]

    def code(self, name: str, word: str) -> int:
        """Return the code of a string; -2, which no row has, for a string that does not occur."""
        if name not in self._at:
            self._at[name] = {word: code for code, word in enumerate(self.categories(name))}
        return self._at[name].get(word, -2)

    def equal(self, name: str, word: str) -> np.ndarray:
        """Return the mask of rows with a string in a column."""
        return self.values(name) == self.code(name, word)

    def is_in(self, name: str, words: Iterable[str]) -> np.ndarray:
        """Return the mask of rows with any of several strings in a column."""
        wanted = set(words)
        return self.where(name, lambda word: word in wanted)

    def where(self, name: str, test: Callable[[str], bool]) -> np.ndarray:
        """Return the mask of rows whose string passes a test; equal strings are tested once."""
        passed = np.fromiter(map(test, self.categories(name)), bool, len(self.categories(name)))
        return passed[self.values(name)] if len(passed) else np.zeros(len(self), bool)

    def strings(self, name: str, rows: np.ndarray) -> list[str]:
        """Return the strings of some rows."""
        words = self.categories(name)
        return [words[code] for code in self.values(name)[rows].tolist()]

    @cached_property
    def tie(self) -> np.ndarray | None:
        """Rank of each offer among those of equal price; None when the rows stand in that order.

        The smallest machine comes first, then names decide, so that the order of a selection does
        not depend on the order in which files were read.
        """
        keys = [self._name_rank(name) for name in ("instance_type", "zone", "region", "cloud")]
        keys += [
            np.nan_to_num(self.values(name))
            for name in ("accelerator_count", "memory_gib", "vcpus")
        ]
        if not len(self) or _in_order(keys):
            return None
        rank = np.empty(len(self), np.int32)
        rank[np.lexsort(keys)] = np.arange(len(self), dtype=np.int32)
        return rank

    def _name_rank(self, name: str) -> np.ndarray:
        words = self.categories(name)
        rank = np.empty(len(words), np.int32)
        rank[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
        return rank[self.values(name)]


def _array(chunk: pa.Array, kind: str) -> np.ndarray:
    """Return an Arrow array as numpy's, its memory shared where it can be.

    Arrow's own conversion would import pandas, which takes longer than all the rest of a search.
    """
    source = chunk.indices if kind == "s" else chunk
    valid, data = source.buffers()
    start, stop = source.offset, source.offset + len(source)
    if data is None or not len(source):
        return np.empty(0, {"s": np.int16, "f": np.float64, "b": bool}[kind])
    if kind == "b":
        return _bits(data, start, stop)
    values = np.frombuffer(data, np.int16 if kind == "s" else np.float64)[start:stop]
    if valid is None or not source.null_count:
        return values
    return np.where(_bits(valid, start, stop), values, np.nan)


def _bits(buffer: pa.Buffer, start: int, stop: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(buffer, np.uint8), bitorder="little")[start:stop].view(bool)


def _in_order(keys: list[np.ndarray]) -> bool:
    """Whether rows already stand in the order of their keys, the last key first."""
    undecided = np.ones(len(keys[0]) - 1, bool)
    for key in reversed(keys):
        if (undecided & (key[:-1] > key[1:])).any():
            return False
        undecided &= key[:-1] == key[1:]
    return True
