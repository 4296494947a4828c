"""SKUs of Google's billing catalog: which price is of which part of a machine.

Machines are sold in parts: cores, memory, accelerators, local disks. A SKU says in words what it
is of; prices of a machine are sums.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jupyter_sky.clouds.prices.entries import InvalidEntry, expect, usd

_SPOT = re.compile(r"^(?:Spot )?Preemptible ")
_ON_SPOT = re.compile(r" attached to (?:Spot )?Preemptible VMs")
_PLACE = re.compile(r" running in (?P<name>.*)$")
_TRANSFER = re.compile(
    r"Network Inter Region (?:Data Transfer Out|Egress) from (?P<source>.+) to (?P<target>.+)"
)
_PLACED = ("e2/core", "n1/core", "n2/core")  # sold in all regions, each under the name of its place
_PART = re.compile(
    r"(?P<series>[A-Z]\d+[A-Za-z0-9]*) (?:AMD |Arm |Predefined |Memory-optimized )*"
    r"Instance (?P<part>Core|Ram)"
)
_DISK = re.compile(r"(?:(?P<series>[A-Z]\d+[A-Z]*) Instance Local SSD|SSD backed Local Storage)")
_NAMED = {
    "Compute optimized": "c2",
    "Memory-optimized": "m1",
    "Memory Optimized Upgrade Premium for Memory-optimized": "m2-premium",
}
_NAMED_PART = re.compile(
    rf"(?P<name>{'|'.join(map(re.escape, _NAMED))}) (?:Instance )?(?P<part>Core|Ram)"
)
_WHOLE = {
    "Micro Instance with burstable CPU": "f1-micro",
    "Small Instance with 1 VCPU": "g1-small",
}
# Accelerators in the words of a SKU, and as the type of a machine names them.
_GPUS = {
    "Nvidia Tesla K80": "nvidia-tesla-k80",
    "Nvidia Tesla P4": "nvidia-tesla-p4",
    "Nvidia Tesla P100": "nvidia-tesla-p100",
    "Nvidia Tesla V100": "nvidia-tesla-v100",
    "Nvidia Tesla T4": "nvidia-tesla-t4",
    "Nvidia Tesla A100": "nvidia-tesla-a100",
    "Nvidia Tesla A100 80GB": "nvidia-a100-80gb",
    "Nvidia L4": "nvidia-l4",
    "Nvidia H100 80GB": "nvidia-h100-80gb",
    "Nvidia H100 80GB Mega": "nvidia-h100-mega-80gb",
    "Nvidia H100 Mega 80GB": "nvidia-h100-mega-80gb",
    "Nvidia H100 80GB Plus": "nvidia-h100-mega-80gb",
    "H200 141GB": "nvidia-h200-141gb",
    "RTX 6000 96GB": "nvidia-rtx-pro-6000",
}
# A slice is a GPU with its share of cores and memory.
_SLICES = {"A4 Nvidia B200 (1 gpu slice)": "nvidia-b200"}
_SERIES = {"a3-megagpu": "a3plus", "a3-ultragpu": "a3ultra"}
# Shared cores: sold by the share of a core that they may use for long.
_SHARES = {"e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}
_HOURS_A_MONTH = 730
_DISK_GIB = 375  # of one local disk, but for:
_DISKS_GIB = {
    "c4-highmem-288-lssd-metal": 3000,
    "c4-standard-288-lssd-metal": 3000,
    "z3-highmem-192-highlssd-metal": 6000,
    "z3": 3000,
}

Prices = Mapping[tuple[str, str, str], float]


def price(sku: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the part and regions that a SKU prices; None if no machine contains it.

    Parameters
    ----------
    sku
        A SKU as the API writes it in JSON.

    Examples
    --------
    >>> part("Spot Preemptible N2D AMD Instance Core running in Belgium")
    'n2d/core'
    """
    category = sku["category"]
    if category["usageType"] not in ("OnDemand", "Preemptible"):
        return None
    if category["resourceFamily"] not in ("Compute", "Storage"):
        return None
    what = part(sku["description"])
    if what is None:
        return None
    spot = _SPOT.search(sku["description"]) or _ON_SPOT.search(sku["description"])
    return {
        "what": what,
        # the description is right where the two differ
        "usage": "Preemptible" if spot else category["usageType"],
        "regions": list(sku["serviceRegions"]),
        "usd": _hourly(sku, what),
    }


def part(description: str) -> str | None:
    """Return the name of a SKU's part: ``n2/core``, ``gpu/nvidia-l4``, ``f1-micro``."""
    text = _SPOT.sub("", _ON_SPOT.sub("", _PLACE.sub("", description)))
    if match := _PART.fullmatch(text):
        return f"{match['series'].lower()}/{match['part'].lower()}"
    if match := _NAMED_PART.fullmatch(text):
        return f"{_NAMED[match['name']]}/{match['part'].lower()}"
    if match := _DISK.fullmatch(text):
        return f"{(match['series'] or '').lower()}/disk"
    if text in _SLICES:
        return f"slice/{_SLICES[text]}"
    gpu = _GPUS.get(text.removesuffix(" GPU"))
    return f"gpu/{gpu}" if gpu else _WHOLE.get(text)


def _hourly(sku: Mapping[str, Any], what: str) -> float:
    """Return USD per hour of the unit that the part is measured in."""
    expression = sku["pricingInfo"][-1]["pricingExpression"]
    rates = expression["tieredRates"]
    if not rates:
        raise InvalidEntry("no price")
    money = rates[-1]["unitPrice"]
    expect(money.get("currencyCode", "USD"), "USD", "currency is not USD")
    price = usd(int(money.get("units") or 0) + (money.get("nanos") or 0) / 1e9)
    price /= expression.get("displayQuantity") or 1
    unit = expression["usageUnit"]
    if what.endswith("/disk") and unit in ("GiBy.mo", "GiBy.h"):
        return price / (_HOURS_A_MONTH if unit == "GiBy.mo" else 1)
    expect(unit, "GiBy.h" if what.endswith("/ram") else "h", "unit is not an hour")
    return price


def place(sku: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the name that SKUs give a place, with its regions; None for other SKUs.

    Examples
    --------
    >>> category = {"usageType": "OnDemand", "resourceFamily": "Compute"}
    >>> words = "N2 Instance Core running in Virginia"
    >>> place({"description": words, "category": category, "serviceRegions": ["us-east4"]})
    {'place': 'Virginia', 'regions': ['us-east4']}
    """
    found = _PLACE.search(sku["description"])
    if found is None or sku["category"]["usageType"] != "OnDemand":
        return None
    if part(sku["description"]) not in _PLACED:
        return None
    return {"place": found["name"], "regions": list(sku["serviceRegions"])}


def transfer(sku: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the price of moving data from one place to another; None for other SKUs."""
    found = _TRANSFER.fullmatch(sku["description"])
    if found is None:
        return None
    expression = sku["pricingInfo"][-1]["pricingExpression"]
    expect(expression["usageUnit"], ("GiBy", "GBy"), "unit is not a gigabyte")
    tiers = []
    for rate in expression["tieredRates"]:
        money = rate["unitPrice"]
        expect(money.get("currencyCode", "USD"), "USD", "currency is not USD")
        price = usd(int(money.get("units") or 0) + (money.get("nanos") or 0) / 1e9, free=True)
        tiers.append([float(rate.get("startUsageAmount") or 0), price])
    if not any(price for __, price in tiers):
        return None
    return {"source": found["source"], "target": found["target"], "tiers": tiers}


def egress_rows(records: Iterable[Mapping[str, Any]], source: str) -> list[dict[str, Any]]:
    """Return rows of egress between regions, for each pair whose price is listed.

    Parameters
    ----------
    records
        From `place` and `transfer`.
    source
        Name of the source of the rows.
    """
    names: dict[str, tuple[int, str]] = {}
    transfers = []
    for record in records:
        if "tiers" in record:
            transfers.append(record)
        for region in record.get("regions", ()) if "place" in record else ():
            # of several names the one of the fewest regions: "Americas" may be all of them
            named = len(record["regions"]), record["place"]
            names[region] = min(named, names.get(region, named))
    regions: dict[str, list[str]] = {}
    for region, (__, name) in sorted(names.items()):
        regions.setdefault(name, []).append(region)
    rows: dict[tuple[str, str, float], dict[str, Any]] = {}
    for one in transfers:
        for here in regions.get(one["source"], ()):
            for there in regions.get(one["target"], ()):
                pair = "<->".join(sorted((here, there)))
                for begin, price in one["tiers"] if here != there else ():
                    rows[here, pair, begin] = {
                        "cloud": "gcp",
                        "source_region": here,
                        "destination": f"cross-region:{pair}",
                        "tier_from_gb": begin,
                        "usd_per_gb": price,
                        "source": source,
                        "note": f"from {one['source']} to {one['target']}",
                    }
    return list(rows.values())


def index(records: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], float]:
    """Return prices by region, usage and part.

    A part that is priced twice in one region (a promotion, a transition) counts at the higher
    price: nobody should pay more than was said.
    """
    found: dict[tuple[str, str, str], float] = {}
    for record in records:
        for region in record["regions"]:
            key = region, record["usage"], record["what"]
            found[key] = max(record["usd"], found.get(key, 0.0))
    return found


def machine_price(
    prices: Prices, region: str, usage: str, machine: Mapping[str, Any]
) -> float | None:
    """Return USD/h of a machine; None when one of its parts has no price there.

    Parameters
    ----------
    prices
        From `index`.
    region, usage
        Where, and ``OnDemand`` or ``Preemptible``.
    machine
        `name`, `vcpus`, `memory_gib`, `gpu` (its type or ""), `gpu_count`, `disks`.
    """

    def at(what: str) -> float | None:
        return prices.get((region, usage, what))

    name = machine["name"]
    if name in _WHOLE.values():
        return at(name)
    if (inclusive := at(f"slice/{machine['gpu']}")) is not None:
        return machine["gpu_count"] * inclusive
    parts = [(amount, at(what)) for amount, what in _parts(machine, lambda w: at(w) is not None)]
    if any(unit is None for _, unit in parts):
        return None
    return sum(amount * unit for amount, unit in parts if unit is not None)


def _parts(machine: Mapping[str, Any], sold: Callable[[str], bool]) -> Iterator[tuple[float, str]]:
    """Return the parts of a machine: amounts, each with the name of the part."""
    name, series = machine["name"], machine["name"].partition("-")[0]
    # m4-ultramem-224 has SKUs of its own, and so may have the machines of one kind
    own = (name.replace("-", ""), _SERIES.get("-".join(name.split("-")[:2]), series))
    kind = next((each for each in own if sold(f"{each}/core")), series)
    kind = "m1" if series == "m2" else kind
    yield _SHARES.get(name) or machine["vcpus"], f"{kind}/core"
    yield machine["memory_gib"], f"{kind}/ram"
    if series == "m2":
        yield machine["vcpus"], "m2-premium/core"
        yield machine["memory_gib"], "m2-premium/ram"
    if machine["gpu"]:
        yield machine["gpu_count"], f"gpu/{machine['gpu']}"
    if machine["disks"]:
        size = _DISKS_GIB.get(name) or _DISKS_GIB.get(series) or _DISK_GIB
        disk = f"{series}/disk"
        yield machine["disks"] * size, disk if sold(disk) else "/disk"
