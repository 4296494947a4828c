"""Plan of a copy: which objects go where, and what is there already. Nothing is ever deleted."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import format_size
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.checksums import crc32c, crc_to_hex
from jupyter_sky.machines.storage.stores.errors import SkyInvalidKey, SkyTargetExists
from jupyter_sky.machines.storage.stores.files import FilesStore
from jupyter_sky.machines.storage.stores.listing import Manifest
from jupyter_sky.machines.storage.stores.object_transfer import TransferItem
from jupyter_sky.machines.storage.stores.ssh_store import SshStore
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    IF_ABSENT,
    MIB,
    Condition,
    Store,
    StoredObject,
)
from jupyter_sky.machines.storage.stores.uri import FoldName, StorageUri, exact_name, map_keys

SHOWN_KEYS = 3
COMPARED_AT_ONCE = 16
MAX_KEY_BYTES = 1024
"""Longest key of Amazon, Google and Azure."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Objects of a copy.

    Attributes
    ----------
    items
        Objects to move, with their keys in the target.
    same
        Number of objects that the target has with equal size and checksum.
    replaced
        Keys in the target that get other contents.
    """

    source: StorageUri
    target: StorageUri
    items: tuple[TransferItem, ...]
    same: int = 0
    replaced: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes to move."""
        return sum(item.source.size for item in self.items)

    @property
    def condition(self) -> Condition:
        """Condition of each write: what another has written meanwhile is not replaced."""
        return ALWAYS if self.replaced else IF_ABSENT

    def __str__(self) -> str:
        count = len(self.items)
        amount = f"{format_size(self.nbytes)} in {count:,} object{'s' * (count != 1)}"
        there = f", {self.same:,} there already" if self.same else ""
        replaced = f", {len(self.replaced):,} replaced" if self.replaced else ""
        return f"{amount}{there}{replaced}, {self.source} → {self.target}"


def plan_copy(
    manifest: Manifest,
    source: Store,
    store: Store,
    target: StorageUri,
    fold: FoldName = exact_name,
) -> CopyPlan:
    """Return what a copy moves, after comparing with what the target has.

    A final ``/`` on both addresses means the contents; without one at the source, its last name
    goes with it into a target that ends with ``/``, as `cp` does.

    Parameters
    ----------
    manifest
        Objects of the source.
    source
        Their store.
    store, target
        Where they go.
    fold
        Comparison of names of the target, see `jupyter_sky.machines.storage.stores.uri`.

    Raises
    ------
    SkyUsageError
        The target cannot hold the keys, or is inside the source.
    SkyDiskFull
        The target is a folder, and its disk has no room.
    """
    keys = _target_keys(manifest, target, fold)
    _check_apart(manifest, source, store, keys)
    there = _objects_there(store, target, keys)
    common = [found for found in manifest.objects if keys.get(found.key) in there]
    old = [(found, there[keys[found.key]]) for found in common]
    with ThreadPoolExecutor(COMPARED_AT_ONCE) as pool:
        equal = list(pool.map(lambda pair: is_same(source, pair[0], store, pair[1]), old))
    same = {found.key for (found, __), is_equal in zip(old, equal, strict=True) if is_equal}
    items = tuple(
        TransferItem(found, keys[found.key])
        for found in manifest.objects
        if found.key in keys and found.key not in same
    )
    if isinstance(store, FilesStore):
        store.check_room(target.key, sum(item.source.size for item in items))
    replaced = tuple(item.key for item in items if item.key in there)
    return CopyPlan(manifest.uri, target, items, len(same), replaced)


def check_replaced(plan: CopyPlan) -> None:
    """Raise SkyTargetExists where a copy would replace objects that differ; names them."""
    if plan.replaced:
        shown = ", ".join(plan.replaced[:SHOWN_KEYS])
        more = len(plan.replaced) - SHOWN_KEYS
        rest = f" and {more:,} more" if more > 0 else ""
        raise SkyTargetExists(
            _(
                "{target} has other contents in {shown}{rest}, as far as checksums "
                "tell: nothing was copied"
            ).format(target=plan.target, shown=shown, rest=rest),
            hint=_("overwrite=True (--overwrite) replaces them"),
        )


def is_same(source: Store, one: StoredObject, target: Store, other: StoredObject) -> bool:
    """Return whether two objects have equal contents, as far as their checksums tell."""
    if one.size != other.size:
        return False
    sums, others = _sums(source, one), _sums(target, other)
    common = sums.keys() & others.keys()
    return bool(common) and all(sums[name] == others[name] for name in common)


def _sums(store: Store, found: StoredObject) -> Mapping[str, str]:
    """Return the checksums of an object, computed for a file of this machine."""
    if isinstance(store, FilesStore):
        md5, crc = hashlib.md5(usedforsecurity=False), 0
        with store.path(found.key).open("rb") as file:
            while piece := file.read(MIB):
                md5.update(piece)
                crc = crc32c(piece, crc)
        return {"md5": md5.hexdigest(), "crc32c": crc_to_hex(crc)}
    if isinstance(store, SshStore):
        return store.sums(found.key)
    return found.sums or store.stat(found.key).sums


def _target_keys(manifest: Manifest, target: StorageUri, fold: FoldName) -> dict[str, str]:
    """Return the key in the target of each key of the source."""
    if manifest.is_single:
        name = manifest.uri.name
        return {manifest.uri.key: target.child(name).key if target.is_folder else target.key}
    folder = target if target.is_folder else target.child("")
    if target.is_folder and not manifest.uri.is_folder:
        folder = target.child(manifest.uri.name + "/")
    sizes = ((each.key, each.size) for each in manifest.objects)
    if target.scheme in ("file", "ssh"):
        paths: Mapping[str, str] = map_keys(str(manifest.uri), manifest.prefix, sizes, fold).files
    else:
        paths = {key: key.removeprefix(manifest.prefix) for key, __ in sizes}
        _check_lengths(str(target), [folder.key + path for path in paths.values()])
    return {key: folder.key + path for key, path in paths.items() if folder.key + path}


def _check_lengths(target: str, keys: Sequence[str]) -> None:
    """Refuse keys that no object store takes."""
    long = [key for key in keys if len(key) > MAX_KEY_BYTES / 4 and _is_long(key)]
    if long:
        raise SkyInvalidKey(
            _("{target} cannot hold {key}…: a key has at most {limit:,} bytes").format(
                target=target, key=long[0][:60], limit=MAX_KEY_BYTES
            ),
            hint=_("copy folders that lie deeper one by one, or give them shorter names"),
        )


def _is_long(key: str) -> bool:
    return len(key.encode("utf-8", "surrogatepass")) > MAX_KEY_BYTES


def _check_apart(manifest: Manifest, source: Store, store: Store, keys: Mapping[str, str]) -> None:
    if _address(manifest.uri) != _address(store.uri):
        return
    if manifest.uri.is_local or source.uri.options == store.uri.options:
        own = {each.key for each in manifest.objects}
        for name, key in keys.items():
            if key in own or (manifest.uri.is_folder and key.startswith(manifest.uri.key)):
                raise SkyUsageError(
                    _("{source} would be copied to {key}, which is part of the source").format(
                        source=name, key=key
                    ),
                    hint=_("copy to an address outside of it"),
                )


def _address(uri: StorageUri) -> Sequence[str]:
    return uri.scheme, uri.account, uri.bucket


def _objects_there(
    store: Store, target: StorageUri, keys: Mapping[str, str]
) -> dict[str, StoredObject]:
    """Return the objects of the target that have one of the keys."""
    wanted = set(keys.values())
    prefix = target.key
    if len(wanted) == 1:
        prefix = next(iter(wanted))
    found: dict[str, StoredObject] = {}
    for each in store.list(prefix):
        if each.key in wanted:
            found[each.key] = each
        if len(wanted) == 1:
            break  # the key itself comes first of all that begin with it
    return found
