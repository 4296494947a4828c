"""Data of a store as an object of the notebook: `Storage`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.datasets.local_cache import fetch_dataset
from jupyter_sky.machines.storage.datasets.presigned import presign
from jupyter_sky.machines.storage.datasets.reading import open_object
from jupyter_sky.machines.storage.datasets.writing import ObjectWriter, TextWriter, write_object
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.listing import (
    Manifest,
    Usage,
    UsageMemory,
    list_level,
    list_objects,
)
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.tree_names import fold_of_platform, path_error
from jupyter_sky.machines.storage.stores.uri import StorageUri

LISTED_ROWS = 1000
"""Most rows of `Storage.ls`."""


class Storage:
    """Data of an object store, a host or a folder, by their address.

    Nothing is asked of the store before a method needs it. As an argument of a call it arrives on
    the node as a `pathlib.Path`.

    Parameters
    ----------
    uri : str or Path
        ``s3://bucket/prefix/``, ``gs://bucket/key``, ``file:/folder`` or a path. An address that
        ends with ``/`` is a folder.

    Examples
    --------
    >>> data = Storage("s3://imagenet/train/")
    >>> data
    Storage('s3://imagenet/train/')
    >>> data.du()  # doctest: +SKIP
    150.0 GB in 1,281,167 objects of s3://imagenet/train/
    """

    def __init__(self, uri: str | Path) -> None:
        self.uri = StorageUri.parse(uri)
        self._fetched: Any = None

    @cached_property
    def store(self) -> Store:
        """Store of the data."""
        return open_store(self.uri)

    @property
    def region(self) -> str:
        """Region of the bucket, as far as its store tells it; empty for folders."""
        return "" if self.store.uri.options.get("endpoint") else getattr(self.store, "region", "")

    # -- what is there -----------------------------------------------------------------------------

    def ls(self, key: str = "") -> Table:
        """List one level: objects with their sizes, and folders.

        Parameters
        ----------
        key
            Key or folder below the address.

        Returns
        -------
        Table
            Up to `LISTED_ROWS` rows.
        """
        uri = self._child(key)
        rows, note = list[tuple[object, ...]](), ""
        for path, found in self._level(uri):
            if len(rows) == LISTED_ROWS:
                note = _("more than {count:,}: name a folder below it").format(count=LISTED_ROWS)
                break
            name = path.rstrip("/").rpartition("/")[2] + "/" * path.endswith("/")
            rows.append((name, "", "") if found is None else (name, found.size, _date(found)))
        return Table(str(uri), (_("name"), _("bytes"), _("changed")), tuple(rows), note)

    def _level(self, uri: StorageUri) -> Iterator[tuple[str, Any]]:
        levels = list_level(self.store, uri.key)
        first = next(levels, None)
        if first is None:
            list_objects(self.store, uri)  # raises, with what is near
            return
        if not uri.is_folder and first[0] == uri.key + "/" and next(levels, None) is None:
            yield from list_level(self.store, uri.key + "/")
            return
        yield from list_level(self.store, uri.key)

    def du(self, *, refresh: bool = False) -> Usage:
        """Measure the data: number of objects and bytes.

        Parameters
        ----------
        refresh
            List again, also where they were measured within a day.

        Returns
        -------
        Usage
            With the time at which it was measured.
        """
        known = None if refresh else usage_memory().recall(self.uri)
        return known or usage_memory().remember(self.list())

    def list(self) -> Manifest:
        """Return all objects at the address, each in its present version."""
        return list_objects(self.store, self.uri)

    # -- reading -----------------------------------------------------------------------------------

    def open(self, key: str = "", mode: str = "rb", **text: Any) -> Any:
        """Open an object as a file; positions can be sought, and only what is read is asked for.

        Parameters
        ----------
        key
            Key below the address; the address itself unless given.
        mode
            ``rb``, ``r``, ``wb`` or ``w``. What is written appears when the file is closed.
        **text
            ``encoding``, ``errors``, ``newline``.

        Examples
        --------
        >>> with sky.Storage("s3://b/x.csv").open(mode="r") as file:  # doctest: +SKIP
        ...     file.readline()
        """
        uri = self._child(key)
        if mode in ("rb", "r", "rt"):
            return open_object(self.store, self.store.stat(uri.key), mode, **text)
        if mode not in ("wb", "w", "wt"):
            raise SkyUsageError(
                _("open(mode={mode!r}): objects are read or written as a whole").format(mode=mode),
                hint=_('mode="rb", "r", "wb" or "w"; to append, fetch, change and write it'),
            )
        writer = ObjectWriter(lambda data: self.write(key, data))
        return writer if "b" in mode else TextWriter(writer, **text)

    def fetch(self, to: str | Path | None = None) -> Path:
        """Bring the data to this machine; return their path.

        Parameters
        ----------
        to
            Folder or file to make. Unless given, they are in a cache by content, read-only, and a
            second call moves nothing.
        """
        manifest = self.list()
        manifest.check_readable()
        if to is not None:
            from jupyter_sky.machines.storage.datasets.local_cache import fetch_to

            return fetch_to(self.store, manifest, Path(to).expanduser())
        self._fetched = fetch_dataset(self.store, manifest, fold_of_platform())
        return self._fetched.path

    @property
    def path(self) -> Path:
        """Path of the data on this machine, fetched where they are not there."""
        return self._fetched.path if self._fetched is not None else self.fetch()

    def presign(self, key: str = "", *, hours: float = 1.0, method: str = "GET") -> str:
        """Return an address by which anybody reads, or writes, one object for some time.

        Parameters
        ----------
        key
            Key below the address; the address itself unless given.
        hours
            Validity, up to 168. No address outlives the credentials that have signed it.
        method
            ``GET`` to read, ``PUT`` to write.

        Examples
        --------
        >>> sky.Storage("s3://b/x.csv").presign(hours=2)  # doctest: +SKIP
        'https://b.s3.us-east-1.amazonaws.com/x.csv?X-Amz-Algorithm=...'
        """
        return presign(self.store, self._child(key), hours, method)

    # -- changes -----------------------------------------------------------------------------------

    def write(self, key: str, data: bytes | str | Path) -> None:
        """Write an object, whole or not at all.

        Parameters
        ----------
        key
            Key below the address; empty for the address itself.
        data
            Its content, text (as UTF-8), or the path of a file.
        """
        uri = self._child(key)
        if uri.is_folder:
            raise SkyUsageError(
                _("{uri} is a folder").format(uri=uri),
                hint=_('name an object: write("name", data)'),
            )
        write_object(self.store, uri.key, data)
        usage_memory().forget(self.uri)

    def delete(self, key: str = "") -> int:
        """Delete an object, or everything below an address that ends with ``/``.

        Returns
        -------
        int
            Number of objects.
        """
        uri = self._child(key)
        if not uri.is_folder:
            self.store.stat(uri.key)  # raises where there is none
            keys = [uri.key]
        else:
            keys = [each.key for each in self.store.list(uri.key)]
            if not keys:
                raise SkyObjectMissing(
                    _("0 objects below {uri}: nothing to delete").format(uri=uri)
                )
        self.store.remove(keys)
        usage_memory().forget(self.uri)
        return len(keys)

    def _child(self, key: str) -> StorageUri:
        if not key:
            return self.uri
        if self.uri.scheme in ("file", "ssh") and (reason := path_error(key.rstrip("/"))):
            raise SkyUsageError(
                _("{key!r} below {uri}: {reason}").format(key=key, uri=self.uri, reason=reason)
            )
        return self.uri.child(key)

    def __repr__(self) -> str:
        return f"Storage({str(self.uri)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storage) and other.uri == self.uri

    def __hash__(self) -> int:
        return hash(self.uri)

    def __truediv__(self, key: str) -> Storage:
        return Storage(str(self._child(key)))

    def __reduce__(self) -> Any:
        return Storage, (str(self.uri),)


def usage_memory() -> UsageMemory:
    """Return the sizes that this user's notebooks have measured."""
    return UsageMemory(Path(Sky.load().data_dir) / "usage")


def _date(found: Any) -> str:
    from datetime import datetime

    return f"{datetime.fromtimestamp(found.modified):%Y-%m-%d %H:%M}" if found.modified else ""
