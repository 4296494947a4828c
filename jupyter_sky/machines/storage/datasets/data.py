"""Data of a store as an object of the notebook: `Storage`."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.dag.dag import Usage
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.datasets.local_cache import fetch_dataset
from jupyter_sky.machines.storage.datasets.writing import ObjectWriter, TextWriter, write_object
from jupyter_sky.machines.storage.stores.connections import Connections
from jupyter_sky.machines.storage.stores.errors import Retries, SkyObjectMissing
from jupyter_sky.machines.storage.stores.listing import Manifest, UsageMemory, list_objects
from jupyter_sky.machines.storage.stores.part_worker import read_part
from jupyter_sky.machines.storage.stores.store import (
    MIB,
    PresigningStore,
    Span,
    Store,
    StoredObject,
)
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri, fold_of_platform, path_error

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
        levels = self.store.list_level(uri.key)
        first = next(levels, None)
        if first is None:
            list_objects(self.store, uri)  # raises, with what is near
            return
        if not uri.is_folder and first[0] == uri.key + "/" and next(levels, None) is None:
            yield from self.store.list_level(uri.key + "/")
            return
        yield from self.store.list_level(uri.key)

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


# -- Addresses that grant one request on one object to whoever has them ---------------------------

MOST_HOURS = 7 * 24
"""Longest validity: that of Amazon and of Google."""

METHODS = ("GET", "PUT")
TOLERANCE_SECONDS = 60


def presign(store: Store, uri: StorageUri, hours: float, method: str) -> str:
    """Return an address for one request.

    The object is looked at first: for a sentence where it is missing, and because the answer tells
    region and time of the store, without which no signature holds.

    Parameters
    ----------
    store : Store
        Store of the object.
    uri : StorageUri
        The object.
    hours : float
        Validity.
    method : str
        One of `METHODS`.

    Raises
    ------
    SkyUsageError
        The address would not hold that long, or the store has no such addresses.
    SkyObjectMissing
        There is nothing to read.
    """
    if method not in METHODS:
        raise SkyUsageError(
            _("method={method!r}: an address reads or writes").format(method=method),
            hint=_('method="GET", method="PUT"'),
        )
    if not 0 < hours <= MOST_HOURS:
        raise SkyUsageError(
            _("hours={hours:g}: stores sign for more than 0 and up to {most} hours").format(
                hours=hours, most=MOST_HOURS
            )
        )
    if uri.is_folder or not isinstance(store, PresigningStore):
        raise SkyUsageError(
            _("{uri}: an address can be signed for one object of a store").format(uri=uri),
            hint=_('name it: sky.Storage("s3://bucket/").presign("key")'),
        )
    with suppress(*([] if method == "GET" else [SkyObjectMissing])):
        store.stat(uri.key)
    seconds = round(hours * 3600)
    signed = store.presign(uri.key, method, seconds)
    left = signed.expires - time.time()
    if left < seconds - TOLERANCE_SECONDS:
        raise SkyUsageError(
            _("{uri}: the credentials end in {left}, and addresses end with them").format(
                uri=uri, left=format_duration(max(1, round(left)))
            ),
            hint=_("hours={hours:.2f} or less, or lasting credentials").format(
                hours=max(0.0, left / 3600 - 0.01)
            ),
        )
    return signed.url


# -- Reading of an object at any position, in pieces of one pinned version ------------------------

BUFFER_BYTES = 4 * MIB
"""Bytes of one request; small reads are served from what it brought."""


class ObjectReader(io.RawIOBase):
    """An object as a file that is read from anywhere.

    All reads are of the version that was opened: one that is replaced meanwhile raises
    `SkySourceChanged` instead of giving bytes of both.

    Parameters
    ----------
    store
        Store of the object.
    found
        The version to read.
    """

    def __init__(self, store: Store, found: StoredObject) -> None:
        self._store, self._found, self._place = store, found, 0
        self._connections, self._retries = Connections(), Retries()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; see `io.IOBase.seek`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._found.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._place = base + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer; return the number of bytes, 0 at the end."""
        view = memoryview(buffer).cast("B")
        stop = min(self._place + len(view), self._found.size)
        if stop <= self._place:
            return 0
        span = Span(self._place, stop)
        data = self._retries.run(
            lambda: read_part(self._store.read(self._found, span), self._connections)
        )
        view[: len(data)] = data
        self._place += len(data)
        return len(data)


def open_object(
    store: Store,
    found: StoredObject,
    mode: str = "rb",
    encoding: str = "utf-8",
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Open an object for reading, as `open` does.

    Parameters
    ----------
    mode
        ``rb`` or ``r``; the other parameters are for ``r``.
    """
    binary = io.BufferedReader(ObjectReader(store, found), min(BUFFER_BYTES, max(found.size, 1)))
    return binary if "b" in mode else io.TextIOWrapper(binary, encoding, errors, newline)
