"""Google Cloud: the billing catalog's SKUs, with machine types, accelerators and zones.

TPUs are not read: their slices are in no list of Compute Engine. The rows that the catalog knows
of them stay, with their own dates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.json_types import JsonMapping, JsonObject
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.prices import http
from jupyter_sky.clouds.prices.entries import (
    InvalidEntry,
    Row,
    canonical_accelerator,
    expect,
    make_offer,
    make_table,
    nominal_memory,
    read_entries,
    usd,
)
from jupyter_sky.clouds.prices.fetcher import TRY_LATER_HINT, Fetcher, Recovery, today
from jupyter_sky.clouds.prices.page_cache import Page
from jupyter_sky.clouds.prices.source import KnownOffers, SourceData, SpotPrice, missing_sdk

_COMPUTE_ENGINE = "services/6F81-5844-456A"
_TIMEOUT_SECONDS = 300.0  # seconds that one page may take with its retries
_SOURCES = ("gcp-billing-catalog", "gcp-machine-types")
_VENDORS = {  # by series; where one series has machines of several vendors it is not here
    "a2": "Intel", "a3": "Intel", "a4": "Intel", "c2": "Intel", "c3": "Intel", "c4": "Intel",
    "g2": "Intel", "h3": "Intel", "m1": "Intel", "m2": "Intel", "m3": "Intel", "n1": "Intel",
    "n2": "Intel", "n4": "Intel", "x4": "Intel", "z3": "Intel", "c2d": "AMD", "c3d": "AMD",
    "c4d": "AMD", "n2d": "AMD", "n4d": "AMD", "t2d": "AMD", "t2a": "Ampere", "c4a": "Google",
    "n4a": "Google",
}  # fmt: skip


@dataclass(frozen=True)
class GcpPrices:
    """Prices of Google Cloud, with google-cloud-billing and google-cloud-compute.

    Parameters
    ----------
    billing, compute
        Addresses of the two services; Google's own unless given.
    project
        Project whose view of machine types is read; that of the credentials unless given.
    credentials
        Credentials of google-auth; the application default ones unless given.

    Examples
    --------
    >>> GcpPrices().cloud
    'gcp'
    """

    billing: str | None = None
    compute: str | None = None
    project: str | None = None
    credentials: Any = None

    cloud = "gcp"
    kinds = frozenset({"vm", "accelerator-attach"})

    def check(self) -> None:
        """Raise when an SDK, credentials or a project are missing."""
        try:
            import google.cloud.billing_v1
            import google.cloud.compute_v1  # noqa: F401
        except ImportError:
            packages = "google-cloud-billing and google-cloud-compute"
            raise missing_sdk(self.cloud, packages) from None
        self._identity()

    def _identity(self) -> tuple[Any, str]:
        """Return credentials and the project."""
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError

        credentials, project = self.credentials, self.project
        if credentials is None:
            try:
                credentials, default = google.auth.default()
            except DefaultCredentialsError:
                raise SkyRefreshError(
                    _("gcp: no credentials were found: its price list answers to accounts only"),
                    hint=_("gcloud auth application-default login"),
                ) from None
            project = project or default
        project = project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        if not project:
            raise SkyRefreshError(
                _("gcp: no project is set to list machine types of"),
                hint=_(
                    "gcloud auth application-default set-quota-project PROJECT, or set "
                    "GOOGLE_CLOUD_PROJECT"
                ),
            )
        return credentials, project

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read the four lists and add up what each machine costs."""
        rows, listed = self._read_rows(fetch, known)
        unpriced = sum(row["on_demand_usd_h"] is None for row in rows)
        notes = ["TPU slices as they were known"]
        if unpriced:
            notes.append(f"{unpriced} rows without a price: a part of the machine has no SKU")
        dates: dict[str, str] = {name: today() for name in _SOURCES}
        tables = {"offers": make_table("offers", rows)}
        if egress := egress_rows(listed, _SOURCES[0]):
            tables["egress"] = make_table("egress", egress)
        return SourceData(tables, dates, tuple(notes))

    def spot_prices(self, fetch: Fetcher, known: KnownOffers) -> list[SpotPrice]:
        """Read the same lists, as prices are of parts of machines; return one for each region."""
        found = {
            (row["region"], row["instance_type"]): row["spot_usd_h"]
            for row in self._read_rows(fetch, known)[0]
            if row["spot_usd_h"] is not None and row["kind"] == "vm"
        }
        return [SpotPrice(region, "", machine, usd) for (region, machine), usd in found.items()]

    def _read_rows(
        self, fetch: Fetcher, known: KnownOffers
    ) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return rows of offers, and what SKUs tell of places and of data that move."""
        lists = fetch.map(("SKUs", "machine types", "accelerators", "zones"), self._reader(fetch))
        listed, machines, gpus, zones = lists
        prices = index(record for record in listed if "what" in record)
        up = {zone["name"] for zone in zones}
        rows = list(_rows(prices, [m for m in machines if m["zone"] in up], known))
        attached = _attached(prices, (gpu for gpu in gpus if gpu["zone"] in up), rows)
        return [*rows, *attached], [record for record in listed if "what" not in record]

    def _reader(self, fetch: Fetcher) -> Any:
        from google.cloud import billing_v1, compute_v1  # type: ignore[attr-defined]

        credentials, project = self._identity()

        def made(client: Any, address: str | None) -> Any:
            options = {"api_endpoint": address} if address else None
            return client(credentials=credentials, transport="rest", client_options=options)

        catalog = made(billing_v1.CloudCatalogClient, self.billing)
        types = made(compute_v1.MachineTypesClient, self.compute)
        accelerators = made(compute_v1.AcceleratorTypesClient, self.compute)
        zones = made(compute_v1.ZonesClient, self.compute)
        place = {"project": project, "max_results": 500}
        calls = {
            "SKUs": (catalog.list_skus, {"parent": _COMPUTE_ENGINE, "page_size": 5000}, _sku),
            "machine types": (types.aggregated_list, place, _machines),
            "accelerators": (accelerators.aggregated_list, place, _accelerators),
            "zones": (zones.list, place, _zone),
        }
        return lambda name: fetch.pages(name, _make_page_reader(*calls[name]))

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify an exception of google-api-core or google-auth."""
        from google.api_core import exceptions as api
        from google.auth.exceptions import GoogleAuthError
        from google.protobuf.json_format import ParseError

        error = getattr(error, "cause", None) or error  # a RetryError wraps the last failure
        if isinstance(error, (ParseError, *http.INVALID_RESPONSES)):
            return Recovery.RETRY
        if isinstance(error, api.BadRequest) and "token" in str(error).lower():
            return Recovery.RESTART
        if isinstance(error, api.Unauthorized | api.Forbidden | GoogleAuthError):
            hint = (
                "gcloud auth application-default login; the account needs compute.viewer and the "
                "Cloud Billing API enabled"
            )
            return SkyRefreshError(_("gcp: {error}").format(error=error), hint=hint)
        if isinstance(error, api.GoogleAPICallError):
            return SkyRefreshError(_("gcp: {error}").format(error=error), hint=TRY_LATER_HINT)
        return SkyRefreshError(
            _("gcp: cannot be reached: {error}").format(error=error), hint=_("check the network")
        )


def _make_page_reader(call: Any, asked: JsonMapping, reader: Any) -> Any:
    """Return a function that gets one page of a list of Google's."""
    from google.api_core.retry import Retry, if_transient_error

    patience = Retry(if_transient_error, initial=1.0, maximum=60.0, timeout=_TIMEOUT_SECONDS)

    def get(token: str | None) -> Page:
        request = {**asked, "page_token": token or ""}
        answer = next(iter(call(request=request, retry=patience).pages))
        entries = getattr(answer, "skus", None) or answer.items
        listed = entries.items() if hasattr(entries, "items") else entries
        records, skipped = read_entries(listed, reader)
        flat = [each for record in records for each in record]
        return Page(flat, answer.next_page_token or None, skipped)

    return get


# -- entries; each gives a list of records, or None ----------------------------------------


def _sku(sku: Any) -> list[JsonObject] | None:
    from google.cloud import billing_v1  # type: ignore[attr-defined]

    listed = billing_v1.Sku.to_dict(sku, preserving_proto_field_name=False)
    if moved := transfer(listed):
        return [moved]
    records = [price(listed), place(listed)]
    return [record for record in records if record] or None


def _machines(entry: tuple[str, Any]) -> list[JsonObject]:
    place, scoped = entry
    zone = place.removeprefix("zones/")
    found = []
    for machine in scoped.machine_types:
        gpu = machine.accelerators[0] if machine.accelerators else None
        found.append(
            {
                "zone": zone,
                "name": machine.name,
                "vcpus": float(machine.guest_cpus),
                "memory_gib": machine.memory_mb / 1024,
                "arch": "arm64" if machine.architecture == "ARM64" else "x86_64",
                "gpu": gpu.guest_accelerator_type if gpu else "",
                "gpu_count": float(gpu.guest_accelerator_count) if gpu else None,
                "disks": machine.bundled_local_ssds.partition_count,
            }
        )
    return [machine for machine in found if machine["name"] and machine["vcpus"]]


def _accelerators(entry: tuple[str, Any]) -> list[JsonObject]:
    place, scoped = entry
    return [
        {
            "zone": place.removeprefix("zones/"),
            "name": gpu.name,
            "most": gpu.maximum_cards_per_instance,
        }
        for gpu in scoped.accelerator_types
    ]


def _zone(zone: Any) -> list[JsonObject] | None:
    return [{"name": zone.name}] if zone.status == "UP" else None


# -- rows ----------------------------------------------------------------------------------


def _rows(prices: Prices, machines: Iterable[JsonMapping], known: KnownOffers) -> Iterator[Row]:
    for machine in machines:
        region = machine["zone"].rpartition("-")[0]
        name, before = machine["name"], known.machines.get(machine["name"], {})
        gpu = canonical_accelerator(machine["gpu"]) if machine["gpu"] else ""
        yield make_offer(
            **_priced(partial(_sum, prices, region, machine)),
            region=region,
            zone=machine["zone"],
            instance_type=name,
            vcpus=machine["vcpus"],
            memory_gib=machine["memory_gib"],
            arch=machine["arch"],
            cpu_vendor=before.get("cpu_vendor") or _VENDORS.get(name.partition("-")[0], ""),
            accelerator=gpu,
            accelerator_count=machine["gpu_count"],
            accelerator_memory_gib=nominal_memory(gpu) if gpu else None,
            source="+".join(_SOURCES),
        )


def _attached(
    prices: Prices, gpus: Iterable[JsonMapping], hosts: Iterable[JsonMapping]
) -> Iterator[JsonObject]:
    """Return GPUs for N1 machines: each alone, and with the eight vCPUs that carry it."""
    carriers = {(host["zone"], host["instance_type"]): host for host in hosts}
    for gpu in gpus:
        if gpu["name"] not in _ATTACHED:
            continue
        alone = _make_gpu_row(prices, gpu)
        yield alone
        count = 1
        while count <= max(1, gpu["most"]):
            host = carriers.get((gpu["zone"], f"n1-standard-{8 * count}"))
            if host is not None:
                yield _make_hosted_gpu_row(alone, host, count)
            count *= 2


def _make_gpu_row(prices: Prices, gpu: JsonMapping) -> Row:
    name, region = gpu["name"], gpu["zone"].rpartition("-")[0]
    canonical = canonical_accelerator(name)
    return make_offer(
        **_priced(lambda usage: prices.get((region, usage, f"gpu/{name}"))),
        region=region,
        zone=gpu["zone"],
        instance_type=f"n1-attach/{canonical}",
        kind="accelerator-attach",
        arch="x86_64",
        cpu_vendor="Intel",
        accelerator=canonical,
        accelerator_count=1.0,
        accelerator_memory_gib=nominal_memory(canonical),
        source="gcp-billing-catalog",
    )


def _make_hosted_gpu_row(gpu: JsonMapping, host: JsonMapping, count: int) -> JsonObject:
    """Return an N1 machine with GPUs, under the name that the catalog gives it."""

    def both(column: str) -> float | None:
        if gpu[column] is None or host[column] is None:
            return None
        return round(host[column] + count * gpu[column], 6)

    names = ("accelerator", "accelerator_memory_gib", "price_date", "spot_scope", "spot_date")
    facts = {**host, **{name: gpu[name] for name in names}}
    return make_offer(
        **facts
        | {
            "instance_type": f"{host['instance_type']}+{gpu['accelerator']}:{count}",
            "accelerator_count": float(count),
            "on_demand_usd_h": both("on_demand_usd_h"),
            "spot_usd_h": both("spot_usd_h"),
        }
    )


_ATTACHED = {f"nvidia-tesla-{name}" for name in ("k80", "p4", "p100", "v100", "t4")}


def _sum(prices: Prices, region: str, machine: JsonMapping, usage: str) -> float | None:
    return machine_price(prices, region, usage, machine)


def _priced(total: Callable[[str], float | None]) -> JsonObject:
    """Return both prices with their sources and dates."""
    price, spot = total("OnDemand"), total("Preemptible")
    return {
        "cloud": "gcp",
        "on_demand_usd_h": round(price, 6) if price is not None else None,
        "price_date": today() if price is not None else "",
        "spot_usd_h": round(spot, 6) if spot is not None else None,
        "spot_scope": "region" if spot is not None else "",
        "spot_date": today() if spot is not None else "",
        "zone_basis": "zone",
    }


# -- SKUs of Google's billing catalog: which price is of which part of a machine ------------------
#
# Machines are sold in parts: cores, memory, accelerators, local disks. A SKU says in words what it
# is of; prices of a machine are sums.

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


def price(sku: JsonMapping) -> JsonObject | None:
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


def _hourly(sku: JsonMapping, what: str) -> float:
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


def place(sku: JsonMapping) -> JsonObject | None:
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


def transfer(sku: JsonMapping) -> JsonObject | None:
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


def egress_rows(records: Iterable[JsonMapping], source: str) -> list[Row]:
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
    rows: dict[tuple[str, str, float], JsonObject] = {}
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


def index(records: Iterable[JsonMapping]) -> dict[tuple[str, str, str], float]:
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


def machine_price(prices: Prices, region: str, usage: str, machine: JsonMapping) -> float | None:
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


def _parts(machine: JsonMapping, sold: Callable[[str], bool]) -> Iterator[tuple[float, str]]:
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
