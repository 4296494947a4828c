"""Processes of a data engine on a node (``python -m``), children of its controller or node agent.

    python -m jupyter_sky.machines.services < ORDER

They end with this process, and this one with its parent.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType

from jupyter_sky.base.errors import SkyError
from jupyter_sky.base.lazy_names import load_class
from jupyter_sky.base.remote.supervisor import PR_SET_PDEATHSIG, prctl
from jupyter_sky.machines.engines.node.service_orders import EngineOrder, write_state
from jupyter_sky.machines.services.engine_node import EngineNode

NODES = {"spark": "spark_node:SparkNode", "dask": "dask_node:DaskNode", "ray": "ray_node:RayNode"}
"""Module and class of what runs on a node, by data engine."""


def make_node(order: EngineOrder) -> EngineNode:
    """Return what an order asks for; raise SkyError where the node is too small for it."""
    return load_class(f"{__package__}.{NODES[order.engine]}")(order)


def main() -> None:
    """Run the processes that the order on the standard input names."""
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    order = EngineOrder(**json.loads(sys.stdin.readline()))
    order.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if order.cpus:
        os.sched_setaffinity(0, order.cpus)
    try:
        node = make_node(order)
    except SkyError as error:
        write_state(order, "failed", error.message, error.hint)
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        node.is_stopping = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # is for cells
    try:
        node.run()
    except SkyError as error:
        write_state(order, "failed", error.message, error.hint)
    finally:
        node.stop()


if __name__ == "__main__":
    main()
