"""AWS: price list, instance types and offerings by zone, spot prices, interruptions, egress.

The price list is read for every region. EC2 answers only for regions that the account has
enabled; of the others the zones that the catalog knows are kept.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyError, SkyRefreshError
from jupyter_sky.base.http import PATIENT, JsonClient
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

if TYPE_CHECKING:
    from botocore.client import BaseClient

_ADVISOR = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
_PRICES = "us-east-1"  # one of the few regions that have an endpoint of the price list
_ATTEMPTS = 10
_PLACES = ("AWS Local Zone", "AWS Wavelength Zone")
_MACHINES = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
_DENIED_CODES = {
    "AccessDenied",
    "AccessDeniedException",
    "UnauthorizedOperation",
    "AuthFailure",
    "OptInRequired",
}
_ACTIONS = (
    "the account needs pricing:GetProducts, ec2:DescribeRegions, ec2:DescribeInstanceTypes, "
    "ec2:DescribeInstanceTypeOfferings and ec2:DescribeSpotPriceHistory"
)


PageReader = Callable[[str | None], Page]
"""Function that gets the page that begins at a token."""
Reader = Callable[[Any], Any]
"""Function that turns an entry into a record; see `read_entries`."""


class _RegionDenied(SkyRefreshError):
    """EC2 lets us not look at a region."""


@dataclass(frozen=True, slots=True)
class _RegionData:
    """Offers found in one region."""

    name: str
    prices: list[JsonObject]
    machines: Mapping[str, JsonObject]
    zones: Mapping[str, list[str]]
    spot: Mapping[tuple[str, str], float]
    refused: str = ""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class AwsPrices:
    """Prices of AWS, with boto3.

    Parameters
    ----------
    endpoint
        Address that answers in place of AWS's own, as `endpoint_url` of boto3.
    advisor
        Address of the spot advisor's file.

    Examples
    --------
    >>> AwsPrices().cloud
    'aws'
    """

    endpoint: str | None = None
    advisor: str = _ADVISOR

    cloud = "aws"
    kinds = frozenset({"vm"})

    def check(self) -> None:
        """Raise when boto3 or credentials are missing."""
        try:
            from boto3.session import Session
        except ImportError:
            raise missing_sdk(self.cloud, "boto3") from None
        if Session().get_credentials() is None:
            raise SkyRefreshError(
                _("aws: no credentials were found: the price list and EC2 answer to accounts only"),
                hint=_("aws configure, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
            )

    def fetch(self, fetch: Fetcher, known: KnownOffers) -> SourceData:
        """Read everything; about six hundred requests for all regions."""
        client = self._clients()
        regions = _regions(client("ec2", _PRICES), fetch)
        pricing = client("pricing", _PRICES)

        def region(pair: tuple[str, bool]) -> _RegionData:
            return _region(client, pricing, fetch, *pair)

        found = fetch.map([_Pair(pair) for pair in sorted(regions.items())], region)
        if regions and all(each.refused for each in found):
            raise SkyRefreshError(
                _("aws: EC2 refuses us: {refused}").format(refused=found[0].refused), hint=_ACTIONS
            )
        local = [
            price
            for prices in fetch.map(_PLACES, partial(_prices, pricing, fetch))
            for price in prices
        ]
        notes = [
            f"{each.name}: {each.refused}: zones as they were known"
            for each in found
            if each.refused
        ]
        tables = {"offers": make_table("offers", _rows(found, local, known))}
        sources = {"aws-price-list": today(), "ec2-offerings": today(), "ec2-spot": today()}
        self._fetch_extras(pricing, fetch, tables, sources, notes)
        return SourceData(tables, sources, tuple(notes))

    def spot_prices(self, fetch: Fetcher, known: KnownOffers) -> list[SpotPrice]:
        """Read the spot prices of all enabled regions; a few requests for each."""
        client = self._clients()
        regions = _regions(client("ec2", _PRICES), fetch)
        denied: list[SkyError] = []

        def read_region(name: str) -> list[SpotPrice]:
            try:
                found = _spot_prices(client("ec2", name), fetch, name)
            except _RegionDenied as error:
                denied.append(error)
                return []
            return [SpotPrice(name, zone, kind, usd) for (kind, zone), usd in found.items()]

        enabled = [name for name, is_enabled in sorted(regions.items()) if is_enabled]
        prices = [price for found in fetch.map(enabled, read_region) for price in found]
        if denied and not prices:
            raise denied[0]
        return prices

    def _fetch_extras(
        self,
        pricing: BaseClient,
        fetch: Fetcher,
        tables: JsonObject,
        sources: dict[str, str],
        notes: list[str],
    ) -> None:
        """Fetch egress and interruptions; without them the prices are still of use."""
        try:
            egress = egress_rows(_transfers(pricing, fetch), "aws-price-list")
            if egress:
                tables["egress"] = make_table("egress", egress)
        except SkyError as error:
            notes.append(f"prices of data that leave stay as they were: {error.message}")
        try:
            if bands := self._bands(fetch):
                tables["interruptions"] = make_table("interruptions", bands)
                sources["aws-spot-advisor"] = today()
        except SkyError as error:
            notes.append(f"interruption bands stay as they were: {error.message}")

    def _bands(self, fetch: Fetcher) -> list[JsonObject]:
        client = JsonClient(policy=PATIENT)

        def get(__: str | None) -> Page:
            advisor = client.get(self.advisor)
            for name, kind in (("ranges", list), ("spot_advisor", dict)):
                http.get_member(advisor, name, kind)
            try:
                rows = interruption_rows(advisor, today())
            except (LookupError, TypeError, AttributeError) as error:
                raise http.InvalidResponse(f"not the advisor's format: {error!r}") from error
            return Page(rows)

        return fetch.pages("advisor", get)

    def _clients(self) -> Callable[[str, str], BaseClient]:
        """Return a factory of clients that wait when they are throttled."""
        from boto3.session import Session
        from botocore.config import Config

        session = Session()
        config = Config(
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            connect_timeout=10,
            read_timeout=60,
            user_agent_extra="jupyter_sky",
        )
        return lambda service, region: session.client(
            service, region_name=region, endpoint_url=self.endpoint, config=config
        )

    def explain(self, error: Exception) -> Recovery | SkyError:
        """Classify an exception of botocore or of the advisor's download."""
        from botocore import exceptions as boto
        from botocore.parsers import ResponseParserError

        if isinstance(error, boto.ClientError):
            answer: JsonObject = getattr(error, "response", {})
            code = answer.get("Error", {}).get("Code", "")
            if "NextToken" in code:
                return Recovery.RESTART
            if code in _DENIED_CODES:
                return _RegionDenied(_("aws: {error}").format(error=error), hint=_ACTIONS)
            return SkyRefreshError(_("aws: {error}").format(error=error), hint=TRY_LATER_HINT)
        if isinstance(error, boto.NoCredentialsError | boto.PartialCredentialsError):
            return SkyRefreshError(_("aws: {error}").format(error=error), hint=_("aws configure"))
        if isinstance(error, ResponseParserError):
            return Recovery.RETRY
        if isinstance(error, boto.BotoCoreError):
            return SkyRefreshError(
                _("aws: cannot be reached: {error}").format(error=error),
                hint=_("check the network"),
            )
        return http.explain_failure(error, "aws")


class _Pair(tuple):
    """A region and whether it is enabled, shown by its name."""

    def __str__(self) -> str:
        return self[0]


def _make_page_reader(
    call: Callable[..., JsonObject], member: str, reader: Reader, **asked: Any
) -> PageReader:
    """Return a function that gets one page of a list of AWS."""

    def get(token: str | None) -> Page:
        answer = call(**asked, **({"NextToken": token} if token else {}))
        # Of a body that was cut short botocore makes an empty answer when the body is JSON.
        entries = http.get_member(answer, member, list)
        records, skipped = read_entries(entries, reader)
        return Page(records, answer.get("NextToken") or None, skipped)

    return get


def _regions(ec2: BaseClient, fetch: Fetcher) -> dict[str, bool]:
    """Return all regions, each with whether the account has it enabled."""

    def reader(entry: JsonMapping) -> list[Any]:
        return [entry["RegionName"], entry.get("OptInStatus") != "not-opted-in"]

    get = _make_page_reader(ec2.describe_regions, "Regions", reader, AllRegions=True)
    return dict(fetch.pages("regions", get))


def _region(
    client: Callable[[str, str], BaseClient],
    pricing: BaseClient,
    fetch: Fetcher,
    name: str,
    enabled: bool,
) -> _RegionData:
    prices = _prices(pricing, fetch, name)
    if not enabled:
        return _RegionData(name, prices, {}, {}, {}, "not enabled for this account")
    ec2 = client("ec2", name)
    try:
        machines = fetch.pages(
            f"{name}/types",
            _make_page_reader(
                ec2.describe_instance_types, "InstanceTypes", read_machine, MaxResults=100
            ),
        )
        offerings = fetch.pages(
            f"{name}/offerings",
            _make_page_reader(
                ec2.describe_instance_type_offerings,
                "InstanceTypeOfferings",
                lambda entry: [entry["InstanceType"], entry["Location"]],
                LocationType="availability-zone",
                MaxResults=1000,
            ),
        )
        spot = _spot_prices(ec2, fetch, name)
    except _RegionDenied as error:
        return _RegionData(name, prices, {}, {}, {}, error.message)
    zones: dict[str, list[str]] = {}
    for machine, zone in offerings:
        zones.setdefault(machine, []).append(zone)
    return _RegionData(name, prices, {m["type"]: m for m in machines}, zones, spot)


def _spot_prices(ec2: BaseClient, fetch: Fetcher, name: str) -> dict[tuple[str, str], float]:
    """Return the spot prices that hold now in a region, by instance type and zone."""
    entries = fetch.pages(
        f"{name}/spot",
        _make_page_reader(
            ec2.describe_spot_price_history,
            "SpotPriceHistory",
            spot_price,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.now(UTC),  # from now: the price that holds, no history
            MaxResults=1000,
        ),
    )
    by_time = sorted(entries, key=lambda entry: entry["at"])
    return {(entry["type"], entry["zone"]): entry["usd"] for entry in by_time}


def _prices(pricing: BaseClient, fetch: Fetcher, where: str) -> list[JsonObject]:
    """Return on-demand prices of a region, or of all places of a kind outside the regions."""
    place = {"locationType": where} if where in _PLACES else {"regionCode": where}
    get = _products(pricing, "AmazonEC2", machine_price, {**_MACHINES, **place})
    return fetch.pages(f"{where}/prices", get)


def _transfers(pricing: BaseClient, fetch: Fetcher) -> list[JsonObject]:
    found = []
    for kind in ("AWS Outbound", "InterRegion Outbound", "IntraRegion"):
        wanted = {"transferType": kind}
        get = _products(pricing, "AWSDataTransfer", transfer_price, wanted)
        found += fetch.pages(f"transfer/{kind}", get)
    return found


def _products(
    pricing: BaseClient, service: str, reader: Reader, wanted: Mapping[str, str]
) -> PageReader:
    filters = [
        {"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()
    ]
    asked = {"ServiceCode": service, "Filters": filters, "FormatVersion": "aws_v1"}
    return _make_page_reader(pricing.get_products, "PriceList", reader, MaxResults=100, **asked)


# -- rows ----------------------------------------------------------------------------------


def _rows(regions: list[_RegionData], local: list[JsonObject], known: KnownOffers) -> Iterator[Row]:
    described = {name: facts for region in regions for name, facts in region.machines.items()}
    nearby = {(price["code"], price["type"]): price for price in local}
    for region in regions:
        prices = {price["type"]: price for price in region.prices if price["code"] == region.name}
        for machine in sorted({*prices, *region.zones}):
            price = prices.get(machine)
            facts = _facts(machine, described, price, known)
            for zone, basis in _zones(region, machine, known):
                here = _local_price(nearby, zone, machine) if basis == "local-zone" else price
                yield _row(region, machine, zone, basis, facts, here)


def _zones(region: _RegionData, machine: str, known: KnownOffers) -> list[tuple[str, str]]:
    """Return the zones of a machine in a region, each with its basis."""
    if region.refused:
        return known.zones.get((region.name, machine)) or [("", "region")]
    # us-west-2a is a zone of the region itself, us-west-2-lax-1a is one far from it
    zones = [
        (zone, "local-zone" if zone.startswith(f"{region.name}-") else "zone")
        for zone in sorted(region.zones.get(machine, ()))
    ]
    return zones or [("", "price-list-only")]


def _local_price(nearby: Mapping[Any, Any], zone: str, machine: str) -> Any:
    """Return the price of a local zone's group of zones: us-west-2-lax-1 for ...-1a."""
    return nearby.get((zone, machine)) or nearby.get((zone[:-1], machine))


def _facts(
    machine: str, described: JsonMapping, price: JsonMapping | None, known: KnownOffers
) -> JsonObject:
    """Return a machine's facts as EC2 describes it, else as known, else as in its price."""
    if machine in described:
        return {name: value for name, value in described[machine].items() if name != "type"}
    if machine in known.machines:
        return known.machines[machine]
    if price is None:
        return {}
    return {
        "vcpus": price["vcpus"],
        "memory_gib": price["memory"],
        "cpu_vendor": price["maker"],
        "arch": "arm64" if price["maker"] == "AWS" else "x86_64",
    }


def _row(
    region: _RegionData,
    machine: str,
    zone: str,
    basis: str,
    facts: JsonMapping,
    price: JsonMapping | None,
) -> Row:
    spot = region.spot.get((machine, zone))
    source = "aws-price-list" if price else ""
    if basis in ("zone", "local-zone") and not region.refused:
        source = "+".join(filter(None, [source, "ec2-offerings"]))
    return make_offer(
        **facts,
        cloud="aws",
        region=region.name,
        zone=zone,
        instance_type=machine,
        on_demand_usd_h=price["usd"] if price else None,
        price_date=today() if price else "",
        spot_usd_h=spot,
        spot_scope="zone" if spot is not None else "",
        spot_date=today() if spot is not None else "",
        source=source,
        zone_basis=basis,
    )


# -- Entries of the AWS price list, of EC2's descriptions and of the spot advisor, as records -----

_BOX = re.compile(r"(?:^|-)BoxUsage(?::|$)")  # not UnusedBox, DedicatedUsage, Reservation
_MEMORY = re.compile(r"([\d.,]+)\s*GiB", re.IGNORECASE)
_OUT = {
    "AWS Outbound": re.compile(r"(?:^|-)DataTransfer-Out-Bytes$"),
    "InterRegion Outbound": re.compile(r"-AWS-Out-Bytes$"),
    "IntraRegion": re.compile(r"(?:^|-)DataTransfer-Regional-Bytes$"),
}
_MAKERS = {"Intel": "Intel", "AMD": "AMD", "AWS": "AWS", "Apple": "Apple"}


def machine_price(text: str) -> JsonObject | None:
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


def transfer_price(text: str) -> JsonObject | None:
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


def _tiers(item: JsonMapping, unit: str, *, free: bool = False) -> list[tuple[float, float]]:
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


def read_machine(described: JsonMapping) -> JsonObject:
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


def _devices(described: JsonMapping) -> tuple[str, float | None, float | None]:
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


def spot_price(entry: JsonMapping) -> JsonObject:
    """Return a spot price from ``DescribeSpotPriceHistory``."""
    stamp = entry["Timestamp"]
    return {
        "type": entry["InstanceType"],
        "zone": entry["AvailabilityZone"],
        "usd": usd(entry["SpotPrice"]),
        "at": stamp if isinstance(stamp, str) else stamp.isoformat(),
    }


def egress_rows(records: Iterable[JsonMapping], source: str) -> list[Row]:
    """Return rows of egress; the price to most regions is ``cross-region``, others are named."""
    rows: list[JsonObject] = []
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


def interruption_rows(advisor: JsonMapping, date: str) -> list[Row]:
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
