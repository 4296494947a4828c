"""Uploads by blocks to Azure.

Azure has no uploads, only blocks that wait at the name of a blob until one list names them. The id
of a block therefore tells the upload, the number of the part and its CRC-32C: the store's own list
of blocks is all that is needed to go on.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.azure_listing import CRC_METADATA, parse_blocks
from jupyter_sky.machines.storage.stores.checksums import crc_to_hex
from jupyter_sky.machines.storage.stores.conditions import holds
from jupyter_sky.machines.storage.stores.errors import (
    SkyObjectMissing,
    SkySourceChanged,
    SkyTargetExists,
)
from jupyter_sky.machines.storage.stores.parts import part_span
from jupyter_sky.machines.storage.stores.store import (
    Checksums,
    Condition,
    Part,
    PartRequest,
    Span,
    Store,
    StoredObject,
)

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.stores.azure import AzureStore

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
