"""A directory of catalog files: written atomically, read without copying more than must be.

A directory holds *parts*. A part is ``<part>.json``, which names one Arrow file for each table,
and those files, ``<part>-<table>-<digest>.arrow``. The JSON file is replaced in one step after the
tables are in place, so a reader sees the old part or the new one, never a mixture.

The catalog that ships is one part, ``shipped``, for all clouds; a refresh writes one part for each
cloud, named after it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog import schema as _schema

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
FILE_MODE = 0o644
"""Permissions of the files: a catalog that was built for a wheel is everybody's to read."""


@dataclass(frozen=True, slots=True)
class PartMetadata:
    """Metadata of a part as a whole.

    Attributes
    ----------
    part : str
        Its name: a cloud's, or ``shipped``.
    clouds : tuple of str
        Clouds that it has: rows of weaker parts for them are replaced, table by table.
    built : str
        When it was made, ISO in UTC.
    sources : mapping of str to str
        Where its facts come from, each with its date (YYYY-MM-DD, or "" when it has none).
    tables : mapping of str to str
        Files of its tables. Filled in by `write`.
    """

    part: str
    clouds: tuple[str, ...]
    built: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, str] = field(default_factory=dict)


def write(
    directory: Path | str, tables: Mapping[str, pa.Table], meta: PartMetadata
) -> PartMetadata:
    """Put a part in place of the one of the same name, all at once.

    Parameters
    ----------
    directory
        The catalog directory; made if need be.
    tables
        Tables by name, see `schema`. A table that the old part had and this one lacks is gone.
    meta
        What to note; `built` is now unless given.

    Raises
    ------
    ValueError
        For a table or a column that does not exist. Nothing is changed.

    Examples
    --------
    >>> write(folder, {"offers": offers}, Meta("aws", ("aws",)))  # doctest: +SKIP
    """
    unknown = set(tables) - set(_schema.TABLES)
    if unknown:
        raise ValueError(f"the catalog has no table {', '.join(sorted(unknown))}")
    conformed = {name: _schema.conform(name, rows) for name, rows in tables.items()}
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock_directory(folder):
        return _put(folder, conformed, meta)


@contextmanager
def _lock_directory(folder: Path) -> Iterator[None]:
    """Lock a directory against other writers, on systems that can.

    Of two that write the same part at once, the first would clear away tables of the second.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _put(folder: Path, tables: Mapping[str, pa.Table], meta: PartMetadata) -> PartMetadata:
    names = {name: _write_table(folder, meta.part, name, rows) for name, rows in tables.items()}
    built = meta.built or datetime.now(UTC).isoformat(timespec="seconds")
    final = PartMetadata(meta.part, tuple(meta.clouds), built, dict(meta.sources), names)
    text = json.dumps(
        {
            "format": FORMAT,
            "part": final.part,
            "clouds": list(final.clouds),
            "built": final.built,
            "sources": dict(sorted(final.sources.items())),
            "tables": names,
        },
        indent=1,
    )
    write_atomically(folder / f"{meta.part}.json", (text + "\n").encode(), mode=FILE_MODE)
    for old in folder.glob(f"{meta.part}-*.arrow"):
        # a reader that has an old file open keeps its contents
        if old.name not in names.values() and old.name.count("-") == meta.part.count("-") + 2:
            old.unlink(missing_ok=True)
    return final


def parts(directory: Path | str) -> list[PartMetadata]:
    """Return the parts of a directory, by name; none for a directory that does not exist.

    Raises
    ------
    SkyStoreError
        For a part that cannot be understood; names the file.
    """
    folder = Path(directory)
    return [read_meta(path) for path in sorted(folder.glob("*.json"))] if folder.is_dir() else []


def read(directory: Path | str, meta: PartMetadata, table: str) -> pa.Table | None:
    """Return one table of a part; None when the part does not have it.

    Raises
    ------
    SkyStoreError
        When the file is missing, damaged, or not of this schema.
    """
    import pyarrow as pa

    name = meta.tables.get(table)
    if name is None:
        return None
    path = Path(directory) / name
    try:
        with pa.memory_map(str(path)) as source:
            rows = pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowException) as error:
        raise _damaged(path, str(error)) from error
    if rows.schema != _schema.schema(table):
        raise _damaged(path, "its columns are not those of this version")
    return rows


def _write_table(folder: Path, part: str, name: str, rows: pa.Table) -> str:
    import hashlib

    import pyarrow as pa

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=pa.Codec("zstd", compression_level=19))
    with pa.ipc.new_file(sink, rows.schema, options=options) as writer:
        writer.write_table(rows.combine_chunks())
    data = sink.getvalue().to_pybytes()
    file = f"{part}-{name}-{hashlib.sha256(data).hexdigest()[:8]}.arrow"
    write_atomically(folder / file, data, mode=FILE_MODE)
    return file


def read_meta(path: Path) -> PartMetadata:
    """Read a part's JSON file; raise SkyStoreError when it is invalid."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise _damaged(path, f"format {found['format']}, and this version reads {FORMAT}")
        return PartMetadata(
            str(found["part"]),
            tuple(found["clouds"]),
            str(found["built"]),
            dict(found["sources"]),
            dict(found["tables"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, repr(error)) from error


def _damaged(path: Path, why: str) -> SkyStoreError:
    return SkyStoreError(
        _("{path}: this catalog file cannot be used: {why}").format(path=path, why=why),
        hint=_("jupyter sky catalog refresh writes it anew; deleting it falls back on what ships"),
    )
