"""Counts and spreads over the whole catalog: what tables 1 and 4 of the SkyPilot paper show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..resources import Label, Resources
from .catalog import Catalog
from .selection import Selection

THREE = ("aws", "azure", "gcp")


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is to choose from in one cloud.

    Attributes
    ----------
    regions, zones, types : int
        Regions with offers, zones of these regions, instance types.
    us_regions, us_zones : int
        Those in the United States, without the government's.
    local_zones : int
        Zones that belong to a region and stand in another city; not among `zones`.
    """

    cloud: str
    regions: int
    us_regions: int
    zones: int
    us_zones: int
    types: int
    local_zones: int


def size(catalog: Catalog, cloud: str) -> Size:
    """Regions, zones and instance types of a cloud (table 1).

    Examples
    --------
    >>> size(load(), "aws").regions  # doctest: +SKIP
    36
    """
    offers = catalog.offers
    rows = np.flatnonzero(offers.equal("cloud", cloud) & catalog.sold)
    regions = {name for name in set(offers.strings("region", rows)) if name}
    zones = {name: set(catalog.region(cloud, name).zones) for name in regions}
    american = {name for name in regions if catalog.region(cloud, name).jurisdiction == "US"}
    named = {zone for zone in set(offers.strings("zone", rows)) if zone}
    return Size(
        cloud,
        len(regions),
        len(american),
        sum(map(len, zones.values())),
        sum(len(zones[name]) for name in american),
        # a machine with GPUs added to it is no type of its own
        len({kind for kind in offers.strings("instance_type", rows) if "+" not in kind}),
        len(named - set().union(*zones.values())) if zones else 0,
    )


@dataclass(frozen=True, slots=True)
class Spread:
    """How the price of one kind of machine differs from zone to zone.

    Attributes
    ----------
    zones : int
        Zones that sell it on demand.
    ratio, cv : float
        The dearest zone's price over the cheapest one's, and the coefficient of variation.
    spot_zones, spot_ratio, spot_cv
        The same of spot prices.
    """

    zones: int
    ratio: float
    cv: float
    spot_zones: int
    spot_ratio: float
    spot_cv: float


def zone_prices(
    catalog: Catalog, *, clouds: Sequence[str] = THREE, spot: bool = False, **labels: Label
) -> dict[tuple[str, str], float]:
    """Return the cheapest price of a request in each zone, USD/h.

    An offer whose zones are not known counts for every zone of its region, which is the most
    that it can be true of; a region without zones counts as one.

    Examples
    --------
    >>> len(zone_prices(load(), gpus="A100:8"))  # doctest: +SKIP
    """
    need = Resources.parse(cloud=list(clouds), spot=spot, on_demand=not spot, **labels)
    return cheapest_by_zone(catalog, catalog.filter(need))


def cheapest_by_zone(catalog: Catalog, found: Selection) -> dict[tuple[str, str], float]:
    """Return the cheapest known price of a selection in each zone, see `zone_prices`."""
    best: dict[tuple[str, str], float] = {}
    columns = (found.strings(name) for name in ("cloud", "region", "zone"))
    for cloud, region, zone, price in zip(*columns, found.price.tolist(), strict=True):
        if price == price:
            for name in (zone,) if zone else catalog.region(cloud, region).zones or (region,):
                key = (cloud, name)
                best[key] = min(price, best.get(key, price))
    return best


def spread(catalog: Catalog, *, clouds: Sequence[str] = THREE, **labels: Label) -> Spread:
    """How prices of a request differ over the zones of some clouds (table 4).

    Examples
    --------
    >>> spread(load(), gpus="V100:1").ratio  # doctest: +SKIP
    """
    on_demand = zone_prices(catalog, clouds=clouds, spot=False, **labels)
    spot = zone_prices(catalog, clouds=clouds, spot=True, **labels)
    return Spread(*_spread(list(on_demand.values())), *_spread(list(spot.values())))


def _spread(prices: Sequence[float]) -> tuple[int, float, float]:
    if not prices:
        return 0, np.nan, np.nan
    values = np.asarray(prices)
    return len(values), float(values.max() / values.min()), float(values.std() / values.mean())
