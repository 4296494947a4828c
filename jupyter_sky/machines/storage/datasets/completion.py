"""Completion of addresses: schemes, buckets that were used before, and keys."""

from __future__ import annotations

import threading
import time
from functools import lru_cache

from jupyter_sky.machines.storage.stores.listing import UsageMemory, complete_keys
from jupyter_sky.machines.storage.stores.stores import open_store
from jupyter_sky.machines.storage.stores.uri import SCHEMES, StorageUri

MOST_NAMES = 100
WAIT_SECONDS = 1.0
"""Time after which a store that has not answered completes nothing; its answer is kept."""
KEPT_SECONDS = 30


def complete_address(text: str, memory: UsageMemory) -> list[str]:
    """Return the addresses that begin with a text, as far as can be known within a second.

    Parameters
    ----------
    text
        Beginning of an address.
    memory
        Sizes that were measured: their buckets are known by name.

    Examples
    --------
    >>> from pathlib import Path
    >>> complete_address("s", UsageMemory(Path("nowhere")))
    ['s3://', 'ssh://']
    """
    scheme, colon, rest = text.partition("://")
    if not colon:
        return [f"{each}://" for each in SCHEMES if each != "file" and each.startswith(text)]
    bucket, slash, _ = rest.partition("/")
    if not slash or (scheme in ("az", "r2") and rest.count("/") < 2):
        known = {f"{each}/" for each in memory.buckets()}
        return sorted(each for each in known if each.startswith(text))
    return _keys_within_limit(text) if bucket else []


def _keys_within_limit(text: str) -> list[str]:
    """Return keys, or nothing where the store takes longer than a keystroke may."""
    found: list[str] = []

    def ask() -> None:
        found.extend(_keys(text, int(time.monotonic() / KEPT_SECONDS)))

    thread = threading.Thread(target=ask, name="sky-completion", daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    return list(found)


@lru_cache(256)
def _keys(text: str, _period: int) -> tuple[str, ...]:
    try:
        uri = StorageUri.parse(text)
        keys = complete_keys(open_store(uri), uri.key, MOST_NAMES)
    except Exception:  # a completion has nobody to tell
        return ()
    head = text[: len(text) - len(uri.key)]
    return tuple(head + key for key in keys)
