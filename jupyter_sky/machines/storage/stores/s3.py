"""Stores of Amazon's dialect: S3, R2, MinIO and, with a token, Google Cloud Storage."""

from __future__ import annotations

import base64
import hashlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import unescape
from xml.sax.saxutils import escape

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.answers import raise_for_status
from jupyter_sky.machines.storage.stores.connections import Bytes, Connections, Headers, HttpAnswer
from jupyter_sky.machines.storage.stores.dialects import CompatibleDialect
from jupyter_sky.machines.storage.stores.errors import (
    Retries,
    SkyBucketMissing,
    SkyChecksumMismatch,
    SkyObjectMissing,
    SkyRequestExpired,
    SkySourceChanged,
    SkyStoragePermission,
    SkyStorageRegion,
    SkyTargetExists,
    SkyUploadMissing,
)
from jupyter_sky.machines.storage.stores.refusals import (
    check_deletions,
    explain_refusal,
    missing_permission,
)
from jupyter_sky.machines.storage.stores.s3_listing import (
    archive_readiness,
    find_field,
    parse_buckets,
    parse_page,
    parse_parts,
    parse_uploads,
)
from jupyter_sky.machines.storage.stores.signing import SignedUrl, Signer, quote_path
from jupyter_sky.machines.storage.stores.store import (
    ALWAYS,
    Capability,
    Checksums,
    Condition,
    Part,
    PartRequest,
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
"""Validity of a request for a part: long enough for slow lines, short for a grant."""

CALL_SECONDS = 5 * 60
DELETE_PAGE = 1000
SKEW_SECONDS = 2.0
"""Rounding of the times of uploads, and differences of clocks that nobody has told yet."""


class S3Store(StoreDefaults):
    """One bucket.

    Parameters
    ----------
    uri : StorageUri
        The bucket.
    locate : callable
        Returns origin and first part of the path from the region: ``("https://h", "/bucket")``.
    signer : Signer
        Adds signatures or tokens.
    dialect : CompatibleDialect
        Headers of this kind of store.
    retries : Retries, optional
        Repetition of requests that the store could not answer.
    """

    def __init__(
        self,
        uri: StorageUri,
        locate: Callable[[str], tuple[str, str]],
        signer: Signer,
        dialect: CompatibleDialect,
        retries: Retries | None = None,
    ) -> None:
        self.uri, self.dialect, self.signer = uri.root, dialect, signer
        self._locate = locate
        self._always = dialect.payer_headers(uri.options.get("payer", ""))
        self.meter = TrafficMeter()
        self._connections = Connections()
        self._retries = retries or Retries()

    @property
    def capability(self) -> Capability:
        """Limits of the store."""
        return self.dialect.capability

    @property
    def region(self) -> str:
        """Region that requests go to."""
        return self.signer.region

    def ask_region(self) -> str:
        """Ask the store for the region of its bucket; empty where it does not tell it."""
        if self.dialect.prefix == "x-goog-":
            answer = self.call("GET", "", {"location": ""})
            return find_field(answer.body, "LocationConstraint").lower()
        return self._ask_region()

    def stat(self, key: str) -> StoredObject:
        """Ask for size, version and checksums of an object."""
        answer = self.call("HEAD", key, headers=self.dialect.stat_headers())
        return self._object(key, answer.headers)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield objects in the order of their keys, by pages of 1,000."""
        query = {"list-type": "2", "encoding-type": "url", "prefix": prefix}
        following = {"start-after": after} if after else {}
        while True:
            answer = self.call("GET", "", {**query, **following}, self.dialect.list_headers())
            page = parse_page(bytes(answer.body), self.dialect.listed_version)
            yield from page.objects
            if not page.token:
                return
            following = {"continuation-token": page.token}

    def read(self, obj: StoredObject, span: Span | None = None) -> PartRequest:
        """Return a request that reads a span of this version."""
        span = span or Span(0, obj.size)
        headers = self.dialect.read_headers(obj.version, span, obj.size)
        return self.request("GET", obj.key, span, headers=headers)

    def begin(
        self,
        key: str,
        size: int,
        *,
        part_size: int = 0,
        condition: Condition = ALWAYS,
        upload_id: str = "",
    ) -> Upload:
        """Begin an upload; an object of one part is written by one request, without beginning."""
        part_size = part_size or choose_part_size(size, self.capability)
        if not upload_id and size > part_size:
            headers = self.dialect.begin_headers()
            remove_lost = partial(self.abort_uploads, key, self.signer.clock.now() - SKEW_SECONDS)
            answer = self.call("POST", key, {"uploads": ""}, headers, before_retry=remove_lost)
            upload_id = find_field(answer.body, "UploadId")
        return S3Upload(self, key, size, part_size, condition, upload_id)

    def end(self, upload: Upload, parts: Sequence[Part]) -> StoredObject:
        """Complete an upload; the store compares the checksum of the whole object."""
        parts = sorted(parts, key=lambda part: part.number)
        crc32c = combined_crc32c(parts)
        if not upload.id:
            return self._written(upload, parts[0].tag, crc32c)
        headers = {
            **self.dialect.end_headers(crc32c),
            **self.dialect.condition_headers(upload.condition),
        }
        inner = "".join(
            f"<Part><PartNumber>{part.number}</PartNumber><ETag>{escape(part.tag)}</ETag></Part>"
            for part in parts
        )
        body = f"<CompleteMultipartUpload>{inner}</CompleteMultipartUpload>".encode()
        query = {"uploadId": upload.id}
        try:
            answer = self.call("POST", upload.key, query, headers, body)
        except (SkyUploadMissing, SkyTargetExists):
            published = self._published_before(upload, parts, crc32c)
            if published is None:
                raise
            return published
        version = self.dialect.version(answer.headers)
        if not answer.headers.get("ETag") and not version:
            version = find_field(answer.body, "ETag").strip('"')
        written = self._written(upload, version, crc32c)
        told = self.dialect.sums(answer.headers).get("crc32c")
        if told and written.sums.get("crc32c", told) != told:
            self.remove([upload.key])
            raise SkyChecksumMismatch(
                _("{key} differs from what was sent").format(key=self.uri.child(upload.key))
            )
        return written

    def remove(self, keys: Iterable[str]) -> None:
        """Delete objects, up to 1,000 by one request."""
        page: list[str] = []
        for key in keys:
            page.append(key)
            if len(page) == DELETE_PAGE:
                self._remove_page(page)
                page = []
        if page:
            self._remove_page(page)

    def with_signer(self, signer: Signer) -> S3Store:
        """Return the same bucket with other credentials."""
        return S3Store(self.uri, self._locate, signer, self.dialect, self._retries)

    def abort_uploads(self, key: str, since: float, until: float = math.inf) -> None:
        """Abort the open uploads of a key that were begun between two unix times."""
        query, markers = {"uploads": "", "prefix": key, "encoding-type": "url"}, {}
        while True:
            page = parse_uploads(bytes(self.call("GET", "", query | markers).body))
            for name, upload_id, begun in page.uploads:
                if name == key and since <= begun <= until:
                    S3Upload(self, key, 0, 1, ALWAYS, upload_id).abort()
            markers = page.markers
            if not markers:
                return

    def can_copy_from(self, other: Store) -> bool:
        """Whether `other` is a bucket at the same endpoint."""
        if not isinstance(other, S3Store) or other.dialect.prefix != self.dialect.prefix:
            return False
        same = other.uri.scheme == self.uri.scheme and other.uri.account == self.uri.account
        ours, theirs = self.uri.options, other.uri.options
        return same and all(ours.get(name) == theirs.get(name) for name in ("endpoint", "profile"))

    def presign(self, key: str, method: str, seconds: int) -> SignedUrl:
        """Return an address that grants a request on an object to whoever has it."""
        origin, base = self._locate(self.signer.region)
        path = f"{base}/{quote_path(key)}"
        return self.signer.presign(method, origin, path, seconds)

    def learn_clock(self) -> bool:
        """Ask the store for its time; return whether another one was assumed."""
        return self.signer.clock.learn(self._ask_anonymously().get("Date"))

    # -- for uploads

    def request(
        self,
        method: str,
        key: str,
        span: Span,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> PartRequest:
        """Return a signed request that moves a span of `key`."""
        origin, base = self._locate(self.signer.region)
        path = f"{base}/{quote_path(key)}"
        headers = {**self._always, **(headers or {})}
        signed = self.signer.sign(method, origin, path, query or {}, headers, READ_SECONDS)
        return PartRequest(method, signed.url, signed.headers, span, signed.expires)

    def call(
        self,
        method: str,
        key: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        path: str = "",
        before_retry: Callable[[], object] = lambda: None,
    ) -> HttpAnswer:
        """Send a request of the control plane; repeat it where that can help.

        A `path` stands for that of the bucket and the key.
        """
        query, headers = query or {}, {**self._always, **(headers or {})}
        subject = f"{method} {self.uri.child(key) if key else self.uri}"

        def attempt() -> HttpAnswer:
            origin, base = self._locate(self.signer.region)
            target = path or (f"{base}/{quote_path(key)}" if key or not base else base)
            answer = self._send(method, origin, target, query, headers, body)
            return raise_for_status(answer, subject)

        try:
            return self._retries.run(attempt, before_retry)
        except SkyRequestExpired:
            if not self._clock_was_wrong:
                raise
        except SkyStorageRegion as error:
            self._learn_region(error)
        except (SkyBucketMissing, SkyStoragePermission) as error:
            needed = missing_permission(self.uri.scheme, method, key, query)
            raise explain_refusal(error, self.uri, needed, self._own_buckets) from error
        return self._retries.run(attempt, before_retry)

    def _send(
        self,
        method: str,
        origin: str,
        path: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes = b"",
    ) -> HttpAnswer:
        """Sign and send a request, count it, and learn the time of the store."""
        signed = self.signer.sign(method, origin, path, query, headers, CALL_SECONDS)
        tally = Tally()
        try:
            answer = self._connections.request(
                method, signed.url, signed.headers, body, tally=tally
            )
        finally:
            self.meter.add(request_kind(method, query), tally)
        self._clock_was_wrong = self.signer.clock.learn(answer.headers.get("Date"))
        return answer

    def _learn_region(self, error: SkyStorageRegion) -> None:
        """Take over the region of the bucket, or raise where it is no other."""
        region = error.region or self._ask_region()
        if not region or region == self.signer.region:
            raise error
        warnings.warn(
            _("{bucket} is in {region}, not in {other}: it is asked there").format(
                bucket=self.uri.bucket, region=region, other=self.signer.region
            ),
            stacklevel=4,
        )
        self.signer.region = region

    def _own_buckets(self) -> list[str]:
        """Return the names of the buckets of the account, as far as it may list them."""
        origin, base = self._locate(self.signer.region)
        if not base:
            origin = origin.replace(f"//{self.uri.bucket}.", "//", 1)
        answer = raise_for_status(self._send("GET", origin, "/", {}, {}), f"GET {origin}/")
        return parse_buckets(bytes(answer.body))

    # -- private

    _clock_was_wrong = False

    def _ask_region(self) -> str:
        """Ask for the region of the bucket; empty where nobody tells it."""
        return self._ask_anonymously().get("x-amz-bucket-region") or ""

    def _ask_anonymously(self) -> Headers:
        """Return the headers of the store's answer to a request without credentials."""
        origin, base = self._locate(self.signer.region)
        tally = Tally()
        answer = self._connections.request("HEAD", f"{origin}{base or '/'}", {}, tally=tally)
        self.meter.add("read", tally)
        return answer.headers

    def _object(self, key: str, headers: Headers) -> StoredObject:
        from email.utils import parsedate_to_datetime

        modified = headers.get("Last-Modified")
        storage_class = headers.get(f"{self.dialect.prefix}storage-class")
        return StoredObject(
            key,
            int(headers.get("Content-Length") or 0),
            self.dialect.version(headers),
            self.dialect.sums(headers),
            parsedate_to_datetime(modified).timestamp() if modified else 0.0,
            storage_class,
            archive_readiness(storage_class, headers.get("x-amz-restore")),
        )

    def _written(self, upload: Upload, version: str, crc32c: int | None) -> StoredObject:
        sums = {} if crc32c is None else {"crc32c": f"{crc32c:08x}"}
        return StoredObject(upload.key, upload.size, version, sums)

    def _published_before(
        self, upload: Upload, parts: Sequence[Part], crc32c: int | None
    ) -> StoredObject | None:
        """Return the object if an earlier request published it and only its answer was lost."""
        try:
            there = self.stat(upload.key)
        except SkyObjectMissing:
            return None
        told = there.sums.get("crc32c", "")
        is_same = crc32c is not None and told == f"{crc32c:08x}"
        return there if is_same or there.version == _etag_of_parts(parts) else None

    def _remove_page(self, keys: Sequence[str]) -> None:
        if len(keys) == 1 or self.dialect.prefix == "x-goog-":  # Google has no multiple deletion
            for key in keys:
                self.call("DELETE", key)
            return
        inner = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
        body = f"<Delete><Quiet>true</Quiet>{inner}</Delete>".encode()
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        answer = self.call("POST", "", {"delete": ""}, {"Content-MD5": digest}, body)
        check_deletions(self.uri, bytes(answer.body))


def _etag_of_parts(parts: Sequence[Part]) -> str:
    """Return the ETag that most stores give an object of these parts."""
    try:
        digests = b"".join(bytes.fromhex(part.tag) for part in parts)
    except ValueError:
        return ""
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(parts)}"


# -- Uploads by parts in Amazon's dialect ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class S3Upload:
    """An upload of a store; see `Upload`."""

    store: S3Store
    key: str
    size: int
    part_size: int
    condition: Condition
    id: str

    def write(self, number: int, sums: Checksums) -> PartRequest:
        """Return a request that writes a part, which the store compares with `sums`."""
        span = part_span(number, self.size, self.part_size)
        headers = self.store.dialect.part_headers(sums)
        if not self.id:
            headers |= self.store.dialect.condition_headers(self.condition)
            return self.store.request("PUT", self.key, span, headers=headers)
        query = {"partNumber": str(number), "uploadId": self.id}
        return self.store.request("PUT", self.key, span, query, headers)

    def have(self) -> dict[int, Part]:
        """Ask the store for the parts that it has."""
        parts: dict[int, Part] = {}
        marker = 0
        while self.id:
            query = {"uploadId": self.id, "max-parts": "1000"}
            if marker:
                query["part-number-marker"] = str(marker)
            answer = self.store.call("GET", self.key, query)
            page = parse_parts(bytes(answer.body), self.size, self.part_size)
            parts |= {part.number: part for part in page.parts}
            marker = page.marker
            if not marker:
                break
        return parts

    def copy(self, number: int, source: Store, obj: StoredObject) -> Part:
        """Write a part by a copy inside the store, of the very version `obj`."""
        span = part_span(number, self.size, self.part_size)
        path = quote_path(f"{source.uri.bucket}/{obj.key}")
        dialect = self.store.dialect
        headers = dialect.copy_headers(path, obj.version, span, obj.size)
        query: dict[str, str] = {}
        if self.id:
            query = {"partNumber": str(number), "uploadId": self.id}
        else:
            headers |= dialect.condition_headers(self.condition)
        try:
            answer = self.store.call("PUT", self.key, query, headers)
        except SkyTargetExists as error:
            if self.id or holds(self.condition, self.store, self.key):
                raise SkySourceChanged(
                    _("{key} has changed").format(key=source.uri.child(obj.key))
                ) from error
            raise
        tag = dialect.version(answer.headers) or _etag(answer.body)
        return Part(number, span, None, tag)

    def abort(self) -> None:
        """Give up the upload; one that is gone already is as good."""
        if not self.id:
            return
        try:
            self.store.call("DELETE", self.key, {"uploadId": self.id})
        except SkyUploadMissing:
            pass


def _etag(body: Bytes) -> str:
    text = unescape(bytes(body).decode())
    return text.partition("<ETag>")[2].partition("</ETag>")[0].strip('"')
