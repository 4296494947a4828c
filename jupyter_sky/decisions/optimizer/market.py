"""Offers as columns, ready to become labels: which there are, where, at what price, how reliable.

A `Pool` holds every offer that meets any of a task's requests. Offers come from the catalog; own
offers (this machine, clusters that are up, those of a test) stand beside them in the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.decisions.optimizer.solver.problem import Flags, Floats, Ints
from jupyter_sky.decisions.optimizer.transfers import Site, site_of
from jupyter_sky.knowledge.catalog.seen_prices import SEEN, SeenPrices, get_seen_prices
from jupyter_sky.knowledge.lifetimes.priors import ON_DEMAND, spot_lifetimes
from jupyter_sky.knowledge.lifetimes.recomputation import Lives
from jupyter_sky.knowledge.tracker.estimates import preempted_share
from jupyter_sky.knowledge.tracker.observations import quota_family

if TYPE_CHECKING:
    from jupyter_sky.base.requests.offers import Place as Snapshot
    from jupyter_sky.base.requests.offers import Price
    from jupyter_sky.knowledge.catalog import Catalog
    from jupyter_sky.knowledge.lifetimes import Beliefs
    from jupyter_sky.knowledge.tracker import Knowledge
    from jupyter_sky.knowledge.tracker.transfer_rates import TransferRates


class OfferColumns:
    """Columns derived from the table of offers of one catalog, computed once.

    Attributes
    ----------
    sites : list of (cloud, region, zone)
        In canonical order.
    site, machine : int array
        For each row its site, and which kind of machine it is.
    machines : dict of int to Offer
        Kinds of machines that were asked for, see `Market.machine`.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog, table = catalog, catalog.offers
        cloud, region, zone, kind = (
            table.values(name).astype(np.int64)
            for name in ("cloud", "region", "zone", "instance_type")
        )
        regions, zones = len(table.categories("region")) + 1, len(table.categories("zone")) + 1
        keys, rows, site = np.unique(
            (cloud * regions + region) * zones + zone, return_index=True, return_inverse=True
        )
        names = list(
            zip(*(table.strings(n, rows) for n in ("cloud", "region", "zone")), strict=True)
        )
        order = sorted(range(len(keys)), key=names.__getitem__)
        rank = np.empty(len(keys), np.int64)
        rank[order] = np.arange(len(keys))
        self.sites: list[Site] = [names[index] for index in order]
        self.site = rank[site.reshape(-1)]
        types = len(table.categories("instance_type")) + 1
        _, self.first, machine = np.unique(
            cloud * types + kind, return_index=True, return_inverse=True
        )
        self.machine = machine.reshape(-1)
        self.machines: dict[int, Offer] = {}

    @cached_property
    def lifetimes(self) -> Lives:
        """Lifetimes of spot machines for each row, by interruption bands and sizes alone."""
        table, rows = self.catalog.offers, self.catalog.rows("interruptions")
        regions, types = (
            len(table.categories("region")) + 1,
            len(table.categories("instance_type")) + 1,
        )
        codes, shares = [], []
        for row in rows:
            found = [table.code(n, row[n]) for n in ("cloud", "region", "instance_type")]
            if min(found) >= 0:
                band = self.catalog.interruption(row["cloud"], row["region"], row["instance_type"])
                codes.append((found[0] * regions + found[1]) * types + found[2])
                shares.append(preempted_share(band))
        vcpus = table.values("vcpus")
        if not codes:
            return spot_lifetimes(np.full(len(table), np.nan), vcpus)
        order = np.argsort(codes)
        known, share = np.array(codes)[order], np.array(shares)[order]
        cloud, region, kind = (
            table.values(n).astype(np.int64) for n in ("cloud", "region", "instance_type")
        )
        mine = (cloud * regions + region) * types + kind
        at = np.minimum(np.searchsorted(known, mine), len(known) - 1)
        return spot_lifetimes(np.where(known[at] == mine, share[at], np.nan), vcpus)


_last: list[OfferColumns] = []


def get_offer_columns(catalog: Catalog) -> OfferColumns:
    """Return the view of a catalog; that of the last one is kept."""
    if not _last or _last[0].catalog is not catalog:
        _last[:] = [OfferColumns(catalog)]
    return _last[0]


_COLUMNS = ("row", "site", "machine", "spot", "price", "need", "service", "floor", "early")


@dataclass(frozen=True, eq=False)
class OfferPool:
    """Offers that meet a request, in the order of their sites; every array has one entry each.

    Attributes
    ----------
    row : int array
        Row of the catalog; own offer k is -1 - k.
    site, machine : int array
        Index into `Market.sites` and `Market.machines`.
    price : float array
        USD/h of one node.
    need : int array
        Which of the alternatives it meets; the first, if several.
    service : int array
        Index into `services`; -1 for a bare machine.
    floor, early : float array
        Hazard of the machines, per hour; see `Lives`.
    scale : float
        Hours in which the early part of it falls by half.
    """

    row: Ints
    site: Ints
    machine: Ints
    spot: Flags
    price: Floats
    need: Ints
    service: Ints
    floor: Floats
    early: Floats
    scale: float = 1.0
    services: tuple = ()

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def classes(self) -> tuple[Ints, Ints]:
        """Offers alike in all but place and price: one offer of each class, each offer's class."""
        key = self.machine * (len(self.services) + 1) + self.service + 1
        # the early part of a hazard is 0 or in proportion to its floor: see `spot_lifetimes`
        floors, floor = np.unique(self.floor, return_inverse=True)
        key = (key * 2 + self.spot) * 2 + (self.early > 0)
        key = key * max(1, len(floors)) + floor.reshape(-1)
        key = key * (int(self.need.max(initial=0)) + 1) + self.need
        _, first, at = np.unique(key, return_index=True, return_inverse=True)
        return first, at.reshape(-1)

    def lifetimes(self, which: np.ndarray, nodes: Floats | float = 1.0) -> Lives:
        """Return lifetimes of the machines of some offers, so many together."""
        return Lives(self.floor[which], self.early[which], self.scale, nodes)

    @cached_property
    def mean_life_hours(self) -> Floats:
        """Hours that machines run for each that is taken back, in their first day."""
        first, at = self.classes
        return self.lifetimes(first).hours_per_loss()[at]

    def take(self, which: np.ndarray) -> OfferPool:
        """Return some of the offers."""
        return replace(self, **{name: getattr(self, name)[which] for name in _COLUMNS})


@dataclass(eq=False)
class Market:
    """All that can be had, at one moment.

    Parameters
    ----------
    catalog : Catalog
        What the clouds sell.
    own : sequence of Offer
        Offers beside the catalog's.
    listed : bool
        Whether the catalog's offers count; prices of moving data come from it in any case.
    knowledge : Knowledge, optional
        What the tracker knows of launches.
    beliefs : Beliefs, optional
        What its observations tell of lifetimes.
    prices : mapping
        Spot prices that the tracker has seen.
    rates : TransferRates, optional
        Rates of transfers that the tracker has seen.
    """

    catalog: Catalog
    own: Sequence[Offer] = ()
    listed: bool = True
    knowledge: Knowledge | None = None
    beliefs: Beliefs | None = None
    prices: dict[Snapshot, Price] = field(default_factory=dict)
    rates: TransferRates | None = None
    _pools: dict[tuple[Resources, ...], OfferPool] = field(default_factory=dict)
    _machines: dict[int, Offer] = field(default_factory=dict)
    _families: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.view = get_offer_columns(self.catalog)
        self.sites: list[Site] = list(self.view.sites)
        known = {site: index for index, site in enumerate(self.sites)}
        self._own_sites = []
        for offer in self.own:
            site = site_of(offer)
            if site not in known:
                known[site] = len(self.sites)
                self.sites.append(site)
            self._own_sites.append(known[site])
        self.at = known
        self.base = len(self.view.first)

    # -- offers ------------------------------------------------------------------------------

    def pool(self, needs: tuple[Resources, ...]) -> OfferPool:
        """Return offers of known price that meet any of these requests, in canonical order."""
        if needs not in self._pools:
            parts = []
            for index, need in enumerate(needs):
                if self.listed:
                    parts.append(self._of_catalog(need, index))
                parts.append(self._of_own(need, index))
            self._pools[needs] = _join_pools(parts, len(needs) > 1)
        return self._pools[needs]

    def _of_catalog(self, need: Resources, index: int) -> OfferPool:
        # a price that was seen may keep a limit that the listed one does not
        limit = None if self.prices and not need.service else need.max_hourly_cost
        found = self.catalog.filter(replace(need, max_hourly_cost=limit))
        priced = np.flatnonzero(~np.isnan(found.price))
        rows, spot = found.rows[priced], found.spot[priced]
        tie = self.catalog.offers.tie
        rank = rows if tie is None else tie[rows]
        order = np.lexsort((rank.astype(np.int64) * 2 + spot, self.view.site[rows]))
        rows, spot = rows[order], spot[order]
        service = np.full(len(rows), -1)
        if found.service is not None:
            service = found.service[priced][order].astype(np.int64)
        floor, early, scale = np.full(len(rows), ON_DEMAND.rate), np.zeros(len(rows)), 1.0
        if spot.any():
            lives = self.view.lifetimes
            floor = np.where(spot, lives.floor[rows], floor)
            early, scale = np.where(spot, lives.early[rows], early), lives.scale
        pool = OfferPool(
            rows,
            self.view.site[rows],
            self.view.machine[rows],
            spot,
            found.price[priced][order],
            np.full(len(rows), index),
            service,
            floor,
            early,
            scale,
            tuple(found.services),
        )
        if found.service is not None:
            return pool
        seen = self._apply_observations(pool)
        if need.max_hourly_cost is None or not self.prices:
            return seen
        # a price that was seen may be above the limit that the listed one keeps
        return seen.take(np.flatnonzero(seen.price * need.nodes <= need.max_hourly_cost))

    def _of_own(self, need: Resources, index: int) -> OfferPool:
        fits = [
            k
            for k, offer in enumerate(self.own)
            if offer.price is not None and need.satisfied_by(offer)
        ]
        rows = -1 - np.array(fits, np.int64)
        chosen = [self.own[k] for k in fits]
        spot = np.array([offer.spot for offer in chosen], bool)
        vcpus = np.array([offer.vcpus for offer in chosen], np.float64)
        lives = spot_lifetimes(np.full(len(fits), np.nan), vcpus)
        return OfferPool(
            rows,
            np.array([self._own_sites[k] for k in fits], np.int64),
            self.base + np.array(fits, np.int64),
            spot,
            np.array([offer.price for offer in chosen], np.float64),
            np.full(len(fits), index),
            np.full(len(fits), -1),
            np.where(spot, lives.floor, ON_DEMAND.rate),
            np.where(spot, lives.early, 0.0),
            lives.scale,
        )

    def _apply_observations(self, pool: OfferPool) -> OfferPool:
        """Return the pool with what the tracker has seen: newer spot prices, lifetimes."""
        if self.prices:
            pool = self._apply_observed_prices(pool)
        seen = self.beliefs.places if self.beliefs else ()
        if not seen:
            return pool
        floor, early = pool.floor.copy(), pool.early.copy()
        types = {(place.cloud, place.instance_type) for place in seen}
        kin = {(p.cloud, p.region, quota_family(p.cloud, p.instance_type)) for p in seen}
        clouds = {place.cloud for place in seen}
        near = [s for s, (cloud, _, _) in enumerate(self.sites) if cloud in clouds]
        for index in np.flatnonzero(np.isin(pool.site, near)).tolist():
            cloud, region, zone = self.sites[pool.site[index]]
            number, spot = int(pool.machine[index]), bool(pool.spot[index])
            kind = self.machine(number).instance_type
            if (cloud, kind) in types or (cloud, region, self.quota_family(number)) in kin:
                there = replace(self.machine(number), region=region, zone=zone, spot=spot)
                ratio = self.beliefs.posterior(there).ratio
                floor[index], early[index] = floor[index] * ratio, early[index] * ratio
        return replace(pool, floor=floor, early=early)

    def _apply_observed_prices(self, pool: OfferPool) -> OfferPool:
        """Return spot prices last seen, where these are newer than the catalog's."""
        usd, __ = self._seen.newer(pool.row, pool.spot)
        return replace(pool, price=np.where(np.isnan(usd), pool.price, usd))

    @cached_property
    def _seen(self) -> SeenPrices:
        """Spot prices that the tracker has seen, by rows of the catalog."""
        return get_seen_prices(self.catalog, self.prices)

    # -- offers behind the numbers ----------------------------------------------------------------

    def machine(self, kind: int) -> Offer:
        """Return a kind of machine, as an offer without region, zone and price."""
        known = self.view.machines if kind < self.base else self._machines
        if kind not in known:
            if kind >= self.base:
                found = self.own[kind - self.base]
            else:
                found = self._offers(self.view.first[kind : kind + 1], np.array([False]))
            known[kind] = replace(
                found,
                **{"region": "", "zone": None, "country": "", "jurisdiction": "", "note": ""},
                **{"price": None, "spot": False, "source": "", "date": ""},
            )
        return known[kind]

    def quota_family(self, kind: int) -> str:
        """Return the name of the quota that a kind of machine counts against."""
        if kind not in self._families:
            offer = self.machine(kind)
            self._families[kind] = quota_family(offer.cloud, offer.instance_type)
        return self._families[kind]

    def offer(self, pool: OfferPool, index: int) -> Offer:
        """Return one offer of a pool, with all that is known of it."""
        row = int(pool.row[index])
        if row < 0:
            return self.own[-1 - row]
        service = int(pool.service[index])
        rows, spot, price = pool.row[[index]], pool.spot[[index]], pool.price[[index]]
        found = self._offers(rows, spot, price, service, pool.services)
        if service >= 0 or not found.spot or not self.prices:
            return found
        usd, day = (values[0] for values in self._seen.newer(rows, spot))
        if np.isnan(usd) or usd != found.price:
            return found
        return replace(found, source=SEEN, date=str(day))

    def _offers(self, rows, spot, price=None, service: int = -1, services=()) -> Offer:
        from jupyter_sky.knowledge.catalog import Selection

        if price is None:
            price = np.full(len(rows), np.nan)
        which = np.array([service], np.int16) if service >= 0 else None
        return Selection(self.catalog, rows, spot, price, "price", which, services).offers()[0]


def _join_pools(parts: list[OfferPool], several: bool) -> OfferPool:
    """Return pools together in the order of their sites, an offer that meets two requests once."""
    if len(parts) == 2 and not len(parts[1]) and not several:
        return parts[0]
    offset, moved = 0, []
    for part in parts:
        shifted = np.where(part.service >= 0, part.service + offset, -1)
        moved.append(replace(part, service=shifted))
        offset += len(part.services)
    services = tuple(one for part in parts for one in part.services)
    arrays = {name: np.concatenate([getattr(part, name) for part in moved]) for name in _COLUMNS}
    scale = next((part.scale for part in parts if part.early.any()), 1.0)  # one for all
    pool = OfferPool(**arrays, scale=scale, services=services)
    order = np.argsort(pool.site, kind="stable")
    pool = pool.take(order)
    if not several:
        return pool
    keys = np.stack([pool.row, pool.spot.astype(np.int64), pool.service])
    _, first = np.unique(keys, axis=1, return_index=True)
    return pool.take(np.sort(first))
