"""Content of files and of data in stores, by digests that change whenever it does."""

from __future__ import annotations

import glob
import hashlib
from pathlib import Path

from jupyter_sky.base.errors import SkyError
from jupyter_sky.machines.storage.stores.listing import list_objects
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.workflows.pipelines.model.identity import digest_of


def path_digest(path: Path) -> str:
    """Return the digest of a file, or of all files in a folder.

    Raises
    ------
    OSError
        It is not there, or cannot be read.
    """
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    lines = [
        f"{each.relative_to(path)}\n{path_digest(each)}"
        for each in sorted(path.rglob("*"))
        if each.is_file()
    ]
    return digest_of("\n".join(lines).encode())


def address_version(address: str) -> str:
    """Return what identifies the data at an address: of files the content, else their versions.

    Raises
    ------
    SkyError
        There is nothing, or the store cannot be asked.
    OSError
        It is not there, or cannot be read.
    """
    uri = StorageUri.parse(address)
    if uri.is_local:
        return path_digest(uri.path)
    return list_objects(open_store(uri), uri).id


def product_version(address: str) -> str:
    """Return the version of what a task has written; empty where it cannot be found.

    Parameters
    ----------
    address
        Of a store, or a path or pattern of paths of this machine.
    """
    try:
        if not Path(address).is_absolute():
            return address_version(address)
        paths = sorted(glob.glob(address)) if glob.has_magic(address) else [address]
        return " ".join(path_digest(Path(path)) for path in paths)
    except (OSError, SkyError):
        return ""
