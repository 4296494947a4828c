"""Estimates of transfers before the first byte: objects, bytes, requests, time and USD."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.quantities import format_objects, format_size
from jupyter_sky.base.translation import _
from jupyter_sky.knowledge.catalog.transfer import Duration
from jupyter_sky.knowledge.tracker.transfer_rates import TransferRates
from jupyter_sky.machines.storage.stores.object_transfer import TransferItem
from jupyter_sky.machines.storage.stores.places import (
    Charge,
    ColdBytes,
    catalog_location,
    is_priced,
    price_transfer,
)
from jupyter_sky.machines.storage.stores.store import (
    Capability,
    StoredObject,
    choose_part_size,
    part_count,
)
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic
from jupyter_sky.machines.storage.transfers.movers import CopyMover

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.catalog import Catalog

_STANDARD = {"", "STANDARD", "HOT"}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of one transfer.

    Attributes
    ----------
    objects, nbytes : int
        Amount, as measured by listing.
    route : tuple of str
        Places from source to target; empty where one is not known.
    charge : Charge
        USD for egress, requests and retrieval.
    duration : Duration or None
        Time, with its basis; None where it is not known.
    traffic : TransferTraffic
        Requests and bytes that the price rests on.
    """

    objects: int
    nbytes: int
    route: tuple[str, ...]
    charge: Charge
    duration: Duration | None = None
    traffic: TransferTraffic = TransferTraffic()  # noqa: RUF009 - a frozen value

    @property
    def usd(self) -> float | None:
        """Price; None where a part of it is not known."""
        return self.charge.usd

    @property
    def seconds(self) -> float | None:
        """Time in seconds; None where it is not known."""
        return None if self.duration is None else self.duration.hours * 3600

    @property
    def way(self) -> str:
        """Places from source to target."""
        return " → ".join(place or _("a place that is not known") for place in self.route)

    def __str__(self) -> str:
        return _("{nbytes} in {objects}, {way}: {rest}").format(
            nbytes=format_size(self.nbytes),
            objects=format_objects(self.objects),
            way=self.way,
            rest=self.price,
        )

    @property
    def price(self) -> str:
        """Time and price, with what they rest on."""
        if self.seconds is None or self.duration is None:
            return str(self.charge)
        seconds = rough_duration(self.seconds)
        if self.duration.basis in ("assumed", "observed"):
            about = _("about {seconds} ({basis})").format(
                seconds=seconds, basis=self.duration.basis
            )
        else:
            about = _("about {seconds}").format(seconds=seconds)
        return f"{about}, {self.charge}"

    __repr__ = __str__


def rough_duration(seconds: float) -> str:
    """Return a time that is only estimated.

    Examples
    --------
    >>> rough_duration(0.2), rough_duration(240), rough_duration(9000)
    ('1 s', '4 min', '2.5 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def estimate_transfer(
    catalog: Catalog,
    route: Sequence[str],
    objects: Sequence[StoredObject],
    traffic: TransferTraffic,
    rates: TransferRates | None = None,
) -> Estimate:
    """Return the estimate of moving objects along a route.

    Parameters
    ----------
    route
        Places, from source to target.
    objects
        The objects.
    traffic
        Requests and bytes that it will take, such as `expected_traffic` tells.
    rates
        Observed rates, which replace those of the catalog.
    """
    nbytes = sum(each.size for each in objects)
    return Estimate(
        len(objects),
        nbytes,
        tuple(route),
        price_transfer(catalog, route, traffic, cold_bytes(objects)),
        transfer_duration(catalog, route, nbytes, rates or TransferRates()),
        traffic,
    )


def cold_bytes(objects: Iterable[StoredObject]) -> list[ColdBytes]:
    """Return the bytes in storage classes other than the standard one, by class."""
    sizes = Counter[str]()
    for each in objects:
        if each.storage_class.upper() not in _STANDARD:
            sizes[each.storage_class] += each.size
    return [ColdBytes(name, nbytes) for name, nbytes in sizes.items()]


def transfer_duration(
    catalog: Catalog, route: Sequence[str], nbytes: int, rates: TransferRates
) -> Duration | None:
    """Return the time of the slowest hop; None where no cloud is on the way or one is unknown."""
    if not all(route) or not any(map(is_priced, route)):
        return None
    gb = nbytes / 1e9
    if found := rates.find(route[0], route[-1]):
        hours = gb * 8 / found.gbit_s / 3600
        return Duration(hours, found.gbit_s, "observed", "tracker")
    hops = [
        catalog.transfer_hours(catalog_location(here), catalog_location(there), gb)
        for here, there in pairwise(route)
    ]
    return max(hops, key=lambda hop: hop.hours, default=None)


def expected_traffic(
    items: Iterable[TransferItem],
    source_bills: bool,
    target: Capability | None,
    *,
    inside: bool = False,
) -> TransferTraffic:
    """Return the requests and bytes of moving objects, without faults.

    Parameters
    ----------
    items
        The objects.
    source_bills
        Whether the source is a store that bills requests.
    target
        Limits of the target; None for one that bills no requests.
    inside
        Whether the store copies by itself.
    """
    reads = looks = writes = moved = 0
    for item in items:
        size = item.source.size
        part_size = choose_part_size(size, target or Capability())
        if inside:
            part_size = CopyMover.part_size
        parts = part_count(size, part_size)
        moved += size
        reads += 0 if inside else parts
        reads += parts > 1 and not item.source.sums
        opening = 1 if target is None else target.opening_requests
        writes += parts if parts == 1 else parts + opening + 1
        tells_crc = target is not None and target.part_checksum == "crc32c"
        looks += inside and ("crc32c" in item.source.sums or (parts > 1 and tells_crc))
    from_source = Traffic(reads=reads if source_bills else 0)
    to_target = Traffic() if target is None else Traffic(writes, looks, 0 if inside else moved)
    return TransferTraffic(from_source, to_target, moved)
