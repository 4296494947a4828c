"""Folders of this machine as a store."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .errors import SkyObjectMissing, SkySourceChanged, SkyTargetExists
from .store import ALWAYS, Capability, Checksums, Condition, Part, PartRequest, Span, StoredObject
from .uri import StorageUri

_CAPABILITY = Capability(min_part=1, max_part=1 << 50, max_object=1 << 50)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Files of this machine; keys are absolute paths without the first ``/``."""

    uri: StorageUri = field(default_factory=lambda: StorageUri("file", ""))
    capability: Capability = _CAPABILITY

    def stat(self, key: str) -> StoredObject:
        """Return the facts of a file."""
        path = Path("/" + key)
        try:
            if not path.is_file():
                raise FileNotFoundError
            status = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise SkyObjectMissing(f"there is no file {path}") from None
        version = f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}"
        return StoredObject(key, status.st_size, version, modified=status.st_mtime)

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        """Yield files in the order of their paths."""
        folder = Path("/" + prefix.rpartition("/")[0])
        keys = []
        for base, _, names in os.walk(folder):
            keys += [os.path.join(base, name).lstrip("/") for name in names]
        for key in sorted(keys, key=os.fsencode):
            if key.startswith(prefix) and key > after and os.path.isfile("/" + key):
                yield self.stat(key)

    def read(self, obj: StoredObject, span: Span | None = None) -> PartRequest:
        """Return a request that reads a file of this machine."""
        if self.stat(obj.key).version != obj.version:
            raise SkySourceChanged(f"/{obj.key} has changed since it was listed")
        return PartRequest("GET", f"file:/{obj.key}", {}, span or Span(0, obj.size))

    def begin(
        self,
        key: str,
        size: int,
        *,
        part_size: int = 0,
        condition: Condition = ALWAYS,
        upload_id: str = "",
    ) -> LocalUpload:
        """Begin to write a file."""
        path = Path("/" + key)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=".sky-part-", dir=path.parent)
        os.close(handle)
        return LocalUpload(key, partial, size, max(size, 1), condition)

    def end(self, upload: LocalUpload, parts: Sequence[Part]) -> StoredObject:
        """Give the file its name."""
        if upload.condition.absent and Path("/" + upload.key).exists():
            upload.abort()
            raise SkyTargetExists(f"/{upload.key} exists")
        os.replace(upload.id, "/" + upload.key)
        return self.stat(upload.key)

    def remove(self, keys: Iterable[str]) -> None:
        """Delete files."""
        for key in keys:
            Path("/" + key).unlink(missing_ok=True)

    def can_copy_from(self, other: object) -> bool:
        """Return whether another store is of this machine, too."""
        return isinstance(other, LocalFiles)


@dataclass(frozen=True, slots=True)
class LocalUpload:
    """A file that is being written."""

    key: str
    id: str
    size: int
    part_size: int
    condition: Condition

    def write(self, number: int, sums: Checksums | None = None) -> PartRequest:
        """Return a request that writes a part."""
        start = (number - 1) * self.part_size
        span = Span(start, min(start + self.part_size, self.size))
        return PartRequest("PUT", f"file:{self.id}", {}, span)

    def abort(self) -> None:
        """Remove what was written."""
        Path(self.id).unlink(missing_ok=True)
