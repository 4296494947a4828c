"""Stores by address."""

from __future__ import annotations

from ..errors import SkyUsageError
from .store import Store
from .uri import StorageUri


def open_store(uri: StorageUri) -> Store:
    """Return the store of an address; no request is made yet.

    Raises
    ------
    SkyUsageError
        There is no adapter for its scheme.
    """
    if uri.is_local:
        from .local_files import LocalFiles

        return LocalFiles()
    raise SkyUsageError(
        f"{uri}: data of {uri.scheme}: cannot be reached yet", hint="s3:, gs: and file: can"
    )
