"""Selection of the offers that meet a request: one mask for each given label."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.requests.geography import SERVERLESS, in_area, is_area
from jupyter_sky.base.requests.offers import form_factor
from jupyter_sky.base.requests.quantities import Amount
from jupyter_sky.base.requests.resources import Label, Resources
from jupyter_sky.knowledge.catalog import managed_services
from jupyter_sky.knowledge.catalog.selection import By, Selection

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.tables import CatalogTables

Mask = np.ndarray


def is_admitted(amount: Amount, values: np.ndarray) -> Mask:
    """Return `Amount.admits` for many values at once; an unknown value is not admitted.

    Examples
    --------
    >>> is_admitted(Amount(4, at_least=True), np.array([2.0, 4.0, 8.0, np.nan])).tolist()
    [False, True, True, False]
    """
    low, high = amount.bounds()
    with np.errstate(invalid="ignore"):
        return (values >= low) & (values <= high)


def _amount(key: str, column: str) -> Callable[[CatalogTables, Resources], Mask]:
    return lambda catalog, need: is_admitted(getattr(need, key), catalog.offers.values(column))


def _host_amount(key: str, column: str) -> Callable[[CatalogTables, Resources], Mask]:
    """Return the filter of a size of machines.

    VMs of TPUs come in one size, which must not be smaller than what is asked for; where it is not
    known it is enough. They are for requests that name a TPU.
    """

    def mask(catalog: CatalogTables, need: Resources) -> Mask:
        values, amount = catalog.offers.values(column), getattr(need, key)
        if need.is_tpu:
            return ~(values < amount.bounds()[0])
        return is_admitted(amount, values) & ~_is_tpu(catalog)

    return mask


def _is_tpu(catalog: CatalogTables) -> Mask:
    return catalog.offers.where("accelerator", lambda name: name.startswith("tpu-"))


def _word(key: str, column: str) -> Callable[[CatalogTables, Resources], Mask]:
    return lambda catalog, need: catalog.offers.equal(column, getattr(need, key))


def _gpus(catalog: CatalogTables, need: Resources) -> Mask:
    mask = catalog.offers.equal("accelerator", need.gpu or "")
    mask &= is_admitted(need.gpus, catalog.offers.values("accelerator_count"))
    if need.gpu_form is not None:
        rows = np.flatnonzero(mask)
        mask[rows] = has_form(catalog, need, rows)
    return mask


def has_form(catalog: CatalogTables, need: Resources, rows: np.ndarray) -> Mask:
    """Return which rows have accelerators of the requested form factor; they are of its model."""
    clouds, names = (catalog.offers.strings(key, rows) for key in ("cloud", "instance_type"))
    machines = zip(clouds, names, strict=True)
    wanted = (form_factor(*machine, need.gpu or "") == need.gpu_form for machine in machines)
    return np.fromiter(wanted, bool, len(rows))


def _gpu_memory(catalog: CatalogTables, need: Resources) -> Mask:
    enough = _amount("gpu_memory", "accelerator_memory_gib")(catalog, need)
    if need.gpu:
        return enough
    # what a slice of TPUs has together is not what one GPU has
    return enough & ~_is_tpu(catalog)


def _region(catalog: CatalogTables, need: Resources) -> Mask:
    region = need.region or ""
    named = catalog.offers.equal("region", region)
    if not is_area(region):
        return named
    return named | catalog.in_places(lambda country, law: in_area(region, country, law))


def _country(catalog: CatalogTables, need: Resources) -> Mask:
    return catalog.in_places(lambda country, law: in_area(need.country or "", country, law))


def _runs_images(cloud: str) -> bool:
    return find_facts(cloud).runs_images


def _jurisdiction(catalog: CatalogTables, need: Resources) -> Mask:
    return catalog.in_places(lambda country, law: in_area(need.jurisdiction or "", "", law))


# Label -> rows that meet it. The market and the price are not facts of a row: see `Catalog.filter`.
_MASKS: dict[str, Callable[[CatalogTables, Resources], Mask]] = {
    "instance_type": _word("instance_type", "instance_type"),
    "zone": _word("zone", "zone"),
    "gpus": _gpus,
    "region": _region,
    "cloud": lambda catalog, need: catalog.offers.is_in("cloud", need.clouds),
    "arch": _word("arch", "arch"),
    "cpu_vendor": _word("cpu_vendor", "cpu_vendor"),
    "country": _country,
    "jurisdiction": _jurisdiction,
    "image": lambda catalog, need: catalog.offers.where("cloud", _runs_images),
    "intel_sgx": lambda catalog, need: catalog.offers.values("intel_sgx"),
    "cpus": _host_amount("cpus", "vcpus"),
    "memory": _host_amount("memory", "memory_gib"),
    "gpu_memory": _gpu_memory,
}


def masks(catalog: CatalogTables, need: Resources) -> Iterator[tuple[str, Mask]]:
    """Yield each given label that rows can meet or fail, with the rows that meet it."""
    for key in need.labels():
        if key in _MASKS:
            yield key, _MASKS[key](catalog, need)


def matching_rows(catalog: CatalogTables, need: Resources) -> np.ndarray:
    """Return rows that meet every label but market, price and service, in the table's order."""
    mask = catalog.sold
    for _, met in masks(catalog, need):
        mask = mask & met
    return np.flatnonzero(mask).astype(np.int32)


def parse_request(labels: Mapping[str, Label]) -> Resources:
    """Return the request of labels spelled as the options of a cell."""
    return Resources.parse(**labels)


def select(catalog: CatalogTables, need: Resources, by: By, flagged: bool) -> Selection:
    """Return the offers that meet a request, see `Catalog.filter`."""
    rows = matching_rows(catalog, need)
    if need.service:
        return _with_service(catalog, need, rows, by, flagged)
    return _sold(catalog, need, rows, by, flagged, need.max_hourly_cost)


def _sold(
    catalog: CatalogTables,
    need: Resources,
    rows: np.ndarray,
    by: By,
    flagged: bool,
    limit: float | None,
) -> Selection:
    """Return rows in the requested markets, below a limit of USD/h for all nodes."""
    chosen, prices, left_out = [], [], 0
    for spot in (False, True):
        if need.spot is (not spot):
            chosen.append(rows[:0])
            prices.append(np.empty(0))
            continue
        price = catalog.offers.values("spot_usd_h" if spot else "on_demand_usd_h")[rows]
        kept = _affordable(price, need.nodes, limit)
        if spot:
            kept &= ~np.isnan(price)
            if not flagged:
                above = catalog.offers.values("spot_above_on_demand")[rows] & kept
                left_out = int(above.sum())
                kept &= ~above
        chosen.append(rows if kept.all() else rows[kept])
        prices.append(price if kept.all() else price[kept])
    spots = np.repeat((False, True), [len(market) for market in chosen])
    rows, price = np.concatenate(chosen), np.concatenate(prices)
    return Selection(catalog, rows, spots, price, by, flagged=left_out)


def _affordable(price: np.ndarray, nodes: int, limit: float | None) -> Mask:
    """Return the mask of prices within the limit; an unknown price is not within it."""
    if limit is None:
        return np.ones(len(price), bool)
    return (price if nodes == 1 else price * nodes) <= limit


def _with_service(
    catalog: CatalogTables, need: Resources, rows: np.ndarray, by: By, flagged: bool
) -> Selection:
    """Return machines of clouds whose service has the requested packages, with surcharge."""
    offers, parts, left_out = catalog.offers, [], 0
    services = managed_services.newest_versions(
        managed_services.find_services(catalog), need.service
    )
    services = [one for one in services if one.name not in SERVERLESS]
    for one in services:
        clouds, kinds = offers.values("cloud")[rows], offers.values("kind")[rows]
        mine = (clouds == offers.code("cloud", one.cloud)) & (kinds == offers.code("kind", "vm"))
        found = _sold(catalog, need, rows[mine], by, flagged, None)
        left_out += found.flagged
        price = managed_services.prices(catalog, one, found.rows, found.price)
        kept = _affordable(price, need.nodes, need.max_hourly_cost)
        if one.name not in managed_services.SURCHARGED:  # sold on the machines that are listed only
            kept &= ~np.isnan(price) & ~found.spot
        parts.append((found.rows[kept], found.spot[kept], price[kept]))
    if not parts:
        return Selection(catalog, rows[:0], np.zeros(0, bool), np.empty(0), by)
    chosen, spots, prices = (np.concatenate(column) for column in zip(*parts, strict=True))
    service = np.repeat(np.arange(len(parts), dtype=np.int16), [len(part[0]) for part in parts])
    return Selection(catalog, chosen, spots, prices, by, service, services, left_out)
