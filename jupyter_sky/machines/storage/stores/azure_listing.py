"""Pages of listings in Azure's XML."""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import unquote

from jupyter_sky.machines.storage.stores.store import Readiness, StoredObject

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
