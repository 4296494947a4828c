"""Conditions of writes, looked at after a store has refused a request that had several."""

from __future__ import annotations

from jupyter_sky.machines.storage.stores.errors import SkyObjectMissing
from jupyter_sky.machines.storage.stores.store import Condition, Store


def holds(condition: Condition, store: Store, key: str) -> bool:
    """Return whether the condition of a write of `key` holds now.

    A copy inside a store has a condition for its source, too, and one answer for both.
    """
    if not condition.absent and not condition.version:
        return True
    try:
        there = store.stat(key).version
    except SkyObjectMissing:
        return not condition.version
    return not condition.absent and condition.version == there
