"""Managed Spark: versions of services, their surcharge on a machine, prices without machines."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from jupyter_sky.base.clouds.cloud_facts import parse_release
from jupyter_sky.base.clouds.index import AWS, BUILT_IN, GCP
from jupyter_sky.base.requests.cell_options.spark_version import spark_version
from jupyter_sky.base.requests.geography import OWN_SPARK, SERVERLESS, provides_packages
from jupyter_sky.base.requests.offers import Offer
from jupyter_sky.base.requests.quantities import Amount
from jupyter_sky.base.requests.resources import Resources

if TYPE_CHECKING:
    from jupyter_sky.knowledge.catalog.tables import CatalogTables

EMR_SHARE = 0.25
"""EMR's surcharge as a share of the on-demand price, where the catalog has no figure of its own:
what all figures that it has come to."""
SURCHARGED = ("dataproc", "emr", OWN_SPARK)
"""Services that run on any machine of their cloud, and are paid on top of it."""
SESSION_RELEASE = (7, 13)
"""First release of EMR whose serverless applications have sessions of Spark Connect."""
_SESSION_VERSIONS = (
    (AWS, "emr", "8.0.0", "4.0.2"),
    (AWS, "emr-serverless", "8.0.0", "4.0.2"),
    (GCP, "dataproc-serverless", "3.0", "4.0.1"),
)
"""Cloud, service, version and Spark of releases with sessions of Spark 4, which no list has."""
SERVERLESS_CPUS, SERVERLESS_MEMORY = 4.0, 16.0
"""Size of a node of a serverless service where the request names none, as EMR's own workers."""
_SERVERLESS_SIZES = {"dataproc-serverless": (12, 12, 7.25, 1), "emr-serverless": (2, 4, 8, 1)}
"""Least vCPUs and GiB of a session, most and least GiB for each vCPU."""
DCU_PER_VCPU, DCU_PER_GIB = 0.6, 0.1
"""Units of Dataproc's serverless compute, up to 8 GiB for each vCPU."""
SERVERLESS_NOTE = "serverless: the price is a ceiling; idle parts of it cost nothing"
_NOTES = {
    "emr": "EMR surcharge included, at a quarter of the on-demand price where it is not listed",
    "dataproc": "Dataproc surcharge included",
    "hdinsight": "HDInsight has a price of its own for each node",
}


@dataclass(frozen=True, slots=True)
class ManagedService:
    """One version of a managed service.

    Attributes
    ----------
    cloud, name, version : str
        Such as ``aws``, ``emr``, ``emr-6.5.0``.
    packages : tuple of str
        What it brings, its own version first: ``("emr==6.5.0", "spark==3.1.2")``.
    source : str
        Where this is from.
    note : str
        What to know of its price.
    """

    cloud: str
    name: str
    version: str
    packages: tuple[str, ...]
    source: str = ""
    note: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


_found: WeakKeyDictionary[CatalogTables, list[ManagedService]] = WeakKeyDictionary()


def find_services(catalog: CatalogTables) -> list[ManagedService]:
    """Return every version of every service that runs on machines; see `services`."""
    if catalog not in _found:
        _found[catalog] = services(catalog.managed())
    return _found[catalog]


def services(rows: Sequence[dict[str, Any]]) -> list[ManagedService]:
    """Return every version of every service that runs on machines, the newest of each first.

    Previews stand behind what is released.
    """
    found = []
    for row in rows:
        if row["kind"] == "version" and row["service"] in _NOTES:
            name, number = row["service"], row["version"].removeprefix("emr-")
            packages = [f"{name}=={number}"]
            packages += [f"{key}=={row[key]}" for key in ("spark", "hadoop") if row[key]]
            found.append(
                ManagedService(
                    row["cloud"], name, number, tuple(packages), row["source"], _NOTES[name]
                )
            )

    def rank(one: ManagedService) -> tuple:
        return one.name, "preview" not in one.version, parse_release(one.version)

    return sorted([*found, *_own_spark(), *_session_services(found)], key=rank, reverse=True)


def _own_spark() -> list[ManagedService]:
    """Return Spark on machines of each cloud that can launch some."""
    version = spark_version()
    packages = (f"{OWN_SPARK}=={version}", f"spark=={version}")
    return [
        ManagedService(name, OWN_SPARK, version, packages, note="Spark on machines of its own")
        for name, facts in BUILT_IN.items()
        if facts.launchable
    ]


def _session_services(on_machines: Iterable[ManagedService]) -> list[ManagedService]:
    """Return versions that are in no list: of services without machines, and with Spark 4."""
    versions = [
        (one.cloud, "emr-serverless", one.version, one.packages[1].removeprefix("spark=="))
        for one in on_machines
        if one.name == "emr" and parse_release(one.version)[:2] >= SESSION_RELEASE
    ]
    return [
        ManagedService(
            cloud,
            name,
            version,
            (f"{name}=={version}", f"spark=={spark}"),
            note=_NOTES.get(name, SERVERLESS_NOTE),
        )
        for cloud, name, version, spark in (*_SESSION_VERSIONS, *versions)
    ]


def newest_versions(known: Sequence[ManagedService], asked: Sequence[str]) -> list[ManagedService]:
    """Return the newest version of each service of a cloud with the requested packages."""
    best: dict[tuple[str, str], ManagedService] = {}
    for one in known:
        if (one.cloud, one.name) not in best and provides_packages(asked, one.packages):
            best[one.cloud, one.name] = one
    return list(best.values())


def serverless_offers(catalog: CatalogTables, need: Resources) -> list[Offer]:
    """Return what services without machines sell for a request, in each of their regions.

    Their size is that of the request, or the least that they sell.

    Parameters
    ----------
    need
        A request that names services or their packages; other requests have none.
    """
    if not need.service:
        return []
    offers = []
    for one in newest_versions(find_services(catalog), need.service):
        if one.name not in SERVERLESS:
            continue
        cpus, memory = requested_size(need, one.name)
        for region, rates in _unit_prices(catalog, one.name).items():
            price = serverless_price(one.name, rates, cpus, memory)
            known = catalog.regions.get((one.cloud, region))
            if price is None or known is None:
                continue
            place = (known.country, known.jurisdiction)
            offers.append(_serverless_offer(one, region, place, (cpus, memory), price))
    return offers


def requested_size(need: Resources, service: str) -> tuple[float, float]:
    """Return vCPUs and GiB of a node of a service without machines, for a request."""
    cpus, memory = _size(need.cpus, SERVERLESS_CPUS), _size(need.memory, SERVERLESS_MEMORY)
    return serverless_size(service, cpus, memory, need.nodes)


def serverless_size(service: str, cpus: float, memory: float, nodes: int) -> tuple[float, float]:
    """Return vCPUs and GiB of a node of a service without machines that is no smaller than asked.

    Together the nodes have room for a driver and the fewest executors of the service, and no more
    memory for each vCPU than it sells.

    Examples
    --------
    >>> serverless_size("dataproc-serverless", 4, 16, 2), serverless_size("emr-serverless", 1, 4, 1)
    ((6, 16), (2, 4))
    """
    least_cpus, least_memory, most_per_cpu, least_per_cpu = _SERVERLESS_SIZES[service]
    cpus = max(cpus, least_cpus / nodes, memory / most_per_cpu)
    return math.ceil(cpus), math.ceil(max(memory, least_memory / nodes, cpus * least_per_cpu))


def _serverless_offer(
    one: ManagedService,
    region: str,
    place: tuple[str, str],
    size: tuple[float, float],
    price: float,
) -> Offer:
    return Offer(
        cloud=one.cloud,
        region=region,
        instance_type=one.name,
        vcpus=size[0],
        memory=size[1],
        price=price,
        source="price list of the service",
        arch="x86_64",
        country=place[0],
        jurisdiction=place[1],
        service=one.name,
        packages=one.packages,
        note=one.note,
    )


def _size(asked: Amount | None, usual: float) -> float:
    return asked.value if asked else usual


def _unit_prices(catalog: CatalogTables, service: str) -> dict[str, dict[str, float]]:
    """Return USD of the units of a service, by region."""
    prices: dict[str, dict[str, float]] = {}
    for row in catalog.managed():
        is_standard = row["version"] in ("", "standard")
        if row["service"] == service and row["kind"] == "price" and is_standard:
            prices.setdefault(row["region"], {})[row["unit"]] = row["usd"]
    return prices


def serverless_price(
    service: str, rates: Mapping[str, float], cpus: float, memory: float
) -> float | None:
    """Return USD/h of one node of a service without machines; None where that is not known.

    Parameters
    ----------
    rates
        USD of its units.
    cpus, memory
        vCPUs and GiB of the node.

    Examples
    --------
    >>> rates = {"vcpu-hour": 0.052624, "gb-memory-hour": 0.0057785}
    >>> round(serverless_price("emr-serverless", rates, 4, 16), 4)
    0.303
    >>> round(serverless_price("dataproc-serverless", {"dcu-hour": 0.06}, 4, 16), 4)
    0.24
    """
    if service == "emr-serverless" and {"vcpu-hour", "gb-memory-hour"} <= rates.keys():
        return cpus * rates["vcpu-hour"] + memory * rates["gb-memory-hour"]
    if service == "dataproc-serverless" and "dcu-hour" in rates:
        return (cpus * DCU_PER_VCPU + memory * DCU_PER_GIB) * rates["dcu-hour"]
    return None


def nearest_versions(known: Iterable[ManagedService], package: str, asked: str) -> list[str]:
    """Return the two versions of a package that come nearest to one that nobody has.

    Parameters
    ----------
    package
        Such as ``spark``, or a service.
    asked
        The version that was asked for.
    """
    brought = {
        version
        for one in known
        for name, __, version in (each.partition("==") for each in one.packages)
        if name == package
    }
    wanted = parse_release(asked)

    def distance(version: str) -> tuple[list[int], list[int]]:
        number = parse_release(version)
        away = [abs(a - b) for a, b in zip(number, wanted, strict=False)]
        return away, [-part for part in number]

    return sorted(sorted(brought, key=distance)[:2], key=parse_release)


def prices(
    catalog: CatalogTables, one: ManagedService, rows: np.ndarray, machine: np.ndarray
) -> np.ndarray:
    """Return USD/h of machines with a service on them; NaN where that is not known.

    Parameters
    ----------
    rows
        Rows of the machines, all of the service's cloud.
    machine
        What each costs without it, USD/h.
    """
    if one.name == OWN_SPARK:
        return machine
    if one.name == "dataproc":
        rates = [r["usd"] for r in _listed(catalog, one) if r["unit"] == "vcpu-hour"]
        rate = rates[0] if rates else np.nan
        return machine + rate * catalog.offers.values("vcpus")[rows]
    if one.name == "emr":
        # charged on the on-demand price, whatever the machine itself costs
        extra = EMR_SHARE * catalog.offers.values("on_demand_usd_h")[rows]
        return machine + _exact(catalog, one, "surcharge", rows, extra)
    return _exact(catalog, one, "price", rows, np.full(len(rows), np.nan))


def _listed(catalog: CatalogTables, one: ManagedService) -> list[dict[str, Any]]:
    return [
        row
        for row in catalog.managed()
        if row["service"] == one.name and row["kind"] in ("surcharge", "price")
    ]


def _exact(
    catalog: CatalogTables, one: ManagedService, kind: str, rows: np.ndarray, otherwise: np.ndarray
) -> np.ndarray:
    """Return the figure listed for a machine in a region, or the default of the others."""
    table, result = catalog.offers, otherwise.copy()
    types, regions = table.values("instance_type")[rows], table.values("region")[rows]
    for row in _listed(catalog, one):
        if row["kind"] == kind:
            here = np.flatnonzero(types == table.code("instance_type", row["instance_type"]))
            here = here[regions[here] == table.code("region", row["region"])]
            result[here] = row["usd"]
    return result
