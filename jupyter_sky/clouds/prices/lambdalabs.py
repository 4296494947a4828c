"""Lambda: instance types with prices, in the regions that have some free now."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.http import PATIENT, JsonClient
from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import http
from jupyter_sky.clouds.prices.entries import (
    InvalidEntry,
    Row,
    canonical_accelerator,
    make_offer,
    make_table,
    nominal_memory,
    read_entries,
    usd,
)
from jupyter_sky.clouds.prices.fetcher import Fetcher, Recovery, today
from jupyter_sky.clouds.prices.page_cache import Page
from jupyter_sky.clouds.prices.source import KnownOffers, SourceData

_TYPES = "https://cloud.lambda.ai/api/v1/instance-types"
_GPU = re.compile(r"(?P<name>.+?) \((?P<memory>\d+) GB(?P<form> [^)]*)?\)")
_NO_GPU = {"", "N/A"}


@dataclass(frozen=True)
class LambdaPrices:
    """Prices of Lambda, by its public API.

    Parameters
    ----------
    types
        Address of the list of instance types.
    key
        API key; the variable LAMBDA_API_KEY unless given.

    Examples
    --------
    >>> LambdaPrices().cloud
    'lambda'
    """

    types: str = _TYPES
    key: str | None = None

    cloud = "lambda"
    kinds = frozenset({"vm"})

    def check(self) -> None:
        """Raise when there is no API key."""
        if not self._key():
            raise SkyRefreshError(
                _("lambda: LAMBDA_API_KEY is not set"), hint=_("create an API key")
            )

    def _key(self) -> str:
        return self.key or os.environ.get("LAMBDA_API_KEY", "")

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read the one list that there is."""
        client = JsonClient(headers={"Authorization": f"Bearer {self._key()}"}, policy=PATIENT)

        def get(__: str | None) -> Page:
            listed = http.get_member(client.get(self.types), "data", dict)
            return Page(*_split(read_entries(listed.values(), read_type)))

        types = fetch.map(["types"], lambda name: fetch.pages(name, get))[0]
        rows = [row for each in types for row in _rows(each, known)]
        note = "regions are those with free machines now, and those known before"
        return SourceData({"offers": make_table("offers", rows)}, {"lambda-api": today()}, (note,))

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify a failed request."""
        return http.explain_failure(error, "lambda")


def _split(read: tuple[list[Any], dict[str, int]]) -> tuple[list[Any], None, dict[str, int]]:
    return read[0], None, read[1]


def read_type(entry: JsonMapping) -> JsonObject:
    """Return an instance type of the list: its size, price (USD/h), and regions with some free."""
    described = entry["instance_type"]
    able = described["specs"]
    cents = described["price_cents_per_hour"]
    if not isinstance(cents, int | float):
        raise InvalidEntry("price is not a number")
    label = described.get("gpu_description", "")
    name, gib = _gpu(label) if label not in _NO_GPU else ("", None)
    return {
        "type": described["name"],
        "usd": usd(cents / 100),
        "vcpus": float(able["vcpus"]),
        "memory": float(able["memory_gib"]),
        "gpus": float(able.get("gpus") or 0),
        "gpu": name,
        "gpu_memory": gib,
        "regions": [region["name"] for region in entry["regions_with_capacity_available"]],
    }


def _gpu(label: str) -> tuple[str, float | None]:
    """Return canonical name and GiB of ``H100 (80 GB PCIe)``; the form tells some models apart."""
    match = _GPU.fullmatch(label)
    if match is None:
        return canonical_accelerator(label), None
    gib = float(match["memory"])
    for name in (f"{match['name']}{match['form'] or ''}", match["name"]):
        found = canonical_accelerator(name, gib)
        if nominal_memory(found) is not None:
            return found, nominal_memory(found)
    return match["name"], gib


def _rows(record: JsonMapping, known: KnownOffers) -> Iterator[Row]:
    before = {region for region, machine in known.zones if machine == record["type"]}
    gpu = record["gpu"] if record["gpus"] else ""
    for region in sorted(before | set(record["regions"])) or [""]:
        yield make_offer(
            cloud="lambda",
            region=region,
            instance_type=record["type"],
            vcpus=record["vcpus"],
            memory_gib=record["memory"],
            arch="arm64" if "gh200" in record["type"] else "x86_64",
            accelerator=gpu,
            accelerator_count=record["gpus"] or None,
            accelerator_memory_gib=record["gpu_memory"] if gpu else None,
            on_demand_usd_h=record["usd"],
            price_date=today(),
            source="lambda-api",
            zone_basis="region" if region in record["regions"] else "known-before",
        )
