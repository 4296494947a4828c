"""Record of the objects that a transfer has published, by which it goes on after a crash."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_sky.machines.storage.stores.journal import Journal
from jupyter_sky.machines.storage.stores.object_transfer import (
    TransferItem,
    content_name,
    object_name,
)
from jupyter_sky.machines.storage.stores.store import Store, StoredObject
from jupyter_sky.machines.storage.transfers.leftovers import remove_files_below


class PublishedObjects:
    """Objects that one transfer has published; without a journal known to this process only.

    Parameters
    ----------
    journal : Journal or None
        Where it is kept.
    source, target : Store
        Ends of the transfer.
    items : sequence of TransferItem
        All its objects.
    """

    def __init__(
        self, journal: Journal | None, source: Store, target: Store, items: Sequence[TransferItem]
    ) -> None:
        self.objects: dict[str, StoredObject] = {}
        self._journal, self._source, self._target = journal, source, target
        self._keys = _shared_prefix([item.key for item in items])
        self._new: list[tuple[str, str, str]] = []
        self._transfer = ""

    def start(self) -> None:
        """Note that the transfer begins."""
        if self._journal:
            self._transfer = self._journal.start(*self._place)

    def stop(self, *, is_whole: bool) -> None:
        """Note that the transfer has ended, with all its objects or before."""
        if self._journal and is_whole:
            self._journal.finish(self._transfer)
            remove_files_below(self._journal, *self._place)
        elif self._journal:
            self._journal.abandon(self._transfer)

    def add(self, item: TransferItem, written: StoredObject) -> None:
        """Take in an object; `note` writes it down."""
        self.objects[item.key] = written
        if self._journal:
            content = content_name(self._source, item.source)
            self._new.append((self.target_name(item), content, written.version))

    def target_name(self, item: TransferItem) -> str:
        """Return the address that an item goes to."""
        return object_name(self._target, item.key)

    def note(self) -> None:
        """Write down what is new."""
        if self._journal and self._new:
            self._journal.publish(self._new)
            self._new = []

    def find_earlier(self, items: Sequence[TransferItem]) -> set[str]:
        """Return the keys that an earlier run has published, and that nobody changed since."""
        known = self._journal.published(self._prefix) if self._journal else {}
        if not known:
            return set()
        there = {obj.key: obj.version for obj in self._target.list(self._keys)}
        return {
            item.key
            for item in items
            if known.get(self.target_name(item))
            == (content_name(self._source, item.source), there.get(item.key))
        }

    def clear(self) -> None:
        """Remove the record of a transfer that has ended."""
        if self._journal:
            self._journal.clear(self._prefix)

    @property
    def _place(self) -> tuple[str, str]:
        """Address of the target store, and the beginning of the keys there."""
        address = self._target.uri.child(self._keys)
        return str(address.root), address.key

    @property
    def _prefix(self) -> str:
        return object_name(self._target, self._keys)


def _shared_prefix(keys: Sequence[str]) -> str:
    """Return the longest beginning that all keys share."""
    first, last = min(keys, default=""), max(keys, default="")
    length = 0
    while length < len(first) and first[: length + 1] == last[: length + 1]:
        length += 1
    return first[:length]
