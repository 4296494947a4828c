"""Azure Blob Storage by its REST interface: blocks, conditions, a signature for each request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from urllib.parse import urlencode
from xml.sax.saxutils import escape

from jupyter_sky.machines.storage.stores.answers import raise_for_status
from jupyter_sky.machines.storage.stores.azure_listing import (
    CRC_METADATA,
    BlobPage,
    archive_readiness,
    parse_blobs,
    storage_class,
    sums_of,
)
from jupyter_sky.machines.storage.stores.azure_signing import VERSION, SasSigner
from jupyter_sky.machines.storage.stores.azure_upload import (
    AzureUpload,
    check_key,
    condition_headers,
    crc_headers,
    new_upload_id,
)
from jupyter_sky.machines.storage.stores.connections import Connections, Headers, HttpAnswer
from jupyter_sky.machines.storage.stores.errors import (
    SkyObjectMissing,
    SkyRequestExpired,
    SkyStoragePermission,
    SkyTargetExists,
    SkyUploadConflict,
)
from jupyter_sky.machines.storage.stores.parts import choose_part_size, combined_crc32c
from jupyter_sky.machines.storage.stores.refusals import azure_permission_hint
from jupyter_sky.machines.storage.stores.retries import Retries
from jupyter_sky.machines.storage.stores.signing import SignedUrl, quote_path
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    MIB,
    Capability,
    Condition,
    Part,
    PartRequest,
    Span,
    Store,
    StoredObject,
    Upload,
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


class AzureStore:
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
