"""Operations of Azure Blob Storage on the state of a store."""

from __future__ import annotations

import base64
import re
import threading
import xml.etree.ElementTree as ET
from email.utils import formatdate
from itertools import islice
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from .azure_signatures import SignedAddress, give_delegation_key, verify_address
from .calls import Answer, Call, xml_answer
from .refusals import Refusal
from .signatures import Account
from .state import Bucket, Content, ContentFiles, StoredVersion, read_pieces

PAGE = 5000


class AzureOperations:
    """The operations of a storage account.

    Parameters
    ----------
    contents : ContentFiles
        Receives bytes.
    account : callable
        Returns secrets and clock.
    """

    dialect = "azure"

    def __init__(self, contents: ContentFiles, account: Account, region: str) -> None:
        self.contents, self.account, self.region = contents, account, region
        self.buckets: dict[str, Bucket] = {}
        self.lock = threading.Lock()
        self.page = PAGE
        self._generation = 0x8DE000000000000

    def answer(self, call: Call) -> Answer:
        """Carry out a request."""
        if call.query.get("comp") == "userdelegationkey":
            return give_delegation_key(self.account, b"".join(call.body))
        if call.method == "PUT" and not call.key:
            self.buckets.setdefault(call.bucket, Bucket(call.bucket))
            return Answer(201)
        bucket = self.buckets.get(call.bucket)
        if bucket is None:
            raise Refusal("ContainerNotFound", "The specified container does not exist.")
        if not call.key:
            return self._list(bucket, call)
        name = {"GET": "read", "HEAD": "head", "PUT": "put", "DELETE": "delete"}[call.method]
        return getattr(self, f"_{name}")(bucket, call)

    # -- reading

    def _list(self, bucket: Bucket, call: Call) -> Answer:
        prefix, delimiter = call.query.get("prefix", ""), call.query.get("delimiter", "")
        marker = base64.urlsafe_b64decode(call.query.get("marker", "")).decode()
        names: dict[str, StoredVersion | None] = {}
        with self.lock:
            for key in sorted(key for key in bucket.objects if key.startswith(prefix)):
                head, found, _ = key[len(prefix) :].partition(delimiter or "\0")
                folder = prefix + head + found if delimiter and found else ""
                names[folder or key] = None if folder else bucket.objects[key]
        rest = [(name, blob) for name, blob in names.items() if name > marker]
        page = list(islice(rest, min(int(call.query.get("maxresults", PAGE)), self.page)))
        inner = "".join(_entry(name, blob, call.query) for name, blob in page)
        following = page[-1][0] if len(page) < len(rest) else ""
        token = base64.urlsafe_b64encode(following.encode()).decode()
        return xml_answer(
            f"<EnumerationResults><Blobs>{inner}</Blobs><NextMarker>{token}</NextMarker>"
            "</EnumerationResults>"
        )

    def _find(self, bucket: Bucket, call: Call) -> StoredVersion:
        version = bucket.objects.get(call.key)
        if version is None:
            raise Refusal("BlobNotFound", "The specified blob does not exist.")
        wanted = call.headers.get("if-match", "").strip('"')
        if wanted and wanted not in ("*", version.etag):
            raise Refusal("ConditionNotMet", "The condition specified is not met.")
        return version

    def _head(self, bucket: Bucket, call: Call) -> Answer:
        version = self._find(bucket, call)
        return Answer(200, _describe(version), size=version.content.size)

    def _read(self, bucket: Bucket, call: Call) -> Answer:
        if call.query.get("comp") == "blocklist":
            return self._block_list(bucket, call)
        version = self._find(bucket, call)
        if version.storage_class == "Archive":
            code = "BlobBeingRehydrated" if version.is_restoring else "BlobArchived"
            raise Refusal(code, "This operation is not permitted on an archived blob.")
        size, headers, status = version.content.size, _describe(version), 200
        start, stop = 0, size
        text = call.headers.get("x-ms-range") or call.headers.get("range", "")
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", text):
            start, stop = int(match[1]), min(int(match[2] or size) + 1, size)
            if start >= size:
                raise Refusal("InvalidRange", "The range specified is invalid.")
            status, headers["Content-Range"] = 206, f"bytes {start}-{stop - 1}/{size}"
            if md5 := headers.pop("Content-MD5", ""):
                headers["x-ms-blob-content-md5"] = md5
        pieces = read_pieces(version.content.segments, start, stop)
        return Answer(status, headers, pieces=pieces, size=stop - start)

    # -- writing

    def _put(self, bucket: Bucket, call: Call) -> Answer:
        if call.query.get("comp") == "block":
            return self._put_block(bucket, call)
        if call.query.get("comp") == "blocklist":
            return self._put_block_list(bucket, call)
        if call.headers.get("x-ms-blob-type", "BlockBlob") != "BlockBlob":
            raise Refusal("InvalidHeaderValue", "x-ms-blob-type")
        content = self._copied(call) or self._receive(call)
        with self.lock:
            self._check_condition(bucket, call)
            version = self._publish(bucket, call, content, content.md5)
            bucket.blocks.pop(call.key, None)
        return Answer(201, {"ETag": f'"{version.etag}"'}, stored=content)

    def _put_block(self, bucket: Bucket, call: Call) -> Answer:
        name = call.query["blockid"]
        try:
            size = len(base64.b64decode(name, validate=True))
        except ValueError:
            size = 0
        if not 1 <= size <= 64:
            raise Refusal("InvalidQueryParameterValue", "blockid")
        content = self._copied(call) or self._receive(call)
        with self.lock:
            blocks = bucket.blocks.setdefault(call.key, {})
            if any(len(other) != len(name) for other in blocks):
                raise Refusal("InvalidBlobOrBlock", "The specified blob or block is invalid.")
            blocks[name] = content
        return Answer(201, {}, stored=content)

    def _block_list(self, bucket: Bucket, call: Call) -> Answer:
        with self.lock:
            blocks = dict(bucket.blocks.get(call.key, {}))
            if not blocks and call.key not in bucket.objects:
                raise Refusal("BlobNotFound", "The specified blob does not exist.")
        inner = "".join(
            f"<Block><Name>{escape(name)}</Name><Size>{content.size}</Size></Block>"
            for name, content in sorted(blocks.items())
        )
        text = f"<UncommittedBlocks>{inner}</UncommittedBlocks>"
        return xml_answer(f"<BlockList>{text}</BlockList>")

    def _put_block_list(self, bucket: Bucket, call: Call) -> Answer:
        root = ET.fromstring(b"".join(call.body))
        names = [node.text or "" for node in root.iterfind("Uncommitted")]
        with self.lock:
            blocks = bucket.blocks.get(call.key, {})
            if any(name not in blocks for name in names):
                raise Refusal("InvalidBlockList", "The specified block list is invalid.")
            content = self.contents.join([blocks[name] for name in names])
            self._check_condition(bucket, call)
            version = self._publish(bucket, call, content, "")
            bucket.blocks.pop(call.key, None)
        return Answer(201, {"ETag": f'"{version.etag}"'})

    def _delete(self, bucket: Bucket, call: Call) -> Answer:
        with self.lock:
            if bucket.objects.pop(call.key, None) is None:
                raise Refusal("BlobNotFound", "The specified blob does not exist.")
        return Answer(202)

    def _receive(self, call: Call) -> Content:
        content = self.contents.receive(call.body)
        md5 = call.headers.get("content-md5")
        if md5 and self.contents.folder and base64.b64decode(md5).hex() != content.md5:
            raise Refusal("Md5Mismatch", "The MD5 value specified did not match")
        return content

    def _copied(self, call: Call) -> Content | None:
        """Return what another blob of this account has, by its signed address."""
        url = call.headers.get("x-ms-copy-source")
        if url is None:
            return None
        address = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        verify_address(self.account, SignedAddress("GET", unquote(address.path), query, {}))
        name, _, key = unquote(address.path).lstrip("/").partition("/")[2].partition("/")
        bucket = self.buckets.get(name)
        version = bucket.objects.get(key) if bucket else None
        if version is None:
            raise Refusal("CannotVerifyCopySource", "The specified blob does not exist.")
        wanted = call.headers.get("x-ms-source-if-match", "").strip('"')
        if wanted and wanted != version.etag:
            raise Refusal("SourceConditionNotMet", "The source condition is not met.")
        start, stop = 0, version.content.size
        if span := call.headers.get("x-ms-source-range"):
            start, last = map(int, re.findall(r"\d+", span))
            stop = last + 1
        return self.contents.cut(version.content, start, stop)

    def _check_condition(self, bucket: Bucket, call: Call) -> None:
        version = bucket.objects.get(call.key)
        if call.headers.get("if-none-match") == "*" and version:
            raise Refusal("BlobAlreadyExists", "The specified blob already exists.")
        wanted = call.headers.get("if-match", "").strip('"')
        if wanted and (version is None or wanted != version.etag):
            raise Refusal("ConditionNotMet", "The condition specified is not met.")

    def _publish(self, bucket: Bucket, call: Call, content: Content, md5: str) -> StoredVersion:
        self._generation += 1
        etag = f"0x{self._generation:X}"
        version = StoredVersion(call.key, content, etag, self._generation, False)
        metadata = {n: v for n, v in call.headers.items() if n.startswith("x-ms-meta-")}
        version.metadata = metadata
        version.md5 = base64.b64encode(bytes.fromhex(md5)).decode() if md5 else ""
        bucket.objects[call.key] = version
        return version


def _describe(version: StoredVersion) -> dict[str, str]:
    md5 = {"Content-MD5": version.md5} if version.md5 else {}
    tier = "Hot" if version.storage_class == "STANDARD" else version.storage_class
    return {
        "ETag": f'"{version.etag}"',
        "Last-Modified": formatdate(version.modified, usegmt=True),
        "x-ms-blob-type": "BlockBlob",
        "x-ms-access-tier": tier,
        **({"x-ms-archive-status": "rehydrate-pending-to-hot"} if version.is_restoring else {}),
        **md5,
        **version.metadata,
    }


def _entry(name: str, version: StoredVersion | None, query: dict[str, str]) -> str:
    if version is None:
        return f"<BlobPrefix>{_name(name)}</BlobPrefix>"
    facts = _describe(version)
    properties = {
        "Last-Modified": facts["Last-Modified"],
        "Etag": version.etag,
        "Content-Length": str(version.content.size),
        "Content-MD5": version.md5,
        "BlobType": "BlockBlob",
        "AccessTier": facts["x-ms-access-tier"],
        "ArchiveStatus": facts.get("x-ms-archive-status", ""),
    }
    inner = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in properties.items() if value)
    metadata = "".join(
        f"<{key.removeprefix('x-ms-meta-')}>{escape(value)}</{key.removeprefix('x-ms-meta-')}>"
        for key, value in version.metadata.items()
    )
    metadata = f"<Metadata>{metadata}</Metadata>" if "metadata" in query.get("include", "") else ""
    return f"<Blob>{_name(name)}<Properties>{inner}</Properties>{metadata}</Blob>"


def _name(name: str) -> str:
    if all(character.isprintable() for character in name):
        return f"<Name>{escape(name)}</Name>"
    return f'<Name Encoded="true">{quote(name)}</Name>'
