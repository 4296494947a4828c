"""Files that a cell has written, uploaded to a store: ``--out``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import runs_here
from jupyter_sky.execution.clusters.cluster import place_of_cluster
from jupyter_sky.execution.clusters.engine_worker import EngineWorker, RelayWorker, Report
from jupyter_sky.execution.files.transfer import TransferReporter
from jupyter_sky.execution.files.upload_targets import EngineFiles, UploadTarget
from jupyter_sky.machines.engines.wire.data_requests import ChangedFiles, FindChanged
from jupyter_sky.machines.storage.datasets.data import usage_memory
from jupyter_sky.machines.storage.stores.delegation import delegate
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.object_transfer import TransferItem
from jupyter_sky.machines.storage.stores.places import (
    INTERNET,
    LOCAL,
    is_priced,
    place_of,
    price_transfer,
)
from jupyter_sky.machines.storage.stores.signing import Access
from jupyter_sky.machines.storage.stores.store import (
    Store,
    StoredObject,
)
from jupyter_sky.machines.storage.stores.uri import StorageUri, path_error
from jupyter_sky.machines.storage.transfers.transfer import Transfer, TransferOptions

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import Placement
    from jupyter_sky.machines.storage.stores.part_worker import Worker


def upload_new_files(
    targets: Sequence[UploadTarget], placement: Placement, reporter: TransferReporter
) -> None:
    """Upload the files that a cell has written or changed.

    Of several engines each has its own files: keys then begin with the rank, unless all engines
    are on one machine.

    Raises
    ------
    SkyStorageError
        Files could not be uploaded; those that could are.
    """
    for target in targets:
        seen: set[str] = set()
        for rank in placement.ranks:
            found = placement.cluster.connection.ask_engine(rank, FindChanged(target.option.path))
            if found.machine in seen:
                continue
            seen.add(found.machine)
            several = len(placement.ranks) > 1 and not runs_here(placement.row.cloud)
            _upload(target, placement, rank, found, f"{rank}/" if several else "", reporter)


def _upload(
    target: UploadTarget,
    placement: Placement,
    rank: int,
    found: ChangedFiles,
    prefix: str,
    reporter: TransferReporter,
) -> None:
    path, files = target.option.path, found.files
    if not files:
        reporter.note(_nothing_new(path, found.count))
        return
    items = [
        TransferItem(StoredObject(name, size, version), _key(target.uri, name, prefix, found))
        for name, size, version in files
    ]
    total = sum(item.source.size for item in items)
    start_worker, write_store = choose_worker(target, placement, rank)
    show = reporter.progress(_("{path} to {uri}").format(path=path, uri=target.uri))
    transfer = Transfer(
        EngineFiles(  # type: ignore[arg-type]
            PurePosixPath(found.root), {item.source.key: item.source for item in items}
        ),
        target.store,
        items,
        options=TransferOptions(start_worker=start_worker, write_store=write_store),
        on_progress=lambda progress: show(progress.bytes_done, total),
    )
    try:
        transfer.run()
    finally:
        book_upload(target, placement, transfer, start_worker)
    usage_memory().forget(target.uri)
    reporter.note(
        _("{path}: {count} ({total}) uploaded to {uri}").format(
            path=path, count=_file_count(len(items)), total=format_size(total), uri=target.uri
        )
    )


def _nothing_new(path: str, count: int) -> str:
    there = _("{found:,} files there").format(found=count) if count else _("nothing there")
    return f"--out {path}: the cell has written no new file ({there}): not uploaded"


def _file_count(count: int) -> str:
    return "1 file" if count == 1 else _("{items_count:,} files").format(items_count=count)


def book_upload(
    target: UploadTarget,
    placement: Placement,
    transfer: Transfer,
    worker: Callable[[Report], Worker],
) -> None:
    """Enter the price of what was sent, and of the requests, into the ledger."""
    from jupyter_sky.knowledge import catalog

    place, row = place_of(target.store, target.uri), placement.cluster.row
    home = place_of_cluster(row)
    if target.uri.is_local or not (is_priced(home) or (place and is_priced(place))):
        return
    is_relayed = getattr(worker, "func", None) is RelayWorker
    # an endpoint whose place nobody knows is on the internet, as far as the bytes are concerned
    end = place or INTERNET
    route = (home, LOCAL, end) if is_relayed else (home, end)
    traffic = transfer.traffic()
    charge = price_transfer(catalog.load(), route, traffic)
    if charge.usd == 0:
        return
    what = _("egress of {gb:.3g} GB and {writes:,} writes to {uri}").format(
        gb=traffic.moved / 1e9, writes=traffic.target.writes, uri=target.uri
    )
    placement.cluster.store.add_other_cost(row.id, what, charge.usd, time.time())


def _key(uri: StorageUri, name: str, prefix: str, found: ChangedFiles) -> str:
    """Return the key of a file in the target; an engine cannot name one outside of it."""
    if reason := path_error(name):
        raise SkyStorageError(
            _("--out: {name!r} cannot be a key below {uri}: {reason}").format(
                name=name, uri=uri, reason=reason
            )
        )
    if found.is_file and not uri.is_folder and not prefix:
        return uri.key
    return uri.child(prefix + name).key


def choose_worker(
    target: UploadTarget, placement: Placement, rank: int
) -> tuple[Callable[[Report], Worker], Store]:
    """Return the worker for a target, and the store by whose requests it writes.

    It is the engine's machine where a request grants nothing outside of the target.
    """
    link, is_local = placement.cluster.connection, runs_here(placement.row.cloud)
    store = target.store
    if not (is_local and target.uri.scheme != "ssh"):
        delegated = delegate(store, target.uri, Access.WRITE)
        if delegated is None:
            return partial(RelayWorker, link=link, rank=rank), store
        store = delegated
    return partial(EngineWorker, link=link, rank=rank), store
