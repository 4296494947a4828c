"""Prices of a cloud that another package adds: the offers of its `Provider`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from jupyter_sky.base.clouds.register import find_provider
from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import http
from jupyter_sky.clouds.prices.entries import make_offer, make_table
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Fetcher, Recovery, today
from jupyter_sky.clouds.prices.page_cache import Page
from jupyter_sky.clouds.prices.source import KnownOffers, SourceData

if TYPE_CHECKING:
    from jupyter_sky.clouds.provider import Provider


@dataclass(frozen=True)
class ProviderPrices:
    """Prices of a cloud, by the operation ``offers`` of its driver.

    Parameters
    ----------
    cloud
        Name of the cloud, which another package adds.

    Examples
    --------
    >>> ProviderPrices("nimbus").cloud
    'nimbus'
    """

    cloud: str

    kinds = frozenset({"vm"})

    def _provider(self) -> Provider:
        return cast("type[Provider]", find_provider(self.cloud))()

    def check(self) -> None:
        """Raise when there are no credentials."""
        provider = self._provider()
        if not provider.configured():
            raise SkyRefreshError(
                _("{cloud}: no credentials were found").format(cloud=self.cloud),
                hint=provider.login or None,
            )

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read the offers; the same machine on demand and spot is one row."""

        def get(__: str | None) -> Page:
            return Page([asdict(offer) for offer in self._provider().offers()], None, {})

        offers = fetch.pages("offers", get)
        tables = {
            "offers": make_table("offers", _rows(offers)),
            "regions": make_table("regions", _regions(offers)),
        }
        return SourceData(tables, {self.cloud: today()})

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify an error of the driver."""
        refusal = self._provider().explain(error)
        if refusal is None:
            return http.explain_failure(error, self.cloud)
        return SkyRefreshError(
            f"{self.cloud}: {refusal.message}", hint=refusal.fix or TRY_LATER_HINT
        )


def _rows(offers: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows of the catalog, each with the prices of both markets."""
    machines: dict[tuple[str, str, str], dict[str, Any]] = {}
    for offer in offers:
        key = (offer["region"], offer["zone"] or "", offer["instance_type"])
        row = machines.setdefault(key, {"zone": key[1]})
        market = "spot" if offer["spot"] else "on_demand"
        row[f"{market}_usd_h"] = offer["price"]
        row["spot_date" if offer["spot"] else "price_date"] = offer["date"] or today()
        row |= {name: offer[name] for name in _SAME}
        row |= {column: offer[name] or None for name, column in _RENAMED.items()}
        row["accelerator"] = offer["gpu"] or ""
    return (make_offer(**row) for row in machines.values())


_SAME = ("cloud", "region", "instance_type", "arch", "cpu_vendor", "source", "intel_sgx")
_RENAMED = {
    "vcpus": "vcpus",
    "memory": "memory_gib",
    "gpu_count": "accelerator_count",
    "gpu_memory": "accelerator_memory_gib",
}
"""Columns of the catalog by fields of an offer, where 0 stands for not known."""


def _regions(offers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of the regions whose country an offer names."""
    facts = ("cloud", "region", "country", "jurisdiction")
    named = {offer["region"]: offer for offer in offers if offer["country"]}
    return [{name: offer[name] for name in facts} for offer in named.values()]
