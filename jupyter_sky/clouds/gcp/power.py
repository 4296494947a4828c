"""Machines of Compute Engine that are stopped by a request and started again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Event
from typing import Any

from jupyter_sky.clouds.gcp.clients import GcpClients
from jupyter_sky.clouds.provider.naming import group_ids
from jupyter_sky.clouds.provider.parallel_requests import send_parallel


def change_power(
    access: GcpClients, method: str, ids: Sequence[str], is_transient: Callable[[Exception], bool]
) -> None:
    """Stop or start machines, and wait for the operations: they may be refused late.

    Parameters
    ----------
    method
        ``stop_unary`` or ``start_unary``.
    ids
        As ``zone/name``.
    """

    def ask(zone: str, name: str, _: Event) -> Any:
        return access.call("Instances", method, zone=zone, instance=name)

    for zone, names in group_ids(ids).items():
        asked = send_parallel([partial(ask, zone, name) for name in names], is_transient)
        access.await_operations(asked, Event(), zone)
