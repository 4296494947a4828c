"""Estimates of bringing data to a cell's place: bytes, time, egress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..catalog.transfer import Duration, Egress
from ..ledger.ledger import format_usd
from ..provider.register import find_facts, find_store
from ..quantities import format_size
from ..resources import format_duration
from ..storage.store import Store
from ..storage.uri import StorageUri
from ..translation import _

if TYPE_CHECKING:
    from ..catalog.catalog import Catalog
    from .datasets import CellDataset


@dataclass(frozen=True, slots=True)
class DataEstimate:
    """Estimate for one dataset.

    Attributes
    ----------
    nbytes, objects
        Amount, as measured by listing.
    source, target
        Places, as the catalog writes them; empty where they are not known.
    egress
        Price of the bytes; None where nothing leaves a cloud.
    duration
        Time; None where it is not known.
    """

    nbytes: int
    objects: int
    source: str
    target: str
    egress: Egress | None
    duration: Duration | None

    def __str__(self) -> str:
        amount = _("{nbytes} in {objects:,} objects").format(
            nbytes=format_size(self.nbytes), objects=self.objects
        )
        way = f", {self.source or _('a place that is not known')} → {self.target}"
        if self.duration is None:
            return amount + way
        seconds = format_duration(max(1.0, round(self.duration.hours * 3600)))
        told = _("{amount}{way}: about {seconds} ({basis})").format(
            amount=amount, way=way, seconds=seconds, basis=self.duration.basis
        )
        if self.egress is None:
            return f"{told}, $0.00 egress"
        if self.egress.usd is None:
            return _("{told}, price of the egress not known").format(told=told)
        return _("{told}, {usd} egress ({basis})").format(
            told=told, usd=format_usd(self.egress.usd), basis=self.egress.basis
        )


def place_of(store: Store, uri: StorageUri) -> str:
    """Return the place of a store as the catalog writes it; empty where nobody tells it.

    Examples
    --------
    >>> from ..storage.stores import open_store
    >>> uri = StorageUri.parse("file:/data")
    >>> place_of(open_store(uri), uri)
    'local'
    """
    if uri.is_local:
        return "local"
    if uri.options.get("endpoint"):
        return ""
    cloud, region = find_store(uri.scheme), getattr(store, "region", "")
    return "/".join(part for part in (cloud, region) if part)


def estimate_data(data: CellDataset, target: str, catalog: Catalog) -> DataEstimate:
    """Return the estimate of bringing a dataset to a place.

    Parameters
    ----------
    target
        Cloud and region, such as ``gcp/us-central1``.
    """
    source, gb = place_of(data.store, data.manifest.uri), data.manifest.nbytes / 1e9
    duration = egress = None
    if source and _is_priced(target):
        duration = catalog.transfer_hours(_location(source), target, gb)
        egress = catalog.egress(_location(source), target, gb) if _is_priced(source) else None
    return DataEstimate(
        data.manifest.nbytes, len(data.manifest.objects), source, target, egress, duration
    )


def estimate_lines(listed: Sequence[CellDataset], target: str, catalog: Catalog) -> list[str]:
    """Return a line for each dataset: its path, and what bringing it takes."""
    return [f"{each.path}: {estimate_data(each, target, catalog)}" for each in listed]


def egress_between(source: str, target: str, gb: float) -> tuple[float | None, str]:
    """Return the price of bytes between two places (USD), and its basis.

    Parameters
    ----------
    source, target
        Places as `place_of` gives them; empty where they are not known.
    gb
        GB.
    """
    if source and not _is_priced(source):
        return 0.0, _("what comes from a machine of yours costs nothing there")
    if not source or not target:
        return None, _("the place of an endpoint is not known")
    from .. import catalog

    found = catalog.load().egress(source, _location(target), gb)
    return found.usd, found.basis


def _is_priced(place: str) -> bool:
    """Return whether a place is of a cloud that bills what leaves it."""
    return bool(place) and not find_facts(place.partition("/")[0]).on_premises


def _location(place: str) -> str:
    return place if _is_priced(place) else "internet"
