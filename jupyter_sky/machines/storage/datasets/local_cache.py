"""Data on the notebook's own machine: in its cache, or copied to a folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.cache import DatasetCache, Lease
from jupyter_sky.machines.storage.stores.dataset import CachedObject
from jupyter_sky.machines.storage.stores.listing import Manifest
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.uri import FoldName, fold_of_platform
from jupyter_sky.machines.storage.transfers.downloads import download_objects, plan_download


@dataclass(frozen=True, slots=True)
class FetchedData:
    """Data that are in the cache of this machine, as long as this value lives.

    Attributes
    ----------
    path
        Folder, or file where the address was that of one object.
    lease
        Use of the cached dataset.
    """

    path: Path
    lease: Lease


def data_cache() -> DatasetCache:
    """Return the cache of datasets of this machine."""
    return DatasetCache(Path.home() / ".cache" / "jupyter_sky" / "data")


def fetch_dataset(store: Store, manifest: Manifest, fold: FoldName) -> FetchedData:
    """Bring data to the cache of this machine."""
    dataset, by_path = manifest.dataset(fold), manifest.by_path(fold)

    def download(pairs: Sequence[tuple[CachedObject, Path]]) -> None:
        plans = [(plan_download(store, by_path[each.path]), path) for each, path in pairs]
        download_objects(plans)

    lease = data_cache().lease(dataset, download)
    path = lease.path / dataset.objects[0].path if manifest.is_single else lease.path
    return FetchedData(path, lease)


def fetch_to(store: Store, manifest: Manifest, target: Path) -> Path:
    """Copy data to a path of this machine, by way of its cache; nothing is overwritten.

    Raises
    ------
    SkyUsageError
        There is something at the path already that differs.
    """
    if target.is_dir() and manifest.is_single:
        target /= manifest.uri.name
    if target.exists() and (target.is_file() or any(target.iterdir())):
        raise SkyUsageError(
            _("there is something at {target} already").format(target=target),
            hint=_("fetch to another path, or remove it"),
        )
    fetched = fetch_dataset(store, manifest, fold_of_platform())
    with fetched.lease:
        target.parent.mkdir(parents=True, exist_ok=True)
        if fetched.path.is_file():
            shutil.copyfile(fetched.path, target)
        else:
            shutil.copytree(fetched.path, target, dirs_exist_ok=True, copy_function=shutil.copyfile)
    return target
