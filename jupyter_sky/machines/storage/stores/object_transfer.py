"""One object of a transfer: its upload, the parts that are missing, its end."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.checksums import crc_to_hex
from jupyter_sky.machines.storage.stores.errors import (
    SkyChecksumMismatch,
    SkyObjectMissing,
    SkyUploadConflict,
    SkyUploadMissing,
)
from jupyter_sky.machines.storage.stores.journal import Journal, JournalEntry
from jupyter_sky.machines.storage.stores.store import (
    Checksums,
    Condition,
    Part,
    Span,
    Store,
    StoredObject,
    Upload,
    choose_part_size,
    combined_crc32c,
    part_count,
    part_span,
)

RESTARTS = 2
CLOCK_SECONDS = 15 * 60.0
"""Largest difference of the clocks of a store and a machine: stores refuse others."""


@dataclass(frozen=True, slots=True)
class TransferItem:
    """An object to move.

    Attributes
    ----------
    source : StoredObject
        The version to read.
    key : str
        Key in the target.
    """

    source: StoredObject
    key: str


@dataclass
class ObjectTransfer:
    """State of one object on its way.

    Attributes
    ----------
    item : TransferItem
        What moves.
    upload : Upload or None
        Where it goes, once begun.
    missing : deque of int
        Parts that nobody has sent yet.
    parts : dict
        Parts that the target has, by number.
    resumed : int
        Bytes that were there before.
    restarts : int
        How often it began anew.
    """

    item: TransferItem
    upload: Upload | None = None
    missing: deque[int] = field(default_factory=deque)
    parts: dict[int, Part] = field(default_factory=dict)
    resumed: int = 0
    restarts: int = 0

    @property
    def size(self) -> int:
        """Bytes of the object."""
        return self.item.source.size

    @property
    def is_complete(self) -> bool:
        """Whether the target has all parts."""
        return bool(self.upload) and len(self.parts) == self.count

    @property
    def is_verified(self) -> bool:
        """Whether a checksum of the source tells that the content is the same.

        Sums of parts combine to the CRC-32C of the whole, not to its MD5.
        """
        sums = self.item.source.sums
        return "crc32c" in sums or (self.count == 1 and "md5" in sums)

    def restart(self, source: StoredObject) -> None:
        """Begin anew with what the source is now."""
        self.item = replace(self.item, source=source)
        self.parts, self.missing, self.resumed = {}, deque(), 0
        self.restarts += 1

    @property
    def done(self) -> int:
        """Bytes that the target has."""
        return sum(part.span.size for part in self.parts.values())

    @property
    def count(self) -> int:
        """Number of parts."""
        return part_count(self.size, self.opened.part_size)

    def span(self, number: int) -> Span:
        """Return the bytes of a part."""
        return part_span(number, self.size, self.opened.part_size)

    @property
    def opened(self) -> Upload:
        """The upload, once it is begun."""
        assert self.upload is not None
        return self.upload


def object_name(store: Store, key: str) -> str:
    """Return a name of an object, or of a prefix, among those of all stores.

    Names begin with that of their prefix, so that a journal can be searched by it.
    """
    endpoint = store.uri.options.get("endpoint", "")
    address = str(replace(store.uri, options={}).child(key))
    return f"{endpoint} {address}" if endpoint else address


def content_name(source: Store, obj: StoredObject) -> str:
    """Return a name of the very content of an object."""
    return f"{object_name(source, obj.key)} {obj.version} {obj.size}"


def open_object(
    transfer: ObjectTransfer,
    source: Store,
    target: Store,
    *,
    part_size: int,
    condition: Condition,
    journal: Journal | None,
) -> None:
    """Begin the upload of an object, or go on with one that an earlier process left.

    Raises
    ------
    SkyTransferRunning
        Another process writes the object.
    """
    item = transfer.item
    part_size = part_size or choose_part_size(item.source.size, target.capability)
    has_parts = item.source.size > part_size
    if has_parts and not item.source.sums:
        there = source.stat(item.source.key)
        if there.version == item.source.version:
            transfer.item = replace(item, source=there)
    if journal and has_parts and _take_over(transfer, source, target, condition, journal):
        return
    entry = None
    if journal and has_parts:
        entry = _new_entry(transfer.item, source, target, part_size)
        journal.begin(entry)
    upload = target.begin(item.key, item.source.size, part_size=part_size, condition=condition)
    if journal and entry and upload.id:
        journal.begin(replace(entry, upload_id=upload.id, part_size=upload.part_size))
    transfer.upload, transfer.parts, transfer.resumed = upload, {}, 0
    transfer.missing = deque(range(1, transfer.count + 1))


def end_object(transfer: ObjectTransfer, target: Store, *, look: bool) -> StoredObject:
    """Publish an object whose parts are all there, after comparing its checksum.

    Parameters
    ----------
    look : bool
        Ask the target for the checksum of what it has: for copies, of which we saw no byte.

    Raises
    ------
    SkyUploadConflict
        It has to begin anew: the store wants that, or the checksums differ.
    """
    source, upload = transfer.item.source, transfer.upload
    assert upload is not None
    parts = [transfer.parts[number] for number in sorted(transfer.parts)]
    told, crc32c = source.sums.get("crc32c"), combined_crc32c(parts)
    if told and crc32c is not None and told != crc_to_hex(crc32c):
        raise SkyUploadConflict(
            _("what was read of {key} has another checksum").format(key=source.key)
        )
    try:
        written = target.end(upload, parts)
    except SkyChecksumMismatch as error:
        raise SkyUploadConflict(error.message) from error
    if look and told:
        written = target.stat(written.key)
        if written.sums.get("crc32c", told) != told:
            target.remove([written.key])
            raise SkyUploadConflict(
                _("the copy of {key} has another checksum").format(key=source.key)
            )
    return written


def abort_upload(upload: Upload, journal: Journal | None, name: str) -> None:
    """Abort an upload, and forget it only then: a killed process leaves none that is not noted.

    Parameters
    ----------
    name
        Target of the upload in the journal.
    """
    upload.abort()
    if journal and upload.id:
        journal.forget(name)


def find_published(
    transfer: ObjectTransfer, target: Store, sums: Checksums | None
) -> StoredObject | None:
    """Return the object of the target if it has the very content, None otherwise.

    A write whose answer was lost meets its own object when it is repeated on condition.
    """
    try:
        there = target.stat(transfer.item.key)
    except SkyObjectMissing:
        return None
    known = dict(transfer.item.source.sums)
    if sums:
        known |= {"crc32c": crc_to_hex(sums.crc32c)}
        known |= {"md5": sums.md5.hex()} if sums.md5 else {}
    shared = [name for name in known if name in there.sums]
    is_same = shared and all(known[name] == there.sums[name] for name in shared)
    return there if is_same and there.size == transfer.size else None


def _new_entry(item: TransferItem, source: Store, target: Store, part_size: int) -> JournalEntry:
    """Return the note of an upload whose name the store has not told yet."""
    address = target.uri.child(item.key)
    return JournalEntry(
        object_name(target, item.key),
        content_name(source, item.source),
        "",
        part_size,
        str(address.root),
        address.key,
    )


def _take_over(
    transfer: ObjectTransfer, source: Store, target: Store, condition: Condition, journal: Journal
) -> bool:
    """Go on with an upload that an earlier process left; abort one of other content."""
    entry = journal.take(object_name(target, transfer.item.key))
    if entry is None:
        return False
    is_same = entry.content == content_name(source, transfer.item.source)
    if is_same and entry.upload_id and _resume(transfer, target, entry, condition):
        return True
    give_up(target, entry, transfer.item.key)
    if entry.upload_id:
        journal.forget(entry.target)
    else:
        journal.set_aside(entry)
    return False


def _resume(
    transfer: ObjectTransfer, target: Store, entry: JournalEntry, condition: Condition
) -> bool:
    """Go on with an upload; return whether it still exists."""
    upload = target.begin(
        transfer.item.key,
        transfer.size,
        part_size=entry.part_size,
        condition=condition,
        upload_id=entry.upload_id,
    )
    try:
        parts = upload.have()
    except SkyUploadMissing:
        return False
    transfer.upload, transfer.parts = upload, parts
    transfer.resumed = sum(part.span.size for part in parts.values())
    transfer.missing = deque(n for n in range(1, transfer.count + 1) if n not in parts)
    return True


def give_up(target: Store, entry: JournalEntry, key: str) -> None:
    """Abort an upload that an earlier process left, also one whose name it had not learned yet."""
    if not entry.upload_id:
        begun = entry.noted - CLOCK_SECONDS, entry.noted + CLOCK_SECONDS
        target.abort_uploads(key, *begun)
        return
    size = 2 * entry.part_size  # of several parts, as every upload that has a name
    target.begin(key, size, part_size=entry.part_size, upload_id=entry.upload_id).abort()
