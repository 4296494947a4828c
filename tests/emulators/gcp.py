"""Google Cloud: the Cloud Billing catalog's SKUs and lists of Compute Engine, as REST."""

from __future__ import annotations

import re
from typing import Any

from .server import Emulator, Request, Response

_COMPUTE = re.compile(
    r"/compute/v1/projects/[^/]+/(aggregated/machineTypes|aggregated/acceleratorTypes|zones)"
)
_ERRORS = {
    "throttle": (429, "RESOURCE_EXHAUSTED", "rateLimitExceeded", "Quota exceeded"),
    "refuse": (403, "PERMISSION_DENIED", "forbidden", "Required permission is missing"),
    "break": (503, "UNAVAILABLE", "backendError", "The service is currently unavailable."),
}


def sku(
    description: str,
    usd: float,
    regions: tuple[str, ...] = ("us-central1",),
    *,
    usage: str = "OnDemand",
    family: str = "Compute",
    group: str = "CPU",
    unit: str = "h",
    currency: str = "USD",
) -> dict[str, Any]:
    """A SKU; money is in whole units, a string, and billionths."""
    whole = int(usd)
    money = {"currencyCode": currency, "units": str(whole), "nanos": round((usd - whole) * 1e9)}
    return {
        "name": f"services/6F81-5844-456A/skus/{abs(hash(description)) % 10**8}",
        "skuId": f"{abs(hash(description)) % 10**8}",
        "description": description,
        "category": {
            "serviceDisplayName": "Compute Engine",
            "resourceFamily": family,
            "resourceGroup": group,
            "usageType": usage,
        },
        "serviceRegions": list(regions),
        "pricingInfo": [
            {
                "summary": "",
                "pricingExpression": {
                    "usageUnit": unit,
                    "displayQuantity": 1,
                    "tieredRates": [{"startUsageAmount": 0, "unitPrice": money}],
                    "usageUnitDescription": "hour",
                    "baseUnit": "s",
                    "baseUnitDescription": "second",
                    "baseUnitConversionFactor": 3600,
                },
                "currencyConversionRate": 1,
                "effectiveTime": "2026-11-20T10:00:00.123Z",
            }
        ],
        "serviceProviderName": "Google",
        "geoTaxonomy": {"type": "REGIONAL", "regions": list(regions)},
    }


def machine(name: str, zone: str, cpus: int, gib: float, **more: Any) -> dict[str, Any]:
    """A machine type."""
    return {
        "kind": "compute#machineType",
        "id": "1234",
        "name": name,
        "zone": zone,
        "guestCpus": cpus,
        "memoryMb": int(gib * 1024),
        "architecture": "X86_64",
        "isSharedCpu": False,
        "maximumPersistentDisksSizeGb": "263168",
        **more,
    }


class GcpEmulator(Emulator):
    """Both services at one address.

    Attributes
    ----------
    skus, machines, accelerators, zones : list
        What there is; machines and accelerators name their zone.
    page : int
        SKUs or zones of a page, and scopes of an aggregated one.
    """

    def __init__(self) -> None:
        self.skus: list[Any] = []
        self.machines: list[dict[str, Any]] = []
        self.accelerators: list[dict[str, Any]] = []
        self.zones: list[dict[str, Any]] = []
        self.page = 2
        self.epoch = 0
        super().__init__()

    def describe(self, request: Request) -> str:
        return f"{request.path} {request.query.get('pageToken', '0')}"

    def answer(self, request: Request) -> Response:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            return self._error(401, "UNAUTHENTICATED", "required", "Login Required.")
        if request.path == "/v1/services/6F81-5844-456A/skus":
            if not 0 <= int(request.query.get("pageSize", "5000")) <= 5000:
                return self._error(400, "INVALID_ARGUMENT", "badRequest", "Invalid page size")
            return self._page(request, "skus", self.skus)
        match = _COMPUTE.fullmatch(request.path)
        if match is None:
            return self._error(404, "NOT_FOUND", "notFound", request.path)
        if not 0 <= int(request.query.get("maxResults", "500")) <= 500:
            return self._error(400, "INVALID_ARGUMENT", "invalid", "Invalid value for maxResults")
        if match[1] == "zones":
            return self._page(request, "items", self.zones)
        kind = match[1].rpartition("/")[2]
        listed = self.machines if kind == "machineTypes" else self.accelerators
        return self._page(request, "items", list(self._scoped(kind, listed).items()))

    def fail(self, kind: str, request: Request) -> Response:
        return self._error(*_ERRORS[kind])

    def _error(self, status: int, name: str, reason: str, message: str) -> Response:
        errors = [{"message": message, "domain": "global", "reason": reason}]
        error = {"code": status, "message": message, "status": name, "errors": errors}
        return Response.json({"error": error}, status)

    def _scoped(self, kind: str, listed: list[dict[str, Any]]) -> dict[str, Any]:
        """Entries by scope; a scope without any has a warning instead, as in the service."""
        scopes = {f"zones/{zone['name']}": [] for zone in self.zones}
        for entry in listed:
            scopes.setdefault(f"zones/{entry['zone']}", []).append(entry)
        nothing = {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results"}}
        return {
            scope: {kind: entries} if entries else nothing
            for scope, entries in sorted(scopes.items())
        }

    def _page(self, request: Request, member: str, entries: list[Any]) -> Response:
        start, token = 0, request.query.get("pageToken")
        if token:
            epoch, _, number = token.partition(":")
            if epoch != str(self.epoch):
                return self._error(400, "INVALID_ARGUMENT", "invalid", "Invalid page token")
            start = int(number)
        page = entries[start : start + self.page]
        answer: dict[str, Any] = {
            member: dict(page) if page and isinstance(page[0], tuple) else page
        }
        more = start + self.page < len(entries)
        # the billing catalog writes an empty token after the last page, Compute Engine none
        if more or member == "skus":
            answer["nextPageToken"] = f"{self.epoch}:{start + self.page}" if more else ""
        return Response.json(answer)
