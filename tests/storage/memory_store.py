"""Store whose objects are in memory: for listings, which need no bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.store import Capability, StoreDefaults, StoredObject
from jupyter_sky.machines.storage.stores.uri import StorageUri


@dataclass
class MemoryStore(StoreDefaults):
    """Objects by key; counts the objects that listings have yielded."""

    objects: dict[str, StoredObject] = field(default_factory=dict)
    uri: StorageUri = field(default_factory=lambda: StorageUri.parse("s3://bucket"))
    capability: Capability = field(default_factory=Capability)
    listed: int = 0

    @classmethod
    def of(cls, *keys: str, **facts: Any) -> MemoryStore:
        """A store with objects of one byte."""
        return cls({key: StoredObject(key, 1, "v1", **facts) for key in keys})

    def stat(self, key: str) -> StoredObject:
        if key not in self.objects:
            raise SkyObjectMissing(f"no object {key}")
        return self.objects[key]

    def list(self, prefix: str = "", after: str = "") -> Iterator[StoredObject]:
        for key in sorted(self.objects, key=str.encode):
            if key.startswith(prefix) and key.encode() > after.encode():
                self.listed += 1
                yield self.objects[key]

    def remove(self, keys: Iterable[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)
