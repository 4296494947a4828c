"""Transfer prices between any two places, as matrices taken from the catalog once.

Prices are those of the catalog, tier by tier. Where they rest on nothing better, we assume:

* between machines that are planned for one place, nothing is charged: they get the same zone;
* between a machine and an object store of its own region, nothing is charged, as on all three
  large clouds;
* out of a cloud whose price is not known, the dearest of the clouds whose price is (the median of
  each over its regions): a plan should not count on a present;
* carbon of a network: 1 Wh per GB, with the mean intensity of the two ends (the figure of the
  Cloud Carbon Footprint project).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.decisions.optimizer.solver.problem import Floats, Ints, TransferTable
from jupyter_sky.knowledge.tracker.transfer_rates import TransferRates

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog import Catalog, Location

NETWORK_KWH_PER_GB = 0.001
WORLD_CARBON = 480.0
"""gCO2 per kWh where nothing is known of a region: about the world's mean."""

Site = tuple[str, str, str]
"""Cloud, region and zone; empty words for what is not known."""


def site_of(offer: Offer) -> Site:
    """Return the site of an offer."""
    return (offer.cloud, offer.region, offer.zone or "")


def find_tier_bounds(catalog: Catalog) -> list[float]:
    """Return volumes (GB) at which some price per GB changes, in rising order."""
    first: dict[tuple, float] = {}
    rows = catalog.rows("egress")
    for row in rows:
        key = (row["cloud"], row["source_region"], row["destination"])
        first[key] = min(first.get(key, np.inf), row["tier_from_gb"])
    return sorted(
        {
            row["tier_from_gb"]
            for row in rows
            if row["tier_from_gb"] > first[row["cloud"], row["source_region"], row["destination"]]
        }
    )


@dataclass(eq=False)
class TransferPrices:
    """Prices and times between regions of one catalog; found when first asked for, then kept."""

    catalog: Catalog
    observed: TransferRates = field(default_factory=TransferRates)
    tier_bounds: list[float] = field(init=False)
    _index: dict[tuple[str, str], int] = field(default_factory=dict)
    _places: list[Location] = field(default_factory=list)
    _regional: dict[tuple[int, int, int], float] = field(default_factory=dict)
    _rates: dict[tuple[int, int], float] = field(default_factory=dict)
    _abroad: dict[tuple, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tier_bounds = find_tier_bounds(self.catalog)

    def region(self, cloud: str, region: str) -> int:
        """Return number of a region; a cloud alone counts as a region without a name."""
        from jupyter_sky.knowledge.catalog import Location

        key = (cloud, region)
        if key not in self._index:
            self._index[key] = len(self._places)
            self._places.append(Location(cloud, region))
        return self._index[key]

    def place(self, number: int) -> Location:
        """Return the region of a number."""
        return self._places[number]

    # -- between regions -----------------------------------------------------------------------

    def usd(self, sources: Ints, targets: Ints, gb: float) -> Floats:
        """Return USD for `gb` GB from each source region to each target; 0 within a region.

        Between the kinks of all tiers, prices are linear: two figures tell all in between.
        """
        top = next(
            (k for k, knot in enumerate(self.tier_bounds) if gb <= knot), len(self.tier_bounds)
        )
        low = 0.0 if top == 0 else self.tier_bounds[top - 1]
        base = self._grid(sources, targets, top - 1) if top else 0.0
        high = self.tier_bounds[top] if top < len(self.tier_bounds) else low + 1024.0
        slope = (self._grid(sources, targets, top) - base) / (high - low)
        return base + slope * (gb - low)

    def _grid(self, sources: Ints, targets: Ints, knot: int) -> Floats:
        return _tabulate(lambda a, b: self._price(a, b, knot), sources, targets)

    def _price(self, a: int, b: int, knot: int) -> float:
        if a == b:
            return 0.0
        key = (a, b, knot)
        if key not in self._regional:
            gb = [*self.tier_bounds, 1024.0 + max(self.tier_bounds, default=0.0)][knot]
            here, there = self._places[a], self._places[b]
            if here.cloud == there.cloud and not here.is_own:
                found = self.catalog.egress(here, there, gb).usd
            else:
                found = self._egress_price(here, there, gb)
            self._regional[key] = gb * self.assumed_usd_per_gb if found is None else found
        return self._regional[key]

    def _egress_price(self, here: Location, there: Location, gb: float) -> float | None:
        """Return the price out of a cloud, by where data leaves and the country it comes to."""
        country = self.catalog.region(there.cloud, there.region).country
        key = (here, country, there.is_own, gb)
        if key not in self._abroad:
            self._abroad[key] = self.catalog.egress(here, there, gb).usd
        return self._abroad[key]

    @cached_property
    def assumed_usd_per_gb(self) -> float:
        """USD per GB out of a cloud whose price is not known."""
        clouds: dict[str, list[float]] = {}
        for row in self.catalog.rows("egress"):
            if row["destination"] == "internet":
                clouds.setdefault(row["cloud"], []).append(row["usd_per_gb"])
        return max((float(np.median(each)) for each in clouds.values()), default=0.12)

    def hours_per_gb(self, sources: Ints, targets: Ints) -> Floats:
        """Return hours for one GB from each source region to each target, itself included."""
        return _tabulate(self._rate, sources, targets)

    def _rate(self, a: int, b: int) -> float:
        if (a, b) not in self._rates:
            here, there = self._places[a], self._places[b]
            self._rates[a, b] = self.observed.duration(self.catalog, here, there, 1.0).hours
        return self._rates[a, b]

    def request_usd(self, region: int, objects: int, kind: str) -> float:
        """Return USD for one request for each object; 0 where no price is known.

        Parameters
        ----------
        kind
            ``write`` or ``read``.
        """
        here = self._places[region]
        return objects * (self.catalog.request_price(here.cloud, here.region, kind).usd or 0.0)

    def across_zones(self, region: int, gb: float) -> float:
        """Return USD from one zone of a region to another."""
        here = self._places[region]
        return self.catalog.egress(here, here, gb).usd or 0.0

    def carbon(self, region: int) -> float:
        """Return gCO2 per kWh of a region, or of the world where it is not known."""
        here = self._places[region]
        found = self.catalog.region(here.cloud, here.region).carbon
        return WORLD_CARBON if found is None else found

    # -- between places ------------------------------------------------------------------------

    def table(self, sites: Sequence[Site], gb: float | None = None) -> TransferTable:
        """Return transfer costs between places: of one GB, or of all `gb` where tiers matter."""
        regions = np.array([self.region(cloud, name) for cloud, name, _ in sites], np.int64)
        known, index = np.unique(regions, return_inverse=True)
        grid = np.ix_(index, index)
        low = self.tier_bounds[0] if self.tier_bounds else 1024.0
        amount = low if gb is None else gb
        usd = self.usd(known, known, amount)[grid]
        zones = np.array([self.across_zones(int(one), amount) for one in known])
        usd = np.where(regions[:, None] == regions[None, :], zones[index][:, None], usd)
        np.fill_diagonal(usd, 0.0)
        clean = np.array([self.carbon(int(one)) for one in known])[index]
        grams = NETWORK_KWH_PER_GB * (clean[:, None] + clean[None, :]) / 2
        np.fill_diagonal(grams, 0.0)
        hours = self.hours_per_gb(known, known)[grid]
        if gb is None:
            return TransferTable(usd / amount, hours, grams)
        return TransferTable(usd, hours * gb, grams * gb)

    def has_tiers(self, gb: float) -> bool:
        """Return whether so much data has a price per GB of its own."""
        return bool(self.tier_bounds) and gb > self.tier_bounds[0]


def _tabulate(price: Callable[[int, int], float], sources: Ints, targets: Ints) -> Floats:
    values = [[price(a, b) for b in targets.tolist()] for a in sources.tolist()]
    return np.array(values, np.float64).reshape(len(sources), len(targets))


_last: list[TransferPrices] = []


def get_transfer_prices(catalog: Catalog, observed: TransferRates | None = None) -> TransferPrices:
    """Return the transfer prices of a catalog and of observed rates; the last ones are kept."""
    observed = observed or TransferRates()
    if not _last or _last[0].catalog is not catalog or _last[0].observed != observed:
        _last[:] = [TransferPrices(catalog, observed)]
    return _last[0]
