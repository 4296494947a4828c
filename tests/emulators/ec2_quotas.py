"""Service Quotas of an account, in JSON 1.1 as in ``service-quotas-2019-06-24`` of AWS's models."""

from __future__ import annotations

import json
from typing import Any

from .ec2_errors import error
from .server import Request, Response

_MOST = 100
_CODES = {
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances": ("L-1216C47A", 32.0),
    "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests": ("L-34B43A08", 32.0),
    "Running On-Demand G and VT instances": ("L-DB2E81BA", 8.0),
    "All G and VT Spot Instance Requests": ("L-3819A6DF", 8.0),
    "Running On-Demand P instances": ("L-417A185B", 0.0),
    "All P4, P3 and P2 Spot Instance Requests": ("L-7212CCBC", 0.0),
    "All P5 Spot Instance Requests": ("L-C4BD4855", 192.0),
    "EC2-VPC Elastic IPs": ("L-0263D0A3", 5.0),
}


def default_quotas() -> dict[str, float]:
    """Return the limits of a new account by name; the last one is of something else."""
    return {name: limit for name, (__, limit) in _CODES.items()}


def list_quotas(
    request: Request, region: str, limits: dict[str, float], account: str, page: int
) -> Response:
    """Answer ListServiceQuotas: a page of what an account has in a region."""
    asked = json.loads(request.body)
    if asked.get("ServiceCode") != "ec2":
        code, said = "NoSuchResourceException", "The request failed because the service is unknown."
        return error("servicequotas", code, said)
    most = asked.get("MaxResults", _MOST)
    if not 1 <= most <= _MOST:
        return error("servicequotas", "IllegalArgumentException", f"MaxResults {most}")
    token = asked.get("NextToken", "0")
    if not token.isdigit():
        return error("servicequotas", "InvalidPaginationTokenException", "Invalid token")
    start, end = int(token), int(token) + min(most, page)
    listed = [_quota(name, limit, region, account) for name, limit in limits.items()]
    more: dict[str, Any] = {"NextToken": str(end)} if end < len(listed) else {}
    body = json.dumps({"Quotas": listed[start:end], **more}).encode()
    return Response(body, 200, {"Content-Type": "application/x-amz-json-1.1"})


def _quota(name: str, limit: float, region: str, account: str) -> dict[str, Any]:
    code = _CODES[name][0]
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{region}:{account}:ec2/{code}",
        "QuotaCode": code,
        "QuotaName": name,
        "Value": limit,
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        "QuotaAppliedAtLevel": "ACCOUNT",
    }
