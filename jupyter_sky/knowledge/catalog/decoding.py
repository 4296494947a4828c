"""The catalog once decoded, kept as plain numpy files that are mapped into memory.

Decoding the compressed files and merging layers costs a fresh process more than all it then does
with them. So the result is kept in the user's data directory, under the signature of every file
that went into it; when any of those changes, or this directory is lost, it is made anew.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from jupyter_sky._version import __version__
from jupyter_sky.knowledge.catalog import schema
from jupyter_sky.knowledge.catalog.catalog import Catalog
from jupyter_sky.knowledge.catalog.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL = tuple(name for name in schema.TABLES if name != "offers")


class DecodedTables:
    """Tables of a directory that `write` made."""

    def __init__(self, folder: Path, head: dict[str, Any]) -> None:
        self._folder, self._head = folder, head
        # all at once: the directory may be replaced at any time, and what is mapped stays
        self._arrays = {
            name: np.load(folder / f"{name}.npy", mmap_mode="r")
            for name in schema.columns("offers")
        }
        self._texts = {name: (folder / f"{name}.json").read_bytes() for name in _SMALL}
        if {name: crc32(text) for name, text in self._texts.items()} != head["sums"]:
            raise ValueError("not written to the end")

    def columns(self, name: str) -> Columns:
        """Return a table as columns of numbers and codes."""
        if name != "offers":
            return Columns.of_arrow(name, self.arrow(name))
        arrays = self._arrays
        # the plain array: a memmap would carry its file's attributes through every operation
        return Columns(name, lambda n: np.asarray(arrays[n]), self._head["words"], _length(arrays))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a small table, each row as a dict."""
        columns = json.loads(self._texts[name])
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def arrow(self, name: str) -> pa.Table:
        """Return a table of Arrow."""
        import pyarrow as pa

        if name != "offers":
            kinds = {"s": pa.string(), "f": pa.float64(), "b": pa.bool_()}
            fields = [(n, kinds[kind]) for n, kind in schema.columns(name).items()]
            return schema.conform(name, pa.Table.from_pylist(self.rows(name), pa.schema(fields)))
        table = self.columns(name)
        arrays = []
        for field in schema.schema(name):
            values = table.values(field.name)
            if table.kinds[field.name] == "s":
                words = pa.array(table.categories(field.name), pa.string())
                arrays.append(pa.DictionaryArray.from_arrays(pa.array(values), words))
            else:
                arrays.append(pa.array(values, field.type, from_pandas=True))
        return pa.Table.from_arrays(arrays, schema=schema.schema(name))


def _length(arrays: dict[str, np.ndarray]) -> int:
    return len(next(iter(arrays.values())))


def read(cache: Path, signature: str) -> Catalog | None:
    """Return the cached catalog of a signature, if it exists and is complete."""
    folder = _folder(cache, signature)
    try:
        head = json.loads((folder / "head.json").read_bytes())
        if head["signature"] != signature or head["version"] != __version__:
            return None
        return Catalog(DecodedTables(folder, head), head["problems"])
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None


def write(cache: Path, signature: str, catalog: Catalog) -> None:
    """Keep a catalog for the next process; when that fails, the next one decodes again."""
    import shutil
    import tempfile

    folder = _folder(cache, signature)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".catalog-", dir=cache))
    except OSError:
        return
    try:
        _fill(temporary, signature, catalog)
        for old in cache.glob("catalog-*"):
            shutil.rmtree(old, ignore_errors=True)
        os.rename(temporary, folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)


def _fill(folder: Path, signature: str, catalog: Catalog) -> None:
    table = catalog.offers
    for name in table.kinds:
        np.save(folder / f"{name}.npy", table.values(name))
    sums = {}
    for name in _SMALL:
        text = json.dumps(catalog.table(name).to_pydict()).encode()
        (folder / f"{name}.json").write_bytes(text)
        sums[name] = crc32(text)
    words = {name: table.categories(name) for name, kind in table.kinds.items() if kind == "s"}
    head = {
        "signature": signature,
        "version": __version__,
        "problems": list(catalog.problems),
        "words": words,
        "sums": sums,
    }
    (folder / "head.json").write_text(json.dumps(head), encoding="utf-8")


def _folder(cache: Path, signature: str) -> Path:
    return cache / f"catalog-{crc32(signature.encode()):08x}"
