"""Azure: the Retail Prices API and the Resource SKUs of the Resource Manager.

Prices need no account; a filter is refused when it is not understood. The manager refuses requests
without a token, and those without an API version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .server import Emulator, Request, Response

_TERM = re.compile(r"(\w+) eq '([^']*)'")
_CONTAINS = re.compile(r"contains\((\w+), ?'([^']*)'\)")
_FIELDS = {"serviceName", "priceType", "armRegionName", "armSkuName", "meterName"}
_SKUS = re.compile(r"/subscriptions/([^/]+)/providers/Microsoft.Compute/skus")


def meter(size: str, region: str, usd: float | None, **more: Any) -> dict[str, Any]:
    """An item of the Retail Prices API."""
    return {
        "currencyCode": "USD",
        "tierMinimumUnits": 0.0,
        "retailPrice": usd,
        "unitPrice": usd,
        "armRegionName": region,
        "location": region,
        "effectiveStartDate": "2024-01-01T00:00:00Z",
        "meterId": "000a794b-bdb0-58be-a0cd-0c3a0f222923",
        "meterName": size.removeprefix("Standard_"),
        "productId": "DZH318Z0BQPS",
        "skuId": "DZH318Z0BQPS/00TG",
        "productName": "Virtual Machines Series",
        "skuName": size.removeprefix("Standard_"),
        "serviceName": "Virtual Machines",
        "serviceId": "DZH313Z7MMC8",
        "serviceFamily": "Compute",
        "unitOfMeasure": "1 Hour",
        "type": "Consumption",
        "isPrimaryMeterRegion": True,
        "armSkuName": size,
        **more,
    }


def size(
    name: str,
    region: str,
    able: Mapping[str, str],
    zones: tuple[str, ...] = (),
    denied: tuple[str, ...] = (),
    kind: str = "virtualMachines",
) -> dict[str, Any]:
    """An entry of Resource SKUs."""
    limits = [
        {
            "type": "Zone",
            "values": [region],
            "restrictionInfo": {"locations": [region], "zones": list(denied)},
            "reasonCode": "NotAvailableForSubscription",
        }
    ]
    return {
        "resourceType": kind,
        "name": name,
        "tier": "Standard",
        "size": name.removeprefix("Standard_"),
        "family": "standardFamily",
        "locations": [region],
        "locationInfo": [{"location": region, "zones": list(zones), "zoneDetails": []}],
        "capabilities": [{"name": key, "value": value} for key, value in able.items()],
        "restrictions": limits if denied else [],
    }


class AzureEmulator(Emulator):
    """Both APIs at one address.

    Attributes
    ----------
    meters, sizes : list
        What there is.
    page : int
        Entries of a page.
    """

    def __init__(self) -> None:
        self.meters: list[Any] = []
        self.sizes: list[Any] = []
        self.page = 2
        self.next_host = ""  # where the links of the price list lead, when not here
        super().__init__()

    def describe(self, request: Request) -> str:
        if request.path.startswith("/api/retail"):
            return f"prices {request.query.get('$filter', '')} {request.query.get('$skip', '0')}"
        return f"skus {request.query.get('$skiptoken', '0')}"

    def answer(self, request: Request) -> Response:
        if request.path == "/api/retail/prices":
            return self._prices(request)
        if match := _SKUS.fullmatch(request.path):
            return self._skus(request, match[1])
        return Response.json({"error": {"code": "NotFound", "message": request.path}}, 404)

    def fail(self, kind: str, request: Request) -> Response:
        if kind == "throttle":
            text = {"error": {"code": "TooManyRequests", "message": "Too many requests."}}
            return Response.json(text, 429, **{"Retry-After": "0"})
        if kind == "refuse":
            text = {"error": {"code": "AuthorizationFailed", "message": "does not have access"}}
            return Response.json(text, 403)
        text = {"error": {"code": "InternalServerError", "message": "An error has occurred."}}
        return Response.json(text, 500)

    def _prices(self, request: Request) -> Response:
        wanted = request.query.get("$filter", "")
        terms = dict(_TERM.findall(wanted))
        parts = dict(_CONTAINS.findall(wanted))
        rest = _CONTAINS.sub("", _TERM.sub("", wanted)).replace("and", "").strip()
        if rest or {*terms, *parts} - _FIELDS:
            return Response.json(
                {"error": {"code": "BadRequest", "message": "Invalid filter"}}, 400
            )
        terms["type"] = terms.pop("priceType", "Consumption")
        listed = [
            m
            for m in self.meters
            if all(m.get(k, v) == v for k, v in terms.items())
            and all(part in m.get(k, "") for k, part in parts.items())
        ]
        start = int(request.query.get("$skip", "0"))
        items = listed[start : start + self.page]
        end = start + len(items)
        # The live service answers with its port in the link, as we do, and null after the end.
        link = f"{self.next_host or self.url}/api/retail/prices?$filter={wanted}&$skip={end}"
        return Response.json(
            {
                "BillingCurrency": "USD",
                "CustomerEntityId": "Default",
                "CustomerEntityType": "Retail",
                "Items": items,
                "NextPageLink": link.replace(" ", "%20") if end < len(listed) else None,
                "Count": len(items),
            }
        )

    def _skus(self, request: Request, subscription: str) -> Response:
        if not request.headers.get("authorization", "").startswith("Bearer "):
            text = {"error": {"code": "AuthenticationFailed", "message": "no bearer token"}}
            return Response.json(text, 401)
        if "api-version" not in request.query:
            text = {"error": {"code": "MissingApiVersionParameter", "message": "api-version"}}
            return Response.json(text, 400)
        start = int(request.query.get("$skiptoken", "0"))
        end = start + self.page
        answer: dict[str, Any] = {"value": self.sizes[start:end]}
        if end < len(self.sizes):
            version = request.query["api-version"]
            query = f"api-version={version}&$skiptoken={end}"
            answer["nextLink"] = f"{self.url}{request.path}?{query}"
        return Response.json(answer)
