"""AWS: the Price List Service, EC2's descriptions, and the spot advisor's file.

Price List: JSON 1.1 as in ``pricing-2017-10-15`` of AWS's published models; entries are strings
with JSON in them. EC2: the query protocol of ``ec2-2016-11-15``; answers are written by its own
model, so that element names are those of the service. Both refuse unsigned requests.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any
from xml.sax.saxutils import escape

import botocore.session

from .server import Emulator, Request, Response

_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256 Credential=[^/]+/\d{8}/([^/]+)/([^/]+)/aws4_request")
_ERRORS = {
    "throttle": ("ThrottlingException", "RequestLimitExceeded", "Rate exceeded"),
    "refuse": ("AccessDeniedException", "UnauthorizedOperation", "You are not authorized"),
    "break": ("InternalErrorException", "InternalError", "An internal error has occurred"),
}
_LIMITS = {  # MaxResults that the documentation of each action allows
    "DescribeInstanceTypes": (5, 100),
    "DescribeInstanceTypeOfferings": (5, 1000),
    "DescribeSpotPriceHistory": (1, 1000),
    "GetProducts": (1, 100),
}


def product(
    machine: str,
    region: str,
    usd: str | None,
    *,
    unit: str = "Hrs",
    currency: str = "USD",
    place: str = "AWS Region",
    usage: str = "BoxUsage",
    without: tuple[str, ...] = (),
    **attributes: str,
) -> dict[str, Any]:
    """An item of AmazonEC2's price list, as the bulk files and GetProducts have it."""
    facts = {
        "instanceType": machine,
        "regionCode": region,
        "location": region,
        "locationType": place,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "operation": "RunInstances",
        "usagetype": f"{usage}:{machine}" if region == "us-east-1" else f"X1-{usage}:{machine}",
        "vcpu": "2",
        "memory": "8 GiB",
        "physicalProcessor": "Intel Xeon Platinum 8175",
        "servicecode": "AmazonEC2",
        **attributes,
    }
    facts = {name: value for name, value in facts.items() if name not in without}
    return _item(f"{machine}.{region}.{usage}", "Compute Instance", facts, unit, currency, usd)


def transfer(
    kind: str,
    source: str,
    usage: str,
    tiers: list[tuple[str, str]],
    destination: str = "",
    to: str = "",
) -> dict[str, Any]:
    """An item of AWSDataTransfer's price list with its tiers: where each begins, and its USD."""
    facts = {
        "transferType": kind,
        "fromRegionCode": source,
        "fromLocationType": "AWS Region",
        "toLocation": to or destination,
        "toRegionCode": destination,
        "usagetype": usage,
        "servicecode": "AWSDataTransfer",
    }
    name = f"{kind}.{source}.{usage}.{to}"
    return _item(name, "Data Transfer", facts, "GB", "USD", *(usd for _, usd in tiers), tiers=tiers)


def _item(
    sku: str,
    family: str,
    facts: dict[str, str],
    unit: str,
    currency: str,
    *prices: str | None,
    tiers: list[tuple[str, str]] | None = None,
) -> dict[str, Any]:
    starts = [begin for begin, _ in tiers] if tiers else ["0"] * len(prices)
    dimensions = {
        f"{sku}.JRTCKXETXF.{number}": {
            "rateCode": f"{sku}.JRTCKXETXF.{number}",
            "unit": unit,
            "beginRange": begin,
            "endRange": "Inf",
            "description": "as on the price list",
            "appliesTo": [],
            "pricePerUnit": {} if usd is None else {currency: usd},
        }
        for number, (begin, usd) in enumerate(zip(starts, prices, strict=True))
    }
    term = {
        "priceDimensions": dimensions,
        "sku": sku,
        "effectiveDate": "2026-11-01T00:00:00Z",
        "offerTermCode": "JRTCKXETXF",
        "termAttributes": {},
    }
    return {
        "product": {"productFamily": family, "attributes": facts, "sku": sku},
        "serviceCode": facts.get("servicecode", "AmazonEC2"),
        "terms": {"OnDemand": {f"{sku}.JRTCKXETXF": term}},
        "version": "20261120000000",
        "publicationDate": "2026-11-20T00:00:00Z",
    }


def spot(machine: str, zone: str, usd: str, at: str = "2026-11-20T10:00:00.000Z") -> dict[str, str]:
    """Return an entry of DescribeSpotPriceHistory."""
    return {
        "InstanceType": machine,
        "AvailabilityZone": zone,
        "SpotPrice": usd,
        "Timestamp": at,
        "ProductDescription": "Linux/UNIX",
    }


class AwsEmulator(Emulator):
    """All of AWS that a refresh talks to.

    Attributes
    ----------
    regions : dict
        Opt-in status by region.
    products : dict
        Items of the price lists by service code; a text stands for itself.
    machines, offerings, spot : dict
        By region: descriptions, pairs of type and zone, and entries of the price history, with
        members named as in boto3.
    page : int
        Most entries of one page, whatever is asked for.
    """

    def __init__(self) -> None:
        self.regions: dict[str, str] = {}
        self.products: dict[str, list[Any]] = {"AmazonEC2": [], "AWSDataTransfer": []}
        self.machines: dict[str, list[dict[str, Any]]] = {}
        self.offerings: dict[str, list[tuple[str, str]]] = {}
        self.spot: dict[str, list[dict[str, str]]] = {}
        self.advisor: dict[str, Any] = {"ranges": [], "spot_advisor": {}}
        self.page = 2
        self.epoch = 0  # tokens of an earlier one have expired
        super().__init__()

    def describe(self, request: Request) -> str:
        if request.method == "GET":
            return f"advisor {request.path}"
        region = self._scope(request)[0]
        if "x-amz-target" in request.headers:
            asked = json.loads(request.body)
            wanted = " ".join(each["Value"] for each in asked.get("Filters", []))
            return f"GetProducts {asked.get('ServiceCode')} {wanted}"
        return f"{request.form.get('Action')} {region}"

    def answer(self, request: Request) -> Response:
        if request.method == "GET":
            return Response.json(self.advisor)
        region, service = self._scope(request)
        if not region:
            return self._error(request, "MissingAuthenticationToken", "no signature", 403)
        if service == "pricing":
            return self._products(request)
        return self._ec2(request, region)

    def fail(self, kind: str, request: Request) -> Response:
        price_list, ec2, message = _ERRORS[kind]
        if request.method == "GET":
            status = {"throttle": 503, "refuse": 403, "break": 500}[kind]
            return Response(b"<Error/>", status, {"Retry-After": "0"})
        if "x-amz-target" in request.headers:
            status = {"throttle": 400, "refuse": 400, "break": 500}[kind]
            return self._error(request, price_list, message, status)
        status = {"throttle": 503, "refuse": 403, "break": 500}[kind]
        return self._error(request, ec2, message, status)

    def _scope(self, request: Request) -> tuple[str, str]:
        match = _CREDENTIAL.match(request.headers.get("authorization", ""))
        return (match[1], match[2]) if match else ("", "")

    def _error(self, request: Request, code: str, message: str, status: int) -> Response:
        if "x-amz-target" in request.headers:
            return Response.json({"__type": code, "message": message}, status)
        text = (
            f"<Response><Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message>"
            f"</Error></Errors><RequestID>0-0</RequestID></Response>"
        )
        return Response(text.encode(), status, {"Content-Type": "text/xml"})

    def _page(self, request: Request, action: str, entries: list[Any], asked: Any) -> Any:
        """A page of entries with the token of the next, or an error."""
        low, high = _LIMITS.get(action, (0, 10**6))
        most = int(asked.get("MaxResults", high))
        token = asked.get("NextToken")
        if not low <= most <= high:
            return self._error(request, "InvalidParameterValue", f"MaxResults {most}", 400)
        start = 0
        if token is not None:
            name, epoch, number = token.split(":")
            if name != action or int(epoch) != self.epoch:
                json_codes = "x-amz-target" in request.headers
                code = "ExpiredNextTokenException" if json_codes else "InvalidNextToken"
                return self._error(request, code, "the token is not valid", 400)
            start = int(number)
        end = start + min(self.page, most)
        more = f"{action}:{self.epoch}:{end}"
        return entries[start:end], more if end < len(entries) else None

    def _products(self, request: Request) -> Response:
        if request.headers["x-amz-target"] != "AWSPriceListService.GetProducts":
            return self._error(request, "UnknownOperationException", "", 400)
        asked = json.loads(request.body)
        listed = self.products.get(asked["ServiceCode"])
        if listed is None:
            return self._error(request, "NotFoundException", "no such service", 400)
        for wanted in asked.get("Filters", []):
            if wanted["Type"] != "TERM_MATCH":
                return self._error(request, "InvalidParameterException", "Type", 400)
        matching = [
            item if isinstance(item, str) else json.dumps(item)
            for item in listed
            if isinstance(item, str) or self._matches(item, asked.get("Filters", []))
        ]
        page = self._page(request, "GetProducts", matching, asked)
        if isinstance(page, Response):
            return page
        answer = {"FormatVersion": "aws_v1", "PriceList": page[0]}
        return Response.json(answer | ({"NextToken": page[1]} if page[1] else {}))

    def _matches(self, item: dict[str, Any], filters: list[dict[str, str]]) -> bool:
        facts = item["product"]["attributes"]
        return all(facts.get(each["Field"]) == each["Value"] for each in filters)

    def _ec2(self, request: Request, region: str) -> Response:
        asked = request.form
        action = asked["Action"]
        if self.regions.get(region) == "not-opted-in":
            return self._error(request, "AuthFailure", "not able to validate the credentials", 401)
        if action == "DescribeRegions":
            if asked.get("AllRegions") != "true":
                shown = {n: s for n, s in self.regions.items() if s != "not-opted-in"}
            else:
                shown = self.regions
            entries = [{"RegionName": name, "OptInStatus": s} for name, s in shown.items()]
            return self._xml(action, {"Regions": entries})
        lists: dict[str, tuple[str, list[Any]]] = {
            "DescribeInstanceTypes": ("InstanceTypes", self.machines.get(region, [])),
            "DescribeInstanceTypeOfferings": (
                "InstanceTypeOfferings",
                [
                    {"InstanceType": m, "LocationType": asked.get("LocationType"), "Location": z}
                    for m, z in self.offerings.get(region, [])
                ],
            ),
            "DescribeSpotPriceHistory": ("SpotPriceHistory", self.spot.get(region, [])),
        }
        if action not in lists:
            return self._error(request, "InvalidAction", action, 400)
        member, entries = lists[action]
        page = self._page(request, action, entries, asked)
        if isinstance(page, Response):
            return page
        return self._xml(action, {member: page[0], "NextToken": page[1] or ""})

    def _xml(self, action: str, answer: dict[str, Any]) -> Response:
        """The answer in XML, with the names that AWS's model of EC2 gives to the elements."""
        operation = _model().operation_model(action)
        inner = _element(answer, operation.output_shape)
        text = (
            f'<?xml version="1.0" encoding="UTF-8"?><{action}Response '
            f'xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>0-0</requestId>'
            f"{inner}</{action}Response>"
        )
        return Response(text.encode(), 200, {"Content-Type": "text/xml;charset=UTF-8"})


@cache
def _model() -> Any:
    return botocore.session.get_session().get_service_model("ec2")


def _element(value: Any, shape: Any) -> str:
    if shape.type_name == "structure":
        parts = []
        for name, inner in value.items():
            member = shape.members[name]
            tag = member.serialization.get("name", name)
            parts.append(f"<{tag}>{_element(inner, member)}</{tag}>")
        return "".join(parts)
    if shape.type_name == "list":
        tag = shape.member.serialization.get("name", "item")
        return "".join(f"<{tag}>{_element(each, shape.member)}</{tag}>" for each in value)
    if shape.type_name == "boolean":
        return str(value).lower()
    return escape(str(value))
