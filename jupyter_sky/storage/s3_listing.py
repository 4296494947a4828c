"""Pages of listings in Amazon's XML."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import unquote_plus

from .checksums import crc_from_base64
from .parts import part_span
from .store import Part, StoredObject


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


def _entry(
    node: ET.Element, version: Callable[[Mapping[str, str]], str], is_quoted: bool
) -> StoredObject:
    fields = _fields(node)
    key = unquote_plus(fields["Key"]) if is_quoted else fields["Key"]
    modified = fields.get("LastModified", "")
    storage_class = fields.get("StorageClass", "")
    return StoredObject(
        key,
        int(fields["Size"]),
        version(fields),
        modified=datetime.fromisoformat(modified).timestamp() if modified else 0.0,
        storage_class="" if storage_class == "STANDARD" else storage_class,
    )


def _fields(node: ET.Element) -> dict[str, str]:
    """Return the texts of a node's children by name, without namespace."""
    return {child.tag.rpartition("}")[2]: child.text or "" for child in node}


def _children(node: ET.Element, name: str) -> Iterator[ET.Element]:
    return (child for child in node if child.tag.rpartition("}")[2] == name)
