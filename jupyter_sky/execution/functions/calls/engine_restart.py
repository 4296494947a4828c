"""Restart of an engine whose call does not stop."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from jupyter_sky.base.errors import SkyError

if TYPE_CHECKING:
    from jupyter_sky.execution.functions.calls.nodes import PoolNode

KILL_SECONDS = 5.0
"""Time for the controller to report that a killed engine is gone."""


def restart_engine(
    node: PoolNode,
    engine: str,
    notify: Callable[[], None],
    on_loss: Callable[[PoolNode], None],
    why: str,
) -> None:
    """Ask the controller to kill an engine, in a thread; call `notify` before, `on_loss` after."""

    def ask() -> None:
        with contextlib.suppress(Exception):  # such as a stderr that is closed
            notify()
        with contextlib.suppress(SkyError):  # a lost cluster is reported elsewhere
            client = node.connection.client
            if client.engines_by_rank.get(node.cluster_rank) == engine:  # and not the next one
                ranks = [node.cluster_rank]
                node.connection.ask_controller("kill", run=None, ranks=ranks, why=why)
            until = time.monotonic() + KILL_SECONDS
            while (
                client.engines_by_rank.get(node.cluster_rank) == engine and time.monotonic() < until
            ):
                time.sleep(0.02)
            on_loss(node)

    threading.Thread(target=ask, name="sky-kill", daemon=True).start()
