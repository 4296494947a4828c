"""Uploads by parts."""

from __future__ import annotations

import secrets
import threading
import xml.etree.ElementTree as ET
from xml.sax.saxutils import escape

from .calls import Answer, Call, amazon_answer
from .refusals import Refusal
from .state import Bucket, Content, ContentFiles, OpenUpload, StoredVersion, crc_base64


class Uploads:
    """Operations on uploads, a part of `s3.Operations`."""

    contents: ContentFiles
    dialect: str
    min_part: int
    lock: threading.Lock

    def receive(self, call: Call) -> Content:
        """Store the body of a request and verify all checksums that came with it."""
        raise NotImplementedError

    def _copied(self, call: Call) -> Content | None:
        raise NotImplementedError

    def _check_condition(self, bucket: Bucket, call: Call) -> None:
        raise NotImplementedError

    def _describe(self, version: StoredVersion) -> dict[str, str]:
        raise NotImplementedError

    def _publish(
        self, bucket: Bucket, key: str, content: Content, etag: str, *, full_crc: bool
    ) -> StoredVersion:
        raise NotImplementedError

    def _post(self, bucket: Bucket, call: Call) -> Answer:
        if "uploads" in call.query:
            checksum = call.headers.get("x-amz-checksum-algorithm", "")
            upload = OpenUpload(secrets.token_hex(12), call.key, checksum)
            with self.lock:
                bucket.uploads[upload.id] = upload
            return amazon_answer(
                f"<InitiateMultipartUploadResult><Bucket>{bucket.name}</Bucket>"
                f"<Key>{escape(call.key)}</Key><UploadId>{upload.id}</UploadId>"
                "</InitiateMultipartUploadResult>"
            )
        if "uploadId" in call.query:
            return self._complete(bucket, call)
        raise Refusal("MethodNotAllowed")

    def _upload(self, bucket: Bucket, call: Call) -> OpenUpload:
        upload = bucket.uploads.get(call.query["uploadId"])
        if upload is None or upload.key != call.key:
            raise Refusal("NoSuchUpload", "The specified upload does not exist.")
        return upload

    def _put_part(self, bucket: Bucket, call: Call) -> Answer:
        upload = self._upload(bucket, call)
        number = int(call.query["partNumber"])
        if not 1 <= number <= 10_000:
            raise Refusal("InvalidArgument", "Part number must be between 1 and 10000")
        sums = {**call.headers, **call.trailers}
        copied = self._copied(call)
        if upload.checksum == "CRC32C" and not copied and "x-amz-checksum-crc32c" not in sums:
            message = "Checksum Type mismatch occurred, expected checksum Type: crc32c, actual null"
            raise Refusal("InvalidRequest", message)
        content = copied or self.receive(call)
        with self.lock:
            self._upload(bucket, call).parts[number] = content
        etag = f"&quot;{content.md5}&quot;"
        body = f"<CopyPartResult><ETag>{etag}</ETag></CopyPartResult>" if copied else ""
        headers = {"ETag": f'"{content.md5}"'}
        if upload.checksum == "CRC32C":
            headers["x-amz-checksum-crc32c"] = crc_base64(content.crc32c)
        if self.dialect == "google":
            headers["x-goog-hash"] = f"crc32c={crc_base64(content.crc32c)}"
        return Answer(200, headers, body.encode(), stored=content)

    def _list_parts(self, bucket: Bucket, call: Call) -> Answer:
        upload = self._upload(bucket, call)
        marker = int(call.query.get("part-number-marker", "0"))
        numbers = sorted(number for number in upload.parts if number > marker)
        page, more = numbers[:1000], len(numbers) > 1000
        entries = []
        for number in page:
            part = upload.parts[number]
            crc = f"<ChecksumCRC32C>{crc_base64(part.crc32c)}</ChecksumCRC32C>"
            entries.append(
                f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{part.md5}&quot;</ETag>"
                f"<Size>{part.size}</Size>{crc if upload.checksum == 'CRC32C' else ''}</Part>"
            )
        following = f"<NextPartNumberMarker>{page[-1]}</NextPartNumberMarker>" if more else ""
        return amazon_answer(
            f"<ListPartsResult><IsTruncated>{str(more).lower()}</IsTruncated>{following}"
            f"{''.join(entries)}</ListPartsResult>"
        )

    def _complete(self, bucket: Bucket, call: Call) -> Answer:
        upload = self._upload(bucket, call)
        named = _named_parts(b"".join(call.body))
        self._check_parts(upload, named)
        content = self.contents.join([upload.parts[number] for number, _ in named])
        given = call.headers.get("x-amz-checksum-crc32c")
        if given and given != crc_base64(content.crc32c):
            raise Refusal("BadDigest", "The CRC32C you specified did not match the calculated one")
        with self.lock:
            self._upload(bucket, call)
            self._check_condition(bucket, call)
            full = upload.checksum == "CRC32C" or self.dialect == "google"
            version = self._publish(bucket, call.key, content, content.md5, full_crc=full)
            del bucket.uploads[upload.id]
        headers = self._describe(version)
        return amazon_answer(
            f"<CompleteMultipartUploadResult><Key>{escape(call.key)}</Key>"
            f"<ETag>&quot;{version.etag}&quot;</ETag></CompleteMultipartUploadResult>",
            headers,
        )

    def _check_parts(self, upload: OpenUpload, named: list[tuple[int, str]]) -> None:
        numbers = [number for number, _ in named]
        if not numbers or numbers != sorted(set(numbers)):
            raise Refusal("InvalidPartOrder", "The list of parts was not in ascending order.")
        for number, etag in named:
            if number not in upload.parts or upload.parts[number].md5 != etag:
                raise Refusal("InvalidPart", f"Part {number} could not be found.")
        sizes = [upload.parts[number].size for number in numbers[:-1]]
        if any(size < self.min_part for size in sizes):
            raise Refusal("EntityTooSmall", "Your proposed upload is smaller than the minimum")
        if self.dialect == "r2" and len(set(sizes)) > 1:
            raise Refusal("InvalidPart", "All non-trailing parts must have the same length.")


def _named_parts(body: bytes) -> list[tuple[int, str]]:
    parts = []
    for node in ET.fromstring(body):
        fields = {child.tag.rpartition("}")[2]: child.text or "" for child in node}
        parts.append((int(fields["PartNumber"]), fields["ETag"].strip('"')))
    return parts
