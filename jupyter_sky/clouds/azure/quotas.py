"""Quotas of an Azure subscription: vCPUs of each family of sizes, and of each region in all.

Spot machines count against one quota of the region, of all families together.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jupyter_sky.base.clouds.facts import AzureFacts
from jupyter_sky.clouds.azure.clients import AzureClients
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

MAX_PARALLEL_REGIONS = 8
_ABSENT_CODES = ("NoRegisteredProviderFound", "LocationNotAvailableForResourceType")
_MARKETS = {"cores": False, "lowPriorityCores": True}
"""Quotas of all sizes of a region, and whether they are of spot machines."""


def read_quotas(account: AzureClients) -> list[AccountQuota]:
    """Return the quotas of all regions of the catalog that the subscription has."""
    from jupyter_sky.knowledge.catalog import load

    regions = sorted(name for cloud, name in load().regions if cloud == "azure")
    with ThreadPoolExecutor(MAX_PARALLEL_REGIONS) as workers:
        found = workers.map(lambda region: list(_read_region(account, region)), regions)
        return [quota for quotas in found for quota in quotas]


def _read_region(account: AzureClients, region: str) -> Iterator[AccountQuota]:
    from azure.core.exceptions import HttpResponseError

    try:
        usages: list[Any] = list(account.compute.usage.list(region))
    except HttpResponseError as error:
        if error.error is not None and error.error.code in _ABSENT_CODES:
            return
        raise
    for usage in usages:
        name, title = usage.name.value or "", usage.name.localized_value or ""
        if name in _MARKETS:
            families, spot = (), _MARKETS[name]
        elif name.lower().endswith("family"):
            families, spot = (name[: -len("family")],), False
        else:
            continue
        yield AccountQuota(
            "azure", title or name, float(usage.limit), "vcpus", region, families, spot,
            AzureFacts.quota_page,
        )  # fmt: skip
