"""Scratch: prefixes of runs in a bucket of the region, swept once their process has ended.

``Sky.scratch`` names a bucket for each place, once for all; a place without one gets a bucket of
ours, never one for each run. Both are noted in the journal before they are made, so that whatever
happens to this process, it is known what to remove.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.base.clouds.register import find_facts
from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.remote.processes import identity, liveness
from jupyter_sky.base.store.database import Database
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.buckets import create_bucket, delete_bucket, empty_prefix
from jupyter_sky.machines.storage.stores.errors import (
    SkyBucketMissing,
    SkyStorageError,
    SkyUploadConflict,
)
from jupyter_sky.machines.storage.stores.journal import MIGRATIONS
from jupyter_sky.machines.storage.stores.places import place_of
from jupyter_sky.machines.storage.stores.s3 import S3Store
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.uri import StorageUri

BUCKET_LEASE_SECONDS = 24 * 3600.0
"""Time after which a bucket of ours without a run is deleted."""

OpenStore = Callable[[StorageUri], Store]


@dataclass(frozen=True, slots=True)
class ScratchNote:
    """A bucket of ours, or the prefix of a run.

    Attributes
    ----------
    uri : str
        Its address.
    kind : str
        ``bucket`` or ``prefix``.
    place : str
        Cloud and region.
    owner : mapping
        Identity of the process that uses it.
    at : float
        Unix time of the note.
    """

    uri: str
    kind: str
    place: str
    owner: Mapping[str, object]
    at: float

    @property
    def is_used(self) -> bool:
        """Whether its process lives, or may live: that of another machine is given a day."""
        state = liveness(self.owner)
        if state == "foreign":
            return time.time() - self.at < BUCKET_LEASE_SECONDS
        return state == "alive"


class ScratchNotes:
    """Notes of buckets and prefixes, which all processes of a user share."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, folder: Path) -> ScratchNotes:
        """Open or create the journal in a folder."""
        return cls(Database.open(folder / "transfers.db", MIGRATIONS))

    def add(self, uri: str, kind: str, place: str) -> None:
        """Note something before it is made, or that it is used again; durable."""
        now = time.time()
        values = (uri, kind, place, json.dumps(identity(), sort_keys=True), now)
        sql = "INSERT OR REPLACE INTO scratch VALUES (?, ?, ?, ?, ?)"
        self._database.write((sql, values), durable=True)

    def forget(self, uri: str) -> None:
        """Remove the note of what is gone."""
        self._database.write(("DELETE FROM scratch WHERE uri = ?", (uri,)), durable=True)

    def all(self) -> list[ScratchNote]:
        """Return all notes, prefixes before buckets."""
        rows = self._database.read("SELECT * FROM scratch ORDER BY kind DESC, uri")
        return [
            ScratchNote(
                row["uri"],
                row["kind"],
                row["place"],
                json.loads(row["owner"]),
                row["at"],
            )
            for row in rows
        ]

    def close(self) -> None:
        """Close the file."""
        self._database.close()


@dataclass(frozen=True, slots=True)
class ScratchFinding:
    """Something that was left behind.

    Attributes
    ----------
    uri : str
        Prefix or bucket.
    removed : tuple of str
        Keys that were deleted, uploads that were given up; the bucket itself is ``""``.
    error : str
        Reason why it is still there.
    """

    uri: str
    removed: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class Scratch:
    """Scratch of a user.

    Parameters
    ----------
    notes : ScratchNotes
        What there is.
    owner : str
        Name of the user's installation, in prefixes, names of buckets and tags.
    configured : mapping of str to str
        Addresses by place, from ``Sky.scratch``.
    open_store : callable
        Returns the store of an address.
    project : str
        Project of Google, for buckets of ours.
    """

    notes: ScratchNotes
    owner: str
    configured: Mapping[str, str]
    open_store: OpenStore
    project: str = ""

    def prefix(self, place: str) -> StorageUri:
        """Return a new prefix of this process in the scratch of a place.

        Parameters
        ----------
        place
            Cloud and region, such as ``aws/us-east-1``.

        Raises
        ------
        SkyUsageError
            The place has no store, or ``Sky.scratch`` names one elsewhere.
        """
        root = self._configured(place) or self._own_bucket(place)
        uri = root.child(f"sky/{self.owner}/{uuid.uuid4().hex[:12]}/")
        self.notes.add(str(uri), "prefix", place)
        return uri

    def output_root(self, place: str) -> StorageUri:
        """Return the bucket of a place for what is kept until its user removes it.

        Parameters
        ----------
        place
            Cloud and region, such as ``aws/us-east-1``.

        Raises
        ------
        SkyUsageError
            The place has no store, or ``Sky.scratch`` names one elsewhere.
        """
        if configured := self._configured(place):
            return configured
        uri, region = self._bucket(place, "outputs")
        if not self._is_there(uri):
            self._create(uri, region, {}, is_lasting=True)
        return uri

    def remove(self, uri: StorageUri) -> ScratchFinding:
        """Delete everything below a prefix, and forget it."""
        return self._sweep_prefix(str(uri))

    def sweep(self, now: float | None = None) -> Iterator[ScratchFinding]:
        """Remove prefixes of processes that have ended, and buckets of ours that nobody uses.

        What cannot be removed stays noted, and is tried again the next time.
        """
        now = time.time() if now is None else now
        notes = self.notes.all()
        used = [note for note in notes if note.kind == "prefix" and note.is_used]
        for note in notes:
            if note.kind == "prefix" and not note.is_used:
                yield self._sweep_prefix(note.uri)
            elif note.kind == "bucket" and not note.is_used:
                is_needed = any(each.uri.startswith(_bare(note.uri)) for each in used)
                if not is_needed and now - note.at > BUCKET_LEASE_SECONDS:
                    yield self._sweep_bucket(note.uri)

    # -- private

    def _configured(self, place: str) -> StorageUri | None:
        """Return the address that the user has named for a place, once it is known to be there."""
        text = self.configured.get(place, "")
        if not text:
            return None
        address, question, options = text.partition("?")
        uri = StorageUri.parse(f"{address.rstrip('/')}/{question}{options}")
        there = place_of(self.open_store(uri), uri)
        is_region = "/" in place  # machines of one's own have no store near them
        if there and is_region and there != place:
            raise SkyUsageError(
                _("Sky.scratch[{place!r}]: {uri} is in {there}").format(
                    place=place, uri=text, there=there
                ),
                hint=_("name a bucket of that region"),
            )
        return uri

    def _own_bucket(self, place: str) -> StorageUri:
        """Return the bucket of ours in a place, which is created where there is none."""
        uri, region = self._bucket(place, "scratch")
        known = {note.uri for note in self.notes.all()}
        self.notes.add(str(uri), "bucket", place)
        if str(uri) not in known or not self._is_there(uri):
            self._create(uri, region, {"jupyter-sky-lease": "1d"})
        return uri

    def _bucket(self, place: str, use: str) -> tuple[StorageUri, str]:
        """Return the address and the region of the bucket that a place has for a use."""
        cloud, __, region = place.partition("/")
        schemes = find_facts(cloud).schemes
        if not region or schemes[:1] not in (("s3",), ("gs",)):
            raise SkyUsageError(
                _("{place}: there is no scratch").format(place=place),
                hint=_('name a bucket: Sky.scratch = {{"{place}": "URI"}}').format(place=place),
            )
        name = f"sky-{use}-{self.owner.lower()[:12]}-{region}"
        return StorageUri(schemes[0], name, options={"region": region}), region

    def _create(
        self, uri: StorageUri, region: str, tags: Mapping[str, str], is_lasting: bool = False
    ) -> None:
        store = self.open_store(uri)
        assert isinstance(store, S3Store)
        tags = {"jupyter-sky-owner": self.owner.lower(), **tags}
        create_bucket(store, region, tags, self.project, is_lasting=is_lasting)

    def _is_there(self, uri: StorageUri) -> bool:
        try:
            next(self.open_store(uri).list(), None)
        except SkyBucketMissing:
            return False
        return True

    def _sweep_prefix(self, text: str) -> ScratchFinding:
        uri = StorageUri.parse(text)
        try:
            store = self.open_store(uri)
            if isinstance(store, S3Store):
                removed = empty_prefix(store, uri.key)
            else:
                removed = [each.key for each in store.list(uri.key)]
                store.remove(removed)
        except SkyBucketMissing:
            removed = []
        except SkyStorageError as error:
            return ScratchFinding(text, error=error.message)
        self.notes.forget(text)
        return ScratchFinding(text, tuple(removed))

    def _sweep_bucket(self, text: str) -> ScratchFinding:
        store = self.open_store(StorageUri.parse(text))
        assert isinstance(store, S3Store)
        try:
            removed = empty_prefix(store, f"sky/{self.owner}/")
            delete_bucket(store)
        except SkyBucketMissing:
            removed = []
        except SkyUploadConflict:
            return ScratchFinding(text, error=_("others keep data in it: it is not deleted"))
        except SkyStorageError as error:
            return ScratchFinding(text, error=error.message)
        self.notes.forget(text)
        return ScratchFinding(text, (*removed, ""))


def _bare(uri: str) -> str:
    """Return the address of a bucket without its options."""
    return uri.partition("?")[0] + "/"
