"""Entries of the AWS price list, of EC2's descriptions and of the spot advisor, as records."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from jupyter_sky.clouds.prices.entries import (
    InvalidEntry,
    canonical_accelerator,
    expect,
    nominal_memory,
    usd,
)

_BOX = re.compile(r"(?:^|-)BoxUsage(?::|$)")  # not UnusedBox, DedicatedUsage, Reservation
_MEMORY = re.compile(r"([\d.,]+)\s*GiB", re.IGNORECASE)
_OUT = {
    "AWS Outbound": re.compile(r"(?:^|-)DataTransfer-Out-Bytes$"),
    "InterRegion Outbound": re.compile(r"-AWS-Out-Bytes$"),
    "IntraRegion": re.compile(r"(?:^|-)DataTransfer-Regional-Bytes$"),
}
_MAKERS = {"Intel": "Intel", "AMD": "AMD", "AWS": "AWS", "Apple": "Apple"}


def machine_price(text: str) -> dict[str, Any] | None:
    """Return a machine's on-demand price from an item of ``GetProducts``; None for others."""
    item = json.loads(text)
    facts = item["product"]["attributes"]
    if not _BOX.search(facts["usagetype"]):
        return None
    ((_, usd_h),) = _tiers(item, "Hrs")
    return {
        "type": facts["instanceType"],
        "code": facts["regionCode"],
        "usd": usd_h,
        "vcpus": float(facts["vcpu"]),
        "memory": _gib(facts.get("memory", "")),
        "maker": _maker(facts.get("physicalProcessor", "")),
    }


def transfer_price(text: str) -> dict[str, Any] | None:
    """Return prices of data that leave a region, by volume; None for other transfers."""
    item = json.loads(text)
    facts = item["product"]["attributes"]
    kind = facts["transferType"]
    if kind not in _OUT or not _OUT[kind].search(facts["usagetype"]):
        return None
    if facts.get("fromLocationType", "AWS Region") != "AWS Region":
        return None
    # Access points in front of several regions are sold as InterRegion as well, to "External".
    if (kind == "AWS Outbound") != (facts.get("toLocation") == "External"):
        return None
    return {
        "kind": kind,
        "from": facts["fromRegionCode"],
        "to": facts.get("toRegionCode", ""),
        "tiers": _tiers(item, "GB", free=True),
    }


def _tiers(item: Mapping[str, Any], unit: str, *, free: bool = False) -> list[tuple[float, float]]:
    """Return pairs of a volume and the price from there on, smallest volume first."""
    terms = item["terms"].get("OnDemand") or {}
    dimensions = [d for term in terms.values() for d in term["priceDimensions"].values()]
    if not dimensions:
        raise InvalidEntry("no price")
    found = []
    for dimension in dimensions:
        expect(dimension["unit"], unit, f"unit is not {unit}")
        prices = dimension["pricePerUnit"]
        if prices and "USD" not in prices:
            raise InvalidEntry("currency is not USD")
        found.append((float(dimension.get("beginRange") or 0), usd(prices.get("USD"), free=free)))
    return sorted(found)


def _gib(text: str) -> float | None:
    match = _MEMORY.fullmatch(text.strip())
    return float(match[1].replace(",", "")) if match else None


def _maker(processor: str) -> str:
    return next((maker for word, maker in _MAKERS.items() if word in processor), "")


def machine(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of an instance type from ``DescribeInstanceTypes``."""
    processor = described.get("ProcessorInfo", {})
    kinds = processor.get("SupportedArchitectures", [])
    name, count, gib = _devices(described)
    return {
        "type": described["InstanceType"],
        "vcpus": float(described["VCpuInfo"]["DefaultVCpus"]),
        "memory_gib": described["MemoryInfo"]["SizeInMiB"] / 1024,
        "arch": "arm64" if any(kind.startswith("arm64") for kind in kinds) else "x86_64",
        "cpu_vendor": _maker(processor.get("Manufacturer", "")),
        "accelerator": name,
        "accelerator_count": count,
        "accelerator_memory_gib": gib,
    }


_DEVICES = (
    ("GpuInfo", "Gpus"),
    ("NeuronInfo", "NeuronDevices"),
    ("InferenceAcceleratorInfo", "Accelerators"),
    ("FpgaInfo", "Fpgas"),
    ("MediaAcceleratorInfo", "Accelerators"),
)


# Names that only EC2 uses.
_NAMES = {
    "RTX PRO Server 6000": "RTX PRO 6000",
    "Virtex UltraScale (VU9P)": "VU9P",
    "Virtex UltraScale+ (VU47P)": "VU47P",
}


def _devices(described: Mapping[str, Any]) -> tuple[str, float | None, float | None]:
    """Return canonical name, number (a share of a GPU counts so) and GiB of the accelerators."""
    for group, members in _DEVICES:
        for device in described.get(group, {}).get(members, []):
            share = device.get("GpuPartitionSize") or 1
            # of parts, Count says how many whole devices there are: none
            count = (device.get("LogicalGpuCount") or device["Count"]) * share
            reported = device.get("MemoryInfo", {}).get("SizeInMiB", 0) / 1024 / share or None
            written: str = device["Name"]
            name = canonical_accelerator(_NAMES.get(written, written), reported)
            gib = nominal_memory(name, reported)
            return name, count, gib * share if gib else None
    return "", None, None


def spot_price(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spot price from ``DescribeSpotPriceHistory``."""
    stamp = entry["Timestamp"]
    return {
        "type": entry["InstanceType"],
        "zone": entry["AvailabilityZone"],
        "usd": usd(entry["SpotPrice"]),
        "at": stamp if isinstance(stamp, str) else stamp.isoformat(),
    }


def egress_rows(records: Iterable[Mapping[str, Any]], source: str) -> list[dict[str, Any]]:
    """Return rows of egress; the price to most regions is ``cross-region``, others are named."""
    rows: list[dict[str, Any]] = []
    between: dict[str, dict[str, float]] = defaultdict(dict)

    def add(region: str, destination: str, tiers: Iterable[Any], note: str = "") -> None:
        for begin, price in tiers:
            row = {"cloud": "aws", "source_region": region, "destination": destination}
            rows.append(
                {
                    **row,
                    "tier_from_gb": begin,
                    "usd_per_gb": price,
                    "source": source,
                    "note": note,
                }
            )

    for record in records:
        if record["kind"] == "AWS Outbound":
            add(record["from"], "internet", record["tiers"])
        elif record["kind"] == "IntraRegion":
            # the list has the price of one side, and both sides pay it
            both = [(begin, 2 * price) for begin, price in record["tiers"]]
            add(record["from"], "cross-zone", both, "charged on both sides: the sum")
        else:
            between[record["from"]][record["to"]] = record["tiers"][0][1]
    for region, prices in between.items():
        usual = Counter(prices.values()).most_common(1)[0][0]
        add(region, "cross-region", [(0, usual)])
        for other, price in sorted(prices.items()):
            if price != usual:
                pair = "<->".join(sorted((region, other)))
                add(region, f"cross-region:{pair}", [(0, price)])
    return rows


def interruption_rows(advisor: Mapping[str, Any], date: str) -> list[dict[str, Any]]:
    """Return rows of interruptions from the advisor's file, Linux only."""
    bands = {band["index"]: _band(band["label"]) for band in advisor["ranges"]}
    rows = []
    for region, systems in advisor["spot_advisor"].items():
        for machine_type, entry in systems.get("Linux", {}).items():
            label, low, high = bands[entry["r"]]
            rows.append(
                {
                    "cloud": "aws",
                    "region": region,
                    "instance_type": machine_type,
                    "interruption_band": label,
                    "band_low_pct": low,
                    "band_high_pct": high,
                    "savings_pct_vs_on_demand": float(entry["s"]),
                    "as_of": date,
                }
            )
    return rows


def _band(label: str) -> tuple[str, float, float | None]:
    """Return low and high percentage of ``<5%``, ``5-10%`` and ``>20%``."""
    numbers = [float(number) for number in re.findall(r"\d+", label)]
    if label.startswith("<"):
        return label, 0.0, numbers[0]
    return label, numbers[0], numbers[1] if len(numbers) > 1 else None
