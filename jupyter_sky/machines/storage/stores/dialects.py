"""Headers in which stores of Amazon's dialect differ: Amazon, Google and compatible stores."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import ClassVar

from jupyter_sky.machines.storage.stores.checksums import crc_from_base64, crc_to_base64, crc_to_hex
from jupyter_sky.machines.storage.stores.connections import Headers
from jupyter_sky.machines.storage.stores.store import MIB, Capability, Checksums, Condition, Span

_MD5 = re.compile(r"[0-9a-f]{32}")


class CompatibleDialect:
    """Stores of others with Amazon's interface, such as R2 and MinIO.

    They know no checksums beside MD5 that all of them verify, and some refuse any other.
    """

    prefix: ClassVar[str] = "x-amz-"
    capability: ClassVar[Capability] = Capability(part_checksum="md5")

    def payer_headers(self, payer: str) -> dict[str, str]:
        """Return headers by which whoever asks agrees to pay; `payer` is empty where not."""
        return {f"{self.prefix}request-payer": "requester"} if payer else {}

    def begin_headers(self) -> dict[str, str]:
        """Return headers that begin an upload."""
        return {}

    def part_headers(self, sums: Checksums) -> dict[str, str]:
        """Return headers by which the store verifies a part."""
        return {"Content-MD5": base64.b64encode(sums.md5).decode()} if sums.md5 else {}

    def end_headers(self, crc32c: int | None) -> dict[str, str]:
        """Return headers by which the store verifies the whole object."""
        return {}

    def read_headers(self, version: str, span: Span, size: int) -> dict[str, str]:
        """Return headers that read a span of one version."""
        headers = self.pin_headers(version)
        if span != Span(0, size):
            headers["Range"] = f"bytes={span.start}-{span.stop - 1}"
        return headers

    def pin_headers(self, version: str) -> dict[str, str]:
        """Return headers by which the store refuses any other version."""
        return {"If-Match": f'"{version}"'} if version else {}

    def copy_headers(self, source: str, version: str, span: Span, size: int) -> dict[str, str]:
        """Return headers that copy a span of `source`, a quoted path of bucket and key."""
        headers = {
            f"{self.prefix}copy-source": source,
            f"{self.prefix}copy-source-if-match": f'"{version}"',
        }
        if span != Span(0, size):
            headers[f"{self.prefix}copy-source-range"] = f"bytes={span.start}-{span.stop - 1}"
        return headers

    def condition_headers(self, condition: Condition) -> dict[str, str]:
        """Return headers of a condition of a write."""
        if condition.absent:
            return {"If-None-Match": "*"}
        return {"If-Match": f'"{condition.version}"'} if condition.version else {}

    def stat_headers(self) -> dict[str, str]:
        """Return headers that ask for checksums."""
        return {}

    def list_headers(self) -> dict[str, str]:
        """Return headers that ask a listing for what it leaves out otherwise."""
        return {}

    def version(self, headers: Headers) -> str:
        """Return the version that an answer is about."""
        return (headers.get("ETag") or "").strip('"')

    def listed_version(self, fields: Mapping[str, str]) -> str:
        """Return the version of an entry of a listing."""
        return fields.get("ETag", "").strip('"')

    def sums(self, headers: Headers) -> dict[str, str]:
        """Return the checksums of the whole object that an answer tells."""
        etag = self.version(headers)
        return {"md5": etag} if _MD5.fullmatch(etag) else {}


class AmazonDialect(CompatibleDialect):
    """Amazon S3: CRC-32C of every part and of the whole, verified by the store."""

    capability: ClassVar[Capability] = Capability(equal_parts=False)

    def begin_headers(self) -> dict[str, str]:
        """Return headers that begin an upload with a sum of the whole object."""
        return {"x-amz-checksum-algorithm": "CRC32C", "x-amz-checksum-type": "FULL_OBJECT"}

    def part_headers(self, sums: Checksums) -> dict[str, str]:
        """Return headers by which the store verifies a part."""
        return {"x-amz-checksum-crc32c": crc_to_base64(sums.crc32c)}

    def end_headers(self, crc32c: int | None) -> dict[str, str]:
        """Return headers by which the store verifies the whole object."""
        headers = {"x-amz-checksum-type": "FULL_OBJECT"}
        if crc32c is not None:
            headers["x-amz-checksum-crc32c"] = crc_to_base64(crc32c)
        return headers

    def read_headers(self, version: str, span: Span, size: int) -> dict[str, str]:
        """Return headers that read a span; whole objects come with their checksum."""
        headers = super().read_headers(version, span, size)
        return headers if "Range" in headers else {**headers, **self.stat_headers()}

    def stat_headers(self) -> dict[str, str]:
        """Return headers that ask for checksums."""
        return {"x-amz-checksum-mode": "ENABLED"}

    def list_headers(self) -> dict[str, str]:
        """Return headers that ask for the state of archived objects."""
        return {"x-amz-optional-object-attributes": "RestoreStatus"}

    def sums(self, headers: Headers) -> dict[str, str]:
        """Return the CRC-32C of the whole object; ETags of Amazon may be of any kind."""
        text = headers.get("x-amz-checksum-crc32c") or ""
        return {} if not text or "-" in text else {"crc32c": crc_to_hex(crc_from_base64(text))}


class GoogleDialect(CompatibleDialect):
    """Google's XML interface: generations, and CRC-32C of everything."""

    prefix: ClassVar[str] = "x-goog-"
    capability: ClassVar[Capability] = Capability(
        max_object=5 * 1024**2 * MIB, equal_parts=False, part_checksum="crc32c"
    )

    def payer_headers(self, payer: str) -> dict[str, str]:
        """Return headers by which a project of Google agrees to pay."""
        return {"x-goog-user-project": payer} if payer else {}

    def part_headers(self, sums: Checksums) -> dict[str, str]:
        """Return headers by which the store verifies a part."""
        return {"x-goog-hash": f"crc32c={crc_to_base64(sums.crc32c)}"}

    def pin_headers(self, version: str) -> dict[str, str]:
        """Return headers by which the store refuses any other generation."""
        return {"x-goog-if-generation-match": version} if version else {}

    def copy_headers(self, source: str, version: str, span: Span, size: int) -> dict[str, str]:
        """Return headers that copy a span of one generation."""
        headers = super().copy_headers(source, version, span, size)
        del headers["x-goog-copy-source-if-match"]
        return {**headers, "x-goog-copy-source-if-generation-match": version}

    def condition_headers(self, condition: Condition) -> dict[str, str]:
        """Return headers of a condition; generation 0 means that there is no object."""
        if condition.absent:
            return {"x-goog-if-generation-match": "0"}
        return self.pin_headers(condition.version)

    def version(self, headers: Headers) -> str:
        """Return the generation; a part has an ETag instead."""
        return headers.get("x-goog-generation") or super().version(headers)

    def listed_version(self, fields: Mapping[str, str]) -> str:
        """Return the generation of an entry of a listing."""
        return fields.get("Generation", "")

    def sums(self, headers: Headers) -> dict[str, str]:
        """Return the CRC-32C of the whole object."""
        match = re.search(r"crc32c=([^,\s]+)", headers.get("x-goog-hash") or "")
        return {"crc32c": crc_to_hex(crc_from_base64(match[1]))} if match else {}
