"""Listings of data: the objects below an address at one moment, and their remembered sizes."""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

from jupyter_sky.base.errors import suggest
from jupyter_sky.base.requests.dag.dag import Usage
from jupyter_sky.base.store.atomic_file import write_atomically
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.dataset import CachedObject, Dataset, object_identity
from jupyter_sky.machines.storage.stores.errors import (
    SkyObjectArchived,
    SkyObjectMissing,
    SkyStorageError,
)
from jupyter_sky.machines.storage.stores.store import (
    Readiness,
    Store,
    StoredObject,
)
from jupyter_sky.machines.storage.stores.uri import (
    FoldName,
    StorageUri,
    TreeNames,
    exact_name,
    map_keys,
)

REMEMBERED_SECONDS = 24 * 3600.0
"""Time for which a measured size is used without listing again."""
NEAR_KEYS = 200
"""Most keys that are listed to suggest one for a key that does not exist."""


@dataclass(frozen=True)
class Manifest:
    """Objects below an address, each in one version.

    Attributes
    ----------
    uri
        The address that was listed.
    objects
        The objects in the order of their keys.
    prefix
        Beginning of all keys, which paths on a machine do not have.
    notes
        Sentences for the user about the listing.
    """

    uri: StorageUri
    objects: tuple[StoredObject, ...]
    prefix: str
    notes: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """Hash of keys, sizes and versions: two listings of equal contents have one id."""
        state = hashlib.blake2b(digest_size=16)
        for each in sorted(self.objects, key=lambda each: each.key):
            path = each.key.removeprefix(self.prefix)
            state.update(f"{path}\0{each.size}\0{each.version}\0".encode())
        return state.hexdigest()

    @cached_property
    def nbytes(self) -> int:
        """Size of all objects together."""
        return sum(each.size for each in self.objects)

    @property
    def is_single(self) -> bool:
        """Whether the address is that of one object, and not of a folder."""
        return len(self.objects) == 1 and self.objects[0].key == self.uri.key

    def by_path(self, fold: FoldName = exact_name) -> dict[str, StoredObject]:
        """Return the objects by their paths in a folder.

        Raises
        ------
        SkyUsageError
            A folder cannot hold the keys.
        """
        names = self._names(fold)
        return {names.files[each.key]: each for each in self.objects if each.key in names.files}

    def dataset(self, fold: FoldName = exact_name) -> Dataset:
        """Return the dataset that machines cache.

        Raises
        ------
        SkyUsageError
            A folder cannot hold the keys.
        """
        names, store = self._names(fold), str(self.uri.root)
        objects = (
            CachedObject(
                names.files[each.key],
                object_identity(store, each.key, each.version, each.size),
                each.size,
            )
            for each in self.objects
            if each.key in names.files
        )
        return Dataset(tuple(objects), names.folders)

    def _names(self, fold: FoldName) -> TreeNames:
        return map_keys(
            str(self.uri), self.prefix, ((each.key, each.size) for each in self.objects), fold
        )

    def check_readable(self) -> None:
        """Raise SkyObjectArchived where objects must be restored first; names how many."""
        archived = [each for each in self.objects if each.readiness is not Readiness.READY]
        if not archived:
            return
        first = archived[0]
        message = _(
            "{uri}: {archived_count:,} of {objects_count:,} objects are in the "
            "archive class {storage_class}, such as {key}: they cannot be read"
        ).format(
            uri=self.uri,
            archived_count=len(archived),
            objects_count=len(self.objects),
            storage_class=first.storage_class,
            key=first.key,
        )
        hint = _(
            "restore them in the store first, which takes minutes to hours and is "
            "charged per GB; then run this again"
        )
        restoring = sum(each.readiness is Readiness.RESTORING for each in archived)
        if restoring:
            message += _("; {count:,} of them are being restored").format(count=restoring)
        if restoring == len(archived):
            hint = _("wait until the store has restored them, then run this again")
        raise SkyObjectArchived(message, hint=hint)


def list_objects(store: Store, uri: StorageUri) -> Manifest:
    """Return the objects at an address: one object, or all below a prefix.

    An address that ends with ``/`` is a folder. Of any other, an object of that very key is taken
    if there is one, else the folder.

    Raises
    ------
    SkyObjectMissing
        There is nothing; suggests keys that are near.
    """
    if uri.is_folder:
        objects = tuple(store.list(uri.key))
        if not objects:
            raise _nothing_below(store, uri)
        return Manifest(uri, objects, uri.key)
    try:
        found = store.stat(uri.key)
    except SkyObjectMissing:
        objects = tuple(store.list(uri.key + "/"))
        if not objects:
            raise _nothing_below(store, uri) from None
        return Manifest(uri, objects, uri.key + "/")
    notes: tuple[str, ...] = ()
    if next(iter(store.list(uri.key + "/")), None) is not None:
        notes = (
            f"{uri} is an object, and there are objects below {uri}/ as well: the object is "
            "meant; add / for the others",
        )
    return Manifest(uri, (found,), uri.key[: -len(uri.name)], notes)


def _nothing_below(store: Store, uri: StorageUri) -> SkyObjectMissing:
    """Return the error of an address at which there is nothing."""
    if not uri.key:
        return SkyObjectMissing(
            _("{uri} is empty: 0 objects").format(uri=uri),
            hint=_("%sky storage cp ./data/ brings a folder there"),
        )
    if uri.is_local:
        return _no_file(store, uri)
    known = suggest(uri.key.rstrip("/"), _near_keys(store, _parent(uri)))
    return SkyObjectMissing(
        _("0 objects below {uri}").format(uri=uri),
        hint=known
        if known.startswith("did you mean")
        else _(
            "a folder of a store is a beginning of keys: without objects there is "
            "none; %sky storage ls {root} shows what is there"
        ).format(root=uri.root),
    )


def _no_file(store: Store, uri: StorageUri) -> SkyObjectMissing:
    """Return the error of a path of this machine at which there is no file."""
    if uri.path.is_dir():
        return SkyObjectMissing(_("there are no files in {path}").format(path=uri.path))
    known = suggest(uri.path.name, [Path(key).name for key in _near_keys(store, _parent(uri))])
    return SkyObjectMissing(
        _("there is no file or folder {path}").format(path=uri.path),
        hint=known if known.startswith("did you mean") else None,
    )


def _parent(uri: StorageUri) -> str:
    """Return the key of the folder in which an address lies."""
    folder = uri.key.rstrip("/").rpartition("/")[0]
    return f"{folder}/" if folder else ""


def _near_keys(store: Store, prefix: str) -> list[str]:
    """Return the names below a prefix, as far as they can be listed."""
    keys: list[str] = []
    with suppress(SkyStorageError):  # what is wrong beside the address is not its fault
        keys.extend(name for name, _ in islice(store.list_level(prefix), NEAR_KEYS))
    return keys


def complete_keys(store: Store, prefix: str, limit: int) -> list[str]:
    """Return the names one level below a prefix, at most `limit`."""
    return [name for name, _ in islice(store.list_level(prefix), limit)]


def _read_usage(path: Path) -> Usage | None:
    """Return a size that was remembered; None where the file is damaged or of another version."""
    try:
        found = json.loads(path.read_text())
        return Usage(**{each.name: found[each.name] for each in fields(Usage)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True, slots=True)
class UsageMemory:
    """Sizes that this user's notebooks have measured, a file for each address.

    Attributes
    ----------
    folder
        Folder of the files.
    """

    folder: Path

    def recall(self, uri: StorageUri, now: float | None = None) -> Usage | None:
        """Return the size of an address that was measured within a day, if there is one."""
        usage = _read_usage(self._path(uri))
        if usage is None:
            return None
        age = (time.time() if now is None else now) - usage.measured
        return usage if 0 <= age <= REMEMBERED_SECONDS else None

    def all(self) -> list[Usage]:
        """Return the sizes that were measured within a day, the latest first."""
        usages = filter(None, map(_read_usage, self.folder.glob("*.json")))
        oldest = time.time() - REMEMBERED_SECONDS
        found = [usage for usage in usages if usage.measured >= oldest]
        return sorted(found, key=lambda usage: -usage.measured)

    def remember(self, manifest: Manifest, now: float | None = None) -> Usage:
        """Keep the size of a listing, and return it."""
        usage = Usage(
            str(manifest.uri),
            len(manifest.objects),
            manifest.nbytes,
            manifest.id,
            time.time() if now is None else now,
        )
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        data = json.dumps(asdict(usage)).encode()
        write_atomically(self._path(manifest.uri), data, durable=False)
        return usage

    def forget(self, uri: StorageUri) -> None:
        """Forget the sizes of the addresses of a bucket: something there has changed."""
        for path in self.folder.glob("*.json"):
            usage = _read_usage(path)
            known = uri if usage is None else StorageUri.parse(usage.uri)
            if (known.scheme, known.account, known.bucket) == (uri.scheme, uri.account, uri.bucket):
                path.unlink(missing_ok=True)

    def buckets(self) -> set[str]:
        """Return the addresses of the buckets that were measured, without a final ``/``."""
        uris = (StorageUri.parse(usage.uri) for usage in self.all())
        return {str(replace(uri.root, options={})) for uri in uris if not uri.is_local}

    def _path(self, uri: StorageUri) -> Path:
        digest = hashlib.blake2b(str(uri).encode(), digest_size=12).hexdigest()
        return self.folder / f"{digest}.json"
