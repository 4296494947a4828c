"""Clocks of stores, asked for where a signature was refused as too early or too late."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol, runtime_checkable

from jupyter_sky.machines.storage.stores.errors import SkyStorageError
from jupyter_sky.machines.storage.stores.store import Store


@runtime_checkable
class ClockedStore(Protocol):
    """A store whose requests are signed for a time by its own clock."""

    def learn_clock(self) -> bool:
        """Ask the store for its time; return whether another one was assumed."""
        ...


def learn_clocks(*stores: Store) -> bool:
    """Ask stores for their time; return whether another one was assumed of any."""
    wrong = False
    for store in stores:
        if isinstance(store, ClockedStore):
            with suppress(SkyStorageError):
                wrong = store.learn_clock() or wrong
    return wrong
