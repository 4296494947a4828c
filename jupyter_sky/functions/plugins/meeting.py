"""Whether all nodes take part in a call, and what they agree on before it begins."""

from __future__ import annotations

from typing import Any

from ..collections import Barrier
from ..instance import facts, instance_info

MEET_SECONDS = 120.0


def broadcast() -> str:
    """Return what names the call that all nodes have been sent; empty for a call of one node."""
    return facts().get("broadcast", "") if instance_info().total_nodes > 1 else ""


def exchange(what: str, value: Any) -> list[Any]:
    """Tell the other nodes of this broadcast something, and hear what they have to tell.

    Raises
    ------
    threading.BrokenBarrierError
        A node is gone, or does not come.
    """
    name = f"jupyter_sky.{what}.{broadcast()}"
    return Barrier(name, instance_info().total_nodes).exchange(value, MEET_SECONDS)
