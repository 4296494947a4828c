"""Loading of the catalog: its files, their layers, and one result for the process."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from jupyter_sky._version import __version__
from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.base.settings import paths
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog import files, schema
from jupyter_sky.knowledge.catalog.catalog import Catalog
from jupyter_sky.knowledge.catalog.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa

    from jupyter_sky.knowledge.catalog.user_offers import UserOffers


_LOCK = Lock()
_LOADED: dict[tuple, Catalog] = {}


@dataclass(frozen=True, slots=True)
class Layer:
    """One part of one directory."""

    directory: Path
    meta: files.PartMetadata


def shipped_directory() -> Path:
    """Return the directory of the catalog that ships with the package.

    In an installed package it lies inside; in a checkout of the sources, beside the package.
    """
    package = Path(__file__).resolve().parent
    inside = package / "data"
    return inside if inside.is_dir() else package.parents[2] / "catalog"


def user_directory() -> Path:
    """Return the directory to which `jupyter sky catalog refresh` writes."""
    return paths.data_dir() / "catalog"


def user_offer_files() -> list[Path]:
    """Return the existing files with the user's own offers and discounts."""
    named = paths.offers_file()
    if named:
        return [named]
    default = (paths.data_dir() / name for name in ("offers.csv", "offers.toml"))
    return [path for path in default if path.is_file()]


def load(
    shipped: Path | None = None, user: Path | None = None, own: Sequence[Path] | None = None
) -> Catalog:
    """Return the catalog; the same object as long as none of its files changes.

    Parameters
    ----------
    shipped, user
        Directories of the two layers; those of the installation unless given.
    own
        Files of the user's own offers; those of the settings unless given.

    Returns
    -------
    Catalog
        All layers together.

    Raises
    ------
    SkyStoreError
        When what ships with the package cannot be read. A damaged file of a weaker kind is
        passed over, and named among the catalog's `problems`.

    Examples
    --------
    >>> catalog = load()
    >>> catalog is load()
    True
    """
    directories = (shipped or shipped_directory(), user or user_directory())
    paths = user_offer_files() if own is None else list(own)
    key = _signature(directories, paths)
    with _LOCK:
        if key not in _LOADED:
            catalog = _load_decoded(key, *directories, paths)
            now = _signature(directories, paths)
            if now != key:  # a refresh elsewhere took files away while they were read
                key, catalog = now, _load_decoded(now, *directories, paths)
            _LOADED.clear()  # one catalog a process: an old one would only hold memory
            _LOADED[key] = catalog
        return _LOADED[key]


def _load_decoded(key: tuple, shipped: Path, user: Path, own: Sequence[Path]) -> Catalog:
    """Return the catalog of these files through the cache, so that the files are read once."""
    cache = paths.data_dir() / "cache"
    found = read(cache, repr(key))
    if found is not None:
        return found
    layered, problems = _layered(shipped, user, own)
    catalog = Catalog(layered, problems)
    write(cache, repr(key), catalog)
    return read(cache, repr(key)) or catalog


def _signature(directories: Sequence[Path], paths: Sequence[Path]) -> tuple:
    # the JSON file of a part is replaced last, so that it alone tells a change
    found = [path for folder in directories for path in _json_files(folder)]
    signs = []
    for path in (*found, *paths):
        try:
            state = path.stat()
        except OSError:
            signs.append((str(path), None))
        else:
            signs.append((str(path), state.st_mtime_ns, state.st_size, state.st_ino))
    return tuple(signs)


def _json_files(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if name.endswith(".json")]
    except (FileNotFoundError, NotADirectoryError):
        return []


class Layers:
    """Tables of all layers together, each cloud's rows from the strongest that has it."""

    def __init__(self, layers: Sequence[Layer], own: UserOffers | None = None) -> None:
        self._layers, self._own = layers, own

    def arrow(self, name: str) -> pa.Table:
        """Return a whole table."""
        rows = _merged(name, self._layers)
        if name == "offers":
            rows = _with_tpu_hosts(rows)
        return self._own.apply(name, rows) if self._own else rows

    def columns(self, name: str) -> Columns:
        """Return a table as columns of numbers and codes."""
        return Columns.of_arrow(name, self.arrow(name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a small table, each row as a dict."""
        return self.arrow(name).to_pylist()


def _layered(shipped: Path, user: Path, own: Sequence[Path]) -> tuple[Layers, list[str]]:
    """Return the tables, and the problems of files that are skipped."""
    problems: list[str] = []
    layers = [Layer(shipped, meta) for meta in files.parts(shipped)]
    if not layers:
        raise SkyStoreError(
            _("{shipped}: the catalog is not there").format(shipped=shipped),
            hint=_("jupyter sky catalog build SOURCE_DIR"),
        )
    refreshed = []
    for path in _json_files(user):
        try:
            meta = files.read_meta(path)
            for name in meta.tables:
                files.read(user, meta, name)
            refreshed.append(Layer(user, meta))
        except SkyStoreError as error:
            problems.append(str(error))
    layers += sorted(refreshed, key=lambda layer: layer.meta.built)
    if not own:
        return Layers(layers), problems
    from jupyter_sky.knowledge.catalog.user_offers import UserOffers, read_user_offers

    mine = UserOffers()
    for path in own:
        found = read_user_offers(path)
        mine += found
        problems += found.problems
    return Layers(layers, mine), problems


def _merged(name: str, layers: Sequence[Layer]) -> pa.Table:
    """Return rows of all layers, each cloud's from the strongest layer that has it."""
    import pyarrow as pa

    parts, spoken_for = [], set[str]()
    for layer in reversed(layers):
        rows = files.read(layer.directory, layer.meta, name)
        if rows is None:
            continue
        parts.append(_drop_clouds(rows, spoken_for) if spoken_for else rows)
        spoken_for |= set(layer.meta.clouds)
    if not parts:
        return schema.schema(name).empty_table()
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(reversed(parts)).unify_dictionaries().combine_chunks()


def _with_tpu_hosts(rows: pa.Table) -> pa.Table:
    """Return offers with the size of the VMs of TPU slices, which no price list has."""
    import pyarrow as pa

    from jupyter_sky.base.requests.accelerators import (
        tpu_hosts,  # slow to import, and not needed for a decoded catalog
    )

    table = Columns.of_arrow("offers", rows)
    names, codes = table.categories("instance_type"), table.values("instance_type")
    hosts = {code: found for code, name in enumerate(names) if (found := tpu_hosts(name))}
    if not hosts:
        return rows
    for column, attribute in (("vcpus", "vcpus"), ("memory_gib", "memory")):
        values = table.values(column).copy()
        for code, host in hosts.items():
            values[(codes == code) & np.isnan(values)] = getattr(host, attribute)
        filled = pa.array(values, mask=np.isnan(values))
        rows = rows.set_column(rows.column_names.index(column), column, filled)
    rank = Columns.of_arrow("offers", rows).tie
    return rows if rank is None else rows.take(np.argsort(rank, kind="stable"))


def _drop_clouds(rows: pa.Table, clouds: set[str]) -> pa.Table:
    import pyarrow as pa

    column = "cloud" if "cloud" in rows.column_names else "source_cloud"
    kept = [name not in clouds for name in rows.column(column).to_pylist()]
    return rows.filter(pa.array(kept, pa.bool_()))


# -- The catalog once decoded, kept as plain numpy files that are mapped into memory --------------
#
# Decoding the compressed files and merging layers costs a fresh process more than all it then does
# with them. So the result is kept in the user's data directory, under the signature of every file
# that went into it; when any of those changes, or this directory is lost, it is made anew.

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
