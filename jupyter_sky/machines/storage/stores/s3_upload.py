"""Uploads by parts in Amazon's dialect."""

from __future__ import annotations

from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.conditions import holds
from jupyter_sky.machines.storage.stores.connections import Bytes
from jupyter_sky.machines.storage.stores.errors import (
    SkySourceChanged,
    SkyTargetExists,
    SkyUploadMissing,
)
from jupyter_sky.machines.storage.stores.parts import part_span
from jupyter_sky.machines.storage.stores.s3_listing import parse_parts
from jupyter_sky.machines.storage.stores.signing import quote_path
from jupyter_sky.machines.storage.stores.store import (
    Checksums,
    Condition,
    Part,
    PartRequest,
    Store,
    StoredObject,
)

if TYPE_CHECKING:
    from jupyter_sky.machines.storage.stores.s3 import S3Store


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
