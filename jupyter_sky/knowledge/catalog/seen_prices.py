"""Spot prices that were seen after the catalog was made, as columns beside its own."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jupyter_sky.base.requests.offers import Place, Price
    from jupyter_sky.knowledge.catalog.tables import CatalogTables

SEEN = "seen by the tracker"
"""Source of an offer whose price was seen."""
_Table = tuple[np.ndarray, np.ndarray, np.ndarray]


class SeenPrices:
    """Spot prices by rows of the offers of one catalog.

    The price of a region holds in its zones, unless one was seen there.

    Parameters
    ----------
    catalog
        Whose rows are asked about.
    prices
        The last price of each place.
    """

    def __init__(self, catalog: CatalogTables, prices: Mapping[Place, Price]) -> None:
        self._catalog = catalog
        names = ("cloud", "region", "zone", "instance_type")
        self._sizes = [len(catalog.offers.categories(name)) + 1 for name in names]
        zones: dict[int, tuple[float, str]] = {}
        regions: dict[int, tuple[float, str]] = {}
        for place, seen in prices.items():
            words = (place.cloud, place.region, place.zone, place.instance_type)
            codes = [catalog.offers.code(n, w) for n, w in zip(names, words, strict=True)]
            if min(codes[0], codes[1], codes[3]) < 0:
                continue
            value = seen.usd, format_day(seen.at)
            if not place.zone:
                regions[int(self._region_key(codes[0], codes[1], codes[3]))] = value
            elif codes[2] >= 0:
                zones[int(self._zone_key(*codes))] = value
        self._zones, self._regions = _as_table(zones), _as_table(regions)

    def find(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the price [USD/h] and date last seen for rows of offers; NaN and "" for none.

        It is for the caller to leave out offers on demand, and dates before the catalog's.
        """
        offers = self._catalog.offers
        cloud, region, zone, kind = (
            offers.values(name)[rows].astype(np.int64)
            for name in ("cloud", "region", "zone", "instance_type")
        )
        usd, days = _look_up(self._regions, self._region_key(cloud, region, kind))
        near, near_days = _look_up(self._zones, self._zone_key(cloud, region, zone, kind))
        is_near = ~np.isnan(near)
        return np.where(is_near, near, usd), np.where(is_near, near_days, days)

    def newer(self, rows: np.ndarray, spot: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same where a price is newer than the catalog's, of spot offers alone."""
        usd, days = self.find(rows)
        words = self._catalog.offers.categories("spot_date")
        dates = np.array(words or [""])[self._catalog.offers.values("spot_date")[rows]]
        is_newer = spot & ~np.isnan(usd) & (dates <= days)
        return np.where(is_newer, usd, np.nan), np.where(is_newer, days, "")

    def _region_key(self, cloud, region, kind):
        __, regions, __, kinds = self._sizes
        return (cloud * regions + region) * kinds + kind

    def _zone_key(self, cloud, region, zone, kind):
        __, regions, zones, kinds = self._sizes
        return ((cloud * regions + region) * zones + zone) * kinds + kind


_last: list[tuple[CatalogTables, Mapping[Place, Price], SeenPrices]] = []


def get_seen_prices(catalog: CatalogTables, prices: Mapping[Place, Price]) -> SeenPrices:
    """Return prices by rows of a catalog; those of the last objects are kept."""
    if not _last or _last[0][0] is not catalog or _last[0][1] is not prices:
        _last[:] = [(catalog, prices, SeenPrices(catalog, prices))]
    return _last[0][2]


def format_day(at: float) -> str:
    """Return the day of a time [unix s], as YYYY-MM-DD."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def _as_table(found: Mapping[int, tuple[float, str]]) -> _Table:
    """Return sorted keys, prices and dates."""
    keys = sorted(found)
    usd, days = [found[key][0] for key in keys], [found[key][1] for key in keys]
    return np.array(keys, np.int64), np.array(usd, np.float64), np.array(days, dtype=str)


def _look_up(table: _Table, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return prices and dates for keys; NaN and "" for those that are not there."""
    known, usd, days = table
    if not len(known):
        return np.full(len(keys), np.nan), np.full(len(keys), "")
    at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    is_known = known[at] == keys
    return np.where(is_known, usd[at], np.nan), np.where(is_known, days[at], "")
