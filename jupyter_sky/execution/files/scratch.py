"""Scratch of this user: prefixes for runs, and what to remove of runs that have ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

from jupyter_sky.base.clouds.register import find_facts, find_store
from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.settings.settings import Sky
from jupyter_sky.base.translation import _
from jupyter_sky.clouds.launches.launch_records import installation_id
from jupyter_sky.execution.clusters.cluster import place_of_machine
from jupyter_sky.execution.clusters.reap_finding import ReapFinding
from jupyter_sky.machines.storage.datasets.scratch import Scratch, ScratchFinding, ScratchNotes
from jupyter_sky.machines.storage.stores.journal import Journal, JournalEntry
from jupyter_sky.machines.storage.stores.object_transfer import give_up
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri
from jupyter_sky.machines.storage.transfers.leftovers import Leftovers, remove_leftovers

UPLOAD_DAYS = 7
"""Days for which an upload that was interrupted is kept, so that the same transfer goes on."""


@contextmanager
def open_scratch() -> Iterator[Scratch]:
    """Open the scratch of this user."""
    settings = Sky.load()
    folder = Path(settings.data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    notes = ScratchNotes.open(folder)
    project = os.environ.get("GOOGLE_CLOUD_PROJECT", "")
    try:
        owner = installation_id(folder)
        yield Scratch(notes, owner, settings.scratch, partial(open_store), project)
    finally:
        notes.close()


def place_of_scratch(cloud: str, region: str | None) -> str:
    """Return the place by which ``Sky.scratch`` names the bucket of a cluster.

    Machines of one's own have names for regions; one bucket serves all of them.
    """
    if find_facts(cloud).on_premises:
        return cloud
    return place_of_machine(cloud, region)


def scratch_of(place: str) -> StorageUri:
    """Return the prefix of this process in the scratch of a place; made at the first call.

    Raises
    ------
    SkyUsageError
        The place has no store, and ``Sky.scratch`` names none for it.
    """
    return _prefix_of(place, Sky.load().scratch.get(place, ""))


def output_root(place: str) -> StorageUri:
    """Return the folder of a place for outputs that stay when their run has ended.

    It is that of ``Sky.scratch``, else a bucket of this user; of machines of one's own a folder of
    the data directory.

    Raises
    ------
    SkyUsageError
        The place has no store, and ``Sky.scratch`` names none for it.
    """
    settings = Sky.load()
    if find_facts(place.partition("/")[0]).on_premises and place not in settings.scratch:
        return StorageUri.parse(f"file:{Path(settings.data_dir).resolve()}/outputs/")
    with open_scratch() as scratch:
        return scratch.output_root(place).child("outputs/")


@cache
def _prefix_of(place: str, configured: str) -> StorageUri:
    """Return a prefix; another one when the settings name another address."""
    with open_scratch() as scratch:
        return scratch.prefix(place)


def reap_scratch() -> list[ReapFinding]:
    """Remove the prefixes of runs that have ended, unused buckets, and abandoned uploads."""
    folder = Path(Sky.load().data_dir)
    if not (folder / "transfers.db").exists():
        return []
    with open_scratch() as scratch:
        found = [_finding(each) for each in scratch.sweep()]
    journal = Journal.open(folder)
    before = time.time() - UPLOAD_DAYS * 24 * 3600
    try:
        left = [entry for entry in journal.abandoned_uploads() if 0 < entry.noted < before]
        return found + [_abort(journal, entry) for entry in left if entry.store]
    finally:
        journal.close()


def remove_unfinished() -> Leftovers:
    """Remove what transfers have left that nobody carries on, also those to be resumed."""
    folder = Path(Sky.load().data_dir)
    if not (folder / "transfers.db").exists():
        return Leftovers()
    journal = Journal.open(folder)
    try:
        return remove_leftovers(journal)
    finally:
        journal.close()


def unused_scratch() -> list[str]:
    """Return the addresses of the prefixes that `reap_scratch` would remove; asks no store."""
    folder = Path(Sky.load().data_dir)
    if not (folder / "transfers.db").exists():
        return []
    with open_scratch() as scratch:
        notes = scratch.notes.all()
    return [note.uri for note in notes if note.kind == "prefix" and not note.is_used]


def _finding(swept: ScratchFinding) -> ReapFinding:
    cloud = find_store(StorageUri.parse(swept.uri).scheme)
    why = _("its run has ended")
    return ReapFinding(cloud, swept.uri, "", why, not swept.error, swept.error)


def _abort(journal: Journal, entry: JournalEntry) -> ReapFinding:
    """Give up an upload that nobody has gone on with."""
    uri = StorageUri.parse(entry.store)
    why = _("an upload that nobody has gone on with for {days} days").format(days=UPLOAD_DAYS)
    cloud, what = find_store(uri.scheme), str(uri.child(entry.key))
    try:
        give_up(open_store(uri), entry, entry.key)
    except SkyError as error:
        return ReapFinding(cloud, what, "", why, False, error.message)
    journal.forget(entry.target)
    return ReapFinding(cloud, what, "", why, True)
