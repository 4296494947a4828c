"""Verb ``storage``: data in object stores, listed, measured, copied and deleted."""

from __future__ import annotations

import time
from typing import Any

from ..errors import SkyCancelled, SkyUsageError
from ..quantities import format_size
from ..resources import format_duration
from ..tables import Table
from ..translation import _
from .arguments import option, word
from .declaration import verb


@verb("storage", "storage", needs_session=False)
def show_storage() -> Any:
    """Show the data that were measured within a day, and their sizes."""
    from ..storage.data import usage_memory

    rows = tuple(
        (usage.uri, usage.objects, format_size(usage.nbytes), _hours_ago(usage.measured))
        for usage in usage_memory().all()
    )
    return Table(
        _("Data measured within a day"),
        (_("address"), _("objects"), _("size"), _("measured")),
        rows,
        empty=_("none: %sky storage du s3://imagenet/train/ measures"),
    )


def _hours_ago(moment: float) -> str:
    return _("{duration} ago").format(duration=format_duration(max(1, time.time() - moment)))


@verb(
    "storage ls",
    "storage ls s3://imagenet/train/",
    word("URI", "Bucket, folder, or a path of this machine.", "storage"),
    needs_session=False,
)
def list_data(uri: str) -> Any:
    """List one level of a bucket or folder."""
    from ..storage.data import Storage

    return Storage(uri).ls()


@verb(
    "storage du",
    "storage du s3://imagenet/train/",
    word("URI", "Bucket, folder or object.", "storage"),
    option("--refresh", "", "Measure again, also within a day."),
    needs_session=False,
)
def measure_data(uri: str, refresh: bool) -> Any:
    """Measure data: number of objects and bytes."""
    from ..storage.data import Storage

    return Storage(uri).du(refresh=refresh)


@verb(
    "storage cp",
    "storage cp ./data/ s3://mine/data/",
    word("FROM", "Object, folder or path.", "storage"),
    word("TO", "Object, or with / at its end a folder.", "storage"),
    option("--dry-run", "", "Say how much would be copied, and its price."),
    option("--overwrite", "", "Replace objects of the target that differ."),
    option("--via", "NAME", "Cluster that moves the bytes between clouds; here for this machine."),
    needs_session=False,
)
def copy_data(to: str, dry_run: bool, overwrite: bool, via: str | None, **words: str) -> Any:
    """Copy data between stores and folders; nothing is deleted."""
    from ..api.storage import copy, show_progress

    made = copy(words["from"], to, dry_run=dry_run, overwrite=overwrite, via=via or "")
    if dry_run:
        return made
    made.wait(show_progress)
    print(_("copied: {plan}").format(plan=made.plan))
    return None


@verb(
    "storage rm",
    "storage rm s3://mine/runs/7/",
    word("URI", "Object, or with / at its end everything below.", "storage"),
    option("--yes", "", "Delete without asking."),
    needs_session=False,
)
def delete_data(uri: str, yes: bool) -> None:
    """Delete an object, or everything below an address that ends with /."""
    from ..storage.data import Storage

    data = Storage(uri)
    if data.uri.is_folder and not yes:
        manifest = data.list()
        count, size = len(manifest.objects), format_size(manifest.nbytes)
        from .confirmation import ask

        answer = ask(f"Delete {count:,} objects ({size}) below {data.uri}? [y/N] ")
        if answer is None:
            raise SkyUsageError(
                _("{uri}: {count:,} objects ({size}) would be deleted").format(
                    uri=data.uri, count=count, size=size
                ),
                hint=_("%sky storage rm {uri} --yes").format(uri=data.uri),
            )
        if answer.strip().lower() not in ("y", "yes"):
            raise SkyCancelled(_("nothing was deleted"))
    print(_("deleted: {delete:,} objects of {uri}").format(delete=data.delete(), uri=data.uri))


@verb("storage gc", "storage gc", needs_session=False)
def free_cache() -> None:
    """Remove data from this machine's cache that no cell uses."""
    from ..storage.local_cache import data_cache

    cache = data_cache()
    freed = cache.evict_unused()
    print(_("freed: {freed} of {root}").format(freed=format_size(freed), root=cache.root))
