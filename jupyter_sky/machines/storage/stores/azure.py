"""Azure Blob Storage by its REST interface: blocks, conditions, a signature for each request."""

from __future__ import annotations

import base64
import binascii
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import unquote, urlencode
from xml.sax.saxutils import escape

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.answers import raise_for_status
from jupyter_sky.machines.storage.stores.azure_signing import VERSION, SasSigner
from jupyter_sky.machines.storage.stores.checksums import crc_to_hex
from jupyter_sky.machines.storage.stores.connections import Connections, Headers, HttpAnswer
from jupyter_sky.machines.storage.stores.errors import (
    Retries,
    SkyObjectMissing,
    SkyRequestExpired,
    SkySourceChanged,
    SkyStoragePermission,
    SkyTargetExists,
    SkyUploadConflict,
)
from jupyter_sky.machines.storage.stores.refusals import azure_permission_hint
from jupyter_sky.machines.storage.stores.signing import SignedUrl, quote_path
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    MIB,
    Capability,
    Checksums,
    Condition,
    Part,
    PartRequest,
    Readiness,
    Span,
    Store,
    StoreDefaults,
    StoredObject,
    Upload,
    choose_part_size,
    combined_crc32c,
    holds,
    part_span,
)
from jupyter_sky.machines.storage.stores.traffic import Tally, TrafficMeter, request_kind
from jupyter_sky.machines.storage.stores.uri import StorageUri

READ_SECONDS = 15 * 60
CALL_SECONDS = 5 * 60
DELETED_AT_ONCE = 16
AZURE_DOMAINS = (
    ".blob.core.windows.net",
    ".blob.core.usgovcloudapi.net",
    ".blob.core.chinacloudapi.cn",
)
"""Hosts of Microsoft, which copy blocks by themselves; Azurite does not."""

_CAPABILITY = Capability(
    min_part=1,
    max_part=4000 * MIB,
    max_parts=50_000,
    max_object=50_000 * 4000 * MIB,
    equal_parts=False,
    part_checksum="md5",
    opening_requests=0,
)


class AzureStore(StoreDefaults):
    """One container.

    Parameters
    ----------
    uri : StorageUri
        The container.
    endpoint : str
        Address of the account, such as ``https://account.blob.core.windows.net``.
    signer : SasSigner
        Grants requests.
    copy_domains : sequence of str
        Ends of the names of hosts that copy blocks from an address.
    retries : Retries, optional
        Repetition of requests that the store could not answer.
    """

    def __init__(
        self,
        uri: StorageUri,
        endpoint: str,
        signer: SasSigner,
        copy_domains: Sequence[str] = AZURE_DOMAINS,
        retries: Retries | None = None,
    ) -> None:
        self.uri, self.signer, self.capability = uri.root, signer, _CAPABILITY
        self._base = f"{endpoint.rstrip('/')}/{uri.bucket}"
        host = self._base.partition("://")[2].partition("/")[0].partition(":")[0]
        self._copies = host.endswith(tuple(copy_domains))
        self.meter = TrafficMeter()
        self._connections = Connections()
        self._retries = retries or Retries()
        self._clock_was_wrong = False

    @property
    def region(self) -> str:
        """Region as the address tells it: the store itself does not."""
        return self.uri.options.get("region", "")

    def stat(self, key: str) -> StoredObject:
        """Ask for size, version and checksums of a blob."""
        return _object(key, self.call("HEAD", key, "r").headers)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield blobs in the order of their names, by pages of 5,000.

        Azure cannot begin behind a name: pages before `after` are read and left out.
        """
        for __, blob in self._entries(prefix, {}):
            if blob is not None and blob.key > after:
                yield blob

    def list_level(self, prefix: str) -> Iterator[tuple[str, StoredObject | None]]:
        """Yield blobs and, with None, folders of one level; see `listing.list_level`."""
        yield from self._entries(prefix, {"delimiter": "/"})

    def read(self, obj: StoredObject, span: Span | None = None) -> PartRequest:
        """Return a request that reads a span of this version."""
        span = span or Span(0, obj.size)
        headers = {"If-Match": f'"{obj.version}"'} if obj.version else {}
        if span != Span(0, obj.size):
            headers["Range"] = f"bytes={span.start}-{span.stop - 1}"
        return self.request("GET", obj.key, "r", span, {}, headers)

    def begin(
        self,
        key: str,
        size: int,
        *,
        part_size: int = 0,
        condition: Condition = ALWAYS,
        upload_id: str = "",
    ) -> Upload:
        """Begin an upload, which asks Azure for nothing: blocks wait at the name of the blob."""
        check_key(key)
        part_size = part_size or choose_part_size(size, self.capability)
        if not upload_id and size > part_size:
            upload_id = new_upload_id()
        return AzureUpload(self, key, size, part_size, condition, upload_id)

    def end(self, upload: Upload, parts: Sequence[Part]) -> StoredObject:
        """Publish the blocks of an upload as a blob, which replaces an older one at once."""
        assert isinstance(upload, AzureUpload)
        parts = sorted(parts, key=lambda part: part.number)
        crc32c = combined_crc32c(parts)
        sums = {} if crc32c is None else {"crc32c": f"{crc32c:08x}"}
        if not upload.id:
            return StoredObject(upload.key, upload.size, parts[0].tag, sums)
        names = "".join(
            f"<Uncommitted>{escape(name)}</Uncommitted>" for name in upload.block_names(parts)
        )
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{names}</BlockList>'.encode()
        headers = crc_headers(crc32c) | condition_headers(upload.condition)
        try:
            answer = self.call("PUT", upload.key, "w", {"comp": "blocklist"}, headers, body)
        except (SkyUploadConflict, SkyTargetExists):
            published = self._published_before(upload, sums)
            if published is None:
                raise
            return published
        return StoredObject(upload.key, upload.size, answer.headers.get("ETag").strip('"'), sums)

    def remove(self, keys: Iterable[str]) -> None:
        """Delete blobs with their snapshots, several at once."""
        with ThreadPoolExecutor(DELETED_AT_ONCE, "sky-delete") as threads:
            for __ in threads.map(self._remove, keys):
                pass

    def can_copy_from(self, other: Store) -> bool:
        """Whether `other` is of Azure, too: it reads a signed address by itself."""
        return isinstance(other, AzureStore) and self._copies and other._copies

    def learn_clock(self) -> bool:
        """Ask the store for its time; return whether another one was assumed."""
        url, headers = f"{self._base}?restype=container", {"x-ms-version": VERSION}
        answer = self._connections.request("HEAD", url, headers)
        return self.signer.clock.learn(answer.headers.get("Date"))

    # -- for uploads

    def request(
        self,
        method: str,
        key: str,
        permissions: str,
        span: Span,
        query: Mapping[str, str],
        headers: Mapping[str, str],
    ) -> PartRequest:
        """Return a signed request that moves a span of `key`."""
        check_key(key)
        url, expires = self._sign(key, permissions, query, READ_SECONDS)
        return PartRequest(method, url, {"x-ms-version": VERSION, **headers}, span, expires)

    def call(
        self,
        method: str,
        key: str,
        permissions: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> HttpAnswer:
        """Send a request of the control plane; repeat it where that can help."""
        check_key(key)
        subject = f"{method} {self.uri.child(key) if key else self.uri}"

        def attempt() -> HttpAnswer:
            url, __ = self._sign(key, permissions, query or {}, CALL_SECONDS)
            sent = {"x-ms-version": VERSION, **(headers or {})}
            tally = Tally()
            try:
                answer = self._connections.request(method, url, sent, body, tally=tally)
            finally:
                self.meter.add(request_kind(method, query or {}), tally)
            self._clock_was_wrong = self.signer.clock.learn(answer.headers.get("Date"))
            return raise_for_status(answer, subject)

        try:
            return self._retries.run(attempt)
        except (SkyRequestExpired, SkyStoragePermission) as error:
            if not self._clock_was_wrong:
                if isinstance(error, SkyStoragePermission):
                    error.hint = azure_permission_hint(self.uri, permissions)
                raise
        return self._retries.run(attempt)

    def copy_source(self, source: Store, obj: StoredObject) -> str:
        """Return the signed address of a blob that another request reads."""
        assert isinstance(source, AzureStore)
        return source._sign(obj.key, "r", {}, READ_SECONDS)[0]

    def presign(self, key: str, method: str, seconds: int) -> SignedUrl:
        """Return an address that grants a request on a blob to whoever has it."""
        check_key(key)
        url, expires = self._sign(key, "r" if method == "GET" else "cw", {}, seconds)
        headers = {} if method == "GET" else {"x-ms-blob-type": "BlockBlob"}
        return SignedUrl(url, headers, expires)

    # -- private

    def _sign(
        self, key: str, permissions: str, query: Mapping[str, str], seconds: int
    ) -> tuple[str, float]:
        grant, expires = self.signer.sign(key, permissions, seconds)
        path = f"{self._base}/{quote_path(key)}" if key else self._base
        parameters = "&".join(filter(None, (urlencode(query), grant)))
        return f"{path}?{parameters}", expires

    def _entries(
        self, prefix: str, query: Mapping[str, str]
    ) -> Iterator[tuple[str, StoredObject | None]]:
        query = {"restype": "container", "comp": "list", "include": "metadata", **query}
        marker = ""
        while True:
            following = {"marker": marker} if marker else {}
            answer = self.call("GET", "", "l", {**query, "prefix": prefix, **following})
            page: BlobPage = parse_blobs(bytes(answer.body))
            yield from page.entries
            marker = page.marker
            if not marker:
                return

    def _remove(self, key: str) -> None:
        try:
            self.call("DELETE", key, "d", headers={"x-ms-delete-snapshots": "include"})
        except SkyObjectMissing:
            pass

    def _published_before(self, upload: Upload, sums: Mapping[str, str]) -> StoredObject | None:
        """Return the blob if an earlier request published it and only its answer was lost."""
        try:
            there = self.stat(upload.key)
        except SkyObjectMissing:
            return None
        is_same = bool(sums) and there.sums.get("crc32c") == sums["crc32c"]
        return there if is_same and there.size == upload.size else None


def _object(key: str, headers: Headers) -> StoredObject:
    modified = headers.get("Last-Modified")
    return StoredObject(
        key,
        int(headers.get("Content-Length") or 0),
        headers.get("ETag").strip('"'),
        sums_of(headers.get("Content-MD5"), headers.get(f"x-ms-meta-{CRC_METADATA}")),
        parsedate_to_datetime(modified).timestamp() if modified else 0.0,
        storage_class(headers.get("x-ms-access-tier")),
        archive_readiness(headers.get("x-ms-access-tier"), headers.get("x-ms-archive-status")),
    )


# -- Uploads by blocks to Azure -------------------------------------------------------------------
#
# Azure has no uploads, only blocks that wait at the name of a blob until one list names them. The
# id of a block therefore tells the upload, the number of the part and its CRC-32C: the store's own
# list of blocks is all that is needed to go on.

_UNKNOWN_CRC = "--------"
_ID_SIZE = 16


@dataclass(frozen=True, slots=True)
class AzureUpload:
    """An upload of a store; see `Upload`."""

    store: AzureStore
    key: str
    size: int
    part_size: int
    condition: Condition
    id: str

    def write(self, number: int, sums: Checksums) -> PartRequest:
        """Return a request that writes a block, which the store compares with its MD5."""
        span = part_span(number, self.size, self.part_size)
        md5 = {"Content-MD5": base64.b64encode(sums.md5).decode()} if sums.md5 else {}
        if not self.id:
            headers = md5 | self.blob_headers(sums.crc32c) | condition_headers(self.condition)
            return self.store.request("PUT", self.key, "w", span, {}, headers)
        query = {"comp": "block", "blockid": block_id(self.id, number, sums.crc32c)}
        return self.store.request("PUT", self.key, "w", span, query, md5)

    def blob_headers(self, crc32c: int | None) -> dict[str, str]:
        """Return headers that make a blob of one request."""
        return {"x-ms-blob-type": "BlockBlob", **crc_headers(crc32c)}

    def have(self) -> dict[int, Part]:
        """Ask the store for the blocks of this upload."""
        if not self.id:
            return {}
        query = {"comp": "blocklist", "blocklisttype": "uncommitted"}
        try:
            answer = self.store.call("GET", self.key, "r", query)
        except SkyObjectMissing:
            return {}
        parts: dict[int, list[Part]] = {}
        for name, size in parse_blocks(bytes(answer.body)):
            part = self._part(name, size)
            if part:
                parts.setdefault(part.number, []).append(part)
        # two blocks with one number hold different bytes: it is sent again
        return {number: found[0] for number, found in parts.items() if len(found) == 1}

    def copy(self, number: int, source: Store, obj: StoredObject) -> Part:
        """Write a block by a copy between accounts or containers, of the very version `obj`."""
        span = part_span(number, self.size, self.part_size)
        url = self.store.copy_source(source, obj)
        headers = {"x-ms-copy-source": url, "x-ms-source-if-match": f'"{obj.version}"'}
        query: dict[str, str] = {}
        name = ""
        if self.id:
            name = block_id(self.id, number, None)
            query = {"comp": "block", "blockid": name}
            if span != Span(0, obj.size):
                headers["x-ms-source-range"] = f"bytes={span.start}-{span.stop - 1}"
        else:
            headers |= self.blob_headers(_crc_of(obj)) | condition_headers(self.condition)
        try:
            answer = self.store.call("PUT", self.key, "w", query, headers)
        except SkyTargetExists as error:
            if self.id or holds(self.condition, self.store, self.key):
                raise SkySourceChanged(
                    _("{key} has changed").format(key=source.uri.child(obj.key))
                ) from error
            raise
        return Part(number, span, None, name or answer.headers.get("ETag").strip('"'))

    def abort(self) -> None:
        """Leave the blocks to Azure, which removes them after a week.

        Nothing else removes them without publishing a blob. The next upload of the same blob does.
        """

    def block_names(self, parts: list[Part]) -> list[str]:
        """Return the ids of the blocks of parts."""
        return [
            part.tag if part.crc32c is None else block_id(self.id, part.number, part.crc32c)
            for part in parts
        ]

    def _part(self, name: str, size: int) -> Part | None:
        """Return the part that a block holds; None for blocks of others."""
        try:
            text = base64.b64decode(name, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None
        number, crc = text[_ID_SIZE : _ID_SIZE + 5], text[_ID_SIZE + 5 :]
        if not text.startswith(self.id) or not number.isdigit() or len(crc) != 8:
            return None
        span = part_span(int(number), self.size, self.part_size)
        if size != span.size:
            return None
        return Part(int(number), span, None if crc == _UNKNOWN_CRC else int(crc, 16), name)


def block_id(upload: str, number: int, crc32c: int | None) -> str:
    """Return the id of a block; all ids of a blob have one length.

    Examples
    --------
    >>> base64.b64decode(block_id("0123456789abcdef", 7, 0xE3069283))
    b'0123456789abcdef00007e3069283'
    """
    crc = _UNKNOWN_CRC if crc32c is None else crc_to_hex(crc32c)
    return base64.b64encode(f"{upload}{number:05d}{crc}".encode()).decode()


def crc_headers(crc32c: int | None) -> dict[str, str]:
    """Return headers that note the CRC-32C of a blob in its metadata."""
    return {} if crc32c is None else {f"x-ms-meta-{CRC_METADATA}": crc_to_hex(crc32c)}


def condition_headers(condition: Condition) -> dict[str, str]:
    """Return headers of a condition of a write."""
    if condition.absent:
        return {"If-None-Match": "*"}
    return {"If-Match": f'"{condition.version}"'} if condition.version else {}


def check_key(key: str) -> None:
    """Raise SkyInvalidKey for a key that no blob can have: Azure resolves ``..`` in addresses."""
    from jupyter_sky.machines.storage.stores.errors import SkyInvalidKey

    if not {".", ".."}.isdisjoint(key.split("/")):
        reason = _("Azure resolves . and .. in addresses")
    elif len(key) > 1024:
        reason = _("names of blobs have up to 1,024 characters")
    else:
        return
    raise SkyInvalidKey(
        _("the key {key!r} cannot be the name of a blob: {reason}").format(key=key, reason=reason)
    )


def new_upload_id() -> str:
    """Return the id of a new upload."""
    import secrets

    return secrets.token_hex(_ID_SIZE // 2)


def _crc_of(obj: StoredObject) -> int | None:
    text = obj.sums.get("crc32c")
    return int(text, 16) if text else None


# -- Pages of listings in Azure's XML -------------------------------------------------------------

CRC_METADATA = "skycrc32c"
"""Name of the metadata that hold the CRC-32C of a blob, which Azure itself does not keep."""


@dataclass(frozen=True, slots=True)
class BlobPage:
    """Blobs of one page in their order, folders among them, and the marker of the next page.

    Attributes
    ----------
    entries : tuple
        Name and blob; None for a folder.
    marker : str
        Empty for the last page.
    """

    entries: tuple[tuple[str, StoredObject | None], ...]
    marker: str


def parse_blobs(body: bytes) -> BlobPage:
    """Return the blobs of a page; folders of accounts that have real ones are left out."""
    root = ET.fromstring(body.decode("utf-8-sig"))
    entries = []
    for node in root.iterfind("Blobs/*"):
        name = _name(node)
        if node.tag == "BlobPrefix":
            entries.append((name, None))
        elif node.findtext("Properties/ResourceType", "file") == "file":
            entries.append((name, _blob(name, node)))
    return BlobPage(tuple(entries), root.findtext("NextMarker") or "")


def parse_blocks(body: bytes) -> Iterator[tuple[str, int]]:
    """Yield id and size of the blocks that were not committed."""
    root = ET.fromstring(body.decode("utf-8-sig"))
    for node in root.iterfind("UncommittedBlocks/Block"):
        yield node.findtext("Name", ""), int(node.findtext("Size", "0"))


def sums_of(md5: str, crc32c: str) -> dict[str, str]:
    """Return checksums as `StoredObject.sums` holds them, from what Azure tells; empty for none."""
    sums = {"crc32c": crc32c} if len(crc32c) == 8 else {}
    return sums | ({"md5": base64.b64decode(md5).hex()} if md5 else {})


def storage_class(tier: str) -> str:
    """Return the class of a tier: none for the standard one."""
    return "" if tier in ("", "Hot") else tier


def archive_readiness(tier: str, status: str) -> Readiness:
    """Return whether a blob can be read, from its tier and the status of its archive.

    Examples
    --------
    >>> archive_readiness("Archive", "rehydrate-pending-to-hot")
    <Readiness.RESTORING: 'is being restored'>
    """
    if tier != "Archive":
        return Readiness.READY
    return Readiness.RESTORING if status else Readiness.ARCHIVED


def _blob(name: str, node: ET.Element) -> StoredObject:
    def text(path: str) -> str:
        return node.findtext(path) or ""

    modified = text("Properties/Last-Modified")
    return StoredObject(
        name,
        int(text("Properties/Content-Length") or 0),
        text("Properties/Etag").strip('"'),
        sums_of(text("Properties/Content-MD5"), text(f"Metadata/{CRC_METADATA}")),
        parsedate_to_datetime(modified).timestamp() if modified else 0.0,
        storage_class(text("Properties/AccessTier")),
        archive_readiness(text("Properties/AccessTier"), text("Properties/ArchiveStatus")),
    )


def _name(node: ET.Element) -> str:
    """Return the name of an entry; one that XML cannot hold comes quoted."""
    name = node.find("Name")
    if name is None or name.text is None:
        return ""
    return unquote(name.text) if name.get("Encoded") == "true" else name.text
