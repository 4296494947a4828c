"""Tables of a catalog, with the places of its offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from jupyter_sky.knowledge.catalog.columns import Columns
from jupyter_sky.knowledge.catalog.regions import Region

if TYPE_CHECKING:
    import pyarrow as pa


class TableReader(Protocol):
    """Reader of the tables of a catalog."""

    def columns(self, name: str) -> Columns:
        """Return a table as columns of numbers and codes."""
        ...

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a small table, each row as a dict."""
        ...

    def arrow(self, name: str) -> pa.Table:
        """Return a table of Arrow."""
        ...


class CatalogTables:
    """Tables of a catalog: offers, regions and managed services.

    Parameters
    ----------
    tables : TableReader
        Gives each table of the schema, when it is first asked for.
    problems : sequence of str
        What was wrong with files that could not be read in full.
    """

    def __init__(self, tables: TableReader, problems: Sequence[str] = ()) -> None:
        self._tables, self.problems = tables, tuple(problems)

    @cached_property
    def offers(self) -> Columns:
        """The table of offers: a row for each type in each place, with both prices."""
        return self._tables.columns("offers")

    def table(self, name: str) -> pa.Table:
        """Return a whole table, all layers together."""
        return self._tables.arrow(name)

    @cached_property
    def regions(self) -> dict[tuple[str, str], Region]:
        """Regions by cloud and name."""
        return {(row["cloud"], row["region"]): Region.of(row) for row in self.rows("regions")}

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a small table, each row as a dict."""
        return self._tables.rows(name)

    @cached_property
    def _managed(self) -> list[dict[str, Any]]:
        return self.rows("managed")

    def managed(self) -> list[dict[str, Any]]:
        """Return versions, surcharges and prices of managed services, serverless ones too."""
        return self._managed

    @cached_property
    def sold(self) -> np.ndarray:
        """Rows that are machines of their own, not parts to be added to one."""
        return ~self.offers.equal("kind", "accelerator-attach")

    @cached_property
    def _place(self) -> np.ndarray:
        """Index into `_areas` for each row of offers."""
        offers, clouds = self.offers, self.offers.categories("cloud")
        lut = np.zeros((len(clouds), max(1, len(offers.categories("region")))), np.int16)
        for index, (cloud, region) in enumerate(self.regions, start=1):
            row, column = offers.code("cloud", cloud), offers.code("region", region)
            if row >= 0 and column >= 0:
                lut[row, column] = index
        return lut[offers.values("cloud"), offers.values("region")]

    @cached_property
    def _areas(self) -> list[tuple[str, str]]:
        """Country and jurisdiction of each region; the first is that of no known region."""
        known = ((one.country, one.jurisdiction) for one in self.regions.values())
        return [("", ""), *known]

    def in_places(self, test: Callable[[str, str], bool]) -> np.ndarray:
        """Return the mask of rows whose country and jurisdiction pass a test."""
        passed = np.fromiter((test(*area) for area in self._areas), bool, len(self._areas))
        return passed[self._place]

    def places(self, rows: np.ndarray) -> list[tuple[str, str]]:
        """Return country and jurisdiction of some rows."""
        areas = self._areas
        return [areas[index] for index in self._place[rows].tolist()]
