"""Quotas of a project of Google Cloud: those of each region, and those of all regions together.

Spot machines count against quotas of their own where a project has them, else against the same as
others: https://cloud.google.com/compute/resource-usage#preemptible-quotas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from jupyter_sky.base.clouds.facts import GcpFacts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests import accelerators
from jupyter_sky.clouds.gcp.clients import PAGE_SIZE, GcpClients
from jupyter_sky.knowledge.tracker.quotas import AccountQuota

_SPOT = "PREEMPTIBLE_"
_GPUS = re.compile(r"NVIDIA_(\w+)_GPUS")
_CPUS = re.compile(r"([A-Z]\d[A-Z0-9]*)_CPUS")
_SHARED_CPUS = ("n1", "e2", "f1", "g1")
"""Series that count against CPUS, as they have no metric of their own."""


def read_quotas(access: GcpClients) -> list[AccountQuota]:
    """Return the quotas of all regions and of the project."""
    found: list[AccountQuota] = []
    for region in access.call("Regions", "list", max_results=PAGE_SIZE):
        found += parse_metrics(((q.metric, q.limit) for q in region.quotas), region.name)
    project = access.call("Projects", "get")
    found += parse_metrics((q.metric, q.limit) for q in project.quotas)
    return found


def parse_metrics(metrics: Iterable[tuple[str, float]], region: str = "") -> Iterator[AccountQuota]:
    """Yield the quotas that machines count against.

    Parameters
    ----------
    metrics
        Names and limits, as the API has them.
    region
        Where they hold; empty for all regions together.

    Examples
    --------
    >>> found = parse_metrics([("NVIDIA_A100_80GB_GPUS", 8), ("PREEMPTIBLE_CPUS", 0)], "us-east4")
    >>> [(quota.families, quota.limit, quota.spot) for quota in found]
    [(('A100-80GB',), 8, None)]
    """
    limits = dict(metrics)
    for name, limit in limits.items():
        plain = name.removeprefix(_SPOT)
        is_spot = plain != name
        if is_spot and not limit:
            continue  # none of its own: spot machines count against the other
        gpus = _GPUS.fullmatch(plain)
        if plain == "GPUS_ALL_REGIONS" or plain == "CPUS_ALL_REGIONS":
            unit, families = ("gpus" if plain.startswith("GPUS") else "vcpus"), ()
            spot: bool | None = False
        elif gpus:
            unit, families = "gpus", _accelerator_names(gpus[1])
            spot = is_spot or (False if limits.get(_SPOT + plain) else None)
        elif plain == "CPUS" or _CPUS.fullmatch(plain):
            series = plain.partition("_")[0].lower()
            unit, families = "vcpus", (series,) if plain != "CPUS" else _SHARED_CPUS
            families = () if is_spot else families
            spot = is_spot or (False if limits.get(f"{_SPOT}CPUS") else None)
        else:
            continue
        if families or plain.endswith("ALL_REGIONS") or is_spot:
            yield AccountQuota(
                "gcp", name, limit, unit, region, families, spot, GcpFacts.quota_page
            )


def _accelerator_names(metric: str) -> tuple[str, ...]:
    """Return the canonical name of the accelerator in a metric; none where it is not known."""
    try:
        return (accelerators.canonical(metric.replace("_", "-")),)
    except SkyUsageError:
        return ()
