"""Remains of transfers that nobody carries on: open uploads, and files that are not whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.translation import _
from jupyter_sky.machines.storage.stores.files import remove_parts
from jupyter_sky.machines.storage.stores.journal import AbandonedTransfer, Journal
from jupyter_sky.machines.storage.stores.object_transfer import give_up
from jupyter_sky.machines.storage.stores.store import Store
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import StorageUri


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Removed remains of interrupted transfers.

    Attributes
    ----------
    uploads : int
        Uploads that were aborted.
    files : int
        Files of which a part had been written.
    failures : tuple of str
        Sentences on what could not be removed; it stays in the journal for the next time.
    """

    uploads: int = 0
    files: int = 0
    failures: tuple[str, ...] = ()

    def __str__(self) -> str:
        return _("{uploads:,} uploads and {files:,} unfinished files of earlier transfers").format(
            uploads=self.uploads, files=self.files
        )


def remove_leftovers(
    journal: Journal, open_target: Callable[[StorageUri], Store] = open_store
) -> Leftovers:
    """Remove what transfers have left that were killed, cancelled or stopped by an error.

    Transfers of living processes are left alone. What is removed cannot be resumed.
    """
    uploads, failures = 0, list[str]()
    for entry in journal.abandoned_uploads():
        try:
            if entry.store:
                give_up(open_target(StorageUri.parse(entry.store)), entry, entry.key)
            journal.forget(entry.target)
            uploads += 1
        except SkyError as error:
            failures.append(f"{entry.target}: {error.message}")
    abandoned = journal.abandoned_transfers()
    files = sum(_remove_files(journal, transfer) for transfer in abandoned)
    return Leftovers(uploads, files, tuple(failures))


def remove_files_below(journal: Journal, store: str, prefix: str) -> None:
    """Remove the unfinished files of earlier transfers to the same place."""
    for transfer in journal.abandoned_transfers():
        if (transfer.store, transfer.prefix) == (store, prefix):
            _remove_files(journal, transfer)


def _remove_files(journal: Journal, transfer: AbandonedTransfer) -> int:
    """Remove the unfinished files of a transfer, but no uploads that are still noted."""
    count, uri = 0, StorageUri.parse(transfer.store)
    if uri.is_local:
        folder = Path("/", transfer.prefix.rpartition("/")[0])
        count = remove_parts(folder, transfer.owner, journal.resumable_ids())
    journal.finish(transfer.id)
    return count
