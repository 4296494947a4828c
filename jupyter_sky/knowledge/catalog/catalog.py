"""The catalog: every offer of every cloud, with what it costs to move and keep data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from jupyter_sky.base.errors import SkyUsageError, suggest
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog.regions import Band, Region, days_since
from jupyter_sky.knowledge.catalog.tables import CatalogTables, TableReader

if TYPE_CHECKING:
    from jupyter_sky.base.requests.resources import Label, Resources
    from jupyter_sky.knowledge.catalog import transfer
    from jupyter_sky.knowledge.catalog.selection import By, Selection


# Offers in the selections that are kept, some 30 bytes each: the tasks of a graph ask for the same
# again and again.
_MAX_CACHED_ROWS = 1_000_000


class Catalog(CatalogTables):
    """Offers, regions and prices, ready to be searched.

    Parameters
    ----------
    tables : TableReader
        Gives each table of the schema, when it is first asked for.
    problems : sequence of str
        What was wrong with files that could not be read in full.

    Examples
    --------
    >>> from jupyter_sky.knowledge.catalog import load
    >>> load().filter(gpus="A100:8", jurisdiction="eu").head(1).offers()  # doctest: +SKIP
    """

    def __init__(self, tables: TableReader, problems: Sequence[str] = ()) -> None:
        super().__init__(tables, problems)
        self._selections: OrderedDict[tuple, Selection] = OrderedDict()
        self._lock = Lock()

    # -- searching ---------------------------------------------------------------------------

    def filter(
        self,
        need: Resources | None = None,
        *,
        by: By = "price",
        flagged: bool = False,
        **labels: Label,
    ) -> Selection:
        """Return offers that meet a request, the cheapest first: one for each market.

        Parameters
        ----------
        need
            The request; or give its labels, spelled as the options of a cell are.
        by
            Order by the price of a node, or of one accelerator.
        flagged
            Also spot offers that cost more than the same machine on demand.

        Examples
        --------
        >>> load().filter(cpus="8+", arch="arm64", spot=True)  # doctest: +SKIP
        """
        from jupyter_sky.knowledge.catalog.filters import parse_request, select

        need = parse_request(labels) if need is None else need
        key = (need, by, flagged)
        with self._lock:
            selection = self._selections.get(key)
            if selection is not None:
                self._selections.move_to_end(key)
                return selection
        selection = select(self, need, by, flagged)
        with self._lock:  # a server asks in several threads
            self._selections[key] = selection
            while len(self._selections) > 1 and self._count_cached_rows() > _MAX_CACHED_ROWS:
                self._selections.popitem(last=False)
        return selection

    def _count_cached_rows(self) -> int:
        return sum(map(len, self._selections.values()))

    def check(self, need: Resources) -> None:
        """Raise SkyUsageError for a name that nothing in the catalog bears, with the nearest."""
        from jupyter_sky.base.requests.geography import is_area
        from jupyter_sky.base.requests.resources import format_option

        for key in ("region", "zone", "instance_type"):
            name = getattr(need, key)
            if name is None or self.offers.code(key, name) >= 0:
                continue
            if key == "region" and is_area(name):
                continue
            raise SkyUsageError(
                _("{key} {name}: no cloud has {words} {key2} of that name").format(
                    key=format_option(key),
                    name=name,
                    words=_("an") if key[0] in "iz" else "a",
                    key2=key.replace("_", " "),
                ),
                hint=self._nearest(key, name, need.clouds),
            )

    def _nearest(self, key: str, name: str, clouds: Collection[str]) -> str:
        """Hint for a name that nothing bears; of clouds where some are named."""
        from jupyter_sky.base.requests.geography import parse_area
        from jupyter_sky.base.requests.resources import format_option

        word = name.lower()
        if key == "region" and len(word) > 3:  # a city's name, or a country's
            there = [one.name for one in self.regions.values() if word in one.city.lower()]
            if there:
                return f"there: {', '.join(there[:5])}"
            with suppress(SkyUsageError):
                return f"a country: {format_option('country')} {parse_area(word, '').lower()}"
        words = [known for known in self.offers.categories(key) if known]
        if key == "region" and clouds:
            words = sorted({region for cloud, region in self.regions if cloud in clouds}) or words
        hint = suggest(name, words)
        return hint if hint.startswith("did") else f"such as {', '.join(words[:5])}"

    def names(self, kind: str) -> list[str]:
        """Return the sorted names of a kind.

        Kinds: ``region``, ``zone``, ``instance-type``, ``country``, ``jurisdiction``.
        """
        if kind in ("country", "jurisdiction"):
            names = {getattr(region, kind) for region in self.regions.values()}
        else:
            names = set(self.offers.categories(kind.replace("-", "_")))
        return sorted(names - {""})

    # -- places ------------------------------------------------------------------------------

    def region(self, cloud: str, region: str) -> Region:
        """Return the facts of a region; an empty `Region` when it is unknown."""
        return self.regions.get((cloud, region), Region(cloud, region))

    @cached_property
    def _bands(self) -> dict[tuple[str, str, str], Band]:
        return {
            (row["cloud"], row["region"], row["instance_type"]): Band(
                row["band_low_pct"],
                row["band_high_pct"],
                row["savings_pct_vs_on_demand"],
                row["as_of"],
            )
            for row in self.rows("interruptions")
        }

    def interruption(self, cloud: str, region: str, instance_type: str) -> Band | None:
        """Return the interruption band of a type's spot machines in a region; None if unknown."""
        return self._bands.get((cloud, region, instance_type))

    def age(self, cloud: str, today: date | None = None) -> int | None:
        """Return days since the newest dated price of a cloud; None when none has a full date."""
        mine = self.offers.equal("cloud", cloud)
        dates = {
            self.offers.categories(column)[code]
            for column in ("price_date", "spot_date")
            for code in np.unique(self.offers.values(column)[mine]).tolist()
        }
        return min(
            (d for d in (days_since(text, today) for text in dates) if d is not None), default=None
        )

    # -- data --------------------------------------------------------------------------------

    @cached_property
    def _network(self) -> transfer.TransferNetwork:
        from jupyter_sky.knowledge.catalog import transfer

        return transfer.TransferNetwork(
            self.regions,
            self.rows("egress"),
            self.rows("storage"),
            self.rows("bandwidth"),
        )

    def egress(
        self,
        source: transfer.Location | str,
        destination: transfer.Location | str,
        gb: float,
        already_gb: float = 0.0,
    ) -> transfer.Egress:
        """Return the cost of moving data between places, see `TransferNetwork.egress`."""
        return self._network.egress(source, destination, gb, already_gb)

    def transfer_hours(
        self, source: transfer.Location | str, destination: transfer.Location | str, gb: float
    ) -> transfer.Duration:
        """Return the duration of a transfer, see `transfer.TransferNetwork.hours`."""
        return self._network.hours(source, destination, gb)

    def storage(
        self, cloud: str, region: str, gb: float, storage_class: str | None = None
    ) -> transfer.Storage:
        """Return the cost of storage for a month, see `transfer.TransferNetwork.storage`."""
        return self._network.storage(cloud, region, gb, storage_class)

    @cached_property
    def _requests(self) -> RequestPrices:

        return RequestPrices(self.rows("requests"))

    def request_price(
        self, cloud: str, region: str, kind: str, storage_class: str = ""
    ) -> RequestPrice:
        """Return the price of a request, see `request_prices.RequestPrices.find`."""
        return self._requests.find(cloud, region, kind, storage_class)


# -- Prices of requests to object stores, and of reading classes that charge for it ---------------

RequestKind = str
"""``write`` (with copies and lists), ``read``, ``retrieval``, ``storage`` or ``egress``."""

_UNITS = {"million requests": 1e6, "GB": 1.0, "GB-month": 1.0}


@dataclass(frozen=True, slots=True)
class RequestPrice:
    """Price of one request, or of one GB.

    Attributes
    ----------
    usd : float or None
        USD for a request, or for a GB of ``retrieval``, ``storage`` (for a month) and ``egress``;
        None where it is not known.
    basis : str
        ``listed``, ``assumed`` as `note` explains, or ``not known``.
    source, date : str
        Origin of the price, and the day on which it was read.
    """

    usd: float | None
    basis: str
    source: str = ""
    date: str = ""
    note: str = ""


class RequestPrices:
    """Prices by cloud, region, storage class and kind.

    Parameters
    ----------
    rows
        Rows of the table ``requests``.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._prices = {
            (row["cloud"], row["region"], row["storage_class"].upper(), row["kind"]): RequestPrice(
                row["usd"] / _UNITS[row["unit"]],
                row["basis"],
                row["source"],
                row["price_date"],
                row["note"],
            )
            for row in rows
        }

    def find(
        self, cloud: str, region: str, kind: RequestKind, storage_class: str = ""
    ) -> RequestPrice:
        """Return the price of a kind of request; that of the region wins over that of the cloud.

        A class without prices of its own has those of the standard class; its retrieval is free.
        """
        wanted = storage_class.upper()
        for found_class in dict.fromkeys((wanted, "")):
            for place in dict.fromkeys((region, "")):
                if found := self._prices.get((cloud, place, found_class, kind)):
                    return found
            if kind == "retrieval":
                break
        if kind == "retrieval" and not wanted:
            return RequestPrice(0.0, "listed")
        return RequestPrice(None, "not known")
