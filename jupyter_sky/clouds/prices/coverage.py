"""Coverage of each cloud by the catalog: counts, sources and ages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyStoreError
from jupyter_sky.knowledge.catalog.regions import OLD_DAYS

if TYPE_CHECKING:
    import pyarrow as pa

    from jupyter_sky.knowledge.catalog.catalog import Catalog
    from jupyter_sky.knowledge.catalog.files import PartMetadata

_COUNTS = ("offers", "priced", "regions", "types", "yours")


@dataclass(frozen=True, slots=True)
class Coverage:
    """Coverage of one cloud by the catalog.

    Attributes
    ----------
    cloud : str
    offers, priced : int
        Rows, and rows with an on-demand price.
    regions, types : int
        How many different ones these are of.
    yours : int
        Rows that come from the user's own file.
    days : int or None
        Age of the newest price; None when none is dated.
    origin : str
        ``shipped``, ``refreshed`` or ``yours``.
    """

    cloud: str
    offers: int
    priced: int
    regions: int
    types: int
    yours: int
    days: int | None
    origin: str

    @property
    def is_old(self) -> bool:
        """Whether its prices are older than `OLD_DAYS`."""
        return self.days is not None and self.days > OLD_DAYS


def read_refreshed(folder: Path) -> Iterator[PartMetadata]:
    """Yield the refreshed parts; a damaged one is skipped, since a refresh writes it anew."""
    from jupyter_sky.knowledge.catalog import files

    for path in sorted(folder.glob("*.json")):
        try:
            yield files.read_meta(path)
        except SkyStoreError:
            continue


def read_if_valid(folder: Path, meta: PartMetadata, table: str) -> pa.Table | None:
    """Return a table of a refreshed part; None also when it is damaged."""
    from jupyter_sky.knowledge.catalog import files

    try:
        return files.read(folder, meta, table)
    except SkyStoreError:
        return None


def read_current(folder: Path, base: Path | None, cloud: str, table: str) -> pa.Table:
    """Return a cloud's present rows of a table: those of a refresh, else those shipped.

    The user's own offers and discounts are not among them: a refresh compares list prices.

    Parameters
    ----------
    folder
        The directory of what was refreshed.
    base
        The directory of what ships, unless it is the package's own.
    """
    import pyarrow as pa

    from jupyter_sky.knowledge.catalog import files, loader
    from jupyter_sky.knowledge.catalog.schema import schema

    shipped = base or loader.shipped_directory()
    layers = [
        read_if_valid(folder, meta, table)
        for meta in read_refreshed(folder)
        if cloud in meta.clouds
    ]
    layers += [files.read(shipped, m, table) for m in files.parts(shipped) if cloud in m.clouds]
    for rows in layers:
        if rows is not None:
            mine = [name == cloud for name in rows["cloud"].to_pylist()]
            return rows.filter(pa.array(mine, pa.bool_()))
    return schema(table).empty_table()


def find_coverage(catalog: Catalog, folder: Path) -> list[Coverage]:
    """Summarize the contents of a catalog, cloud by cloud.

    Parameters
    ----------
    catalog
        All layers together.
    folder
        The directory of what was refreshed.
    """
    rows = catalog.table("offers")
    fresh = {cloud for meta in read_refreshed(folder) for cloud in meta.clouds}
    counts: dict[str, dict[str, int]] = {}
    seen: set[tuple[str, str, str]] = set()
    names = ("cloud", "region", "instance_type", "source", "on_demand_usd_h")
    for cloud, region, machine, source, price in zip(
        *(rows[name].to_pylist() for name in names), strict=True
    ):
        count = counts.setdefault(cloud, dict.fromkeys(_COUNTS, 0))
        count["offers"] += 1
        count["priced"] += price is not None
        count["yours"] += source == "yours"
        for kind, name in (("regions", region), ("types", machine)):
            if name and (cloud, kind, name) not in seen:
                seen.add((cloud, kind, name))
                count[kind] += 1
    found = []
    for cloud, count in sorted(counts.items()):
        origin = "refreshed" if cloud in fresh else "shipped"
        origin = "yours" if count["yours"] == count["offers"] else origin
        found.append(Coverage(cloud=cloud, days=catalog.age(cloud), origin=origin, **count))
    return found
