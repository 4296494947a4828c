"""Pages of listings in Amazon's XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote_plus

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.checksums import crc_from_base64
from jupyter_sky.machines.storage.stores.connections import Bytes
from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.store import Part, Readiness, StoredObject, part_span

ARCHIVE_CLASSES = {"GLACIER", "DEEP_ARCHIVE"}
"""Classes whose objects must be restored; Google's archive can be read at once."""


@dataclass(frozen=True, slots=True)
class Page:
    """Objects of one page, and the token of the next; empty for the last one."""

    objects: tuple[StoredObject, ...]
    token: str


@dataclass(frozen=True, slots=True)
class PartPage:
    """Parts of one page, and the number after which the next begins; 0 for the last one."""

    parts: tuple[Part, ...]
    marker: int


def parse_page(body: bytes, version: Callable[[Mapping[str, str]], str]) -> Page:
    """Return the objects of a page; `version` takes the fields of an entry."""
    root = ET.fromstring(body)
    fields = _fields(root)
    is_quoted = fields.get("EncodingType") == "url"
    objects = tuple(_entry(node, version, is_quoted) for node in _children(root, "Contents"))
    more = fields.get("IsTruncated") == "true"
    return Page(objects, fields.get("NextContinuationToken", "") if more else "")


def parse_parts(body: bytes, size: int, part_size: int) -> PartPage:
    """Return the parts that a store has of an upload; those of a wrong size are left out."""
    root = ET.fromstring(body)
    fields = _fields(root)
    parts = []
    for node in _children(root, "Part"):
        entry = _fields(node)
        number = int(entry["PartNumber"])
        span = part_span(number, size, part_size)
        crc = entry.get("ChecksumCRC32C")
        if int(entry["Size"]) == span.size:
            tag = entry["ETag"].strip('"')
            parts.append(Part(number, span, crc_from_base64(crc) if crc else None, tag))
    more = fields.get("IsTruncated") == "true"
    return PartPage(tuple(parts), int(fields.get("NextPartNumberMarker", "0")) if more else 0)


@dataclass(frozen=True, slots=True)
class UploadPage:
    """Open uploads of one page as (key, id, unix time), and the markers of the next page."""

    uploads: tuple[tuple[str, str, float], ...]
    markers: dict[str, str]


def parse_uploads(body: bytes) -> UploadPage:
    """Return the open uploads of a page."""
    root = ET.fromstring(body)
    fields = _fields(root)
    plain = unquote_plus if fields.get("EncodingType") == "url" else str
    entries = (_fields(node) for node in _children(root, "Upload"))
    uploads = tuple(
        (plain(entry["Key"]), entry["UploadId"], _unix_time(entry.get("Initiated", "")))
        for entry in entries
    )
    if fields.get("IsTruncated") != "true":
        return UploadPage(uploads, {})
    key, upload_id = plain(fields["NextKeyMarker"]), fields.get("NextUploadIdMarker", "")
    return UploadPage(uploads, {"key-marker": key, "upload-id-marker": upload_id})


def parse_buckets(body: bytes) -> list[str]:
    """Return the names of the buckets of an account."""
    root = ET.fromstring(body)
    return [node.text or "" for node in root.iter() if node.tag.rpartition("}")[2] == "Name"]


def _unix_time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _entry(
    node: ET.Element, version: Callable[[Mapping[str, str]], str], is_quoted: bool
) -> StoredObject:
    fields = _fields(node)
    key = unquote_plus(fields["Key"]) if is_quoted else fields["Key"]
    storage_class = fields.get("StorageClass", "")
    return StoredObject(
        key,
        int(fields["Size"]),
        version(fields),
        modified=_unix_time(fields.get("LastModified", "")),
        storage_class="" if storage_class == "STANDARD" else storage_class,
        readiness=archive_readiness(storage_class, _restore_state(node)),
    )


def _restore_state(node: ET.Element) -> str:
    """Return the state of a restored copy as the header of an object has it."""
    for status in _children(node, "RestoreStatus"):
        return f'ongoing-request="{_fields(status).get("IsRestoreInProgress", "")}"'
    return ""


def archive_readiness(storage_class: str, restore: str) -> Readiness:
    """Return whether an object can be read, from its class and its header ``x-amz-restore``.

    Examples
    --------
    >>> archive_readiness("GLACIER", 'ongoing-request="true"')
    <Readiness.RESTORING: 'is being restored'>
    """
    if storage_class not in ARCHIVE_CLASSES or 'ongoing-request="false"' in restore:
        return Readiness.READY
    return Readiness.RESTORING if 'ongoing-request="true"' in restore else Readiness.ARCHIVED


def parse_refused_deletions(body: bytes) -> Iterator[tuple[str, str, str]]:
    """Yield key, code and message of the objects that a deletion of many has left."""
    for node in _children(ET.fromstring(body), "Error"):
        fields = _fields(node)
        yield fields.get("Key", ""), fields.get("Code", ""), fields.get("Message", "")


def find_field(body: Bytes, name: str) -> str:
    """Return the text of an element of an answer, in any namespace.

    Raises
    ------
    SkyStorageError
        The answer has none.
    """
    with suppress(ET.ParseError):
        for node in ET.fromstring(bytes(body)).iter():
            if node.tag.rpartition("}")[2] == name:
                return node.text or ""
    raise SkyStorageError(_("the answer of the store has no {name}").format(name=name))


def _fields(node: ET.Element) -> dict[str, str]:
    """Return the texts of a node's children by name, without namespace."""
    return {child.tag.rpartition("}")[2]: child.text or "" for child in node}


def _children(node: ET.Element, name: str) -> Iterator[ET.Element]:
    return (child for child in node if child.tag.rpartition("}")[2] == name)
