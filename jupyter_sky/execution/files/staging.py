"""Files of this machine on their way to several nodes, by the scratch of their region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.execution.files.dataset_listing import CellDataset
from jupyter_sky.execution.files.scratch import place_of_scratch, scratch_of
from jupyter_sky.knowledge.tracker.transfer_rates import TransferRates
from jupyter_sky.machines.storage.stores.delegation import delegate
from jupyter_sky.machines.storage.stores.object_transfer import TransferItem
from jupyter_sky.machines.storage.stores.places import (
    LOCAL,
    Charge,
    place_of,
    price_transfer,
)
from jupyter_sky.machines.storage.stores.signing import Access
from jupyter_sky.machines.storage.stores.store import (
    MIB,
    PART_SIZE,
    Store,
    StoredObject,
    part_count,
)
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.traffic import Traffic, TransferTraffic
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.downloads import (
    DownloadPlan,
    plan_download,
)
from jupyter_sky.machines.storage.transfers.estimate import (
    Estimate,
    expected_traffic,
    transfer_duration,
)
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_sky.execution.clusters.cluster import ClusterHandle
    from jupyter_sky.knowledge.catalog.catalog import Catalog

STAGED_BYTES = 16 * MIB
"""Size of a dataset from which the detour is worth its requests."""


class StagedData:
    """Objects that this machine puts into scratch as nodes ask for them.

    Parameters
    ----------
    data
        The dataset, whose store no other machine can read.
    uri
        Prefix in the scratch of the nodes' region.

    Attributes
    ----------
    place : str
        Place of the scratch; empty where it is not known.
    traffic : TransferTraffic
        What has gone there.
    """

    def __init__(self, data: CellDataset, uri: StorageUri) -> None:
        self._data, self._uri = data, uri
        self._store = open_store(uri)
        self._delegated: Store | None = delegate(self._store, uri, Access.READ)
        self._staged: dict[str, StoredObject] = {}
        self.place = place_of(self._store, uri)
        self.traffic = TransferTraffic()

    @property
    def is_readable(self) -> bool:
        """Whether nodes can get requests that read it."""
        return self._delegated is not None

    def plans(
        self, wanted: Sequence[str], show: Callable[[int, int], None]
    ) -> dict[str, DownloadPlan]:
        """Return requests for objects by identity, after those that are missing were uploaded."""
        assert self._delegated is not None
        keys = {each: self._uri.child(each).key for each in wanted}
        missing = [each for each in wanted if each not in self._staged]
        items = [TransferItem(self._data.objects[each], keys[each]) for each in missing]
        if items:
            transfer = Transfer(
                self._data.store,
                self._store,
                items,
                options=TransferOptions(),
                on_progress=lambda now: show(now.bytes_done, now.bytes_total),
            )
            try:
                written = transfer.run().objects
            finally:
                self.traffic += transfer.traffic()
            self._staged |= {each: written[keys[each]] for each in missing}
        return {each: plan_download(self._delegated, self._staged[each]) for each in wanted}


def staged_data(data: CellDataset, cluster: ClusterHandle) -> StagedData | None:
    """Return the way of a dataset by scratch; None where the bytes are sent to each node.

    Parameters
    ----------
    data
        A dataset whose store the nodes cannot read.
    cluster
        The nodes.
    """
    row = cluster.row
    place = place_of_scratch(row.cloud, row.region)
    if not configured_scratch(data, place, row.nodes):
        return None
    staged = StagedData(data, scratch_of(place).child(f"{data.dataset.id}/"))
    return staged if staged.is_readable else None


def configured_scratch(data: CellDataset, place: str, nodes: int) -> str:
    """Return the address by which data go to a place that cannot read them; empty for none."""
    if nodes < 2 or data.manifest.nbytes < STAGED_BYTES:
        return ""
    return Sky.load().scratch.get(place, "")


def price_staging(
    catalog: Catalog, route: tuple[str, str, str], up: TransferTraffic, down: TransferTraffic
) -> Charge:
    """Return the price of two ways: from here to scratch, and from there to a cluster."""
    return price_transfer(catalog, route[:2], up) + price_transfer(catalog, route[1:], down)


def estimate_staging(data: CellDataset, scratch: str, target: str, catalog: Catalog) -> Estimate:
    """Return the estimate of bringing data of this machine to a cluster by way of scratch.

    Parameters
    ----------
    scratch
        Address that `configured_scratch` has returned.
    target
        Place of the cluster.
    """
    store, uri = open_store(scratch), StorageUri.parse(scratch)
    objects, capability = data.manifest.objects, store.capability
    items = [TransferItem(each, each.key) for each in objects]
    up = expected_traffic(items, False, capability)
    reads = sum(part_count(each.size, PART_SIZE) for each in objects if each.size)
    down = TransferTraffic(Traffic(reads=reads), moved=data.manifest.nbytes)
    route = LOCAL, place_of(store, uri), target
    return Estimate(
        len(objects),
        data.manifest.nbytes,
        route,
        price_staging(catalog, route, up, down),
        transfer_duration(catalog, route, data.manifest.nbytes, TransferRates()),
        up + down,
    )
