"""The protocol that every store follows, and the values that it takes and returns.

The notebook's machine lists, signs and completes through a `Store`. Bytes move by `PartRequest`
values, which any machine can carry out without credentials: see `part_worker`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable
from urllib.parse import parse_qsl, urlencode, urlsplit

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing, SkyStorageError
from jupyter_sky.machines.storage.stores.signing import SignedUrl
from jupyter_sky.machines.storage.stores.uri import StorageUri

MIB = 1024**2
SECRET_PARAMETERS = {
    "x-amz-signature",
    "x-amz-security-token",
    "x-amz-credential",
    "sig",
    "x-goog-signature",
}
SECRET_HEADERS = {"authorization", "x-amz-security-token", "sky-peer-key"}


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes from `start` up to, and without, `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.stop - self.start


class Readiness(Enum):
    """State of an object as to reading it."""

    READY = "can be read"
    ARCHIVED = "must be restored before it can be read"
    RESTORING = "is being restored"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One version of an object.

    Attributes
    ----------
    key : str
        Its name in the bucket.
    size : int
        Bytes.
    version : str
        What changes whenever the content does: ETag, generation, or size, time and inode of a file.
    sums : mapping of str to str
        Checksums of the whole content by lowercase name in hexadecimal: ``crc32c``, ``md5``.
        Listings have fewer than `Store.stat`.
    modified : float
        Unix time of the last change, 0 if unknown.
    storage_class : str
        Class as the store calls it, such as ``GLACIER``; empty for the standard one.
    readiness : Readiness
        Whether it can be read; those of some classes must be restored before.
    """

    key: str
    size: int
    version: str
    sums: Mapping[str, str] = field(default_factory=dict, hash=False)
    modified: float = 0.0
    storage_class: str = ""
    readiness: Readiness = Readiness.READY


@dataclass(frozen=True, slots=True)
class PartRequest:
    """A request that moves one span of bytes and needs no credentials beyond itself.

    Attributes
    ----------
    method : str
        ``GET`` reads, ``PUT`` writes.
    url : str
        Signed address; ``file:`` for a path on the machine that carries the request out.
    headers : mapping of str to str
        Headers that must be sent as they are.
    span : Span
        Bytes of the object that it moves.
    expires : float
        Unix time after which the store refuses it.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    span: Span
    expires: float = float("inf")

    @property
    def subject(self) -> str:
        """Method and address without query, for messages."""
        return f"{self.method} {self.url.partition('?')[0]}"

    def __repr__(self) -> str:
        """Show the address without its signature: logs must hold no grant."""
        return f"PartRequest({self.method} {masked(self.url)}, {self.span})"


@dataclass(frozen=True, slots=True)
class Part:
    """A part that a store has.

    Attributes
    ----------
    number : int
        From 1.
    span : Span
        Its bytes in the object.
    crc32c : int or None
        Checksum of its bytes; None where the store does not tell it.
    tag : str
        Name that the store gave it: ETag or block id.
    """

    number: int
    span: Span
    crc32c: int | None
    tag: str


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition of a write, which the store itself checks at the moment of publication.

    Attributes
    ----------
    absent : bool
        No object may have the key.
    version : str
        The object must have this version; empty for any.
    """

    absent: bool = False
    version: str = ""


ALWAYS = Condition()
IF_ABSENT = Condition(absent=True)
LAST_NAME = "\U0010ffff"
"""Name behind all others of a folder: a listing after it goes on behind the folder."""


@dataclass(frozen=True, slots=True)
class Capability:
    """Limits of a store, in bytes.

    Attributes
    ----------
    min_part, max_part : int
        Sizes of a part, except the last, which may be smaller.
    max_parts : int
        Parts of one upload.
    max_object : int
        Largest object.
    equal_parts : bool
        Whether all parts but the last must have one size.
    part_checksum : str
        Checksum that the store verifies with every part: ``crc32c``, ``md5`` or none.
    opening_requests : int
        Requests that begin an upload by parts.
    """

    min_part: int = 5 * MIB
    max_part: int = 5 * 1024 * MIB
    max_parts: int = 10_000
    max_object: int = 10_000 * 5 * 1024 * MIB
    equal_parts: bool = True
    part_checksum: str = "crc32c"
    opening_requests: int = 1


@dataclass(frozen=True, slots=True)
class Checksums:
    """Checksums of one part, taken before it is written.

    Attributes
    ----------
    crc32c : int
        CRC-32C.
    md5 : bytes
        MD5; empty unless the store wants it.
    """

    crc32c: int
    md5: bytes = b""


class Upload(Protocol):
    """An object that is being written; nobody sees it before `Store.end`."""

    @property
    def key(self) -> str:
        """Key of the object."""
        ...

    @property
    def id(self) -> str:
        """Name of the upload in its store, by which `Store.begin` goes on with it.

        Empty where the object is written by a single request.
        """
        ...

    @property
    def size(self) -> int:
        """Bytes of the object."""
        ...

    @property
    def part_size(self) -> int:
        """Bytes of each part but the last."""
        ...

    @property
    def condition(self) -> Condition:
        """Condition that the store checks when the object is published."""
        ...

    def write(self, number: int, sums: Checksums) -> PartRequest:
        """Return a request that writes part `number`, from 1; the store verifies `sums`."""
        ...

    def have(self) -> dict[int, Part]:
        """Ask the store for the parts that it has, by number."""
        ...

    def copy(self, number: int, source: Store, obj: StoredObject) -> Part:
        """Write part `number` by a copy inside the cloud; see `Store.can_copy_from`."""
        ...

    def abort(self) -> None:
        """Give up the upload and free its parts."""
        ...


@runtime_checkable
class Store(Protocol):
    """A bucket, container, host or file system.

    Every call may raise `SkyStoreBusy`, `SkyStoragePermission` and `SkyBucketMissing`.
    """

    @property
    def uri(self) -> StorageUri:
        """Address of the whole store."""
        ...

    @property
    def capability(self) -> Capability:
        """Limits of the store."""
        ...

    def stat(self, key: str) -> StoredObject:
        """Ask for size, version and checksums of an object; `SkyObjectMissing` if there is none."""
        ...

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield objects whose keys begin with `prefix` and come after `after`, in order of keys.

        Pages are asked for when they are needed: whoever stops early asks no more.
        """
        ...

    def read(self, obj: StoredObject, span: Span | None = None) -> PartRequest:
        """Return a request that reads `span` of this very version; by default all of it."""
        ...

    def begin(
        self,
        key: str,
        size: int,
        *,
        part_size: int = 0,
        condition: Condition = ALWAYS,
        upload_id: str = "",
    ) -> Upload:
        """Begin to write an object, or go on with the upload `upload_id`.

        Parameters
        ----------
        key : str
            Where.
        size : int
            Bytes of the object.
        part_size : int
            Bytes of a part; 0 lets the store choose.
        condition : Condition
            Checked by the store at the moment of publication.
        upload_id : str
            `Upload.id` of an earlier call with the same key, size and part size.
        """
        ...

    def end(self, upload: Upload, parts: Sequence[Part]) -> StoredObject:
        """Publish an upload whole, or raise and publish nothing.

        Raises
        ------
        SkyTargetExists
            The condition does not hold.
        SkyUploadConflict
            The store wants a new upload.
        SkyChecksumMismatch
            The store has other bytes than the parts say.
        """
        ...

    def remove(self, keys: Iterable[str]) -> None:
        """Delete objects; keys that do not exist are ignored."""
        ...

    def can_copy_from(self, other: Store) -> bool:
        """Whether objects of `other` can be copied here without passing through a machine."""
        ...

    def list_level(self, prefix: str) -> Iterator[tuple[str, StoredObject | None]]:
        """Yield name and object, or folder and None, of the names that begin with `prefix`."""
        ...

    def abort_uploads(self, key: str, since: float, until: float = ...) -> None:
        """Abort the open uploads of a key that were begun between two unix times."""
        ...


class StoreDefaults:
    """Methods of stores that know no better way."""

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield objects; every store overrides it."""
        raise NotImplementedError

    def list_level(self, prefix: str) -> Iterator[tuple[str, StoredObject | None]]:
        """Yield name and object, or folder and None, of the names that begin with `prefix`.

        A listing goes on behind each folder, so that one of a million objects is one request.
        """
        start, after = prefix[: prefix.rfind("/") + 1], ""
        while True:
            folder = ""
            for each in self.list(prefix, after):
                head, slash, __ = each.key[len(start) :].partition("/")
                if slash:
                    folder = start + head + slash
                    break
                yield each.key, each
            if not folder:
                return
            yield folder, None
            after = folder + LAST_NAME

    def abort_uploads(self, key: str, since: float, until: float = math.inf) -> None:
        """Abort the open uploads of a key that were begun between two unix times.

        Only stores that charge for uploads which nobody has completed have any.
        """


@runtime_checkable
class PresigningStore(Protocol):
    """A store that grants single requests to whoever has an address."""

    def presign(self, key: str, method: str, seconds: int) -> SignedUrl:
        """Return an address that is valid for up to `seconds`."""
        ...


def grants_only_parts(store: Store) -> bool:
    """Return whether the requests of a store grant nothing but themselves, to any machine.

    A request with a token grants all that the token does, and one for a file is of use on the
    machine of that file alone.
    """
    request = store.read(StoredObject("x", 1, "x"))
    if not request.url.startswith("http"):
        return False
    return "authorization" not in {name.lower() for name in request.headers}


def masked(url: str) -> str:
    """Return `url` without the values of its secret parameters.

    Examples
    --------
    >>> masked("https://b.s3.amazonaws.com/k?X-Amz-Expires=900&X-Amz-Signature=ab12")
    'https://b.s3.amazonaws.com/k?X-Amz-Expires=900&X-Amz-Signature=***'
    """
    parts = urlsplit(url)
    if not parts.query:
        return url
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = [(name, "***" if name.lower() in SECRET_PARAMETERS else value) for name, value in pairs]
    return parts._replace(query=urlencode(query, safe="*")).geturl()


# -- Conditions of writes, looked at after a store has refused a request that had several ---------


def holds(condition: Condition, store: Store, key: str) -> bool:
    """Return whether the condition of a write of `key` holds now.

    A copy inside a store has a condition for its source, too, and one answer for both.
    """
    if not condition.absent and not condition.version:
        return True
    try:
        there = store.stat(key).version
    except SkyObjectMissing:
        return not condition.version
    return not condition.absent and condition.version == there


# -- Clocks of stores, asked for where a signature was refused as too early or too late -----------


@runtime_checkable
class ClockedStore(Protocol):
    """A store whose requests are signed for a time by its own clock."""

    def learn_clock(self) -> bool:
        """Ask the store for its time; return whether another one was assumed."""
        ...


def learn_clocks(*stores: Store) -> bool:
    """Ask stores for their time; return whether another one was assumed of any."""
    wrong = False
    for store in stores:
        if isinstance(store, ClockedStore):
            with suppress(SkyStorageError):
                wrong = store.learn_clock() or wrong
    return wrong


# -- Division of an object into parts -------------------------------------------------------------

PART_SIZE = 16 * MIB
"""Size from which larger parts gain little, by the figures of Skyplane."""


def choose_part_size(size: int, capability: Capability, wanted: int = PART_SIZE) -> int:
    """Return the size of parts in bytes, in whole MiB, so that few enough parts hold the object.

    Raises
    ------
    SkyStorageError
        The object is larger than the store takes.

    Examples
    --------
    >>> choose_part_size(100 * 10**9, Capability()) // MIB
    16
    >>> choose_part_size(10**12, Capability()) // MIB
    96
    """
    if size > capability.max_object:
        limit = capability.max_object / 1e12
        raise SkyStorageError(
            _("an object of {size:.1f} TB is more than {limit:.1f} TB").format(
                size=size / 1000000000000.0, limit=limit
            )
        )
    spare = capability.max_parts - max(1, capability.max_parts // 1000)
    needed = -(-size // spare)
    whole = -(-max(wanted, needed) // MIB) * MIB
    return min(max(whole, capability.min_part), capability.max_part)


def part_count(size: int, part_size: int) -> int:
    """Return the number of parts; an empty object has one."""
    return max(1, -(-size // part_size))


def part_span(number: int, size: int, part_size: int) -> Span:
    """Return the bytes of part `number`, from 1.

    Examples
    --------
    >>> part_span(3, 40, 16)
    Span(start=32, stop=40)
    """
    start = (number - 1) * part_size
    return Span(start, min(size, start + part_size))


def combined_crc32c(parts: Sequence[Part]) -> int | None:
    """Return the CRC-32C of an object from its parts, None if one of them is not known."""
    from jupyter_sky.machines.storage.stores.checksums import combine_crc32c

    sums = [(part.crc32c, part.span.size) for part in parts if part.crc32c is not None]
    return combine_crc32c(sums) if len(sums) == len(parts) else None
