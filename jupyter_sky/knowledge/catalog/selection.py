"""Offers that a filter let through, still as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Literal

import numpy as np

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog.managed_services import SURCHARGED
from jupyter_sky.knowledge.catalog.regions import days_since
from jupyter_sky.knowledge.catalog.seen_prices import SEEN, SeenPrices

if TYPE_CHECKING:
    from pandas import DataFrame

    from jupyter_sky.knowledge.catalog.managed_services import ManagedService
    from jupyter_sky.knowledge.catalog.tables import CatalogTables

By = Literal["price", "gpu_price"]

_STRINGS = {
    "cloud": "cloud",
    "region": "region",
    "zone": "zone",
    "instance_type": "instance_type",
    "gpu": "accelerator",
    "arch": "arch",
    "cpu_vendor": "cpu_vendor",
}
_NUMBERS = {
    "vcpus": "vcpus",
    "memory": "memory_gib",
    "gpu_count": "accelerator_count",
    "gpu_memory": "accelerator_memory_gib",
}
ABOVE_ON_DEMAND = "spot price above on-demand"


@dataclass(frozen=True, eq=False)
class Selection:
    """Offers, the cheapest first and unknown prices last.

    Attributes
    ----------
    catalog : CatalogTables
        Where they come from.
    rows : numpy.ndarray
        Row of each offer in the catalog's table of offers.
    spot : numpy.ndarray
        Whether each is a spot offer.
    price : numpy.ndarray
        USD/h of one node, surcharges included; NaN when not known.
    by : str
        Whether to order by the price of a node or of one accelerator.
    service : numpy.ndarray, optional
        Index into `services` for each offer.
    flagged : int
        Spot offers left out because they cost more than the machine on demand.
    seen : numpy.ndarray, optional
        Date on which the price of each offer was seen by the tracker; empty for the catalog's own.

    Examples
    --------
    >>> [offer.place for offer in load().filter(gpus="A100:8").head(3)]  # doctest: +SKIP
    """

    catalog: CatalogTables
    rows: np.ndarray
    spot: np.ndarray
    price: np.ndarray
    by: By = "price"
    service: np.ndarray | None = None
    services: Sequence[ManagedService] = ()
    flagged: int = 0
    ordered: bool = False
    seen: np.ndarray | None = None
    _cache: dict[str, Selection] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Offer]:
        return iter(self.offers())

    def _take(self, which: np.ndarray, ordered: bool) -> Selection:
        service = None if self.service is None else self.service[which]
        return Selection(
            self.catalog,
            self.rows[which],
            self.spot[which],
            self.price[which],
            self.by,
            service,
            self.services,
            self.flagged,
            ordered,
            None if self.seen is None else self.seen[which],
        )

    def _keys(self, which: np.ndarray) -> np.ndarray:
        """Return the sort key of `which`: the price of a node or of one accelerator."""
        price = self.price[which]
        if self.by == "gpu_price":
            return price / self.catalog.offers.values("accelerator_count")[self.rows[which]]
        return price

    def _order(self, which: np.ndarray) -> np.ndarray:
        tie = self.catalog.offers.tie
        rows = self.rows[which]
        rank = (rows if tie is None else tie[rows]).astype(np.int64) * 2 + self.spot[which]
        if self.service is not None:
            rank = rank * len(self.services) + self.service[which]
        return which[np.lexsort((rank, self._keys(which)))]

    def sorted(self) -> Selection:
        """Return all offers in order."""
        if self.ordered:
            return self
        if "all" not in self._cache:
            self._cache["all"] = self._take(self._order(np.arange(len(self))), True)
        return self._cache["all"]

    def head(self, count: int = 10) -> Selection:
        """Return the first offers, in order; far quicker than ordering them all."""
        if count >= len(self) or self.ordered or "all" in self._cache:
            return self.sorted()[:count]
        keys = self._keys(np.arange(len(self)))
        limit = np.partition(keys, count)[count]  # NaN sorts last
        which = np.flatnonzero(keys <= limit) if limit == limit else np.arange(len(self))
        return self._take(self._order(which)[:count], True)

    def __getitem__(self, key: slice) -> Selection:
        whole = self.sorted()
        return whole._take(np.arange(*key.indices(len(whole))), True)

    def where(self, mask: np.ndarray) -> Selection:
        """Return the offers that a mask, as long as the selection, lets through."""
        return self._take(np.flatnonzero(mask), self.ordered)

    def count_without_zones(self) -> int:
        """Return the number of offers, where those that differ in zone alone count once."""
        if not len(self):
            return 0
        key = self.spot.astype(np.int64)
        if self.service is not None:
            key = key * len(self.services) + self.service
        for name in ("cloud", "region", "instance_type"):
            key = key * (int(self.values(name).max()) + 1) + self.values(name)
        price = np.nan_to_num(self.price, nan=-1.0)
        order = np.lexsort((price, key))
        key, price = key[order], price[order]
        return 1 + int(np.count_nonzero((np.diff(key) != 0) | (np.diff(price) != 0)))

    def values(self, name: str) -> np.ndarray:
        """Return numbers, flags or codes of a column of the offers' table, offer by offer."""
        return self.catalog.offers.values(name)[self.rows]

    def strings(self, name: str) -> list[str]:
        """Return strings of a column of the offers' table, offer by offer."""
        return self.catalog.offers.strings(name, self.rows)

    def dates(self) -> list[str]:
        """Return the date of each price: of the spot price for a spot offer."""
        pairs = zip(
            self.spot.tolist(), self.strings("spot_date"), self.strings("price_date"), strict=True
        )
        listed = [spot if is_spot else price for is_spot, spot, price in pairs]
        if self.seen is None:
            return listed
        return [day or other for day, other in zip(self.seen.tolist(), listed, strict=True)]

    def sources(self) -> list[str]:
        """Return the source of each price."""
        listed = self.strings("source")
        if self.seen is None:
            return listed
        return [SEEN if day else name for day, name in zip(self.seen, listed, strict=True)]

    def with_seen_prices(self, seen: SeenPrices) -> Selection:
        """Return the same with spot prices that are newer than the catalog's."""
        if self.service is not None:  # with a service, the price holds more than the machine's
            return self
        usd, days = seen.newer(self.rows, self.spot)
        price = np.where(np.isnan(usd), self.price, usd)
        return replace(self, price=price, seen=days, ordered=False, _cache={})

    def age(self, today: date | None = None) -> int | None:
        """Return days since the oldest dated price here; None when none has a full date."""
        days = [days_since(text, today) for text in set(self.dates())]
        return max((day for day in days if day is not None), default=None)

    def offers(self, limit: int | None = None) -> list[Offer]:
        """Return the offers in order, as values."""
        chosen = self.sorted() if limit is None else self.head(limit)
        return list(chosen._offers())

    def _offers(self) -> Iterator[Offer]:
        fields: dict[str, list] = {key: self.strings(name) for key, name in _STRINGS.items()}
        for key, name in _NUMBERS.items():
            fields[key] = self.values(name).tolist()
        fields["source"], fields["date"] = self.sources(), self.dates()
        fields["spot"], fields["price"] = self.spot.tolist(), self.price.tolist()
        fields["intel_sgx"] = self.values("intel_sgx").tolist()
        other = np.where(self.spot, *map(self.values, ("on_demand_usd_h", "spot_usd_h")))
        fields["other_price"] = other.tolist()
        machine = np.where(self.spot, *map(self.values, ("spot_usd_h", "on_demand_usd_h")))
        fields["surcharge"] = np.nan_to_num(self.price - machine).tolist()
        fields["above"] = self.values("spot_above_on_demand").tolist()
        places = self.catalog.places(self.rows)
        for position, values in enumerate(zip(*fields.values(), strict=True)):
            found = dict(zip(fields, values, strict=True))
            service = None
            if self.service is not None:
                service = self.services[int(self.service[position])]
            yield _offer(found, places[position], service)

    def to_pandas(self) -> DataFrame:
        """Return the offers in order, with every column of the catalog."""
        try:
            import pandas as pd
        except ImportError as error:
            raise SkyUsageError(
                _("to_pandas(): {name} is missing").format(name=error.name),
                hint=_("pip install pandas"),
            ) from None

        whole = self.sorted()
        table = whole.catalog.offers
        data: dict[str, object] = {}
        for name, kind in table.kinds.items():
            if kind == "s":
                data[name] = pd.Categorical.from_codes(
                    whole.values(name).astype(np.int32), categories=pd.Index(table.categories(name))
                )
            else:
                data[name] = whole.values(name)
        places = whole.catalog.places(whole.rows)
        frame = pd.DataFrame(data)
        frame.insert(3, "country", [country for country, __ in places])
        frame.insert(4, "jurisdiction", [jurisdiction for __, jurisdiction in places])
        frame.insert(0, "spot", whole.spot)
        frame.insert(1, "usd_h", whole.price)
        frame.insert(2, "usd_h_per_gpu", whole.price / whole.values("accelerator_count"))
        dates = whole.dates()
        frame.insert(3, "price_from", pd.Categorical(whole.sources()))
        frame.insert(4, "price_day", pd.Categorical(dates))
        ages = {day: days_since(day) for day in set(dates)}
        frame.insert(5, "age_days", pd.array([ages[day] for day in dates], dtype="Int32"))
        if whole.service is not None:
            frame["service"] = [str(whole.services[i]) for i in whole.service]
        return frame


def _offer(found: dict, place: tuple[str, str], service: ManagedService | None) -> Offer:
    price, other = found.pop("price"), found["other_price"]
    notes = [ABOVE_ON_DEMAND] if found.pop("above") and found["spot"] else []
    if service is not None:
        notes.append(service.note)
    gpu_count = _known(found.pop("gpu_count"))
    return Offer(
        cloud=found["cloud"],
        region=found["region"],
        zone=found["zone"] or None,
        instance_type=found["instance_type"],
        vcpus=_whole(_known(found["vcpus"])),
        memory=_whole(_known(found["memory"])),
        gpu=found["gpu"] or None,
        gpu_count=_whole(gpu_count),
        gpu_memory=_known(found["gpu_memory"]) or None,
        spot=found["spot"],
        price=price if price == price else None,
        source=found["source"],
        date=found["date"],
        arch=found["arch"],
        cpu_vendor=found["cpu_vendor"],
        country=place[0],
        jurisdiction=place[1],
        intel_sgx=found["intel_sgx"],
        service=service.name if service else "",
        packages=service.packages if service else (),
        note="; ".join(filter(None, notes)),
        # a service may be sold in one market alone, and costs something else in the other
        other_price=None if service or other != other else other,
        surcharge=found["surcharge"] if service and service.name in SURCHARGED else 0.0,
    )


def _known(value: float) -> float:
    return value if value == value else 0.0


def _whole(value: float) -> float:
    return int(value) if value == int(value) else value
