"""Verb ``storage``: data in object stores, listed, measured, copied and deleted."""

from __future__ import annotations

from typing import Any

from ..errors import SkyCancelled, SkyUsageError
from ..quantities import format_size
from .arguments import option, word
from .confirmation import ask
from .declaration import verb


@verb("storage", "storage ls s3://imagenet/train/", needs_session=False)
def show_storage() -> None:
    """List, measure, copy or delete data in object stores and folders."""
    raise SkyUsageError(
        "%sky storage: which command?",
        hint="ls, du, cp, rm or gc, such as %sky storage ls s3://imagenet/train/",
    )


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
        answer = ask(f"Delete {count:,} objects ({size}) below {data.uri}? [y/N] ")
        if answer is None:
            raise SkyUsageError(
                f"{data.uri}: {count:,} objects ({size}) would be deleted",
                hint=f"%sky storage rm {data.uri} --yes",
            )
        if answer.strip().lower() not in ("y", "yes"):
            raise SkyCancelled("nothing was deleted")
    print(f"deleted: {data.delete():,} objects of {data.uri}")


@verb("storage gc", "storage gc", needs_session=False)
def free_cache() -> None:
    """Remove data from this machine's cache that no cell uses."""
    from ..storage.local_cache import data_cache

    cache = data_cache()
    freed = cache.evict_unused()
    print(f"freed: {format_size(freed)} of {cache.root}")
