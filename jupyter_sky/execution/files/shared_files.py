"""Files of ``--sync`` for several machines: sent to one of them, from which the others read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError
from jupyter_sky.execution.files.dataset_listing import CellDataset
from jupyter_sky.execution.files.datasets import bring_data
from jupyter_sky.execution.files.staging import STAGED_BYTES
from jupyter_sky.execution.files.transfer import TransferReporter
from jupyter_sky.machines.engines.node.files import build_manifest
from jupyter_sky.machines.engines.wire.engine_requests import MissingFiles, TakeFiles
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.listing import Manifest
from jupyter_sky.machines.storage.stores.uri import StorageUri

if TYPE_CHECKING:
    from jupyter_sky.execution.clusters.cluster import Placement

FOLDER = ".sky-sync"
"""Link in the working folder to files that have come and are not in their places yet."""


def share_files(
    placement: Placement, root: Path, paths: Sequence[str], reporter: TransferReporter
) -> None:
    """Bring large files to all machines of a cell at once; `sync_files` brings what is left.

    Parameters
    ----------
    root
        Folder of the notebook.
    paths
        Values of ``--sync``.
    """
    row, link = placement.cluster.row, placement.cluster.connection
    if row.nodes < 2 or row.cloud == "local":
        return
    wanted, names = build_manifest(root, paths).files, set[str]()
    for rank in placement.ranks:
        names.update(link.ask_engine(rank, MissingFiles(wanted)).missing)
    data = shared_dataset(root, names)
    if data is None:
        return
    bring_data([data], placement, reporter)
    manifest = {name: wanted[name] for name in names}
    for rank in placement.ranks:
        link.ask_engine(rank, TakeFiles(FOLDER, manifest))


def shared_dataset(root: Path, names: Iterable[str]) -> CellDataset | None:
    """Return files of a folder as a dataset; None for few bytes, and names that no store holds."""
    store, uri = FilesStore(), StorageUri.parse(f"{root.resolve()}/")
    try:
        objects = tuple(store.stat(uri.child(name).key) for name in sorted(names))
        data = CellDataset(FOLDER, store, Manifest(uri, objects, uri.key), "--sync", "--sync")
        data.dataset  # noqa: B018 - raises for names that no folder can hold
    except SkyError:
        return None
    return data if data.manifest.nbytes >= STAGED_BYTES else None
