"""Operations of Amazon's dialect on the state of a store."""

from __future__ import annotations

import base64
import re
import threading
import xml.etree.ElementTree as ET
from email.utils import formatdate
from urllib.parse import unquote
from xml.sax.saxutils import escape

from .bucket_settings import SETTINGS, BucketSettings
from .calls import Answer, Call, amazon_answer
from .listings import Listings
from .refusals import Refusal
from .state import Bucket, Content, ContentFiles, StoredVersion, crc_base64, read_pieces
from .uploads import Uploads

MIN_PART = 5 * 1024**2


class Operations(BucketSettings, Listings, Uploads):
    """The operations of a store.

    Parameters
    ----------
    dialect : str
        ``aws``, ``r2`` (equal parts, no full-object sums) or ``google`` (generations).
    min_part : int
        Bytes that all parts but the last need.
    """

    def __init__(self, contents: ContentFiles, dialect: str, region: str, min_part: int) -> None:
        self.contents, self.dialect, self.region, self.min_part = (
            contents,
            dialect,
            region,
            min_part,
        )
        self.buckets: dict[str, Bucket] = {}
        self.lock = threading.Lock()
        self._generation = 1_700_000_000_000_000

    @property
    def prefix(self) -> str:
        """Beginning of the dialect's own headers."""
        return "x-goog-" if self.dialect == "google" else "x-amz-"

    def answer(self, call: Call) -> Answer:
        """Carry out a request."""
        if not call.bucket:
            return self._list_buckets()
        if self.dialect == "google" and (call.bucket, call.key) == ("storage", "v1/b"):
            return self.json_call(call)
        setting = next((name for name in SETTINGS if name in call.query), "")
        if call.method == "PUT" and not call.key and not setting:
            return self.create_bucket(call)
        bucket = self.buckets.get(call.bucket)
        if bucket is None:
            raise Refusal("NoSuchBucket", "The specified bucket does not exist")
        if bucket.requester_pays and call.headers.get("x-amz-request-payer") != "requester":
            raise Refusal("AccessDenied", "Requester pays: x-amz-request-payer is missing")
        if not call.key and setting:
            return self.setting(bucket, call, setting)
        if not call.key:
            return self._bucket_call(bucket, call)
        name = {"GET": "read", "HEAD": "head", "PUT": "put", "POST": "post", "DELETE": "delete"}
        return getattr(self, f"_{name[call.method]}")(bucket, call)

    # -- buckets

    def _list_buckets(self) -> Answer:
        inner = "".join(f"<Bucket><Name>{name}</Name></Bucket>" for name in sorted(self.buckets))
        return amazon_answer(
            f"<ListAllMyBucketsResult><Buckets>{inner}</Buckets></ListAllMyBucketsResult>"
        )

    def _bucket_call(self, bucket: Bucket, call: Call) -> Answer:
        if call.method == "HEAD":
            return Answer(headers={"x-amz-bucket-region": self.region})
        if call.method == "DELETE":
            return self.delete_bucket(bucket)
        if call.method == "POST" and "delete" in call.query:
            return self._delete_many(bucket, call)
        if call.method == "GET" and "uploads" in call.query:
            return self._list_uploads(bucket, call)
        if call.method == "GET" and "location" in call.query:
            return amazon_answer(f"<LocationConstraint>{self.region}</LocationConstraint>")
        if call.method == "GET":
            return self._list(bucket, call)
        raise Refusal("MethodNotAllowed")

    def _delete_many(self, bucket: Bucket, call: Call) -> Answer:
        body = b"".join(call.body)
        if call.headers.get("content-md5") is None and not any(
            name.startswith("x-amz-checksum-") for name in call.headers
        ):
            raise Refusal("InvalidRequest", "Missing required header for this request: Content-MD5")
        keys = [node.text or "" for node in ET.fromstring(body).iter() if node.tag.endswith("Key")]
        if len(keys) > 1000:
            raise Refusal("InvalidRequest", "more than 1000 keys")
        with self.lock:
            kept = [key for key in keys if key in bucket.protected]
            for key in set(keys).difference(kept):
                bucket.objects.pop(key, None)
        errors = "".join(
            f"<Error><Key>{escape(key)}</Key><Code>AccessDenied</Code>"
            "<Message>Access Denied because object protected by object lock.</Message></Error>"
            for key in kept
        )
        return amazon_answer(f"<DeleteResult>{errors}</DeleteResult>")

    # -- objects

    def _describe(self, version: StoredVersion) -> dict[str, str]:
        headers = {
            "ETag": f'"{version.etag}"',
            "Last-Modified": formatdate(version.modified, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        if version.storage_class != "STANDARD":
            headers[f"{self.prefix}storage-class"] = version.storage_class
        if version.restore:
            headers["x-amz-restore"] = f'ongoing-request="{str(version.is_restoring).lower()}"'
        if self.dialect == "google":
            headers["x-goog-generation"] = str(version.generation)
            headers["x-goog-hash"] = f"crc32c={crc_base64(version.content.crc32c)}"
        return headers

    def _find(self, bucket: Bucket, call: Call) -> StoredVersion:
        version = bucket.objects.get(call.key)
        if version is None:
            raise Refusal("NoSuchKey", "The specified key does not exist.")
        wanted = call.headers.get("if-match")
        generation = call.headers.get("x-goog-if-generation-match")
        if (wanted and wanted.strip('"') != version.etag) or (
            generation and generation != str(version.generation)
        ):
            raise Refusal("PreconditionFailed", "At least one of the pre-conditions did not hold")
        return version

    def _head(self, bucket: Bucket, call: Call) -> Answer:
        version = self._find(bucket, call)
        headers = {**self._describe(version), **self._full_checksum(version, call)}
        return Answer(200, headers, size=version.content.size)

    def _full_checksum(self, version: StoredVersion, call: Call) -> dict[str, str]:
        if not version.full_crc or call.headers.get("x-amz-checksum-mode") != "ENABLED":
            return {}
        crc = crc_base64(version.content.crc32c)
        return {"x-amz-checksum-crc32c": crc, "x-amz-checksum-type": "FULL_OBJECT"}

    def _read(self, bucket: Bucket, call: Call) -> Answer:
        if "uploadId" in call.query:
            return self._list_parts(bucket, call)
        version = self._find(bucket, call)
        if version.storage_class in {"GLACIER", "DEEP_ARCHIVE"} and version.restore != "done":
            raise Refusal("InvalidObjectState", "The operation is not valid for the storage class")
        size, headers = version.content.size, self._describe(version)
        start, stop, status = 0, size, 200
        if "range" not in call.headers:
            headers |= self._full_checksum(version, call)
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", call.headers.get("range", "")):
            start, stop = int(match[1]), min(int(match[2] or size) + 1, size)
            if start >= size:
                raise Refusal("InvalidRange", "The requested range is not satisfiable")
            status, headers["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{size}"
        pieces = read_pieces(version.content.segments, start, stop)
        return Answer(status, headers, pieces=pieces, size=stop - start)

    def _put(self, bucket: Bucket, call: Call) -> Answer:
        if "partNumber" in call.query:
            return self._put_part(bucket, call)
        content = self._copied(call) or self.receive(call)
        with self.lock:
            self._check_condition(bucket, call)
            version = self._publish(bucket, call.key, content, content.md5, full_crc=True)
        body = b""
        if "x-amz-copy-source" in call.headers or "x-goog-copy-source" in call.headers:
            body = f"<CopyObjectResult><ETag>&quot;{version.etag}&quot;</ETag></CopyObjectResult>"
            body = body.encode()
        return Answer(200, self._describe(version), body, stored=content)

    def _delete(self, bucket: Bucket, call: Call) -> Answer:
        with self.lock:
            if "uploadId" in call.query:
                self._upload(bucket, call)
                del bucket.uploads[call.query["uploadId"]]
            else:
                bucket.objects.pop(call.key, None)
        return Answer(204)

    def receive(self, call: Call) -> Content:
        """Store the body of a request and verify all checksums that came with it."""
        content = self.contents.receive(call.body, with_sha256=len(call.payload_hash) == 64)
        headers = {**call.headers, **call.trailers}
        if len(call.payload_hash) == 64 and call.payload_hash != content.sha256:
            raise Refusal("XAmzContentSHA256Mismatch")
        md5 = headers.get("content-md5")
        if md5 and self.contents.folder and base64.b64decode(md5).hex() != content.md5:
            raise Refusal("BadDigest", "The Content-MD5 you specified did not match")
        given = headers.get("x-amz-checksum-crc32c")
        if match := re.search(r"crc32c=([^,]+)", headers.get("x-goog-hash", "")):
            given = match[1]
        if given and given != crc_base64(content.crc32c):
            raise Refusal("BadDigest", "The crc32c you specified did not match")
        return content

    def _copied(self, call: Call) -> Content | None:
        source = call.headers.get(f"{self.prefix}copy-source")
        if source is None:
            return None
        name, _, key = unquote(source).lstrip("/").partition("/")
        bucket = self.buckets.get(name)
        version = bucket.objects.get(key) if bucket else None
        if version is None:
            raise Refusal("NoSuchKey", "The source does not exist")
        wanted = call.headers.get(f"{self.prefix}copy-source-if-match", "").strip('"')
        generation = call.headers.get("x-goog-copy-source-if-generation-match")
        if (wanted and wanted != version.etag) or (
            generation and generation != str(version.generation)
        ):
            raise Refusal("PreconditionFailed", "The source has changed")
        start, stop = 0, version.content.size
        if span := call.headers.get(f"{self.prefix}copy-source-range"):
            start, last = map(int, re.findall(r"\d+", span))
            stop = last + 1
        if stop - start > 5 * 1024**3:
            raise Refusal("InvalidRequest", "The specified copy source is larger than 5 GB")
        return self.contents.cut(version.content, start, stop)

    def _check_condition(self, bucket: Bucket, call: Call) -> None:
        version = bucket.objects.get(call.key)
        generation = call.headers.get("x-goog-if-generation-match")
        if generation is not None and generation != str(version.generation if version else 0):
            raise Refusal("PreconditionFailed", "At least one of the pre-conditions did not hold")
        if call.headers.get("if-none-match") == "*" and version:
            raise Refusal("PreconditionFailed", "At least one of the pre-conditions did not hold")
        wanted = call.headers.get("if-match", "").strip('"')
        if wanted and (version is None or wanted != version.etag):
            raise Refusal("PreconditionFailed", "At least one of the pre-conditions did not hold")

    def _publish(
        self, bucket: Bucket, key: str, content: Content, etag: str, *, full_crc: bool
    ) -> StoredVersion:
        self._generation += 1
        version = StoredVersion(key, content, etag, self._generation, full_crc)
        bucket.objects[key] = version
        return version
