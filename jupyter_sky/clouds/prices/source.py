"""Protocol of a price source, and the values that it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.json_types import JsonObject
from jupyter_sky.base.translation import _

if TYPE_CHECKING:
    import pyarrow as pa

    from jupyter_sky.clouds.prices.fetcher import Fetcher, Recovery


@dataclass(frozen=True, slots=True)
class SourceData:
    """Data that a source returns.

    Attributes
    ----------
    tables : mapping of str to pyarrow.Table
        Rows by table of the catalog; `offers` must be there.
    sources : mapping of str to str
        Names of the sources, each with the date of its facts.
    notes : tuple of str
        What could not be had, a sentence each.
    """

    tables: Mapping[str, pa.Table]
    sources: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class KnownOffers:
    """Present offers of one cloud in the catalog: a source may not see all of them.

    Attributes
    ----------
    offers : pyarrow.Table
        The cloud's rows; without any for a cloud that is new.
    egress : pyarrow.Table
        The cloud's prices of data that leave.
    """

    offers: pa.Table
    egress: pa.Table

    @cached_property
    def machines(self) -> dict[str, JsonObject]:
        """Facts of each instance type that hold wherever it is sold."""
        facts = ("vcpus", "memory_gib", "arch", "accelerator", "accelerator_count")
        facts += ("accelerator_memory_gib", "cpu_vendor", "intel_sgx")
        names = self.offers.column("instance_type").to_pylist()
        columns = [self.offers.column(fact).to_pylist() for fact in facts]
        values = zip(*columns, strict=True)
        return {
            name: dict(zip(facts, row, strict=True))
            for name, row in zip(names, values, strict=True)
        }

    @cached_property
    def zones(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """Zones, each with how sure it is, by region and instance type."""
        names = ("region", "instance_type", "zone", "zone_basis")
        columns = [self.offers.column(name).to_pylist() for name in names]
        found: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for region, machine, zone, basis in zip(*columns, strict=True):
            found.setdefault((region, machine), []).append((zone, basis))
        return found

    @cached_property
    def regions(self) -> list[str]:
        """Names of the regions that have offers."""
        return sorted(set(self.offers.column("region").to_pylist()) - {""})


class PriceSource(Protocol):
    """One cloud's price lists. Reading them is all that an implementation does.

    Paging, what is kept between runs, retries of damaged pages, workers and progress belong to
    `Fetcher`; comparison and replacement belong to `runner`.
    """

    @property
    def cloud(self) -> str:
        """Name of the cloud."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of offers that it finds; known offers of other kinds stay as they are."""
        ...

    def check(self) -> None:
        """Raise a SkyError that names the remedy when an SDK or credentials are missing."""
        ...

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read all that the cloud tells."""
        ...

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify a failed request, once the SDK itself has given up retrying."""
        ...


@dataclass(frozen=True, slots=True)
class SpotPrice:
    """Spot price that holds now.

    Attributes
    ----------
    region, zone, instance_type : str
        Place; the zone is empty where a cloud has one price for a region.
    usd : float
        USD/h of one machine.
    """

    region: str
    zone: str
    instance_type: str
    usd: float


@runtime_checkable
class SpotPriceSource(PriceSource, Protocol):
    """A price source that can read spot prices alone, which takes less than a refresh."""

    def spot_prices(self, fetch: Fetcher, known: KnownOffers) -> list[SpotPrice]:
        """Read the spot prices that hold now."""
        ...


def missing_sdk(cloud: str, package: str) -> SkyError:
    """Return the error for an SDK that is not installed.

    Examples
    --------
    >>> print(missing_sdk("aws", "boto3"))
    aws: its prices are read with boto3, which is not installed
    pip install 'jupyter_sky[aws]'
    """
    return SkyRefreshError(
        _("{cloud}: its prices are read with {package}, which is not installed").format(
            cloud=cloud, package=package
        ),
        hint=find_facts(cloud).install,
    )
