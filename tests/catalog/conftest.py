from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_sky.knowledge.catalog import Catalog, files, loader, schema
from jupyter_sky.knowledge.catalog.catalog import Catalog as _Catalog


@pytest.fixture(scope="session")
def shipped(tmp_path_factory) -> Catalog:
    """The catalog that ships, without anything of the user's."""
    nothing = tmp_path_factory.mktemp("nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader.paths, "data_dir", lambda: tmp_path_factory.mktemp("data"))
        return loader.load(user=nothing, own=[])


@pytest.fixture
def data_dir(tmp_path, monkeypatch) -> Path:
    """A data directory of the test's own."""
    monkeypatch.setattr(loader.paths, "data_dir", lambda: tmp_path)
    monkeypatch.setattr(loader.paths, "offers_file", lambda: None)
    monkeypatch.setattr(loader, "_LOADED", {})
    return tmp_path


@pytest.fixture(scope="module")
def shared_data_dir(tmp_path_factory) -> Iterator[Path]:
    """A data directory that the tests of a file only read: the catalog is decoded once in it."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loader.paths, "data_dir", lambda: folder)
        patch.setattr(loader.paths, "offers_file", lambda: None)
        patch.setattr(loader, "_LOADED", {})
        yield folder


@pytest.fixture(scope="session")
def small_directory(shipped, tmp_path_factory) -> Path:
    """Catalog that ships, cut to the offers of two regions: it loads quickly."""
    import pyarrow.compute as pc

    folder = tmp_path_factory.mktemp("small")
    tables = {name: shipped.table(name) for name in schema.TABLES}
    regions = tables["offers"].column("region").cast("string")
    here = pc.or_(pc.equal(regions, "us-east-1"), pc.equal(regions, "us-central1"))
    tables["offers"] = tables["offers"].filter(here)
    tables["interruptions"] = tables["interruptions"].slice(0, 5)
    files.write(folder, tables, files.PartMetadata("shipped", ("aws", "gcp", "lambda")))
    return folder


@pytest.fixture
def small(small_directory, monkeypatch) -> None:
    """Take `small_directory` for what ships."""
    monkeypatch.setattr(loader, "shipped_directory", lambda: small_directory)


class Plain:
    """Tables given as rows of dicts."""

    def __init__(self, **tables: list[dict]) -> None:
        self._given = tables

    def arrow(self, name):
        import pyarrow as pa

        from jupyter_sky.knowledge.catalog import schema

        rows = self._given.get(name, [])
        kinds = {"s": pa.string(), "f": pa.float64(), "b": pa.bool_()}
        columns = schema.columns(name)
        given = {key: [row.get(key) for row in rows] for key in columns}
        arrays = {key: pa.array(given[key], kinds[columns[key]]) for key in columns}
        return schema.conform(name, pa.table(arrays))

    def columns(self, name):
        from jupyter_sky.knowledge.catalog.columns import Columns

        return Columns.of_arrow(name, self.arrow(name))

    def rows(self, name):
        return self.arrow(name).to_pylist()


@pytest.fixture
def catalog_of() -> Callable[..., Catalog]:
    """Function of tables, as rows of dicts, to a catalog of them."""
    return lambda **tables: _Catalog(Plain(**tables))
