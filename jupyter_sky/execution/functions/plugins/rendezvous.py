"""Rendezvous of the nodes of a broadcast before its call begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_sky.base.errors import SkyUsageError, SkyWorldChanged
from jupyter_sky.base.translation import _
from jupyter_sky.execution.functions.shared.collections import Barrier
from jupyter_sky.machines.engines.node.instance import instance_info, pool_facts

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.pools.pool import Pool

RENDEZVOUS_SECONDS = 120.0


def require_single_slot(pool: Pool, what: str) -> None:
    """Raise SkyUsageError for pools whose nodes run several calls at once.

    Raises
    ------
    SkyUsageError
        Two broadcasts side by side might meet crosswise, and wait for each other for ever.
    """
    if pool.worker.concurrency > 1:
        raise SkyUsageError(
            _(
                "plugins.{what}() needs each node for one call at a time, and "
                "Worker(concurrency={concurrency}) runs several"
            ).format(what=what, concurrency=pool.worker.concurrency),
            hint=_("leave concurrency out: a call may use all of its node"),
        )


def broadcast_id() -> str:
    """Return the id of the broadcast of this call; empty for a call of one node.

    Where there is one node, every call is for all.
    """
    return SINGLE_NODE if instance_info().total_nodes == 1 else pool_facts().get("broadcast", "")


SINGLE_NODE = "alone"


def is_restarted() -> bool:
    """Return whether the calls of this broadcast were all sent again: what they had is broken."""
    return "." in pool_facts().get("broadcast", "")


def exchange(what: str, value: Any) -> list[Any]:
    """Exchange a value with the other nodes of this broadcast.

    Raises
    ------
    threading.BrokenBarrierError
        A node is gone, or does not come.
    """
    nodes = instance_info().total_nodes
    if nodes == 1:
        return [value]
    return Barrier(f"jupyter_sky.{what}.{broadcast_id()}", nodes).exchange(
        value, RENDEZVOUS_SECONDS
    )


def must_create(what: str, held: str) -> bool:
    """Return whether the nodes must create a singleton now, such as a process group.

    Parameters
    ----------
    held
        Id of the current singleton of this process; empty before the first.

    Raises
    ------
    SkyWorldChanged
        Some are in it and some are not.
    """
    worlds = {*exchange(what, held)}
    if len(worlds) > 1:
        raise SkyWorldChanged(
            _("a node was lost and is not in the others' {what} world").format(what=what)
        )
    return worlds == {""}
