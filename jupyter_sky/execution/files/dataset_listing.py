"""Listing of the data of a cell, and checks of it before machines are rented."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.cell_options.data import with_plain_path
from jupyter_sky.base.requests.cell_options.values import CellData
from jupyter_sky.base.requests.quantities import Amount, format_objects
from jupyter_sky.base.requests.resources import Resources
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_support import ON_PREMISES
from jupyter_sky.execution.files.transfer import format_size
from jupyter_sky.machines.storage.stores.dataset import Dataset
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.listing import Manifest, list_objects
from jupyter_sky.machines.storage.stores.store import (
    Store,
    StoredObject,
)
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri, fold_of_platform


@dataclass(frozen=True)
class CellDataset:
    """A dataset of a cell, as it was listed before anything is launched.

    Attributes
    ----------
    path
        Path at which the cell reads it.
    store, manifest
        Its store, and the versions of its objects.
    option
        Word by which messages begin: the user has asked for the data so.
    label
        Its name in messages; empty for its path.
    """

    path: str
    store: Store
    manifest: Manifest
    option: str = "--data"
    label: str = ""

    @cached_property
    def dataset(self) -> Dataset:
        """The objects as machines cache them."""
        return self.manifest.dataset(fold_of_platform())

    @cached_property
    def objects(self) -> dict[str, StoredObject]:
        """Objects of the store by the identity of their cached contents."""
        by_path = self.manifest.by_path()
        return {each.identity: by_path[each.path] for each in self.dataset.objects}

    @property
    def packed(self) -> bytes:
        """The dataset for a message to a machine."""
        objects = [[each.path, each.identity, each.size] for each in self.dataset.objects]
        described = {"objects": objects, "folders": self.dataset.folders}
        return zlib.compress(json.dumps(described).encode(), 1)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self.label or self.path

    @property
    def title(self) -> str:
        """Size and address, for messages."""
        amount = format_objects(len(self.manifest.objects))
        return _("{nbytes} in {amount} of {uri}").format(
            nbytes=format_size(self.manifest.nbytes), amount=amount, uri=self.manifest.uri
        )


def list_data(data: Sequence[CellData], folder: Path, resources: Resources) -> list[CellDataset]:
    """List the datasets of a cell, and raise what can be known before money is spent.

    Parameters
    ----------
    data
        Values of ``--data``.
    folder
        Folder of the notebook, below which relative paths are.
    resources
        Request of the cell.

    Raises
    ------
    SkyObjectMissing
        There is nothing at an address.
    SkyUsageError
        A folder cannot hold the keys, or the disk that is asked for the data.
    SkyObjectArchived
        Objects must be restored first.
    """
    listed = [list_cell_data(each, folder, "--data") for each in data]
    check_disk(listed, resources.disk)
    return listed


def list_cell_data(data: CellData, folder: Path, option: str) -> CellDataset:
    """List the data of one option; raise as `list_data`, with advice on its path."""
    try:
        return replace(list_dataset(StorageUri.parse(data.uri, folder), data.path), option=option)
    except SkyObjectMissing as error:
        if meant := with_plain_path(data.uri):
            error.hint = path_advice(option, meant)
        raise


def path_advice(option: str, meant: str) -> str:
    """Return the advice for a path that was taken for a part of the address."""
    return _("a path begins with ./ or /, so that it is told from the address: {option}").format(
        option=f"{option} {meant}"
    )


def list_dataset(uri: StorageUri, path: str) -> CellDataset:
    """List the data of an address, which machines are to have at a path; raise as `list_data`."""
    store = open_store(uri)
    manifest = list_objects(store, uri)
    manifest.check_readable()
    listed = CellDataset(path, store, manifest)
    listed.dataset  # noqa: B018 - raises for keys that no folder can hold
    return listed


def check_disk(listed: Sequence[CellDataset], disk: Amount | None) -> None:
    """Raise SkyUsageError where the disk that is asked for cannot hold the data.

    Parameters
    ----------
    disk
        Request for GiB of disk, or None.
    """
    need = sum(each.manifest.nbytes for each in listed)
    if disk is not None and need > disk.value * 2**30:
        raise SkyUsageError(
            _("--disk {disk}: the data have {need:.1f} GiB").format(disk=disk, need=need / 2**30),
            hint=_("--disk {need} has room for them").format(need=int(need / 2**30 * 1.25) + 10),
        )


def check_paths(listed: Iterable[CellDataset], cloud: str) -> None:
    """Raise SkyUsageError for an absolute path on a machine that is not rented for the cell."""
    for each in listed:
        if PurePosixPath(each.path).is_absolute() and cloud in ON_PREMISES:
            raise SkyUsageError(
                _(
                    "{option} {uri}:{path}: an absolute path on a machine of {cloud}, which "
                    "others use, too"
                ).format(option=each.option, uri=each.manifest.uri, path=each.path, cloud=cloud),
                hint=_("a path in the cluster's folder: ./data/{name}").format(
                    name=each.manifest.uri.name
                ),
            )
