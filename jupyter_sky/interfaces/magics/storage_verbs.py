"""Verb ``storage``: data in object stores, listed, measured, copied and deleted."""

from __future__ import annotations

import time
from typing import Any

from jupyter_sky.base.errors import SkyUsageError
from jupyter_sky.base.requests.quantities import format_objects, format_size
from jupyter_sky.base.requests.resources import format_duration
from jupyter_sky.base.tables import Table
from jupyter_sky.base.translation import _
from jupyter_sky.interfaces.magics.arguments import option, word
from jupyter_sky.interfaces.magics.declaration import verb


@verb("storage", "storage", needs_session=False)
def show_storage() -> Any:
    """Show the data that were measured within a day, and their sizes."""
    from jupyter_sky.machines.storage.datasets.data import usage_memory

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
    from jupyter_sky.machines.storage.datasets.data import Storage

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
    from jupyter_sky.machines.storage.datasets.data import Storage

    return Storage(uri).du(refresh=refresh)


@verb(
    "storage cp",
    "storage cp ./data/ s3://mine/data/",
    word("FROM", "Object, folder or path.", "storage"),
    word("TO", "Object, or with / at its end a folder.", "storage"),
    option("--dry-run", "", "Say how much would be copied, and its price."),
    option("--overwrite", "", "Replace objects of the target that differ."),
    option("--via", "NAME", "Cluster that moves the bytes between clouds; here for this machine."),
    option("--residency", "AREAS", "Areas that the data may not leave, such as eu."),
    option("--yes", "", "Copy without asking, whatever it costs."),
    needs_session=False,
)
def copy_data(
    to: str,
    dry_run: bool,
    overwrite: bool,
    via: str | None,
    residency: str | None,
    yes: bool,
    **words: str,
) -> Any:
    """Copy data between stores and folders; nothing is deleted."""
    from jupyter_sky.interfaces.api.storage import copy, show_progress

    made = copy(
        words["from"],
        to,
        dry_run=dry_run,
        overwrite=overwrite,
        via=via or "",
        residency=residency or "",
        yes=yes,
    )
    if dry_run:
        return made
    made.wait(show_progress)
    way = _(", through {machine}").format(machine=made.route) if made.route else ""
    cost = f": {made.charge}" if made.charge is not None and made.charge.usd else ""
    print(_("copied: {plan}").format(plan=made.plan) + way + cost)
    return None


@verb(
    "storage rm",
    "storage rm s3://mine/runs/7/",
    word("URI", "Object, or with / at its end everything below.", "storage"),
    option("--dry-run", "", "Say what would be deleted, and what it costs now."),
    option("--yes", "", "Delete without asking."),
    needs_session=False,
)
def delete_data(uri: str, dry_run: bool, yes: bool) -> None:
    """Delete an object, or everything below an address that ends with /."""
    from jupyter_sky.machines.storage.datasets.data import Storage
    from jupyter_sky.machines.storage.datasets.deletion import plan_deletion

    data = Storage(uri)
    if dry_run or (data.uri.is_folder and not yes):
        plan = plan_deletion(data)
        if dry_run:
            print(_("{plan}; nothing was deleted").format(plan=plan))
            return
        from jupyter_sky.interfaces.api.confirmation import confirm

        confirm(
            _("{plan}\nDelete? [y/N] ").format(plan=plan),
            SkyUsageError(
                _("{plan} would be deleted").format(plan=plan),
                hint=_("%sky storage rm {uri} --yes").format(uri=data.uri),
            ),
            _("nothing was deleted"),
        )
    print(
        _("deleted: {amount} of {uri}").format(amount=format_objects(data.delete()), uri=data.uri)
    )


@verb(
    "storage gc",
    "storage gc",
    option("--dry-run", "", "Say what would be removed."),
    needs_session=False,
)
def free_cache(dry_run: bool) -> None:
    """Remove data that nothing uses: this machine's cache, scratch, and interrupted transfers."""
    from jupyter_sky.execution.files.scratch import reap_scratch, remove_unfinished, unused_scratch
    from jupyter_sky.machines.storage.datasets.local_cache import data_cache
    from jupyter_sky.machines.storage.transfers.leftovers import Leftovers

    cache = data_cache()
    if dry_run:
        count, nbytes = cache.unused()
        print(
            _("{count:,} datasets that no cell uses: {nbytes} of {root}").format(
                count=count, nbytes=format_size(nbytes), root=cache.root
            )
        )
        for uri in unused_scratch():
            print(_("{uri}: its run has ended").format(uri=uri))
        print(_("nothing was removed"))
        return
    freed = cache.evict_unused()
    print(_("freed: {freed} of {root}").format(freed=format_size(freed), root=cache.root))
    if (left := remove_unfinished()) != Leftovers():
        print(_("removed: {left}").format(left=left))
        print(*left.failures, sep="\n", end="")
    for found in reap_scratch():
        state = _("removed") if found.gone else found.error
        print(f"{found.what}: {state} ({found.why})")
