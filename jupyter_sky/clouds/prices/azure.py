"""Azure: Retail Prices, which anyone may read, and Resource SKUs, which an account may.

Without an account the sizes that the catalog knows stay, and get new prices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.http import PATIENT, JsonClient
from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import http
from jupyter_sky.clouds.prices.entries import (
    InvalidEntry,
    Row,
    canonical_accelerator,
    expect,
    make_offer,
    make_table,
    read_entries,
    usd,
)
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Fetcher, Recovery, today
from jupyter_sky.clouds.prices.page_cache import Page
from jupyter_sky.clouds.prices.source import KnownOffers, SourceData, SpotPrice, missing_sdk

_PRICES = "https://prices.azure.com/api/retail/prices"
_VERSION = "2023-01-01-preview"
_ACCOUNT_HINT = "az login, and set AZURE_SUBSCRIPTION_ID"
_OTHER = re.compile(r"\bWin(dows)?\b|Cloud ?Services|Dedicated Host", re.IGNORECASE)
# What the names of sizes say of their accelerators, where the API gives the number only.
_GPUS = (
    (r"_GB300_", "GB300", 288),
    (r"_GB200_", "GB200", 192),
    (r"_B200_", "B200", 180),
    (r"_H200_", "H200", 141),
    (r"^Standard_NC.*_H100_", "H100-NVL", 94),
    (r"_H100_", "H100", 80),
    (r"_A100_", "A100-80GB", 80),
    (r"^Standard_ND96asr_v4$", "A100", 40),
    (r"_MI300X_", "MI300X", 192),
    (r"_A10_", "A10", 24),
    (r"_T4_", "T4", 16),
    (r"_V710_", "V710", 24),
    (r"^Standard_ND40rs_v2$", "V100-32GB", 32),
    (r"^Standard_NC\d+r?s_v3$", "V100", 16),
)


@dataclass(frozen=True)
class AzurePrices:
    """Prices of Azure, with azure-mgmt-compute where an account is there.

    Parameters
    ----------
    prices
        Address of the Retail Prices API.
    manager
        Address of the Resource Manager; that of the public cloud unless given.
    subscription
        Its id; the variable AZURE_SUBSCRIPTION_ID unless given.
    credential
        A credential of azure-identity; `DefaultAzureCredential` unless given.

    Examples
    --------
    >>> AzurePrices().cloud
    'azure'
    """

    prices: str = _PRICES
    manager: str | None = None
    subscription: str | None = None
    credential: Any = None

    cloud = "azure"
    kinds = frozenset({"vm"})

    def check(self) -> None:
        """Do nothing: prices need no account, and what an account adds is optional."""

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read the sizes, then the prices of each region."""
        notes, sources = [], {"azure-retail-prices": today()}
        sizes: list[JsonObject] = []
        failure: SkyError | None = None
        try:
            sizes = self._sizes(fetch)
            sources["azure-resource-skus"] = today()
        except SkyError as error:
            failure = error
            notes.append(f"sizes and zones as they were known: {error.message}")
        regions = sorted({size["region"] for size in sizes} | set(known.regions))
        if not regions:
            reason = f": {failure.message}" if failure else ""
            raise SkyRefreshError(
                _("azure: no region is known to ask prices for{reason}").format(reason=reason),
                hint=failure.hint if failure else _ACCOUNT_HINT,
            ) from failure
        client = JsonClient(policy=PATIENT)
        lists = fetch.map(regions, partial(self._prices, client, fetch))
        prices = _by_machine(entry for entries in lists for entry in entries)
        rows = list(_rows(prices, sizes, known))
        return SourceData({"offers": make_table("offers", rows)}, sources, tuple(notes))

    def spot_prices(self, fetch: Fetcher, known: KnownOffers) -> list[SpotPrice]:
        """Read the spot prices of all regions that are known, without an account."""
        client = JsonClient(policy=PATIENT)
        read = partial(self._prices, client, fetch, spot_only=True)
        lists = fetch.map(known.regions, read)
        prices = _by_machine(entry for entries in lists for entry in entries)
        return [
            SpotPrice(region, "", machine, usd)
            for (region, machine, is_spot), usd in prices.items()
            if is_spot
        ]

    def _prices(
        self,
        client: JsonClient,
        fetch: Fetcher,
        region: str,
        *,
        spot_only: bool = False,
    ) -> list[JsonObject]:
        wanted = (
            "serviceName eq 'Virtual Machines' and priceType eq 'Consumption' "
            f"and armRegionName eq '{region}'"
        )
        if spot_only:
            wanted += " and contains(meterName, 'Spot')"
        first = {"api-version": _VERSION, "currencyCode": "USD", "$filter": wanted}

        def get(link: str | None) -> Page:
            answer = client.get(link or self.prices, None if link else first)
            records, skipped = read_entries(http.get_member(answer, "Items", list), _price)
            following = answer.get("NextPageLink") or None
            if following and urlsplit(following).hostname != urlsplit(self.prices).hostname:
                raise SkyRefreshError(
                    _("azure: the next page is elsewhere: {following}").format(following=following)
                )
            return Page(records, following, skipped)

        return fetch.pages(f"{region}/{'spot' if spot_only else 'prices'}", get)

    def _sizes(self, fetch: Fetcher) -> list[JsonObject]:
        client = self._client()

        def get(token: str | None) -> Page:
            pages = client.resource_skus.list().by_page(continuation_token=token)
            records, skipped = read_entries(next(pages, ()), _sizes_of)
            sizes = [size for listed in records for size in listed]
            return Page(sizes, pages.continuation_token or None, skipped)

        return fetch.pages("sizes", get)

    def _client(self) -> Any:
        try:
            from azure.identity import DefaultAzureCredential
            from azure.mgmt.compute import ComputeManagementClient
        except ImportError:
            raise missing_sdk(self.cloud, "azure-mgmt-compute") from None
        subscription = self.subscription or os.environ.get("AZURE_SUBSCRIPTION_ID", "")
        if not subscription:
            raise SkyRefreshError(_("azure: AZURE_SUBSCRIPTION_ID is not set"), hint=_ACCOUNT_HINT)
        credential = self.credential or DefaultAzureCredential()
        where = {"base_url": self.manager} if self.manager else {}
        if self.manager:
            where["credential_scopes"] = [f"{self.manager}/.default"]  # type: ignore[assignment]
        return ComputeManagementClient(credential, subscription, **where)  # type: ignore[arg-type]

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify an exception of azure-core or of a download."""
        try:
            from azure.core import exceptions as azure
        except ImportError:
            return http.explain_failure(error, "azure")
        if isinstance(error, azure.ClientAuthenticationError):
            return SkyRefreshError(
                _("azure: {error}").format(error=_first_line(error)), hint=_("az login")
            )
        if isinstance(error, azure.DecodeError | azure.IncompleteReadError):
            return Recovery.RETRY
        if isinstance(error, azure.HttpResponseError):
            if getattr(error, "status_code", None) in (401, 403):
                hint = "the account needs to read Microsoft.Compute/skus in the subscription"
                return SkyRefreshError(
                    _("azure: {error}").format(error=_first_line(error)), hint=hint
                )
            return SkyRefreshError(
                _("azure: {error}").format(error=_first_line(error)), hint=TRY_LATER_HINT
            )
        if isinstance(error, azure.AzureError):
            hint = "check the network"
            return SkyRefreshError(
                _("azure: cannot be reached: {error}").format(error=_first_line(error)), hint=hint
            )
        return http.explain_failure(error, "azure")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


# -- entries -------------------------------------------------------------------------------


def _price(item: JsonMapping) -> JsonObject | None:
    """Return the price of a machine by the hour from one meter; None for Windows and others."""
    meter = f"{item['skuName']} {item['meterName']}"
    if _OTHER.search(item["productName"]) or not item["armSkuName"]:
        return None
    if "Low Priority" in meter or "Expired" in meter or item["type"] != "Consumption":
        return None
    expect(item["currencyCode"], "USD", "currency is not USD")
    expect(item["unitOfMeasure"], ("1 Hour", "1 Hours"), "unit is not an hour")
    return {
        "type": item["armSkuName"],
        "region": item["armRegionName"].lower(),
        "spot": "Spot" in meter,
        "usd": usd(item["retailPrice"]),
        "since": item["effectiveStartDate"],
        "primary": bool(item.get("isPrimaryMeterRegion", True)),
    }


def _sizes_of(sku: Any) -> list[JsonObject] | None:
    """Return a size in each of its regions; None for disks and the like."""
    if sku.resource_type != "virtualMachines":
        return None
    able = {each.name: each.value for each in sku.capabilities or ()}
    vcpus = able.get("vCPUsAvailable") or able.get("vCPUs")
    if not sku.name or vcpus is None:
        raise InvalidEntry("a field is missing")
    facts = {
        "type": sku.name,
        "vcpus": float(vcpus),
        "memory_gib": float(able["MemoryGB"]) if "MemoryGB" in able else None,
        "arch": "arm64" if able.get("CpuArchitectureType") == "Arm64" else "x86_64",
        "gpus": float(able.get("GPUs") or 0),
        "sgx": able.get("ConfidentialComputingType") == "SGX",
    }
    denied = {
        zone
        for limit in sku.restrictions or ()
        if str(getattr(limit.type, "value", limit.type)) == "Zone" and limit.restriction_info
        for zone in limit.restriction_info.zones or ()
    }
    return [
        {
            **facts,
            "region": where.location.lower(),
            "zones": sorted(set(where.zones or ()) - denied),
        }
        for where in sku.location_info or ()
    ]


def _by_machine(entries: Iterable[JsonObject]) -> dict[tuple[str, str, bool], float]:
    """Return one price for each machine, region and kind: that of the primary, latest meter."""
    best: dict[tuple[str, str, bool], tuple[bool, str, float]] = {}
    for entry in entries:
        key = entry["region"], entry["type"], entry["spot"]
        rank = entry["primary"], entry["since"], entry["usd"]
        best[key] = max(rank, best.get(key, rank))
    return {key: price for key, (__, __, price) in best.items()}


# -- rows ----------------------------------------------------------------------------------


def _rows(
    prices: Mapping[tuple[str, str, bool], float],
    sizes: Iterable[JsonMapping],
    known: KnownOffers,
) -> Iterator[Row]:
    listed = {(size["region"], size["type"]): size for size in sizes}
    sold = {(region, machine) for region, machine, __ in prices}
    for region, machine in sorted(sold | listed.keys()):
        size = listed.get((region, machine))
        facts = _facts(machine, size, known)
        price, spot = prices.get((region, machine, False)), prices.get((region, machine, True))
        for zone, basis in _zones(region, machine, size, known):
            yield make_offer(
                **facts,
                cloud="azure",
                region=region,
                zone=zone,
                instance_type=machine,
                on_demand_usd_h=price,
                price_date=today() if price is not None else "",
                spot_usd_h=spot,
                spot_scope="region" if spot is not None else "",
                spot_date=today() if spot is not None else "",
                source="azure-retail-prices" + ("+azure-resource-skus" if size else ""),
                zone_basis=basis,
            )


def _zones(
    region: str, machine: str, size: JsonMapping | None, known: KnownOffers
) -> list[tuple[str, str]]:
    """Return zones by the numbers that this subscription gives them, as in ``eastus-1``."""
    if size is None:
        return known.zones.get((region, machine)) or [("", "price-list-only")]
    zones = [(f"{region}-{number}", "zone") for number in size["zones"]]
    return zones or [("", "region")]


def _facts(machine: str, size: JsonMapping | None, known: KnownOffers) -> JsonObject:
    """Return the facts of a size; the API names no accelerators, so known facts go first."""
    before = known.machines.get(machine, {})
    if size is None:
        return dict(before)
    facts = {
        "vcpus": size["vcpus"],
        "memory_gib": size["memory_gib"] or before.get("memory_gib"),
        "arch": size["arch"],
        "cpu_vendor": before.get("cpu_vendor", ""),
        "intel_sgx": size["sgx"] or bool(before.get("intel_sgx")),
    }
    names = ("accelerator", "accelerator_count", "accelerator_memory_gib")
    if before.get("accelerator"):
        return facts | {name: before[name] for name in names}
    for pattern, gpu, memory in _GPUS if size["gpus"] else ():
        if re.search(pattern, machine):
            values = (canonical_accelerator(gpu), size["gpus"], float(memory))
            return facts | dict(zip(names, values, strict=True))
    return facts
