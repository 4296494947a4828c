"""Managed Spark: versions of the services, and their surcharge on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..geography import provides_packages

if TYPE_CHECKING:
    from .tables import CatalogTables

EMR_SHARE = 0.25
"""EMR's surcharge as a share of the on-demand price, where the catalog has no figure of its own:
what all figures that it has come to."""


SURCHARGED = ("dataproc", "emr")
"""Services that are paid on top of any machine of their cloud."""


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


_NOTES = {
    "emr": "EMR surcharge included, at a quarter of the on-demand price where it is not listed",
    "dataproc": "Dataproc surcharge included",
    "hdinsight": "HDInsight has a price of its own for each node",
}


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
        return one.name, "preview" not in one.version, _number(one.version)

    return sorted(found, key=rank, reverse=True)


def newest_versions(known: Sequence[ManagedService], asked: Sequence[str]) -> list[ManagedService]:
    """Return the newest version of each service with the requested packages."""
    best: dict[str, ManagedService] = {}
    for one in known:
        if one.name not in best and provides_packages(asked, one.packages):
            best[one.name] = one
    return list(best.values())


@lru_cache(maxsize=4096)
def _number(version: str) -> tuple[int, ...]:
    import re

    return tuple(map(int, re.findall(r"\d+", version)))


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
