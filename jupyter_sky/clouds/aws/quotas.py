"""Quotas of an AWS account by Service Quotas: vCPUs of running machines, by series and market."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jupyter_sky.clouds.aws.clients import AwsClients
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

_ON_DEMAND = re.compile(r"Running On-Demand (.+) instances")
_SPOT = re.compile(r"All (.+) Spot Instance Requests")
_PAGE = "https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}"


def read_quotas(access: AwsClients) -> list[AccountQuota]:
    """Return the quotas of all enabled regions."""
    return access.call_regions(lambda region: list(_read_region(access, region)))


def _read_region(access: AwsClients, region: str) -> Iterator[AccountQuota]:
    pages = access.client("service-quotas", region).get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 100}):
        for quota in page["Quotas"]:
            name = quota["QuotaName"]
            spot = _SPOT.fullmatch(name)
            found = spot or _ON_DEMAND.fullmatch(name)
            if found is None or "Value" not in quota or not (series := parse_series(found[1])):
                continue
            yield AccountQuota(
                "aws",
                name,
                float(quota["Value"]),
                "vcpus",
                region,
                series,
                spot is not None,
                _PAGE.format(region=region, code=quota["QuotaCode"]),
            )


def parse_series(text: str) -> tuple[str, ...]:
    """Return the instance series in the name of a quota, as `AccountQuota` has them.

    Examples
    --------
    >>> parse_series("Standard (A, C, D, H, I, M, R, T, Z)"), parse_series("G and VT")
    (('standard',), ('g', 'vt'))
    >>> parse_series("P4, P3 and P2"), parse_series("High Memory")
    (('p4*', 'p3*', 'p2*'), ('u',))
    """
    if text.startswith("Standard"):
        return ("standard",)
    if text == "High Memory":
        return ("u",)
    words = [word.lower() for word in re.split(r",? and |, ?| ", text) if word]
    return tuple(f"{word}*" if word[-1].isdigit() else word for word in words)
