"""Estimates of bringing data to a cell's place, and of uploading what it makes; their rules."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.dag.dag import Data
from jupyter_sky.base.translation import _
from jupyter_sky.execution.clusters.cluster import place_of_cluster
from jupyter_sky.machines.storage.datasets.residency import (
    ResidencyRule,
    Station,
    check_residency,
    find_rules,
)
from jupyter_sky.machines.storage.stores.places import LOCAL, ask_place, is_priced, place_of
from jupyter_sky.machines.storage.stores.store import PART_SIZE, Store, part_count
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.estimate import Estimate, estimate_transfer

if TYPE_CHECKING:
    from jupyter_sky.base.requests.cell_options.values import CellOptions
    from jupyter_sky.base.store.store import ClusterRow
    from jupyter_sky.execution.files.dataset_listing import CellDataset
    from jupyter_sky.execution.files.upload_targets import UploadTarget
    from jupyter_sky.knowledge.catalog.catalog import Catalog


def download_traffic(data: CellDataset) -> TransferTraffic:
    """Return the requests and bytes of bringing a dataset to a cluster that has nothing of it.

    However many machines it has, one of them reads the store, and the others read from it.
    """
    objects = data.manifest.objects
    reads = sum(part_count(each.size, PART_SIZE) for each in objects if each.size)
    looks = sum(part_count(each.size, PART_SIZE) > 1 and not each.sums for each in objects)
    billed = 0 if data.manifest.uri.is_local else reads + looks
    return TransferTraffic(Traffic(reads=billed), moved=data.manifest.nbytes)


def estimate_data(data: CellDataset, target: str, catalog: Catalog) -> Estimate:
    """Return the estimate of bringing a dataset to a place.

    Parameters
    ----------
    target
        Cloud and region, such as ``gcp/us-central1``.
    """
    route = place_of(data.store, data.manifest.uri), target
    return estimate_transfer(catalog, route, data.manifest.objects, download_traffic(data))


def estimate_lines(
    listed: Sequence[CellDataset],
    target: str,
    catalog: Catalog,
    there: frozenset[str] = frozenset(),
    nodes: int = 1,
) -> list[str]:
    """Return a line for each dataset: its path, and what bringing it takes.

    Parameters
    ----------
    nodes
        Machines of the cluster.
    there
        Datasets, by their ids, that the machines have already.
    """
    lines = []
    for each in listed:
        if each.dataset.id in there:
            line = _("{title}: there already, 0 bytes, $0.00").format(title=each.title)
        else:
            line = str(_estimate_way(each, target, catalog, nodes))
        lines.append(f"{each.name}: {line}")
    return lines


def _estimate_way(data: CellDataset, target: str, catalog: Catalog, nodes: int) -> Estimate:
    """Return the estimate of the way that data take: data of this machine may be staged."""
    if data.manifest.uri.scheme in ("file", "ssh") and target != LOCAL:
        from jupyter_sky.execution.files.scratch import place_of_scratch
        from jupyter_sky.execution.files.staging import configured_scratch, estimate_staging

        place = place_of_scratch(*target.split("/", 1)) if "/" in target else target
        if scratch := configured_scratch(data, place, nodes):
            return estimate_staging(data, scratch, target, catalog)
    return estimate_data(data, target, catalog)


def transfers_usd(
    listed: Sequence[CellDataset], options: CellOptions, target: str, catalog: Catalog, nodes: int
) -> float | None:
    """Return what the data of a cell cost at a place, USD; None where nobody knows it before.

    Nobody knows it of ``--out`` at a place that bills what leaves it, and of ``--mount`` from one.
    Uploads from a machine of one's own are counted as nothing: they cost requests alone.

    Parameters
    ----------
    target
        Cloud and region, such as ``gcp/us-central1``.
    nodes
        Machines of the cluster.
    """
    if options.uploads and is_priced(target):
        return None
    if any("://" in each.uri for each in options.mounts):
        return None
    costs = [_estimate_way(each, target, catalog, nodes).usd for each in listed]
    return None if None in costs else sum(cost or 0.0 for cost in costs)


def upload_lines(targets: Sequence[UploadTarget], source: str, catalog: Catalog) -> list[str]:
    """Return a line for each ``--out``: nobody knows its size before, so that a GB is priced."""
    lines = []
    for each in targets:
        route = source, place_of(each.store, each.uri)
        gb = TransferTraffic(target=Traffic(writes=part_count(10**9, PART_SIZE) + 2), moved=10**9)
        found = estimate_transfer(catalog, route, (), gb)
        lines.append(
            _("{path}: {way}: for each GB {charge}").format(
                path=each.option.path, way=found.way, charge=found.charge
            )
        )
    return lines


def planned_data(listed: Sequence[CellDataset]) -> tuple[Data, ...]:
    """Return the datasets as a plan counts them; those of places of no price are left out."""
    found = []
    for each in listed:
        cloud, __, region = place_of(each.store, each.manifest.uri).partition("/")
        if region and is_priced(cloud):
            gb, count = each.manifest.nbytes / 1e9, len(each.manifest.objects)
            found.append(Data(str(each.manifest.uri), gb, cloud, region, count, time.time()))
    return tuple(found)


def area_names(uris: Sequence[StorageUri], configured: Mapping[str, str]) -> tuple[str, ...]:
    """Return the areas in which all data of a cell must stay; empty for all.

    Rules that allow this machine besides are checked once the place is known.
    """
    rules = [rule for rule in find_rules(uris, configured) if LOCAL not in rule.areas]
    return rules[0].areas if rules else ()


def check_cell_residency(
    ends: Sequence[tuple[Store, StorageUri]], configured: Mapping[str, str], row: ClusterRow
) -> None:
    """Raise SkyResidency where a cell's data would leave their area: store, or its machines."""
    for store, uri in ends:
        rules: list[ResidencyRule] = find_rules((uri,), configured)
        if rules:
            from jupyter_sky.knowledge import catalog

            stations = [
                Station(str(uri), ask_place(store, uri)),
                Station(row.name, place_of_cluster(row)),
            ]
            check_residency(catalog.load(), rules, stations)
